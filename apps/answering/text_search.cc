#include "apps/answering/text_search.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "tandem/core/interruption.h"

namespace tandem::apps {
namespace {

namespace ranking = tasks::ranking;
using ranking::Hit;

constexpr std::size_t kAtOnce = 64;  // queries of a tile

}  // namespace

TextSearch::TextSearch(const tasks::ranking::SimilarityFunction& function,
                       std::vector<float> corpus, std::size_t width, int num_threads,
                       const Environment& environment)
    : function_(function),
      corpus_(std::move(corpus)),
      width_(width),
      threads_(num_threads),
      kernels_(kernels::select_kernels(kernels::CpuFeatures::detect(),
                                       environment.get("TANDEM_KERNELS").value_or(""),
                                       kernels::Precision::kFloat32)),
      scratch_(num_threads) {}

void TextSearch::compute(const Requests& requests) {
  std::vector<float> queries;
  std::size_t most = 0;
  for (const auto& request : requests) {
    queries.insert(queries.end(), request->query.begin(), request->query.end());
    most = std::max(most, request->top_k);
  }
  // The caller may be given up, the others are not.
  const std::atomic<bool> never{false};
  const InterruptionScope scope(never);
  ranking::Search search(function_, ranking::Embeddings{.values = queries, .width = width_}, most,
                         [](std::size_t a, std::size_t b) { return a < b; });
  search.add(ranking::Embeddings{.values = corpus_, .width = width_},
             kernels::Context{threads_, kernels_, scratch_});
  auto hits = search.take_hits();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    hits[i].resize(std::min(hits[i].size(), requests[i]->top_k));
    requests[i]->hits = std::move(hits[i]);
  }
}

void TextSearch::answer_some(std::unique_lock<std::mutex>& lock) {
  const auto end =
      waiting_.begin() + static_cast<std::ptrdiff_t>(std::min(kAtOnce, waiting_.size()));
  const Requests requests(waiting_.begin(), end);
  waiting_.erase(waiting_.begin(), end);
  computing_ = true;
  lock.unlock();
  std::exception_ptr failure;
  try {
    compute(requests);
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  computing_ = false;
  for (const auto& request : requests) {
    request->failure = failure;
    request->done = true;
  }
  changed_.notify_all();
}

std::vector<Hit> TextSearch::find(std::vector<float> query, std::size_t top_k,
                                  const std::stop_token& cancelled) {
  const auto request =
      std::make_shared<SearchRequest>(SearchRequest{.query = std::move(query), .top_k = top_k});
  std::unique_lock lock(mutex_);
  waiting_.push_back(request);
  while (!request->done) {
    if (!changed_.wait(lock, cancelled, [&] { return request->done || !computing_; })) {
      std::erase(waiting_, request);
      throw Interrupted("the search was given up");
    }
    if (!request->done) answer_some(lock);
  }
  if (request->failure) std::rethrow_exception(request->failure);
  return std::move(request->hits);
}

}  // namespace tandem::apps
