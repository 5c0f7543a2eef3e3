#include "tandem/launch/mpirun/host_link.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/launch/mpirun/pipe.h"
#include "tandem/launch/run/program.h"
#include "tandem/net/event_loop.h"

namespace tandem::launch {
namespace {

using net::FileDescriptor;
using namespace std::chrono_literals;

constexpr auto kBeat = 1s;
constexpr auto kPause = 1s;  // before a host is tried again
constexpr std::size_t kMaxWords = 4096;
constexpr int kSshFailed = 255;

// ssh hands one text to a shell on the other side.
std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) c == '\'' ? text += "'\\''" : text += c;
  return text + "'";
}

// ssh's messages for a host that may answer later.
bool may_come(const std::string& words) {
  constexpr std::string_view kSigns[] = {"Connection refused",        "Could not resolve hostname",
                                         "Connection timed out",      "No route to host",
                                         "Connection reset",          "Connection closed by",
                                         "Temporary failure in name", "Network is unreachable"};
  return std::any_of(std::begin(kSigns), std::end(kSigns),
                     [&](std::string_view sign) { return words.find(sign) != std::string::npos; });
}

}  // namespace

std::vector<std::string> daemon_command(const MpiLine& line, const std::string& self,
                                        const std::string& word, const std::string& host,
                                        bool remote, const HostSettings& settings) {
  if (!remote) return {self, "mpirun", word};
  std::vector<std::string> command = {line.launcher_program.empty() ? "ssh"
                                                                    : line.launcher_program};
  // The host file takes precedence over options for all hosts; ssh uses the first of repeated
  // options.
  if (!settings.user.empty()) command.insert(command.end(), {"-l", settings.user});
  if (settings.port) command.insert(command.end(), {"-p", std::to_string(*settings.port)});
  command.insert(command.end(), line.launcher_words.begin(), line.launcher_words.end());
  for (const char* option : {"-x", "-T", "-oBatchMode=yes", "-oConnectTimeout=10"})
    command.emplace_back(option);
  command.emplace_back("--");  // a host whose name begins with "-" is not an option
  command.push_back(host);
  command.push_back(fmt::format("{} mpirun {}", quoted(self), word));
  return command;
}

HostLink::HostLink(HostLinkParts parts) : parts_(std::move(parts)), begun_(Clock::now()) {
  start();
}

void HostLink::start() {
  auto [daemon_in, to_daemon] = make_pipe();
  auto [from_daemon, daemon_out] = make_pipe();
  auto [words, daemon_err] = make_pipe();
  ::fcntl(words.get(), F_SETFL, O_NONBLOCK);
  WorkerStart start;
  start.command = parts_.command;
  const auto path = parts_.environment.find("PATH");
  const std::string program = find_executable(
      parts_.command.front(), path == parts_.environment.end() ? "/usr/bin:/bin" : path->second);
  if (program.empty()) {
    raise<ConfigError>(
        "there is no program '{}' to reach the other hosts with; install "
        "openssh-client, or see -launcher-exec",
        parts_.command.front());
  }
  start.command.front() = program;
  start.environment = parts_.environment;
  start.in = daemon_in.get();
  start.out = daemon_out.get();
  start.err = daemon_err.get();
  stream_.reset();
  process_ = std::make_unique<Worker>(start);
  stream_ = std::make_unique<DaemonStream>(std::move(from_daemon), std::move(to_daemon), false);
  err_ = std::move(words);
  if (!words_.empty()) earlier_words_ = std::exchange(words_, {});
  last_received_ = last_sent_ = Clock::now();
  for (const DaemonMessage& frame : early_) stream_->send(frame);
}

void HostLink::send(const DaemonMessage& frame) {
  if (!lost_.empty() || closed_) return;
  if (!stream_ || !stream_->greeted()) early_.push_back(frame);
  if (stream_) stream_->send(frame);
  last_sent_ = Clock::now();
}

std::optional<DaemonMessage> HostLink::take() {
  if (!stream_) return std::nullopt;
  auto frame = stream_->take();
  if (frame) last_received_ = Clock::now();
  return frame;
}

void HostLink::handle_lines() {
  char bytes[4096];
  while (err_) {
    const ssize_t count = ::read(err_.get(), bytes, sizeof bytes);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) return err_.reset();
    words_.append(bytes, static_cast<std::size_t>(count));
    if (words_.size() > kMaxWords) words_.erase(0, words_.size() - kMaxWords);
  }
}

std::string HostLink::last_words() const {
  std::string text = words_.empty() ? earlier_words_ : words_;
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  std::replace(text.begin(), text.end(), '\r', ' ');
  const std::size_t begin = text.rfind('\n');
  return begin == std::string::npos ? text : text.substr(begin + 1);
}

void HostLink::lose(const std::string& reason) {
  const std::string words = last_words();
  lost_ = words.empty() ? reason : fmt::format("{} ({})", words, reason);
}

// After a failed connection ssh is restarted until the limit.
void HostLink::look_at_end() {
  if (stream_->ended().empty()) return;
  if (stream_->greeted()) return lose(stream_->ended());
  const auto& ending = process_->poll();
  if (!ending && stream_->ended() != "its connection ended") return lose(stream_->ended());
  if (!ending) return;  // its messages are still to come
  handle_lines();
  const bool again = parts_.remote && ending->code == kSshFailed && may_come(words_) &&
                     Clock::now() - begun_ < kStartLimit;
  if (again) {
    again_at_ = Clock::now() + kPause;
    stream_.reset();
    return;
  }
  lose(ending->signal != 0
           ? signal_name(ending->signal)
           : fmt::format("{} exited with {}", parts_.command.front(), ending->code));
}

void HostLink::serve(bool listen) {
  if (!lost_.empty() || closed_) return;
  const auto now = Clock::now();
  handle_lines();
  if (again_at_ && now >= *again_at_) {
    again_at_.reset();
    start();
  }
  if (!stream_) return;
  const bool was_greeted = stream_->greeted();
  if (listen) {
    stream_->serve();
  } else {
    last_received_ = now;
  }
  if (stream_->greeted() && !was_greeted) early_.clear();
  if (now - last_sent_ >= kBeat && stream_->greeted()) send({});
  if (!stream_->greeted() && now - begun_ >= kStartLimit)
    return lose(fmt::format("no answer within {} s", kStartLimit.count()));
  if (stream_->greeted() && now - std::max(last_received_, begun_) >= kSilence)
    return lose(fmt::format("no sign of life for {} s", kSilence.count()));
  look_at_end();
}

void HostLink::add_to(net::EventLoop& loop, bool listen) const {
  if (!lost_.empty() || closed_) return;
  if (stream_ && listen) stream_->add_to(loop);
  loop.read(err_);
  if (process_ && stream_ && !stream_->ended().empty()) loop.read(process_->end_signal());
}

void HostLink::close() {
  if (std::exchange(closed_, true)) return;
  stream_.reset();
}

bool HostLink::gone() { return !process_ || !lost_.empty() || process_->poll().has_value(); }

std::string describe_waits(const std::vector<HostWait>& waits) {
  constexpr std::size_t kMostHosts = 4;
  std::vector<std::string> texts;
  for (const auto& [link, ranks] : waits) {
    if (texts.size() == kMostHosts) break;
    const std::string words = link.last_words();
    texts.push_back(fmt::format("host {} with ranks {}: its daemon has not {}{}", link.host(),
                                fmt::join(ranks, ", "),
                                link.starting() ? "answered yet" : "started them yet",
                                words.empty() ? "" : fmt::format(" ({})", words)));
  }
  if (waits.size() > texts.size())
    texts.push_back(fmt::format("{} more hosts", waits.size() - texts.size()));
  return fmt::format("waiting for {}; a host that does not answer within {} s is lost",
                     fmt::join(texts, "; "), HostLink::kStartLimit.count());
}

}  // namespace tandem::launch
