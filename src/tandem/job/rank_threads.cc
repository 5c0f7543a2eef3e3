#include "tandem/job/rank_threads.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "tandem/comm/texts.h"
#include "tandem/core/error.h"
#include "tandem/core/thread_pool.h"

namespace tandem::job {
namespace {

// The "0-3" style is not needed: the text is only compared.
std::string affinity_text() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  std::string text;
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return text;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) text += fmt::format("{} ", cpu);
  }
  return text;
}

}  // namespace

// OMP_NUM_THREADS may be a list, one number per nesting level: the first one counts.
std::optional<int> openmp_threads(const Environment& environment) {
  const auto text = environment.get("OMP_NUM_THREADS");
  if (!text) return std::nullopt;
  int value = 0;
  const std::string first = text->substr(0, text->find(','));
  const auto [end, error] = std::from_chars(first.data(), first.data() + first.size(), value);
  if (error != std::errc() || end != first.data() + first.size() || value < 0 || value > 4096) {
    raise<ConfigError>(
        "the environment variable OMP_NUM_THREADS is '{}', expected a number of threads from 1 to "
        "4096",
        *text);
  }
  if (value == 0) return std::nullopt;
  return value;
}

RankThreads threads_for_rank(const Environment& environment, comm::Communicator& communicator) {
  const int cores = available_cores();
  const int local_size = communicator.local_size();
  const std::vector<std::string> masks = all_gather_texts(communicator, affinity_text());
  const auto& members = communicator.node().members;
  const bool pinned = std::any_of(members.begin(), members.end(), [&](int rank) {
    return masks[static_cast<std::size_t>(rank)] !=
           masks[static_cast<std::size_t>(members.front())];
  });
  const int share = pinned ? cores : std::max(1, cores / local_size);
  if (const auto asked = openmp_threads(environment)) {
    std::string warning;
    if (*asked > share) {
      warning = fmt::format(
          "OMP_NUM_THREADS is {}, more than the {} core{} that each of the {} rank{} here can "
          "have: "
          "expect it to be slow",
          *asked, share, share == 1 ? "" : "s", local_size, local_size == 1 ? "" : "s");
    }
    return {*asked, "OMP_NUM_THREADS", warning};
  }
  return {share,
          pinned ? fmt::format("the {} cores the launcher gave this rank", cores)
                 : fmt::format("{} available cores for {} rank{} on this node", cores, local_size,
                               local_size == 1 ? "" : "s"),
          ""};
}

}  // namespace tandem::job
