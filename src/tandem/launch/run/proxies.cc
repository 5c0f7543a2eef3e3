#include "tandem/launch/run/proxies.h"

#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <set>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/core/text_layout.h"
#include "tandem/core/whole_number.h"
#include "tandem/launch/control/job_status.h"
#include "tandem/net/event_loop.h"

namespace tandem::launch {
namespace {

using net::Deadline;
using net::FileDescriptor;
using nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds kGoodbye{1000};
constexpr std::size_t kNumStreams = 2;  // stdout, stderr

struct ProxyMessage {
  net::FrameReader reader{kProxyProtocol};
  std::vector<FileDescriptor> descriptors;
};

// Adds the bytes to `received`; false at the end of the connection.
bool receive(const FileDescriptor& socket, ProxyMessage& received) {
  char bytes[4096];
  iovec part{bytes, sizeof bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kNumStreams * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t count = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  for (cmsghdr* part_of = CMSG_FIRSTHDR(&message); part_of != nullptr;
       part_of = CMSG_NXTHDR(&message, part_of)) {
    if (part_of->cmsg_level != SOL_SOCKET || part_of->cmsg_type != SCM_RIGHTS) continue;
    int numbers[kNumStreams];
    const std::size_t given =
        std::min<std::size_t>((part_of->cmsg_len - CMSG_LEN(0)) / sizeof(int), kNumStreams);
    std::memcpy(numbers, CMSG_DATA(part_of), given * sizeof(int));
    for (std::size_t i = 0; i < given; ++i) received.descriptors.emplace_back(numbers[i]);
  }
  received.reader.append({bytes, static_cast<std::size_t>(count)});
  return count > 0;
}

}  // namespace

std::string to_line(const ProxyInfo& info) {
  json text{{"worker", info.worker}, {"cpus", info.placement.cpus}};
  if (info.placement.threads) text["threads"] = *info.placement.threads;
  return text.dump();
}

ProxyInfo proxy_info_from(std::string_view line, int count) {
  try {
    const json text = parse_json(line);
    ProxyInfo info;
    info.worker = whole_number<int>(text.at("worker"));
    info.placement.cpus = text.at("cpus").get<std::vector<int>>();
    if (text.contains("threads")) info.placement.threads = whole_number<int>(text.at("threads"));
    const auto& cpus = info.placement.cpus;
    const auto is_cpu = [](int cpu) { return cpu >= 0 && cpu < CPU_SETSIZE; };
    if (info.worker >= 0 && info.worker < count && std::all_of(cpus.begin(), cpus.end(), is_cpu))
      return info;
  } catch (const json::exception&) {
  }
  raise<DataError>("a process of mpirun sent '{}', expected its index among {} workers",
                   printable(std::string(line)), count);
}

Proxies::Proxies(FileDescriptor listener, int count, milliseconds limit)
    : proxies_(static_cast<std::size_t>(count)) {
  const Deadline deadline(limit);
  for (int i = 0; i < count; ++i) take_in(listener, deadline);
  run_where_they_run();
}

void Proxies::take_in(const FileDescriptor& listener, const Deadline& deadline) {
  FileDescriptor socket;
  while (!socket && !deadline.passed()) {
    net::wait_readable(listener.get(), deadline);
    socket =
        FileDescriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket && !net::is_of_this_user(socket)) socket.reset();
  }
  ProxyMessage received;
  bool more = static_cast<bool>(socket);
  std::optional<net::Frame> first;
  while (more && !first && !deadline.passed()) {
    net::wait_readable(socket.get(), deadline);
    more = receive(socket, received);
    first = received.reader.take();
  }
  if (!first || received.descriptors.size() != kNumStreams) {
    const auto here = std::count_if(proxies_.begin(), proxies_.end(),
                                    [](const Proxy& proxy) { return proxy.stream.has_value(); });
    raise<CommError>(
        "{} of the {} processes that mpirun has started on this host have come within "
        "{:.0f} s; the next one {}",
        here, proxies_.size(), deadline.elapsed_seconds(),
        socket ? "has sent no usable message" : "has not");
  }
  const ProxyInfo info = proxy_info_from(first->payload, static_cast<int>(proxies_.size()));
  Proxy& proxy = proxies_[static_cast<std::size_t>(info.worker)];
  if (proxy.stream) raise<DataError>("two processes of mpirun are worker {}", info.worker);
  proxy.info = info;
  proxy.out = std::move(received.descriptors[0]);
  proxy.err = std::move(received.descriptors[1]);
  proxy.stream.emplace(std::move(received.reader), std::move(socket));
}

// The agent itself needs no CPU of its own.
void Proxies::run_where_they_run() const {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const Proxy& proxy : proxies_) {
    for (const int cpu : proxy.info.placement.cpus) CPU_SET(static_cast<std::size_t>(cpu), &cpus);
  }
  if (CPU_COUNT(&cpus) > 0) ::sched_setaffinity(0, sizeof cpus, &cpus);
}

Placement Proxies::placement() const {
  Placement placement;
  for (const Proxy& proxy : proxies_) placement.workers.push_back(proxy.info.placement);
  return placement;
}

Console Proxies::console(int worker) const {
  const Proxy& proxy = proxies_[static_cast<std::size_t>(worker)];
  return {proxy.out.get(), proxy.err.get()};
}

void Proxies::add_to(net::EventLoop& loop) const {
  for (const Proxy& proxy : proxies_) {
    if (proxy.stream) proxy.stream->add_to(loop);
  }
}

Proxies::News Proxies::serve() {
  News news;
  for (Proxy& proxy : proxies_) {
    if (!proxy.stream) continue;
    proxy.stream->serve();
    while (const auto frame = proxy.stream->take()) handle(proxy, frame->payload, news);
    if (proxy.stream->ended().empty()) continue;
    proxy.stream.reset();
    news.gone.push_back(proxy.info.worker);
  }
  return news;
}

// "end 15": mpirun forwards it to all, so the first request counts once and a later one again.
// "signal 10": for this worker.
void Proxies::handle(Proxy& proxy, const std::string& line, News& news) {
  const std::size_t blank = std::min(line.find(' '), line.size());
  const int number = std::atoi(line.c_str() + blank);
  if (number <= 0 || number >= NSIG) return;
  if (line.substr(0, blank) == "signal") return news.for_one.push_back({proxy.info.worker, number});
  if (line.substr(0, blank) != "end" || ++proxy.num_signals <= num_signals_) return;
  num_signals_ = proxy.num_signals;
  news.signals.push_back(number);
}

bool Proxies::any_left() const {
  return std::any_of(proxies_.begin(), proxies_.end(),
                     [](const Proxy& proxy) { return proxy.stream.has_value(); });
}

void Proxies::end(int code) noexcept {
  const Deadline deadline(kGoodbye);
  for (Proxy& proxy : proxies_) {
    if (!proxy.stream) continue;
    proxy.stream->send(0, {"ended " + std::to_string(code)});
    while (proxy.stream->unsent() > 0 && proxy.stream->ended().empty() && !deadline.passed()) {
      net::EventLoop loop;
      proxy.stream->add_to(loop);
      loop.run_once(milliseconds(deadline.remaining_ms()));
      proxy.stream->serve();
    }
  }
}

}  // namespace tandem::launch
