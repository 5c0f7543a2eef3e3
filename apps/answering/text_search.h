// Exact search over a corpus of embeddings in memory, for several requests at once.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <string_view>
#include <vector>

#include "tandem/core/env.h"
#include "tandem/core/thread_pool.h"
#include "tandem/kernels/kernel_set.h"
#include "tandem/kernels/scratch.h"
#include "tandem/tasks/ranking/search.h"

namespace tandem::apps {

// Requests that wait while others are answered are then searched for together. Thread-safe.
class TextSearch {
 public:
  // corpus: embeddings [texts, width]. num_threads: size of its own team.
  TextSearch(const tasks::ranking::SimilarityFunction& function, std::vector<float> corpus,
             std::size_t width, int num_threads, const Environment& environment);

  // The best `top_k` texts, the best first, of equal ones that of the lower index. The same bits
  // whatever is searched for at the time. Throws Interrupted soon after `cancelled` was requested.
  std::vector<tasks::ranking::Hit> find(std::vector<float> query, std::size_t top_k,
                                        const std::stop_token& cancelled);
  std::size_t texts() const { return corpus_.size() / width_; }

 private:
  struct SearchRequest {
    std::vector<float> query;
    std::size_t top_k = 0;
    std::vector<tasks::ranking::Hit> hits = {};
    std::exception_ptr failure = nullptr;
    bool done = false;
  };
  using Requests = std::vector<std::shared_ptr<SearchRequest>>;

  void answer_some(std::unique_lock<std::mutex>& lock);
  void compute(const Requests& requests);

  const tasks::ranking::SimilarityFunction& function_;
  std::vector<float> corpus_;
  std::size_t width_;
  ThreadPool threads_;
  kernels::KernelSet kernels_;
  kernels::Scratch scratch_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::shared_ptr<SearchRequest>> waiting_;
  bool computing_ = false;  // one of the callers, for all
};

}  // namespace tandem::apps
