#include "tandem/comm/algorithms/worker_plan.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <sstream>

#include "tandem/core/error.h"

namespace tandem::comm {
namespace {

constexpr int kHighestCore = 4095;

[[noreturn]] void refuse(std::string_view text, std::string_view part) {
  raise<ConfigError>(
      "the environment variable CCL_WORKER_AFFINITY is '{}', expected 'auto' or cores from 0 to {} "
      "as "
      "in '22,23' or '44-47'; '{}' is not understood",
      text, kHighestCore, part);
}

std::vector<int> read_cores(std::string_view text) {
  std::vector<int> cores;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
    const std::size_t dash = part.find('-');
    const auto number = [&](std::string_view digits) {
      int value = -1;
      const auto [end, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), value);
      if (error != std::errc() || end != digits.data() + digits.size() || value < 0 ||
          value > kHighestCore)
        refuse(text, part);
      return value;
    };
    const int first = number(part.substr(0, dash));
    const int last = dash == std::string_view::npos ? first : number(part.substr(dash + 1));
    if (last < first) refuse(text, part);
    for (int core = first; core <= last; ++core) cores.push_back(core);
  }
  if (cores.empty()) refuse(text, text);
  return cores;
}

bool overlap(const std::vector<int>& a, const std::vector<int>& b) {
  return std::find_first_of(a.begin(), a.end(), b.begin(), b.end()) != a.end();
}

}  // namespace

WorkerOptions WorkerOptions::from_environment(const Environment& environment, int compute_threads) {
  WorkerOptions options;
  options.count = static_cast<int>(environment.get_int("CCL_WORKER_COUNT", 0, 1024).value_or(0));
  options.compute_threads = compute_threads;
  const std::string affinity = environment.get("CCL_WORKER_AFFINITY").value_or("auto");
  if (affinity != "auto") options.cores = read_cores(affinity);
  return options;
}

std::string RankCores::write() const {
  return fmt::format("{} {} {} {}", asks ? 1 : 0, compute_threads, usable, fmt::join(cores, " "));
}

RankCores RankCores::read(const std::string& text) {
  std::istringstream words(text);
  RankCores rank;
  if (!(words >> rank.asks >> rank.compute_threads >> rank.usable))
    raise<CommError>("a rank described its cores as '{}': run the same tandem everywhere", text);
  for (int core = 0; words >> core;) rank.cores.push_back(core);
  return rank;
}

WorkerPlan plan_worker(std::span<const RankCores> ranks, int local_rank,
                       const WorkerOptions& options) {
  const RankCores& own = ranks[static_cast<std::size_t>(local_rank)];
  if (!own.asks) return {-1, "no progress thread: none asked for (CCL_WORKER_COUNT)"};
  if (!options.cores.empty()) {
    const int core = options.cores[static_cast<std::size_t>(local_rank) % options.cores.size()];
    return {core, fmt::format("a progress thread on core {} (CCL_WORKER_AFFINITY)", core)};
  }
  // The ranks that may use this one's cores, and the cores they need.
  std::set<int> cores;
  int usable = 0;
  int threads = 0;
  int workers = 0;
  int before = 0;  // requesting ranks that come first
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const RankCores& rank = ranks[i];
    if (!overlap(rank.cores, own.cores)) continue;
    cores.insert(rank.cores.begin(), rank.cores.end());
    usable = std::max(usable, rank.usable);
    threads += rank.compute_threads > 0 ? rank.compute_threads : rank.usable;
    workers += rank.asks ? 1 : 0;
    before += rank.asks && i < static_cast<std::size_t>(local_rank) ? 1 : 0;
  }
  // A quota is shared by all ranks; differing masks add up.
  const bool same_mask = cores.size() == own.cores.size();
  const int available = same_mask ? usable : static_cast<int>(cores.size());
  if (available - threads < workers) {
    return {-1,
            fmt::format(
                "no progress thread: {} cores for {} compute threads and {} progress threads leave "
                "none spare; set OMP_NUM_THREADS lower, or CCL_WORKER_AFFINITY to "
                "insist",
                available, threads, workers)};
  }
  std::vector<int> order(cores.rbegin(), cores.rend());
  const int core = order[static_cast<std::size_t>(before) % order.size()];
  const bool allowed = std::find(own.cores.begin(), own.cores.end(), core) != own.cores.end();
  const int chosen = allowed ? core : own.cores.back();
  return {chosen, fmt::format("a progress thread on core {}", chosen)};
}

}  // namespace tandem::comm
