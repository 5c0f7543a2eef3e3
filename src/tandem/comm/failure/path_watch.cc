#include "tandem/comm/failure/path_watch.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

namespace tandem::comm {

using std::chrono::milliseconds;

PathState path_state(int socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  return {.since_answer = milliseconds(std::min(info.tcpi_last_ack_recv, info.tcpi_last_data_recv)),
          .round_trip = milliseconds((info.tcpi_rtt + 4 * info.tcpi_rttvar) / 1000)};
}

void DataPaths::watch(std::vector<int> sockets) {
  const std::lock_guard lock(mutex_);
  sockets_ = std::move(sockets);
}

void DataPaths::forget() {
  const std::lock_guard lock(mutex_);
  sockets_.clear();
}

milliseconds DataPaths::since_answer(std::size_t rank) const {
  const std::lock_guard lock(mutex_);
  if (rank >= sockets_.size() || sockets_[rank] < 0) return milliseconds::max();
  return path_state(sockets_[rank]).since_answer;
}

}  // namespace tandem::comm
