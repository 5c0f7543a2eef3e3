#include "tandem/job/memory_shortage.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <tuple>

namespace tandem::job {
namespace {

// The plan is right within a few percent, and counts files of the program that the kernel may drop.
constexpr double kSurely = 1.1;
constexpr double kPerhaps = 0.95;

// All ranks that share one limit.
struct Shared {
  MemoryLimit limit;
  std::size_t planned = 0;
  std::vector<int> ranks;

  double use_of(std::size_t bytes) const {
    return static_cast<double>(planned) / static_cast<double>(std::max<std::size_t>(1, bytes));
  }
  bool fatal() const { return use_of(limit.bytes + limit.swap) > kSurely; }
};

std::string list(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks[0]);
  return fmt::format("the {} ranks from {} to {}", ranks.size(), ranks.front(), ranks.back());
}

}  // namespace

std::string write_limits(const std::vector<LimitedRank>& limits) {
  std::string text;
  for (const LimitedRank& one : limits) {
    text += fmt::format("{} {} {} {} {}\t{}\t{}\n", one.rank, one.node, one.planned,
                        one.limit.bytes, one.limit.swap, one.limit.key, one.limit.name);
  }
  return text;
}

std::vector<LimitedRank> read_limits(const std::string& text) {
  std::vector<LimitedRank> limits;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    LimitedRank one;
    std::istringstream words(line);
    words >> one.rank >> one.node >> one.planned >> one.limit.bytes >> one.limit.swap;
    words.ignore(1);
    if (!std::getline(words, one.limit.key, '\t') || !std::getline(words, one.limit.name)) continue;
    limits.push_back(std::move(one));
  }
  return limits;
}

std::optional<Shortage> find_shortage(std::span<const LimitedRank> limits) {
  std::map<std::pair<int, std::string>, Shared> by_limit;
  for (const LimitedRank& one : limits) {
    Shared& shared = by_limit[{one.node, one.limit.key}];
    if (shared.ranks.empty()) shared.limit = one.limit;
    shared.planned += one.planned;
    shared.ranks.push_back(one.rank);
  }
  const Shared* worst = nullptr;
  for (const auto& [key, shared] : by_limit) {
    if (shared.use_of(shared.limit.bytes) <= kPerhaps) continue;
    const auto badness = [](const Shared& s) {
      return std::make_tuple(s.fatal(), s.use_of(s.limit.bytes));
    };
    if (worst == nullptr || badness(shared) > badness(*worst)) worst = &shared;
  }
  if (worst == nullptr) return {};
  const MemoryLimit& limit = worst->limit;
  return Shortage{
      fmt::format("{} will need {:.0f} MiB of memory at the peak, and {} allows {:.0f} MiB{}: {}. "
                  "Allow more, or try --gradient_checkpointing, a smaller "
                  "--per_device_train_batch_size or --max_seq_length, or fewer ranks per host",
                  list(worst->ranks), mebibytes(worst->planned), limit.name, mebibytes(limit.bytes),
                  limit.swap == 0 ? "" : fmt::format(" and {:.0f} of swap", mebibytes(limit.swap)),
                  worst->fatal() ? "the job would be killed in its middle"
                                 : "the job may become slow or be killed"),
      worst->fatal()};
}

}  // namespace tandem::job
