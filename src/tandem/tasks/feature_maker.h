// How a job makes its features: in which threads, and through the cache.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tandem/core/thread_pool.h"
#include "tandem/tasks/feature_cache.h"
#include "tandem/tasks/job_task.h"

namespace tandem::tasks {

// For one JobTask::load_data(), whose parts must outlive it. Not thread-safe.
class FeatureMaker {
 public:
  // --preprocessing_num_workers, unset: the threads of the rank; --overwrite_cache.
  FeatureMaker(const DataParts& parts, std::optional<int> num_workers, bool overwrite_cache)
      : parts_(parts),
        cache_(FeatureCache::default_folder(parts.environment), parts.tokenizer_directory,
               overwrite_cache) {
    if (num_workers && *num_workers != parts.threads.num_threads()) workers_.emplace(*num_workers);
  }

  ThreadPool& threads() { return workers_ ? *workers_ : parts_.threads; }
  FeatureCache& cache() { return cache_; }
  // Reports a part of the data, after the source of its features, where they are kept.
  void log_notes(std::string_view part) {
    for (const std::string& note : cache_.take_notes()) parts_.log.fact(part, note);
  }

 private:
  const DataParts& parts_;
  std::optional<ThreadPool> workers_;
  FeatureCache cache_;
};

}  // namespace tandem::tasks
