// A fixed team of threads and the one way in which tandem runs loops in parallel.
//
// Thread-count invariance: callers cut work into chunks by size, never by the number of threads;
// chunks may run in any order on any thread, so a chunk must not depend on another one of the same
// loop. Then results are the same bits for 1 or N threads.
//
// Waiting is bounded spinning (about 30 µs), then a futex: a pool never burns a core that another
// process needs. docs/design/0001-own-thread-pool.md explains why this is not OpenMP.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace tandem {

// A non-owning reference to a callable, valid while the callable lives (no allocation, unlike
// std::function).
template <class Signature>
class FunctionRef;

template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
      FunctionRef(F&& f)  // NOLINT(google-explicit-constructor): made to be passed a lambda
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(static_cast<Args>(args)...);
        }) {}
  R operator()(Args... args) const { return call_(object_, static_cast<Args>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

class ThreadPool {
 public:
  // `num_threads` counts the calling thread: ThreadPool(1) starts no thread. Throws InvalidArgument
  // if it is < 1.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // Calls task(chunk, thread) for every chunk in [0, num_chunks) and returns when all are done;
  // thread is in [0, num_threads) and names scratch memory, never the division of work. The first
  // exception of a task is rethrown here after all threads stopped. Not reentrant: a task must not
  // call parallel_for of the same pool; one caller at a time.
  void parallel_for(std::size_t num_chunks, FunctionRef<void(std::size_t chunk, int thread)> task);

 private:
  void worker_main(int thread);
  void run_chunks(int thread);

  const int num_threads_;
  std::vector<std::thread> workers_;
  // One loop at a time: its generation number is published last and shows the workers that the
  // other fields are valid.
  std::atomic<std::uint32_t> generation_{0};
  std::atomic<std::size_t> next_chunk_{0};
  std::atomic<int> workers_busy_{0};
  std::atomic<bool> stop_{false};
  std::size_t num_chunks_ = 0;
  const FunctionRef<void(std::size_t, int)>* task_ = nullptr;
  std::mutex exception_mutex_;
  std::exception_ptr exception_;
};

// The number of chunks of `chunk` items that cover `count` items.
constexpr std::size_t num_chunks(std::size_t count, std::size_t chunk) {
  return (count + chunk - 1) / chunk;
}

// Physical cores this process may really use: those of the affinity mask (hardware threads of one
// core count once), at most the cgroup (v1 or v2) CPU quota, rounded up; at least 1.
int available_cores();

}  // namespace tandem
