#include "tandem/core/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "tandem/core/cores.h"
#include "tandem/core/error.h"
#include "tandem/core/interruption.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tandem {
namespace {

void cpu_relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// Spins briefly until `done()`; returns false when the caller should block instead. Loops come in
// quick succession inside a step, so most waits end here; a longer spin would steal the core from
// another rank or from the operating system.
template <class Done>
bool spin_until(Done done) {
  constexpr auto kLimit = std::chrono::microseconds(30);
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      cpu_relax();
    }
    if (std::chrono::steady_clock::now() - start > kLimit) return done();
  }
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) : num_threads_(num_threads) {
  if (num_threads < 1)
    raise<InvalidArgument>("a thread pool needs at least 1 thread, got {}", num_threads);
  workers_.reserve(static_cast<std::size_t>(num_threads - 1));
  for (int thread = 1; thread < num_threads; ++thread) {
    workers_.emplace_back([this, thread] { worker_main(thread); });
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::parallel_for(std::size_t num_chunks, FunctionRef<void(std::size_t, int)> task) {
  if (num_chunks == 0) return;
  throw_if_interrupted();
  if (num_threads_ == 1 || num_chunks == 1) {
    for (std::size_t chunk = 0; chunk < num_chunks; ++chunk) task(chunk, 0);
    return;
  }
  num_chunks_ = num_chunks;
  // A task may look for itself, on whichever thread it runs.
  const std::atomic<bool>* interruption = interruption_flag();
  const auto in_scope = [&](std::size_t chunk, int thread) {
    const InterruptionScope scope(*interruption);
    task(chunk, thread);
  };
  const FunctionRef<void(std::size_t, int)> task_in_scope(in_scope);
  task_ = interruption == nullptr ? &task : &task_in_scope;
  next_chunk_.store(0, std::memory_order_relaxed);
  workers_busy_.store(num_threads_ - 1, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);  // publishes the fields above
  generation_.notify_all();
  run_chunks(0);
  const auto all_idle = [this] { return workers_busy_.load(std::memory_order_acquire) == 0; };
  while (!spin_until(all_idle)) {
    const int busy = workers_busy_.load(std::memory_order_acquire);
    if (busy != 0) workers_busy_.wait(busy, std::memory_order_acquire);
  }
  if (exception_) std::rethrow_exception(std::exchange(exception_, nullptr));
}

void ThreadPool::run_chunks(int thread) {
  try {
    while (true) {
      const std::size_t chunk = next_chunk_.fetch_add(1, std::memory_order_relaxed);
      if (chunk >= num_chunks_) return;
      (*task_)(chunk, thread);
    }
  } catch (...) {
    next_chunk_.store(num_chunks_,
                      std::memory_order_relaxed);  // the others stop after their current chunk
    const std::lock_guard lock(exception_mutex_);
    if (!exception_) exception_ = std::current_exception();
  }
}

void ThreadPool::worker_main(int thread) {
  std::uint32_t seen = 0;
  while (true) {
    const auto published = [&] { return generation_.load(std::memory_order_acquire) != seen; };
    while (!spin_until(published)) generation_.wait(seen, std::memory_order_acquire);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) return;
    run_chunks(thread);
    if (workers_busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) workers_busy_.notify_one();
  }
}

int available_cores() {
  int cores = std::max(1, static_cast<int>(allowed_cores().size()));
  if (const auto quota = cgroup_cpu_quota()) {
    cores = std::min(cores, std::max(1, static_cast<int>(std::ceil(*quota))));
  }
  return cores;
}

}  // namespace tandem
