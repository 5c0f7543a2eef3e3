#include "tandem/job/output_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <climits>
#include <functional>

#include "tandem/comm/texts.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/core/volume.h"
#include "tandem/net/socket.h"
#include "tandem/trainer/checkpoint.h"

namespace tandem::job {
namespace {

namespace fs = std::filesystem;
using net::FileDescriptor;
using nlohmann::json;

// After its end a job is recorded for pods that restart meanwhile.
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

// Characters of `text` from `at` on that are a number of `digits` digits in [least, most]; 0: none.
std::size_t match_number(std::string_view text, std::size_t at, std::size_t digits,
                         std::int64_t least, std::int64_t most) {
  const std::string_view word = text.substr(std::min(at, text.size()), digits);
  if (word.size() < digits || !is_number(word)) return 0;
  std::int64_t value = 0;
  std::from_chars(word.data(), word.data() + word.size(), value);
  return value >= least && value <= most ? digits : 0;
}

std::size_t match_month_name(std::string_view text, std::size_t at) {
  constexpr std::string_view kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                          "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::string_view word = text.substr(std::min(at, text.size()), 3);
  return std::find(std::begin(kMonths), std::end(kMonths), word) != std::end(kMonths) ? 3 : 0;
}

// One letter of a pattern, those of date(1); 0: it does not match.
std::size_t match_part(char part, std::string_view text, std::size_t at) {
  switch (part) {
    case 'Y':
      return match_number(text, at, 4, 1970, 2099);
    case 'm':
      return match_number(text, at, 2, 1, 12);
    case 'd':
      return match_number(text, at, 2, 1, 31);
    case 'b':
      return match_month_name(text, at);
    case 'H':
      return match_number(text, at, 2, 0, 23);
    case 'M':
    case 'S':
      return match_number(text, at, 2, 0, 59);
    case 's':  // 2017 to 2096
      return match_number(text, at, 10, 1'500'000'000, 4'000'000'000);
    default:
      return 0;
  }
}

// Characters of `text` from `at` on that match `pattern`: '?' is a separator that may be
// absent, '-' one that must be there. Nothing: no match.
std::optional<std::size_t> match(std::string_view pattern, std::string_view text, std::size_t at) {
  constexpr std::string_view kSeparators = "-_.:T ";
  const std::size_t begin = at;
  for (const char part : pattern) {
    if (part == '?' || part == '-') {
      const bool there = at < text.size() && kSeparators.find(text[at]) != std::string_view::npos;
      if (!there && part == '-') return std::nullopt;
      at += there ? 1 : 0;
      continue;
    }
    const std::size_t size = match_part(part, text, at);
    if (size == 0) return std::nullopt;
    at += size;
  }
  return at - begin;
}

// Characters of the date, with its time, that begins at text[at]; 0: none does.
std::size_t match_date(std::string_view text, std::size_t at) {
  constexpr std::string_view kDays[] = {"Y?m?d", "d-m-Y", "m-d-Y", "d?b?Y", "b?d?Y", "b?d", "s"};
  constexpr std::string_view kTimes[] = {"?H?M?S", "?H?M", ""};
  if (at > 0 && is_digit(text[at - 1]) && is_digit(text[at])) return 0;
  for (const std::string_view day : kDays) {
    for (const std::string_view time : kTimes) {
      const auto size = match(std::string(day) + std::string(time), text, at);
      const bool whole = size && (at + *size == text.size() || !is_digit(text[at + *size]));
      if (whole) return *size;
    }
  }
  return 0;
}

// Every date as one '#'.
std::string without_dates(std::string_view name) {
  std::string text;
  for (std::size_t at = 0; at < name.size();) {
    const std::size_t size = match_date(name, at);
    text += size > 0 ? '#' : name[at];
    at += std::max<std::size_t>(size, 1);
  }
  return text;
}

// `agents`: the folder of the agent of a job whose name is unique to this start. There the output
// directory is part of the name, because a script may run several jobs.
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
  bool over = false;  // finished, and longer ago than the time allowed for a restarted pod
};

// By the clock that stamps the file: a server's clock, or this machine's clock, may be wrong.
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

// The text of a file that other users may have created: nothing for a link, a pipe, a device, or a
// file longer than a record.
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
  } catch (const std::exception&) {  // another program's, or damaged: the job begins anew
    return std::nullopt;
  }
}

// In the file system's own clock, comparable only with itself; 0 for a missing file.
std::int64_t change_time(const fs::path& path) {
  std::error_code error;
  const auto time = fs::last_write_time(path, error);
  return error ? 0 : static_cast<std::int64_t>(time.time_since_epoch().count());
}

}  // namespace

void set_output_dir(Request& request, const std::string& output_dir) {
  if (!request.asked_output_dir) request.asked_output_dir = request.arguments.training.output_dir;
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
  const fs::path left = plain(one);
  const fs::path right = plain(other);
  return left.parent_path() == right.parent_path() && left != right &&
         without_dates(left.filename().native()) == without_dates(right.filename().native());
}

OutputDirectory::OutputDirectory(Request& request, const Environment& environment,
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

void OutputDirectory::look_back(Request& request, Console& console) {
  const auto record = read_record(file_);
  const std::string own = request.arguments.training.output_dir;
  if (!record || record->over) return;
  const bool same_directory = plain(record->output_dir) == plain(own);
  if (!same_directory &&
      (!only_dates_differ(record->output_dir, own) || !is_directory_there(record->output_dir)))
    return;
  if (record->arguments != arguments_) {
    if (!same_directory) {
      console.fact("note", fmt::format("this job wrote to '{}' with other flags before; with these "
                                       "it begins in '{}'",
                                       record->output_dir, own));
    }
    return;
  }
  same_job_ = true;
  foreign_ = record->foreign;
  if (same_directory) return;
  set_output_dir(request, record->output_dir);
  console.fact("note",
               fmt::format("--output_dir: this job continues in '{}', where it began, not in "
                           "'{}' ({})",
                           record->output_dir, own, file_.native()));
}

bool OutputDirectory::is_foreign(const fs::path& checkpoint) const {
  const auto found = foreign_.find(checkpoint.filename().native());
  return found != foreign_.end() && found->second == change_time(checkpoint);
}

void OutputDirectory::keep() {
  if (!same_job_) {
    for (const fs::path& checkpoint : trainer::complete_checkpoints(output_dir_))
      foreign_[checkpoint.filename().native()] = change_time(checkpoint);
  }
  write(false);
}

void OutputDirectory::write(bool finished) const {
  if (file_.empty()) return;
  try {
    const json record = {{"output_dir", output_dir_},
                         {"arguments", arguments_},
                         {"foreign", foreign_},
                         {"finished", finished}};
    write_file(file_, record.dump(2) + "\n");
  } catch (const IoError&) {  // the next start finds no record, as without a file
  }
}

}  // namespace tandem::job
