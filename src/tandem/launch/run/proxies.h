// The agent's side of proxy.h: the processes that mpirun has started are proxies for the
// workers, which use their streams and CPUs.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "tandem/launch/process/placement.h"
#include "tandem/launch/run/attempt_logs.h"
#include "tandem/net/event_loop.h"
#include "tandem/net/frame_stream.h"
#include "tandem/net/socket.h"

namespace tandem::launch {

// Messages between a proxy and the agent of its host: lines of text, a frame each.
inline constexpr net::FrameProtocol kProxyProtocol{"a process of mpirun", 0x50444e54, 1,
                                                   std::size_t{64} << 10};

// A proxy's first message, sent with the descriptors of its stdout and stderr.
struct ProxyInfo {
  int worker = 0;
  WorkerPlacement placement;
};
std::string to_line(const ProxyInfo& info);
// Throws DataError for an invalid line of one of `count` workers.
ProxyInfo proxy_info_from(std::string_view line, int count);

// One thread.
class Proxies {
 public:
  // `count` processes of this user connect to `listener`. This process may run on the CPUs of all
  // of them. Throws CommError if one has not connected within `limit`, DataError if one sends
  // invalid data.
  Proxies(net::FileDescriptor listener, int count, std::chrono::milliseconds limit);

  Placement placement() const;
  Console console(int worker) const;

  struct News {
    std::vector<int> signals;  // to end the job; a signal that all forward counts once
    std::vector<std::pair<int, int>> for_one;  // worker, signal
    std::vector<int> gone;                     // workers, each once
  };
  void add_to(net::EventLoop& loop) const;
  News serve();  // call after a wait
  bool any_left() const;
  // The job has ended here, with this exit code. Waits a second at most.
  void end(int code) noexcept;

 private:
  struct Proxy {
    ProxyInfo info;
    net::FileDescriptor out, err;
    std::optional<net::FrameStream> stream;  // none: closed
    std::size_t num_signals = 0;
  };
  void take_in(const net::FileDescriptor& listener, const net::Deadline& deadline);
  void run_where_they_run() const;
  void handle(Proxy& proxy, const std::string& line, News& news);

  std::vector<Proxy> proxies_;  // by worker
  std::size_t num_signals_ = 0;
};

}  // namespace tandem::launch
