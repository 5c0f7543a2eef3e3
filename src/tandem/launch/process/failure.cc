#include "tandem/launch/process/failure.h"

#include <algorithm>
#include <csignal>
#include <fstream>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/core/memory_limits.h"

namespace tandem::launch {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxErrorFile = 1 << 20;
constexpr std::size_t kMaxMessage = 4096;
constexpr int kPeerFailed = 200;  // docs/errors.md

// Joins a text of several lines into one, at most 400 bytes of it.
std::string one_line(const std::string& text) {
  std::string line;
  for (const char c : text) {
    const bool blank = c == ' ' || c == '\n' || c == '\t' || c == '\r';
    if (!blank || (!line.empty() && line.back() != ' ')) line += blank ? ' ' : c;
    if (line.size() == 400) return line + " ...";
  }
  return line;
}

double seconds_of(const json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return 0;
  return std::atof(value.get<std::string>().c_str());
}

// {"message": "…", "timestamp": …} or {"message": {"message": "…", "extraInfo": {"timestamp": …}}}.
ErrorFile interpret(const json& data) {
  ErrorFile file;
  if (!data.is_object() || !data.contains("message")) return file;
  const json& message = data["message"];
  if (message.is_string()) {
    file.message = message.get<std::string>();
    if (data.contains("timestamp")) file.time = seconds_of(data["timestamp"]);
  } else if (message.is_object()) {
    if (message.contains("message") && message["message"].is_string())
      file.message = message["message"].get<std::string>();
    const auto extra = message.find("extraInfo");
    if (extra != message.end() && extra->is_object() && extra->contains("timestamp"))
      file.time = seconds_of((*extra)["timestamp"]);
  }
  file.message.resize(std::min(file.message.size(), kMaxMessage));
  return file;
}

std::string_view hint(const Failure& failure) {
  if (!failure.message.empty()) return "";
  switch (failure.ending.signal) {
    case SIGKILL:
      if (failure.out_of_memory)
        return "; memory ran out: the kernel has killed a process of this control group for that";
      return "; out of memory is the usual reason: see dmesg, or the pod's events";
    case SIGBUS:
      return "; a full /dev/shm is the usual reason";
    case SIGSEGV:
    case SIGABRT:
      return "; see its output above";
    default:
      return "";
  }
}

}  // namespace

MemoryKills::MemoryKills(std::filesystem::path root)
    : root_(std::move(root)), explained_(out_of_memory_kills(root_)) {}

bool MemoryKills::explain(const Ending& ending) {
  if (ending.signal != SIGKILL || out_of_memory_kills(root_) <= explained_) return false;
  ++explained_;
  return true;
}

std::optional<ErrorFile> read_error_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::string text(kMaxErrorFile, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  const json data = try_parse_json(text);
  if (text.empty() || data.is_discarded()) return std::nullopt;
  ErrorFile file = interpret(data);
  file.text = std::move(text);
  return file;
}

std::string error_file_text(const std::string& message, const std::string& details, long seconds) {
  const json text = {
      {"message",
       {{"message", message},
        {"extraInfo", {{"py_callstack", details}, {"timestamp", std::to_string(seconds)}}}}}};
  return text.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string error_file_text(const Failure& failure) {
  return error_file_text(describe(failure), "", static_cast<long>(failure.time));
}

bool is_victim(const Ending& ending) { return ending.code == kPeerFailed; }

const Failure& root_failure(const std::vector<Failure>& failures) {
  TANDEM_CHECK(!failures.empty());
  const auto cause = std::find_if(failures.begin(), failures.end(),
                                  [](const Failure& failure) { return !failure.victim; });
  return cause == failures.end() ? failures.front() : *cause;
}

std::string describe(const Failure& failure) {
  return fmt::format("rank {} (local rank {}, pid {}) on {} {}{}{}{}", failure.rank,
                     failure.local_rank, failure.pid, failure.host, failure.ending.text(),
                     failure.message.empty() ? "" : ": ", one_line(failure.message), hint(failure));
}

std::vector<std::string> failure_report(const std::vector<Failure>& failures) {
  std::vector<std::string> lines;
  const Failure& root = root_failure(failures);
  for (const Failure& failure : failures) {
    if (&failure == &root) continue;
    lines.push_back((failure.victim ? "failed because of that: " : "failed too: ") +
                    describe(failure));
  }
  lines.push_back("root failure: " + describe(root));
  return lines;
}

}  // namespace tandem::launch
