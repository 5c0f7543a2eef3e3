// The ranks of `tandem bench comm`: started by the bench itself or by a launcher, one core each.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/env.h"

namespace tandem::apps::bench {

// Anonymous memory with the pages the system gives by default (4 KiB), or asked for as huge ones;
// zeroed and touched.
class Pages {
 public:
  Pages(std::size_t bytes, bool huge);
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Binds the calling thread to the core of `index`, counted modulo the cores there are. None:
// nothing happens.
void pin_to_core(const std::vector<int>& cores, int index);

// Starts `ranks` child processes that run `body` with their identity, and waits for all. Returns
// the first exit code that is not 0. To be called before this process has threads.
int run_forked(int ranks, const std::function<int(const rendezvous::Identity&)>& body);

// A barrier of the ranks that costs a few cache lines and belongs to no library: every timed call
// starts from it, so that one rank's lateness is not another one's time. Several nodes: the
// communicator's own barrier.
class StartLine {
 public:
  explicit StartLine(comm::Communicator& communicator);
  void wait();

 private:
  comm::Communicator& communicator_;
  std::unique_ptr<comm::NodeMemory> memory_;
  std::uint32_t round_ = 0;
};

}  // namespace tandem::apps::bench
