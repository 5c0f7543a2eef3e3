// Memory that the ranks of a node share: the files travel over their UNIX sockets.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "tandem/comm/communicator_state.h"
#include "tandem/core/error.h"

namespace tandem::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Sleeps are cut so that failures and deadlines are looked at.
constexpr milliseconds kNap{20};

// Memory files travel in messages of their own.
struct SegmentNote {
  std::uint32_t magic = 0x6d444e53;
  std::uint32_t unused = 0;
  std::uint64_t bytes = 0;
};

union ControlBuffer {
  cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int))];
};

bool send_descriptor(int socket, const SegmentNote& note, int descriptor) {
  iovec part{const_cast<SegmentNote*>(&note), sizeof note};
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof descriptor);
  std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == sizeof note;
}

// The descriptor, or none; errno says why (EAGAIN: nothing there yet, 0: closed or not a segment).
rendezvous::FileDescriptor receive_descriptor(int socket, SegmentNote& note) {
  iovec part{&note, sizeof note};
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  const ssize_t count = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (count < 0) return {};
  errno = 0;
  const cmsghdr* rights = CMSG_FIRSTHDR(&message);
  if (rights == nullptr || rights->cmsg_type != SCM_RIGHTS) return {};
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(rights), sizeof descriptor);
  rendezvous::FileDescriptor file(descriptor);
  if (count != sizeof note || note.magic != SegmentNote().magic) return {};
  return file;
}

}  // namespace

NodeMemory Communicator::share_node_memory(std::size_t bytes) {
  state_->check_open();
  const Node& group = node();
  const rendezvous::FileDescriptor own = SharedSegment::create_file(bytes);
  SegmentNote note;
  note.bytes = bytes;
  for (const int member : group.members) {
    if (member == rank()) continue;
    const int socket =
        state_->fabric->local_sockets[static_cast<std::size_t>(state_->world(member))].get();
    if (!send_descriptor(socket, note, own.get())) {
      state_->fail(
          fmt::format("{} could not pass its shared memory to {}: {}", state_->self().describe(),
                      describe_rank(member), std::strerror(errno)),
          "");
    }
  }
  std::vector<SharedSegment> segments;
  for (const int member : group.members) {
    if (member == rank()) {
      segments.emplace_back(own, bytes);
      continue;
    }
    const int socket =
        state_->fabric->local_sockets[static_cast<std::size_t>(state_->world(member))].get();
    const Clock::time_point start = Clock::now();
    while (true) {
      SegmentNote theirs;
      const rendezvous::FileDescriptor file = receive_descriptor(socket, theirs);
      if (file) {
        segments.emplace_back(file, theirs.bytes);
        break;
      }
      if (errno != EAGAIN && errno != EINTR) std::this_thread::sleep_for(milliseconds(1));
      pollfd waits[2] = {{socket, POLLIN, 0}, {state_->fabric->failure->event(), POLLIN, 0}};
      ::poll(waits, 2, static_cast<int>(kNap.count()));
      check_wait(start, member, "the shared memory");
    }
  }
  return NodeMemory(std::move(segments));
}

}  // namespace tandem::comm
