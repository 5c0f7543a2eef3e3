#include "tandem/launch/mpirun/proxy.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/text_layout.h"
#include "tandem/launch/control/job_status.h"
#include "tandem/launch/mpirun/rank_plan.h"
#include "tandem/launch/process/signal_inbox.h"
#include "tandem/launch/run/proxies.h"
#include "tandem/net/event_loop.h"
#include "tandem/net/frame_stream.h"
#include "tandem/net/job_token.h"
#include "tandem/rendezvous/bootstrap.h"
#include "tandem/rendezvous/bootstrap_roles.h"
#include "tandem/rendezvous/pmi.h"

namespace tandem::launch {
namespace {

using net::FileDescriptor;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// All processes have passed mpirun's barrier when the agent waits for them.
constexpr milliseconds kTakeIn{30000};
// Twice the agent's own time after a signal.
constexpr milliseconds kProxyGivesUp{60000};
constexpr std::size_t kMostText = 900;  // longest text of a PMI value
constexpr int kGone = 200;

// The position of this process.
struct Post {
  int host = 0;  // index among `hosts`
  int hosts = 1;
  int worker = 0;  // index among the `workers` of this host
  int workers = 1;
  bool starts_agent() const { return worker == 0; }
};

Post post_of(int rank, const std::vector<int>& host_of) {
  Post post;
  post.host = host_of[static_cast<std::size_t>(rank)];
  post.hosts = *std::max_element(host_of.begin(), host_of.end()) + 1;
  post.worker = static_cast<int>(std::count(host_of.begin(), host_of.begin() + rank, post.host));
  post.workers = static_cast<int>(std::count(host_of.begin(), host_of.end(), post.host));
  return post;
}

std::string random_text() { return fmt::format("{:02x}", fmt::join(net::make_nonce(), "")); }

// Names that begin with a zero byte are in no file system, and belong to the network namespace.
socklen_t address_of(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  const std::string whole = "tandem-mpirun/" + name;
  if (whole.size() + 1 > sizeof address.sun_path)
    raise<CommError>("the process manager gave '{}' as an agent's name", printable(name));
  std::memcpy(address.sun_path + 1, whole.data(), whole.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + whole.size());
}

FileDescriptor listen_as(const std::string& name) {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address;
  const socklen_t length = address_of(name, address);
  if (!socket || ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0)
    throw io_error("cannot open", "a socket for the ranks of this host", errno);
  return socket;
}

FileDescriptor connect_to(const std::string& name) {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address;
  const socklen_t length = address_of(name, address);
  if (!socket || ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      !net::is_of_this_user(socket)) {
    raise<CommError>(
        "the agent of this host cannot be reached: {}; check whether the first rank of "
        "this host has ended",
        std::strerror(errno));
  }
  return socket;
}

// This process's position and streams, in one message.
void introduce(const FileDescriptor& socket, const ProxyInfo& info) {
  std::string line = net::encode_frame(kProxyProtocol, 0, {to_line(info)});
  const int streams[] = {STDOUT_FILENO, STDERR_FILENO};
  iovec part{line.data(), line.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof streams)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof streams);
  std::memcpy(CMSG_DATA(rights), streams, sizeof streams);
  if (::sendmsg(socket.get(), &message, MSG_NOSIGNAL) != static_cast<ssize_t>(line.size()))
    throw io_error("cannot reach", "the agent of this host", errno);
  ::fcntl(socket.get(), F_SETFL, O_NONBLOCK);
}

WorkerPlacement own_placement(const AgentParts& parts) {
  WorkerPlacement placement;
  cpu_set_t cpus;
  if (::sched_getaffinity(0, sizeof cpus, &cpus) == 0) {
    for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &cpus)) placement.cpus.push_back(static_cast<int>(cpu));
  }
  const auto threads = parts.inherited.find("OMP_NUM_THREADS");
  if (threads != parts.inherited.end() && std::atoi(threads->second.c_str()) > 0)
    placement.threads = std::atoi(threads->second.c_str());
  return placement;
}

// The data that the processes have exchanged through PMI.
struct Met {
  Post post;
  std::string name;                       // name of the agent of this host
  FileDescriptor listener;                // as this name, where this process starts the agent
  rendezvous::RendezvousAddress address;  // address of the agents of several hosts
};

std::vector<int> ask_for_hosts(rendezvous::PmiClient& pmi, int size) {
  const std::string mapping = pmi.get("PMI_process_mapping");
  std::vector<int> host_of = hosts_of_mapping(mapping, size);
  if (!host_of.empty()) return host_of;
  raise<ConfigError>(
      "mpirun does not report which rank is on which host (PMI_process_mapping is "
      "'{}'), so a job cannot outlive its ranks under it; unset TANDEM_ELASTIC",
      printable(mapping));
}

Met meet(const ProxyParts& parts) {
  const rendezvous::Identity& own = parts.identity;
  rendezvous::PmiClient pmi(*own.pmi_fd, parts.timeout);
  Met met;
  met.post = post_of(own.rank, ask_for_hosts(pmi, own.world_size));
  const std::string key = fmt::format("tandem-agent-{}", met.post.host);
  if (met.post.starts_agent()) {
    const std::string name = random_text();
    met.listener = listen_as(name);
    pmi.put(key, name);
  }
  if (own.rank == 0) {
    met.address = rendezvous::open_rendezvous_address(own.interface, kMostText);
    pmi.put("tandem-agents", rendezvous::address_at(met.address.text, parts.host_name));
  }
  rendezvous::LocalProcessWatch watch(parts.stall_timeout, own.variables);
  rendezvous::WaitingMark mark;
  rendezvous::BootstrapOptions waiting;
  waiting.timeout = parts.timeout;
  rendezvous::wait_for_all(pmi, own, waiting, watch, mark);
  met.name = pmi.get(key);
  met.address.text = pmi.get("tandem-agents");
  pmi.finalize();
  return met;
}

// "secret,port,job,address,…,name".
void fill_in(AgentParts& agent, const rendezvous::Identity& own, Met& met) {
  std::vector<std::string> words;
  std::istringstream text(met.address.text);
  for (std::string word; std::getline(text, word, ',');) words.push_back(word);
  if (words.size() < 4)
    raise<CommError>("the process manager returned '{}' as the agents' address",
                     printable(met.address.text));
  agent.job_token = own.job_token.empty() ? words[0] : own.job_token;
  agent.options.backend = Backend::kC10d;
  agent.options.min_nodes = 1;
  agent.options.max_nodes = met.post.hosts;
  agent.options.node_rank = met.post.host;
  agent.shards = own.world_size;
  if (met.post.hosts == 1) return;
  KnownEndpoint known_endpoint;
  known_endpoint.port = std::atoi(words[1].c_str());
  // The name given to mpirun comes first: users reach the host by it.
  known_endpoint.hosts.assign(words.begin() + 3, words.end());
  if (text.str().back() != ',')
    std::rotate(known_endpoint.hosts.begin(), known_endpoint.hosts.end() - 1,
                known_endpoint.hosts.end());
  known_endpoint.listener = std::move(met.address.listener);
  agent.known_endpoint = std::move(known_endpoint);
}

int run_agent_here(ProxyParts& parts, Met& met) {
  std::shared_ptr<Proxies> proxies;
  int code = kGone;
  try {
    proxies = std::make_shared<Proxies>(std::move(met.listener), met.post.workers, kTakeIn);
    fill_in(parts.agent, parts.identity, met);
    parts.agent.proxies = proxies;
    parts.agent.placement = proxies->placement();
    code = parts.run_agent(std::move(parts.agent));
  } catch (const Error& error) {
    parts.log(error.what());
    code = error.exit_code();
  } catch (const std::exception& error) {
    parts.log(error.what());
  }
  if (proxies) proxies->end(code);
  return code;
}

// The agent is not a child process: it outlives the process that started it, and does not receive
// signals to that process's group.
void start_agent(ProxyParts& parts, Met& met) {
  std::fflush(nullptr);
  const pid_t between = ::fork();
  if (between < 0) throw io_error("cannot start", "the agent of this host", errno);
  if (between == 0) {
    ::setsid();
    if (::fork() != 0) ::_exit(0);
    ::close(*parts.identity.pmi_fd);
    const FileDescriptor nowhere(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    ::dup2(nowhere.get(), STDIN_FILENO);
    const int code = run_agent_here(parts, met);
    std::fflush(nullptr);
    ::_exit(code);
  }
  while (::waitpid(between, nullptr, 0) < 0 && errno == EINTR) {
  }
  met.listener.reset();
  met.address.listener.reset();
}

// The exit code of a process of mpirun. A job that received a stop signal never ends with 0, even
// if it had finished by then: a launcher that runs the command again learns that nothing is left to
// do.
int exit_code_of(int code_of_job, int last_signal) {
  return code_of_job == 0 && last_signal != 0 ? 128 + last_signal : code_of_job;
}

// Waits until the agent reports how the job has ended.
int hold_rank(net::FrameStream agent, SignalInbox& inbox, const Log& log) {
  std::optional<Clock::time_point> give_up;
  int last_signal = 0;
  while (true) {
    net::EventLoop loop;
    agent.add_to(loop);
    loop.read(inbox.descriptor());
    loop.run_once(milliseconds(1000));
    while (const auto number = inbox.take()) {
      const bool for_one = *number == SIGUSR1 || *number == SIGUSR2;
      agent.send(0, {fmt::format("{} {}", for_one ? "signal" : "end", *number)});
      if (for_one) continue;
      last_signal = *number;
      if (!give_up) give_up = Clock::now() + kProxyGivesUp;
    }
    agent.serve();
    while (const auto frame = agent.take()) {
      if (frame->payload.starts_with("ended "))
        return exit_code_of(std::atoi(frame->payload.c_str() + 6), last_signal);
    }
    if (!agent.ended().empty()) {
      log("the agent of this host is gone, and its ranks with it");
      return kGone;
    }
    if (give_up && Clock::now() >= *give_up) return 128 + last_signal;
  }
}

// Command line of the process that started `process`, and its number, past the managers in between.
bool ancestor_has_word(std::string_view word) {
  constexpr int kMostAncestors = 4;  // Hydra's proxy and mpiexec, and scripts around the program
  int process = ::getppid();
  for (int i = 0; i < kMostAncestors && process > 1; ++i) {
    const std::string words =
        read_file_if_exists(fmt::format("/proc/{}/cmdline", process)).value_or("");
    for (std::size_t begin = 0; begin < words.size();) {
      const std::size_t end = std::min(words.find('\0', begin), words.size());
      const std::string_view found = std::string_view(words).substr(begin, end - begin);
      if (found == word || (found.starts_with('-') && found.substr(1) == word)) return true;
      begin = end + 1;
    }
    const std::string status =
        read_file_if_exists(fmt::format("/proc/{}/status", process)).value_or("");
    const std::size_t parent = status.find("PPid:");
    process = parent == std::string::npos ? 0 : std::atoi(status.c_str() + parent + 5);
  }
  return false;
}

}  // namespace

ProxyRequest proxy_request(const Environment& environment, const rendezvous::Identity& identity) {
  if (environment.get("TANDEM_AGENT") || !identity.pmi_fd) return {};
  if (environment.get("TANDEM_ELASTIC")) return {environment.get_flag("TANDEM_ELASTIC"), ""};
  if (!ancestor_has_word("-disable-auto-cleanup")) return {};
  if (identity.local_size == identity.world_size) return {true, ""};
  return {
      false,
      "-disable-auto-cleanup: for the others to continue when a rank dies, all ranks of several "
      "hosts need TANDEM_ELASTIC=1 (-genv TANDEM_ELASTIC 1); without it the job ends"};
}

int run_proxy(ProxyParts parts) {
  constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
  SignalInbox inbox({std::begin(kSignals), std::end(kSignals)});
  Met met = meet(parts);
  if (met.post.starts_agent()) start_agent(parts, met);
  FileDescriptor socket = connect_to(met.name);
  introduce(socket, {met.post.worker, own_placement(parts.agent)});
  const int code = hold_rank(net::FrameStream(net::FrameReader(kProxyProtocol), std::move(socket)),
                             inbox, parts.log);
  // With -disable-auto-cleanup Hydra sends SIGUSR1 to the other processes when the first one has
  // ended. The exit code is decided now.
  for (const int number : kSignals) std::signal(number, SIG_IGN);
  return code;
}

}  // namespace tandem::launch
