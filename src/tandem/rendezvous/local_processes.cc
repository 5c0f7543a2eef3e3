#include "tandem/rendezvous/local_processes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>

#include "tandem/core/error.h"
#include "tandem/core/file.h"

namespace tandem::rendezvous {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr const char* kMarkName = "tandem-waits-for-ranks";
constexpr milliseconds kProcessLook{1000};

std::optional<int> to_int(std::string_view text) {
  int value = 0;
  const auto end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return value;
}

// A file of a process. Nothing if it has exited or belongs to another user.
std::string read_of(int process, const char* file) {
  try {
    return read_file_if_exists(fs::path("/proc") / std::to_string(process) / file).value_or("");
  } catch (const Error&) {
    return "";
  }
}

struct ProcessState {
  int parent = 0;
  char letter = '?';
};

// "4711 (any name) S 4710 …"
std::optional<ProcessState> state_of(int process) {
  const std::string text = read_of(process, "stat");
  const std::size_t at = text.rfind(") ");
  if (at == std::string::npos || text.size() < at + 5) return std::nullopt;
  const std::string_view rest = std::string_view(text).substr(at + 4);
  const auto parent = to_int(rest.substr(0, rest.find(' ')));
  if (!parent) return std::nullopt;
  return ProcessState{*parent, text[at + 2]};
}

std::map<int, ProcessState> all_processes() {
  std::map<int, ProcessState> processes;
  std::error_code unreadable;
  for (fs::directory_iterator entry("/proc", unreadable), end; entry != end;
       entry.increment(unreadable)) {
    const auto process = to_int(entry->path().filename().native());
    const auto state = process ? state_of(*process) : std::nullopt;
    if (state) processes[*process] = *state;
  }
  return processes;
}

// The rank by the environment with which the process was started.
std::optional<int> rank_of(int process, const RankVariables& wanted) {
  const std::string text = read_of(process, "environ");
  std::map<std::string_view, std::string_view> found;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view variable = rest.substr(0, rest.find('\0'));
    const std::size_t equals = std::min(variable.find('='), variable.size());
    found[variable.substr(0, equals)] = variable.substr(std::min(equals + 1, variable.size()));
    rest.remove_prefix(std::min(rest.size(), variable.size() + 1));
  }
  for (const auto& [name, value] : wanted.same)
    if (found[name] != value) return std::nullopt;
  return to_int(found[wanted.rank]);
}

bool of_this_user(int process) {
  struct stat status {};
  const std::string folder = fmt::format("/proc/{}", process);
  return ::stat(folder.c_str(), &status) == 0 && status.st_uid == ::geteuid();
}

int parent_of(int process, const std::map<int, ProcessState>& processes) {
  const auto found = processes.find(process);
  return found == processes.end() ? 0 : found->second.parent;
}

// The nearest ancestor of this process that is not a rank; 0: not visible.
int manager(const std::map<int, ProcessState>& processes, const RankVariables& variables) {
  int process = ::getpid();
  while (process > 0 && rank_of(process, variables)) process = parent_of(process, processes);
  return process;
}

bool descends(int process, int ancestor, const std::map<int, ProcessState>& processes) {
  for (std::size_t depth = 0; process > 0 && depth < processes.size(); ++depth) {
    process = parent_of(process, processes);
    if (process == ancestor) return true;
  }
  return false;
}

bool has_mark(int process) {
  std::error_code unreadable;
  for (fs::directory_iterator entry(fs::path("/proc") / std::to_string(process) / "fd", unreadable),
       end;
       entry != end; entry.increment(unreadable)) {
    std::error_code closed;
    if (fs::read_symlink(entry->path(), closed).native().find(kMarkName) != std::string::npos)
      return true;
  }
  return false;
}

std::string name_of(const LocalProcess& rank) {
  return fmt::format("rank {} (process {} of host {})", rank.rank, rank.process, net::host_name());
}

}  // namespace

std::vector<LocalProcess> find_local_processes(const RankVariables& variables) {
  if (variables.rank.empty()) return {};
  const std::map<int, ProcessState> processes = all_processes();
  const int root = manager(processes, variables);
  std::map<int, LocalProcess> ranks;
  std::set<int> present;  // a running process waits for it
  for (const auto& [process, state] : processes) {
    if (root <= 0 || state.letter == 'Z' || !descends(process, root, processes)) continue;
    const auto rank = of_this_user(process) ? rank_of(process, variables) : std::nullopt;
    if (!rank) continue;
    LocalProcess& local_process =
        ranks.try_emplace(*rank, LocalProcess{*rank, process}).first->second;
    const bool stopped = state.letter == 'T' || state.letter == 't';
    const bool waits = has_mark(process);
    local_process.waits = local_process.waits || waits;
    if (waits && !stopped) present.insert(*rank);
    if (!stopped) continue;
    local_process.stopped = true;
    local_process.process = process;
  }
  std::vector<LocalProcess> list;
  for (auto& [rank, local_process] : ranks) {
    if (present.contains(rank)) local_process.stopped = false;
    list.push_back(local_process);
  }
  return list;
}

WaitingMark::WaitingMark() : file_(::memfd_create(kMarkName, MFD_CLOEXEC)) {}

void WaitingMark::stay() { (void)::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0); }

void LocalProcessWatch::check(const std::function<bool(const LocalProcess&)>& matters) {
  const auto now = Clock::now();
  if (limit_.count() == 0 || now - looked_ < kProcessLook) return;
  looked_ = now;
  std::map<int, Clock::time_point> stopped;
  for (const LocalProcess& rank : find_local_processes(variables_)) {
    if (!rank.stopped || !matters(rank)) continue;
    const auto known = stopped_since_.find(rank.rank);
    const auto since = known == stopped_since_.end() ? now : known->second;
    stopped[rank.rank] = since;
    if (now - since < limit_) continue;
    raise<CommError>(
        "{} keeps the ranks from connecting: it has been stopped for {:.0f} s; send it SIGCONT or "
        "detach the debugger (TANDEM_STALL_TIMEOUT sets the limit)",
        name_of(rank), std::chrono::duration<double>(now - since).count());
  }
  stopped_since_ = std::move(stopped);
}

std::string LocalProcessWatch::missing() const {
  const std::vector<LocalProcess> ranks = find_local_processes(variables_);
  std::string text;
  for (const LocalProcess& rank : ranks) {
    if (rank.waits) continue;
    text += fmt::format("{}{} has not connected", text.empty() ? "" : ", ", name_of(rank));
  }
  if (ranks.empty() || !text.empty()) return text;
  return fmt::format("all {} ranks of host {} have connected; a rank of another host is missing",
                     ranks.size(), net::host_name());
}

}  // namespace tandem::rendezvous
