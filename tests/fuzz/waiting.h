// A rank that waits for others while unauthenticated peers come, and what may be demanded of it.
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "fuzz/require.h"
#include "support/unauthenticated_peer.h"
#include "tandem/net/socket.h"

namespace tandem::fuzz {

class Waiting {
 public:
  // `wait` runs in a thread; it should return soon after `stop` has become true.
  explicit Waiting(std::function<void(const std::atomic<bool>& stop)> wait) {
    auto task = std::make_unique<std::packaged_task<void()>>([this, wait = std::move(wait)] {
      wait(stop_);
      ended_ = true;
    });
    end_ = task->get_future();
    begin_detached(std::move(task));
  }
  ~Waiting() {
    stop_ = true;
    end_.get();  // what it throws ends the program
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  bool ended() const { return ended_; }

 private:
  // Not std::thread: clang 14's leak checker takes a thread for a joined one that had its system id
  // before, and what only the stack of the living one holds for leaked.
  static void begin_detached(std::unique_ptr<std::packaged_task<void()>> task) {
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    const auto body = [](void* given) -> void* {
      const std::unique_ptr<std::packaged_task<void()>> own(
          static_cast<std::packaged_task<void()>*>(given));
      (*own)();
      return nullptr;
    };
    pthread_t thread;
    require(::pthread_create(&thread, &attributes, body, task.release()) == 0);
    ::pthread_attr_destroy(&attributes);
  }

  std::atomic<bool> stop_{false};
  std::atomic<bool> ended_{false};
  std::future<void> end_;
};

// An unauthenticated peer at `port`; until a rank listens there, or `rank` ends.
template <class Rank>
net::FileDescriptor visit(const Rank& rank, int port) {
  const net::Deadline deadline(kTimeout);
  while (true) {
    net::FileDescriptor unauthenticated_peer(testing::connect_to_port(port));
    if (unauthenticated_peer || rank.ended()) return unauthenticated_peer;
    require(!deadline.passed());
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

// Returns when `rank` has either ended or shown out an unauthenticated peer that sends nothing
// right.
template <class Rank>
void be_shown_out(const Rank& rank, int port) {
  const net::Deadline deadline(kTimeout);
  const net::FileDescriptor unauthenticated_peer = visit(rank, port);
  if (unauthenticated_peer) testing::send_bytes(unauthenticated_peer.get(), std::string(512, 0));
  while (!rank.ended() &&
         !testing::receive_bytes(unauthenticated_peer.get(), std::chrono::milliseconds(5)).ended)
    require(!deadline.passed());
}

// Returns when all earlier messages have had their consequences: a rank that closes one
// unauthenticated peer may still be reading messages of others; a rank that accepts the next has
// read them, or has stopped listening, which the last one sees.
template <class Rank>
void settle(const Rank& rank, int port) {
  for (int i = 0; i < 3; ++i) be_shown_out(rank, port);
}

}  // namespace tandem::fuzz
