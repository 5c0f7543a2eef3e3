#include "apps/bench/comm_ranks.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "apps/command/error_text.h"
#include "tandem/comm/memory.h"
#include "tandem/core/error.h"
#include "tandem/net/socket.h"

namespace tandem::apps::bench {

Pages::Pages(std::size_t bytes, bool huge) : bytes_(std::max<std::size_t>(bytes, 1)) {
  void* address =
      ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    raise<IoError>("cannot get {} MiB of memory: {}", bytes_ >> 20, std::strerror(errno));
  }
  if (huge) ::madvise(address, bytes_, MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(address);
  std::memset(data_, 0, bytes_);
}

Pages::~Pages() { ::munmap(data_, bytes_); }

void pin_to_core(const std::vector<int>& cores, int index) {
  if (cores.empty()) return;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  CPU_SET(static_cast<std::size_t>(cores[static_cast<std::size_t>(index) % cores.size()]), &mask);
  ::sched_setaffinity(0, sizeof mask, &mask);
}

int run_forked(int ranks, const std::function<int(const rendezvous::Identity&)>& body) {
  const int port = net::local_port(net::listen_tcp(/*loopback_only=*/true, 0));
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = ::fork();
    if (child < 0) throw io_error("cannot start a rank", "fork", errno);
    if (child == 0) {
      rendezvous::Identity identity;
      identity.rank = identity.local_rank = rank;
      identity.world_size = identity.local_size = ranks;
      identity.master_port = port;
      identity.master_port_given = true;
      identity.source = "tandem bench comm";
      int code = 1;
      try {
        code = body(identity);
      } catch (const Error& error) {
        print_error(error.what());
        code = error.exit_code();
      } catch (const std::exception& error) {
        print_error(error.what());
      }
      std::fflush(nullptr);
      ::_exit(code);
    }
    children.push_back(child);
  }
  int result = 0;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (result == 0) result = code;
  }
  return result;
}

StartLine::StartLine(comm::Communicator& communicator) : communicator_(communicator) {
  if (communicator.nodes().size() > 1 || communicator.size() == 1) return;
  memory_ = std::make_unique<comm::NodeMemory>(share_node_memory(communicator, 4096));
}

void StartLine::wait() {
  if (communicator_.size() == 1) return;
  if (!memory_) return communicator_.barrier();
  const auto flag = [&](int local) -> comm::FlagLine& {
    return *reinterpret_cast<comm::FlagLine*>(memory_->segment(local).data());
  };
  comm::raise_flag(flag(communicator_.local_rank()), ++round_);
  for (int local = 0; local < communicator_.local_size(); ++local) {
    communicator_.wait_for_flag(flag(local), round_, local, "the start line");
  }
}

}  // namespace tandem::apps::bench
