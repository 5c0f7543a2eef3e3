#include "tandem/launch/control_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tandem/core/error.h"
#include "tandem/core/file.h"

namespace tandem::launch {
namespace {

using nlohmann::json;
using rendezvous::FileDescriptor;
using std::chrono::milliseconds;

constexpr milliseconds kPatience{10000};
constexpr std::size_t kMostGuests = 16;

std::string name_prefix() { return fmt::format("tandem-run/{}/", ::geteuid()); }

socklen_t address_of(pid_t agent, sockaddr_un& address) {
  const std::string name = name_prefix() + std::to_string(agent);
  address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

std::string answer_to(const std::string& line, const ControlSocket::Answer& answer) {
  try {
    const ControlRequest request = control_request_from(line);
    const std::string text = answer(request);
    if (request.kind == ControlRequest::Kind::kStatus) return R"({"status":)" + text + "}";
    return json{{"done", text}}.dump();
  } catch (const Error& error) {
    return json{{"error", error.what()}}.dump(-1, ' ', false, json::error_handler_t::replace);
  }
}

FileDescriptor connect_to(pid_t agent) {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address;
  const socklen_t length = address_of(agent, address);
  if (!socket || ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0)
    raise<ConfigError>("agent {} cannot be reached: {}", agent, std::strerror(errno));
  // Anybody may listen at a name.
  if (!rendezvous::is_of_this_user(socket))
    raise<ConfigError>("who listens as agent {} is of another user", agent);
  return socket;
}

json ask(pid_t agent, const ControlRequest& request, milliseconds limit) {
  LineSocket socket(connect_to(agent));
  const rendezvous::Deadline deadline(limit);
  socket.send(to_line(request));
  while (true) {
    socket.serve();
    if (const auto line = socket.take_line()) {
      json answer = json::parse(*line, nullptr, /*allow_exceptions=*/false);
      if (!answer.is_object()) raise<CommError>("agent {} answers with no JSON object", agent);
      if (const auto error = answer.find("error"); error != answer.end() && error->is_string())
        raise<ConfigError>("{}", printable(error->get<std::string>()));
      return answer;
    }
    if (!socket.ended().empty()) raise<CommError>("agent {}: {}", agent, socket.ended());
    if (deadline.passed())
      raise<CommError>("agent {} does not answer within {} ms; is it stopped?", agent,
                       limit.count());
    pollfd wait = socket.wait();
    ::poll(&wait, 1, deadline.remaining_ms());
  }
}

}  // namespace

std::string to_line(const ControlRequest& request) {
  switch (request.kind) {
    case ControlRequest::Kind::kStatus:
      return "status";
    case ControlRequest::Kind::kDrain:
      return fmt::format("drain {}", request.number);
    case ControlRequest::Kind::kResize:
      return fmt::format("resize {}", request.number);
  }
  return "";
}

ControlRequest control_request_from(std::string_view line) {
  using Kind = ControlRequest::Kind;
  if (line == "status") return {};
  const std::size_t blank = line.find(' ');
  const std::string_view word = line.substr(0, blank);
  int number = 0;
  const char* const last = line.data() + line.size();
  const char* const first = blank == std::string_view::npos ? last : line.data() + blank + 1;
  const auto [next, error] = std::from_chars(first, last, number);
  if ((word != "drain" && word != "resize") || error != std::errc() || next != last)
    raise<DataError>("this agent knows status, drain WORKER and resize WORKERS");
  return {word == "drain" ? Kind::kDrain : Kind::kResize, number};
}

ControlSocket::ControlSocket(pid_t pid) {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_un address;
  const socklen_t length = address_of(pid, address);
  if (!socket || ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(socket.get(), static_cast<int>(kMostGuests)) != 0) {
    failure_ = fmt::format("tandem status cannot reach this job: {}", std::strerror(errno));
    return;
  }
  listener_ = std::move(socket);
}

void ControlSocket::add_to(std::vector<pollfd>& waits) const {
  if (listener_ && guests_.size() < kMostGuests) waits.push_back({listener_.get(), POLLIN, 0});
  for (const Guest& guest : guests_) waits.push_back(guest.socket.wait());
}

milliseconds ControlSocket::nap() const {
  milliseconds nap = std::chrono::minutes(1);
  for (const Guest& guest : guests_)
    nap = std::min(nap, std::chrono::ceil<milliseconds>(guest.until - Clock::now()));
  return std::max(nap, milliseconds(0));
}

void ControlSocket::let_in() {
  while (listener_ && guests_.size() < kMostGuests) {
    FileDescriptor socket(
        ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) return;
    if (rendezvous::is_of_this_user(socket))
      guests_.push_back({LineSocket(std::move(socket)), Clock::now() + kPatience});
  }
}

void ControlSocket::serve(const Answer& answer) {
  let_in();
  for (Guest& guest : guests_) {
    guest.socket.serve();
    while (const auto line = guest.socket.take_line()) {
      guest.socket.send(answer_to(*line, answer));
      guest.answered = true;
    }
  }
  std::erase_if(guests_, [](const Guest& guest) {
    return !guest.socket.ended().empty() || Clock::now() >= guest.until ||
           (guest.answered && guest.socket.all_sent());
  });
}

// A line of /proc/net/unix ends with the name, '@' in front of an abstract one.
std::vector<pid_t> running_agents() {
  const std::string prefix = "@" + name_prefix();
  std::vector<pid_t> agents;
  std::istringstream list(read_file_if_exists("/proc/net/unix").value_or(""));
  for (std::string line; std::getline(list, line);) {
    const std::size_t at = line.rfind(prefix);
    if (at == std::string::npos) continue;
    pid_t agent = 0;
    const char* const last = line.data() + line.size();
    const auto [next, error] = std::from_chars(line.data() + at + prefix.size(), last, agent);
    if (error == std::errc() && next == last && agent > 0) agents.push_back(agent);
  }
  // Its connections have its name as well.
  std::sort(agents.begin(), agents.end());
  agents.erase(std::unique(agents.begin(), agents.end()), agents.end());
  return agents;
}

JobStatus ask_status(pid_t pid, milliseconds limit) {
  const json answer = ask(pid, {}, limit);
  if (!answer.contains("status")) raise<CommError>("agent {} answers without a status", pid);
  return job_status_from(answer["status"].dump());
}

std::string ask_change(pid_t pid, const ControlRequest& request, milliseconds limit) {
  const json answer = ask(pid, request, limit);
  const auto done = answer.find("done");
  if (done == answer.end() || !done->is_string())
    raise<CommError>("agent {} does not say what it has done", pid);
  return printable(done->get<std::string>());
}

}  // namespace tandem::launch
