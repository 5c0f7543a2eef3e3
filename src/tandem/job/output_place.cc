#include "tandem/job/output_place.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <climits>
#include <functional>

#include "tandem/comm/api/texts.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/rendezvous/socket.h"
#include "tandem/trainer/checkpoint.h"

namespace tandem::job {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using rendezvous::FileDescriptor;

// After its end a job is remembered for pods that are started again meanwhile.
constexpr std::chrono::minutes kRemembered{10};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
}

// The part behind the last dash, and the text without it.
std::pair<std::string_view, std::string_view> split_last(std::string_view text) {
  const std::size_t dash = text.rfind('-');
  if (dash == std::string_view::npos || dash == 0) return {text, {}};
  return {text.substr(0, dash), text.substr(dash + 1)};
}

// "qa" of "qa-worker-3", "qa-3", "qa-node-0-3"; empty for a name without a number at its end.
std::string_view job_of_pod(std::string_view host) {
  constexpr std::string_view kRoles[] = {"worker", "master", "launcher", "node"};
  const auto [before_index, index] = split_last(host);
  if (!is_number(index)) return {};
  const auto without_role = [&](std::string_view text) -> std::string_view {
    const auto [job, role] = split_last(text);
    return std::find(std::begin(kRoles), std::end(kRoles), role) != std::end(kRoles) ? job : text;
  };
  const auto [before_pair, first_index] = split_last(before_index);
  if (is_number(first_index) && without_role(before_pair) != before_pair)
    return without_role(before_pair);
  return without_role(before_index);
}

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  ::gethostname(name.data(), HOST_NAME_MAX);
  return name.data();
}

// Without a slash at the end, which would make the last name empty.
fs::path plain(const fs::path& path) {
  const fs::path normal = path.lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

// Every run of digits as one '#'.
std::string without_numbers(const std::string& name) {
  std::string text;
  for (const char c : name) {
    if (!is_digit(c)) text += c;
    if (is_digit(c) && (text.empty() || text.back() != '#')) text += '#';
  }
  return text;
}

// `agents`: the folder that goes with the agent of a job whose name no other start can have. There
// the place is part of the name, for a script may run several jobs.
fs::path record_file(const fs::path& output_dir, const std::string& job,
                     const std::optional<std::string>& agents) {
  const fs::path beside = plain(output_dir).parent_path();
  if (agents)
    return fs::path(*agents) / fmt::format("{:016x}", std::hash<std::string>{}(beside.native()));
  std::string name = job;
  for (char& c : name) {
    const bool plain_character =
        std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.' || c == '_';
    if (!plain_character) c = '_';
  }
  return beside / fmt::format(".tandem-job-{}", name);
}

struct Record {
  std::string output_dir;
  std::string arguments;
  std::map<std::string, std::int64_t> foreign;
  bool over = false;  // finished, and longer ago than anybody waits for a pod
};

// By the clock that stamps the file: a server's, and the clock of this machine may be off.
fs::file_time_type now_beside(const fs::path& file) {
  const fs::path probe = file.native() + ".clock";
  std::error_code error;
  fs::remove(probe, error);
  {
    const FileDescriptor made(
        ::open(probe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (!made) return fs::file_time_type::clock::now();
  }
  const auto now = fs::last_write_time(probe, error);
  const bool known = !error;
  fs::remove(probe, error);
  return known ? now : fs::file_time_type::clock::now();
}

// The text of a file that others may have put there: nothing for a link, a pipe, a device, or more
// than a record has.
std::optional<std::string> read_small_file(const fs::path& path) {
  constexpr std::size_t kMost = 1 << 20;
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_size > static_cast<off_t>(kMost))
    return std::nullopt;
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::read(file.get(), text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return std::nullopt;
    done += static_cast<std::size_t>(count);
  }
  return text;
}

std::optional<Record> read_record(const fs::path& file) {
  try {
    const auto text = read_small_file(file);
    if (!text) return std::nullopt;
    const json values = parse_json(*text);
    Record record{values.at("output_dir"), values.at("arguments"),
                  values.value("foreign", decltype(Record::foreign){}), false};
    if (values.at("finished").get<bool>()) {
      const auto age = now_beside(file) - fs::last_write_time(file);
      record.over = age > kRemembered || age < -kRemembered;
    }
    return record;
  } catch (const std::exception&) {  // of somebody else, or damaged: the job begins anew
    return std::nullopt;
  }
}

// In the file system's own clock, to be compared with itself only; 0 for what is not there.
std::int64_t change_time(const fs::path& path) {
  std::error_code error;
  const auto time = fs::last_write_time(path, error);
  return error ? 0 : static_cast<std::int64_t>(time.time_since_epoch().count());
}

}  // namespace

void set_output_dir(Request& request, const std::string& output_dir) {
  request.arguments.training.output_dir = output_dir;
  request.values["output_dir"] = output_dir;
}

std::optional<std::string> job_name(const Environment& environment, std::string_view host_name) {
  const std::string run = environment.get("TORCHELASTIC_RUN_ID").value_or("none");
  if (run != "none") return run;
  const std::string_view job = job_of_pod(host_name.substr(0, host_name.find('.')));
  if (!environment.get("KUBERNETES_SERVICE_HOST") || job.empty()) return std::nullopt;
  return std::string(job);
}

bool only_dates_differ(const fs::path& one, const fs::path& other) {
  constexpr int kDigitsOfDate = 6;
  const fs::path left = plain(one);
  const fs::path right = plain(other);
  const std::string name = right.filename().native();
  return left.parent_path() == right.parent_path() &&
         without_numbers(left.filename().native()) == without_numbers(name) &&
         std::count_if(name.begin(), name.end(), is_digit) >= kDigitsOfDate;
}

OutputPlace::OutputPlace(Request& request, const Environment& environment,
                         comm::Communicator& communicator, Console& console) {
  const std::string own = request.arguments.training.output_dir;
  Request others = request;
  others.values.erase("output_dir");
  arguments_ = others.lines();
  if (communicator.rank() == 0) {
    if (const auto job = job_name(environment, host_name())) {
      file_ = record_file(own, *job, environment.get("TANDEM_JOB_RECORDS"));
      look_back(request, console);
    }
    output_dir_ = request.arguments.training.output_dir;
  }
  output_dir_ = comm::broadcast_text(communicator, output_dir_, 0);
  if (communicator.rank() == 0 || own == output_dir_) return;
  set_output_dir(request, output_dir_);
  console.library_line(
      "INFO", "job",
      fmt::format("--output_dir: rank 0's '{}' counts on all ranks, not '{}'", output_dir_, own));
}

void OutputPlace::look_back(Request& request, Console& console) {
  const auto record = read_record(file_);
  const std::string own = request.arguments.training.output_dir;
  if (!record || record->over) return;
  const bool same_place = plain(record->output_dir) == plain(own);
  if (!same_place && !only_dates_differ(record->output_dir, own)) return;
  if (record->arguments != arguments_) {
    if (!same_place) {
      console.fact("note", fmt::format("this job wrote to '{}' with other flags before; with these "
                                       "it begins in '{}'",
                                       record->output_dir, own));
    }
    return;
  }
  same_job_ = true;
  foreign_ = record->foreign;
  if (same_place) return;
  set_output_dir(request, record->output_dir);
  console.fact("note", fmt::format("--output_dir: this job goes on in '{}', where it began, not in "
                                   "'{}' ({})",
                                   record->output_dir, own, file_.native()));
}

bool OutputPlace::is_foreign(const fs::path& checkpoint) const {
  const auto found = foreign_.find(checkpoint.filename().native());
  return found != foreign_.end() && found->second == change_time(checkpoint);
}

void OutputPlace::keep() {
  if (!same_job_) {
    for (const fs::path& checkpoint : trainer::complete_checkpoints(output_dir_))
      foreign_[checkpoint.filename().native()] = change_time(checkpoint);
  }
  write(false);
}

void OutputPlace::write(bool finished) const {
  if (file_.empty()) return;
  try {
    const json record = {{"output_dir", output_dir_},
                         {"arguments", arguments_},
                         {"foreign", foreign_},
                         {"finished", finished}};
    write_file(file_, record.dump(2) + "\n");
  } catch (const IoError&) {  // the next start does not know of this one, as without a file
  }
}

}  // namespace tandem::job
