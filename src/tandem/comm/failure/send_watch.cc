#include "tandem/comm/failure/send_watch.h"

// The kernel's own header: glibc's <netinet/tcp.h> has an older tcp_info.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>

namespace tandem::comm {

std::optional<SendWatch::Stall> SendWatch::look(int socket, Clock::time_point now,
                                                Clock::duration limit) {
  tcp_info info{};
  socklen_t size = sizeof info;
  // Fields that an older kernel does not fill in are unknown.
  constexpr std::size_t kNeeded = offsetof(tcp_info, tcpi_snd_wnd) + sizeof info.tcpi_snd_wnd;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || size < kNeeded) return {};
  // A route that drops packets inside this host leaves them unsent; one outside leaves them
  // unacknowledged.
  const bool waits = (info.tcpi_unacked > 0 || info.tcpi_notsent_bytes > 0) &&
                     info.tcpi_snd_wnd >= info.tcpi_snd_mss;
  if (!waits || info.tcpi_bytes_acked != acknowledged_) since_.reset();
  acknowledged_ = info.tcpi_bytes_acked;
  if (!waits) return {};
  if (!since_) since_ = now;
  if (now - *since_ < limit) return {};
  return Stall{info.tcpi_bytes_sent - info.tcpi_bytes_retrans - info.tcpi_bytes_acked +
                   info.tcpi_notsent_bytes,
               info.tcpi_pmtu, now - *since_};
}

}  // namespace tandem::comm
