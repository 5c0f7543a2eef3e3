// search_probe FILE.npy REPEATS QUERIES TOP_K WIDTH THREADS: searches a corpus that is FILE.npy
// REPEATS times over, by its first rows as queries. Prints "TEXTS SECONDS MEBIBYTES", the last
// being the most that was resident. 8.8 million passages are 8,800 times a file of 1,000.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>

#include "tandem/core/error.h"
#include "tandem/core/memory_usage.h"
#include "tandem/tasks/ranking/embedding_file.h"

namespace tandem::tasks::ranking {
namespace {

int run(char** words) {
  const auto number = [&](int i) {
    return static_cast<std::size_t>(std::strtoull(words[i], nullptr, 10));
  };
  const EmbeddingFile corpus(words[1]);
  const std::size_t width = number(5);
  const int count = static_cast<int>(number(6));
  ThreadPool threads(count);
  const kernels::KernelSet kernels = kernels::select_kernels(kernels::CpuFeatures::detect());
  kernels::Scratch scratch(count);
  std::vector<float> queries(number(3) * width);
  corpus.read(0, width, queries);
  Search search(similarity_function(Similarity::kCosine), {queries, width}, number(4),
                [](std::size_t a, std::size_t b) { return a < b; });
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < number(2); ++i)
    search_file(corpus, width, search, {threads, kernels, scratch});
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{} {:.1f} {}\n", number(2) * corpus.texts(), seconds, memory_usage().peak >> 20);
  return 0;
}

}  // namespace
}  // namespace tandem::tasks::ranking

int main(int argc, char** argv) {
  if (argc != 7) {
    fmt::print(stderr, "usage: search_probe FILE.npy REPEATS QUERIES TOP_K WIDTH THREADS\n");
    return 2;
  }
  try {
    return tandem::tasks::ranking::run(argv);
  } catch (const tandem::Error& error) {
    fmt::print(stderr, "search_probe: {}\n", error.what());
    return 1;
  }
}
