// Memory that the ranks of a node share, and the eventfds that wake them: the descriptors are sent
// over their UNIX sockets.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "tandem/comm/collectives/communicator_state.h"
#include "tandem/comm/network/stream_transport.h"
#include "tandem/core/descriptors.h"
#include "tandem/core/error.h"
#include "tandem/net/event_loop.h"

namespace tandem::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Sleeps are limited so that failures and deadlines are checked.
constexpr milliseconds kSharedMemoryPoll{20};

// Descriptors are sent in separate messages. `bytes`: size of a memory file; 0 for an eventfd.
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

// A memory file of so many bytes that cannot shrink: a read of it cannot end this process.
bool holds(const net::FileDescriptor& file, std::uint64_t bytes) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || status.st_size < 0) return false;
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  return static_cast<std::uint64_t>(status.st_size) >= bytes && seals >= 0 &&
         (seals & F_SEAL_SHRINK) != 0;
}

// The descriptor, or none; errno has the reason (EAGAIN: nothing there yet, 0: closed or not a
// segment).
net::FileDescriptor receive_descriptor(int socket, SegmentNote& note) {
  iovec part{&note, sizeof note};
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  const ssize_t count = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (count < 0) return {};
  // The kernel drops descriptors that exceed the limit of the process.
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    raise_out_of_descriptors("cannot take the memory of a rank of this node", EMFILE);
  }
  errno = 0;
  const cmsghdr* rights = CMSG_FIRSTHDR(&message);
  if (rights == nullptr || rights->cmsg_type != SCM_RIGHTS) return {};
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(rights), sizeof descriptor);
  net::FileDescriptor file(descriptor);
  if (count != sizeof note || note.magic != SegmentNote().magic) return {};
  if (note.bytes != 0 && !holds(file, note.bytes)) return {};
  return file;
}

}  // namespace

// Collective over the node: every rank contributes a descriptor and receives those of the others,
// by local rank; its own entry stays empty.
std::vector<DescriptorOfRank> Communicator::State::exchange_descriptors(
    const net::FileDescriptor& own, std::size_t bytes) {
  const std::vector<int>& group = node_members();
  const auto socket_to = [&](int member) {
    return comm_context->local_sockets[static_cast<std::size_t>(world(member))].get();
  };
  SegmentNote note;
  note.bytes = bytes;
  for (const int member : group) {
    if (member == rank) continue;
    if (!send_descriptor(socket_to(member), note, own.get())) {
      fail(fmt::format("{} could not pass its shared memory to {}: {}", self().describe(),
                       peer(member).describe(), std::strerror(errno)),
           "");
    }
  }
  std::vector<DescriptorOfRank> received(group.size());
  for (std::size_t local = 0; local < group.size(); ++local) {
    if (group[local] == rank) continue;
    const int socket = socket_to(group[local]);
    const Clock::time_point start = Clock::now();
    while (true) {
      SegmentNote theirs;
      received[local].file = receive_descriptor(socket, theirs);
      received[local].bytes = theirs.bytes;
      if (received[local].file) break;
      if (errno != EAGAIN && errno != EINTR) std::this_thread::sleep_for(milliseconds(1));
      net::EventLoop loop;
      loop.add(socket, POLLIN);
      loop.add(comm_context->failure.event(), POLLIN);
      loop.run_once(kSharedMemoryPoll);
      check_wait_for_rank(start, group[local], "the shared memory");
    }
  }
  return received;
}

NodeMemory Communicator::State::share_memory(std::size_t bytes) {
  const net::FileDescriptor file = SharedSegment::create_file(bytes);
  return share_file(file, SharedSegment(file, bytes));
}

// Collective over the node: every rank contributes a memory file; `own` is its local mapping.
NodeMemory Communicator::State::share_file(const net::FileDescriptor& file, SharedSegment own) {
  const std::vector<DescriptorOfRank> received = exchange_descriptors(file, own.bytes().size());
  std::vector<SharedSegment> segments;
  for (const DescriptorOfRank& one : received) {
    if (one.file) {
      segments.emplace_back(one.file, one.bytes);
    } else {
      segments.push_back(std::move(own));
    }
  }
  return NodeMemory(std::move(segments));
}

// From here on messages between the ranks of this node use its memory.
void Communicator::State::open_node_streams() {
  const std::vector<int>& group = node_members();
  if (group.size() < 2) return;
  const int ranks = static_cast<int>(group.size());
  NodeMemory memory = share_memory(NodeStreams::segment_bytes(ranks));
  net::FileDescriptor bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell) throw io_error("cannot create", "eventfd", errno);
  std::vector<DescriptorOfRank> received = exchange_descriptors(bell, 0);
  std::vector<std::span<std::byte>> segments;
  std::vector<net::FileDescriptor> bells;
  for (int local = 0; local < ranks; ++local) {
    segments.push_back(memory.segment(local));
    bells.push_back(local == local_rank
                        ? std::move(bell)
                        : std::move(received[static_cast<std::size_t>(local)].file));
  }
  comm_context->streams().use_node_streams(
      std::make_unique<NodeStreams>(std::move(segments), std::move(bells), local_rank),
      std::move(memory), group);
}

}  // namespace tandem::comm
