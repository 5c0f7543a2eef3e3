#include "tandem/launch/control/control.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <sstream>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/core/text_layout.h"
#include "tandem/net/address.h"
#include "tandem/net/agent_handshake.h"
#include "tandem/net/connect.h"

namespace tandem::launch {
namespace {

using net::Deadline;
using net::FileDescriptor;
using nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds kTimeout{10000};
constexpr std::size_t kMostConnections = 16;  // connections of each kind
constexpr milliseconds kHostSilence{3000};
constexpr std::string_view kAt = " at ";
constexpr std::size_t kMostAgents = 16384;

std::string name_prefix() { return fmt::format("tandem-run/{}/", ::geteuid()); }

socklen_t address_of(pid_t agent, sockaddr_un& address) {
  const std::string name = name_prefix() + std::to_string(agent);
  address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

std::string in_words(const AgentAddress& agent) {
  return agent.pid > 0 ? fmt::format("agent {}", agent.pid)
                       : fmt::format("the agent at {}", agent.address);
}

ControlLine connect_here(pid_t agent) {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address;
  const socklen_t length = address_of(agent, address);
  if (!socket || ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0)
    raise<ConfigError>("agent {} cannot be reached: {}", agent, std::strerror(errno));
  // Any process may listen at a name.
  if (!net::is_of_this_user(socket)) raise<ConfigError>("agent {} belongs to another user", agent);
  return ControlLine(std::move(socket));
}

ControlLine connect_there(const AgentAddress& agent, const Deadline& deadline) {
  const auto where = net::split_host(agent.address);
  net::Handshake handshake;
  handshake.answer_bytes = net::kHandshakeBytes;
  handshake.accept = [](const std::string& answer) { return net::is_handshake(answer); };
  const std::string hosts[] = {where->host};
  std::string failure;
  net::Connected connected =
      net::connect_first(hosts, where->number.value(), handshake, deadline, failure);
  if (!connected.socket) {
    raise<CommError>(
        "no agent of an elastic job answers at {} ({}); write the address of --rdzv-endpoint or "
        "--master-addr, or one that `tandem status` shows",
        agent.address, failure);
  }
  net::watch_host(connected.socket, kHostSilence);
  const std::string challenge = net::make_visitor_handshake();
  if (net::send_all(connected.socket, std::as_bytes(std::span(challenge)), deadline) !=
      net::IoStatus::kDone)
    raise<CommError>("{} takes nothing", in_words(agent));
  return {std::move(connected.socket),
          "",
          {ControlLine::Side::kVisitor, agent.token, connected.answer, challenge}};
}

json object_from(const std::string& line, const AgentAddress& agent) {
  json answer = try_parse_json(line);
  if (!answer.is_object()) raise<CommError>("{} answers with no JSON object", in_words(agent));
  const auto error = answer.find("error");
  if (error != answer.end() && error->is_string())
    raise<ConfigError>("{}", printable(error->get<std::string>()));
  return answer;
}

// All objects of an answer, without its end marker.
std::vector<json> ask(const AgentAddress& agent, const ControlRequest& request,
                      milliseconds limit) {
  const Deadline deadline(limit);
  ControlLine line = agent.pid > 0 ? connect_here(agent.pid) : connect_there(agent, deadline);
  line.send(to_line(request));
  std::vector<json> answer;
  while (true) {
    line.serve();
    while (const auto text = line.take_line()) {
      json object = object_from(*text, agent);
      if (object.contains("end")) return answer;
      answer.push_back(std::move(object));
      if (answer.size() > kMostAgents) raise<CommError>("{} does not end", in_words(agent));
    }
    if (!line.ended().empty()) raise<CommError>("{}: {}", in_words(agent), line.ended());
    if (deadline.passed()) {
      raise<CommError>("{} does not answer within {} ms; check whether it is stopped",
                       in_words(agent), limit.count());
    }
    net::EventLoop loop;
    line.add_to(loop);
    loop.run_once(milliseconds(deadline.remaining_ms()));
  }
}

}  // namespace

std::string to_line(const ControlRequest& request) {
  const std::string at = request.node.empty() ? "" : std::string(kAt) + request.node;
  switch (request.kind) {
    case ControlRequest::Kind::kStatus:
      return "status" + at;
    case ControlRequest::Kind::kDrain:
      return fmt::format("drain {}{}", request.number, at);
    case ControlRequest::Kind::kLeave:
      return "leave" + at;
    case ControlRequest::Kind::kResize:
      return fmt::format("resize {}{}", request.number, at);
  }
  return "";
}

ControlRequest control_request_from(std::string_view line) {
  using Kind = ControlRequest::Kind;
  ControlRequest request;
  if (const std::size_t at = line.find(kAt); at != std::string_view::npos) {
    request.node = line.substr(at + kAt.size());
    line = line.substr(0, at);
  }
  if (line == "status") return request;
  request.kind = line == "leave"              ? Kind::kLeave
                 : line.starts_with("drain ") ? Kind::kDrain
                                              : Kind::kResize;
  if (request.kind == Kind::kLeave) return request;
  const std::size_t blank = std::min(line.find(' '), line.size());
  const std::string_view digits = line.substr(std::min(blank + 1, line.size()));
  const char* const last = digits.data() + digits.size();
  const auto [next, error] = std::from_chars(digits.data(), last, request.number);
  if ((request.kind == Kind::kResize && line.substr(0, blank) != "resize") ||
      error != std::errc() || next != last) {
    raise<DataError>("an agent knows status, drain WORKER, leave and resize WORKERS, not '{}'",
                     printable(std::string(line.substr(0, 100))));
  }
  return request;
}

ControlDesk::ControlDesk(pid_t pid, std::string token) : token_(std::move(token)) {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_un address;
  const socklen_t length = address_of(pid, address);
  if (!socket || ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(socket.get(), static_cast<int>(kMostConnections)) != 0) {
    failure_ = fmt::format("tandem status cannot reach this job: {}", std::strerror(errno));
    return;
  }
  listener_ = std::move(socket);
}

std::size_t ControlDesk::count(bool local) const {
  return static_cast<std::size_t>(
      std::count_if(clients_.begin(), clients_.end(),
                    [&](const Client& client) { return client.local == local; }));
}

void ControlDesk::add(ControlLine line, bool local) {
  clients_.push_back({next_++, std::move(line), Clock::now() + kTimeout, local});
}

// Unauthenticated connections do not keep others out: the one that has waited longest is closed.
void ControlDesk::welcome(net::PendingConnection visitor) {
  ControlLine line(std::move(visitor.socket),
                   std::string_view(visitor.received).substr(net::kHandshakeBytes),
                   {ControlLine::Side::kAgent, token_, visitor.challenge,
                    visitor.received.substr(0, net::kHandshakeBytes)});
  if (count(/*local=*/false) >= kMostConnections) {
    const auto silent = std::find_if(clients_.begin(), clients_.end(), [](const Client& client) {
      return !client.local && !client.asked;
    });
    if (silent == clients_.end()) return;
    clients_.erase(silent);
  }
  add(std::move(line), /*local=*/false);
}

void ControlDesk::add_to(net::EventLoop& loop) const {
  if (count(/*local=*/true) < kMostConnections) loop.read(listener_);
  for (const Client& client : clients_) {
    client.line.add_to(loop);
    loop.until(client.until);
  }
}

void ControlDesk::let_in() {
  while (listener_ && count(/*local=*/true) < kMostConnections) {
    FileDescriptor socket(
        ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) return;
    if (net::is_of_this_user(socket)) add(ControlLine(std::move(socket)), /*local=*/true);
  }
}

void ControlDesk::handle(Client& client, std::vector<Question>& questions) {
  client.line.serve();
  if (client.asked) return;
  try {
    const auto line = client.line.take_line();
    if (!line) return;
    client.asked = true;
    if (!client.local && token_.empty()) {  // without a token the proof would be worthless
      client.line.refuse(kNoToken);
      client.finished = true;
      return;
    }
    questions.push_back({client.number, control_request_from(*line)});
  } catch (const CommError&) {
    client.line.refuse(token_.empty() ? kNoToken : kOtherToken);
    client.asked = client.finished = true;
  } catch (const DataError& error) {
    client.line.send(
        json{{"error", error.what()}}.dump(-1, ' ', false, json::error_handler_t::replace));
    client.finished = true;
  }
}

std::vector<ControlDesk::Question> ControlDesk::serve() {
  let_in();
  std::vector<Question> questions;
  for (Client& client : clients_) handle(client, questions);
  std::erase_if(clients_, [](const Client& client) {
    return !client.line.ended().empty() || Clock::now() >= client.until ||
           (client.finished && client.line.all_sent());
  });
  return questions;
}

ControlDesk::Client* ControlDesk::find(std::uint64_t number) {
  const auto it = std::find_if(clients_.begin(), clients_.end(),
                               [&](const Client& client) { return client.number == number; });
  return it == clients_.end() ? nullptr : &*it;
}

void ControlDesk::answer(std::uint64_t client, const std::string& line) {
  if (Client* const found = find(client)) found->line.send(line);
}

void ControlDesk::finish(std::uint64_t client) {
  Client* const found = find(client);
  if (found == nullptr) return;
  found->line.send(R"({"end":true})");
  found->finished = true;
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
  // The connections of a listener have its name as well.
  std::sort(agents.begin(), agents.end());
  agents.erase(std::unique(agents.begin(), agents.end()), agents.end());
  return agents;
}

JobStatuses ask_status(const AgentAddress& agent, milliseconds limit) {
  JobStatuses statuses;
  for (const json& object : ask(agent, {}, limit)) {
    const auto silent = object.find("silent");
    if (object.contains("status")) {
      statuses.agents.push_back(job_status_from(object["status"].dump()));
    } else if (silent != object.end() && silent->is_string()) {
      statuses.silent.push_back(printable(silent->get<std::string>()));
    }
  }
  if (statuses.agents.empty()) raise<CommError>("{} answers without a status", in_words(agent));
  return statuses;
}

std::string ask_change(const AgentAddress& agent, const ControlRequest& request,
                       milliseconds limit) {
  for (const json& object : ask(agent, request, limit)) {
    const auto done = object.find("done"), silent = object.find("silent");
    if (silent != object.end()) {
      raise<CommError>("the agent at {} has not answered {}; `tandem status` shows whether it did",
                       printable(silent->is_string() ? silent->get<std::string>() : "?"),
                       in_words(agent));
    }
    if (done != object.end() && done->is_string()) return printable(done->get<std::string>());
  }
  raise<CommError>("{} did not report the result", in_words(agent));
}

}  // namespace tandem::launch
