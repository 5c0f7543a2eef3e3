#include "tandem/launch/run/attempt_logs.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "tandem/core/error.h"
#include "tandem/launch/run/program.h"
#include "tandem/net/socket.h"

namespace tandem::launch {
namespace {

namespace fs = std::filesystem;
using net::FileDescriptor;

bool any(const StreamChoice& choice) {
  return choice.all.out || choice.all.err ||
         std::any_of(choice.by_local_rank.begin(), choice.by_local_rank.end(),
                     [](const auto& entry) { return entry.second.out || entry.second.err; });
}

bool shown(const RunOptions& options, int local_rank) {
  const auto& filter = options.local_ranks_filter;
  return !filter || std::find(filter->begin(), filter->end(), local_rank) != filter->end();
}

fs::path make_folder(const fs::path& base, std::string name) {
  for (char& c : name) c = c == '/' ? '_' : c;
  std::error_code error;
  fs::create_directories(base, error);
  std::string path = (base / (name + "_XXXXXX")).string();
  if (error || ::mkdtemp(path.data()) == nullptr) {
    raise<ConfigError>("cannot make a folder for logs in '{}': {}; give another --log-dir",
                       base.string(), error ? error.message() : std::strerror(errno));
  }
  return path;
}

std::shared_ptr<FilteredFile> filtered_file(const fs::path& path,
                                            const std::vector<std::string>& needles) {
  if (needles.empty()) return nullptr;
  return std::make_shared<FilteredFile>(FilteredFile{open_log(path), needles});
}

// The prefix of a worker's tee'd lines: from the template, or torchrun's "[default0]:".
std::string line_prefix(const RunOptions& options, int rank, int local_rank,
                        const std::string& host) {
  if (options.log_line_prefix_template.empty())
    return fmt::format("[{}{}]:", options.role, local_rank);
  return substitute(options.log_line_prefix_template, {{"role_name", options.role},
                                                       {"rank", std::to_string(rank)},
                                                       {"local_rank", std::to_string(local_rank)},
                                                       {"hostname", host}});
}

}  // namespace

RunLogs::RunLogs(const RunOptions& options, const std::string& run_id, const fs::path& temporary)
    : options_(options) {
  nowhere_ = options.log_dir == "/dev/null";
  if (nowhere_) return;
  wanted_ = !options.log_dir.empty() || any(options.redirects) || any(options.tee);
  folder_ = make_folder(options.log_dir.empty() ? temporary : fs::path(options.log_dir),
                        options.log_dir.empty() ? "tandem_" + run_id : run_id);
}

RunLogs::~RunLogs() {
  std::error_code ignored;
  if (!wanted_ && !folder_.empty()) fs::remove_all(folder_, ignored);
}

void RunLogs::begin_attempt(int attempt) {
  if (nowhere_) return;
  attempt_ = folder_ / fmt::format("attempt_{}", attempt);
  std::error_code ignored;
  fs::remove_all(attempt_, ignored);
  std::error_code error;
  fs::create_directories(attempt_, error);
  if (error) throw io_error("cannot make", attempt_.string(), error.value());
  filtered_out_ =
      filtered_file(attempt_ / "filtered_stdout.log", options_.duplicate_stdout_filters);
  filtered_err_ =
      filtered_file(attempt_ / "filtered_stderr.log", options_.duplicate_stderr_filters);
}

fs::path RunLogs::error_file(int local_rank) const {
  return nowhere_ ? fs::path() : attempt_ / std::to_string(local_rank) / "error.json";
}

FileDescriptor RunLogs::open_stream(int rank, int local_rank, bool err, int console,
                                    OutputRelay& relay) {
  const Streams redirect = options_.redirects.of(local_rank);
  const Streams tee = options_.tee.of(local_rank);
  const bool teed = err ? tee.err : tee.out;
  const bool redirected = err ? redirect.err : redirect.out;
  const bool visible = shown(options_, local_rank);
  RelayedStream stream;
  stream.console = visible ? console : -1;
  stream.prefix = line_prefix(options_, rank, local_rank, net::host_name());
  stream.err = err;
  stream.filtered = visible ? (err ? filtered_err_ : filtered_out_) : nullptr;
  const bool json = options_.log_format == LogFormat::kJson;
  if (json) stream.json_rank = rank;
  if (nowhere_ || (!teed && !redirected)) {
    if (!visible || (nowhere_ && redirected))
      return FileDescriptor(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    return json ? relay.add(std::move(stream)) : FileDescriptor();
  }
  stream.file = attempt_ / std::to_string(local_rank) / (err ? "stderr.log" : "stdout.log");
  return teed ? relay.add(std::move(stream)) : open_log(stream.file);
}

RunLogs::Ends RunLogs::open(int rank, int local_rank, const Console& console, OutputRelay& relay) {
  if (!nowhere_) fs::create_directories(attempt_ / std::to_string(local_rank));
  return {open_stream(rank, local_rank, false, console.out, relay),
          open_stream(rank, local_rank, true, console.err, relay)};
}

}  // namespace tandem::launch
