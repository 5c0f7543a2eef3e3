#include "membership/scale.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "tandem/elastic/transfer/learner_ledger.h"

namespace tandem::simulation {

Transfer learn(std::uint64_t bytes, std::uint64_t gradient_bytes, double step_seconds,
               const Network& network) {
  constexpr std::uint64_t kChunkBytes = 4 << 20;
  const auto chunks = static_cast<std::size_t>((bytes + kChunkBytes - 1) / kChunkBytes);
  const double of_gradient = static_cast<double>(gradient_bytes) / static_cast<double>(chunks);
  elastic::LearnerLedger ledger(chunks);
  Transfer result;
  std::uint64_t step = 1;
  double now = 0;
  double next_step = step_seconds;
  while (ledger.whole_at() != step && step < 1'000'000) {
    if (const auto chunk = ledger.next_missing()) {
      now += 2 * kChunkBytes / network.bytes_per_second;  // with the rest that follows
      ledger.put(*chunk, step);
      ++result.chunks;
    }
    if (now < next_step) continue;
    ++step;
    next_step += step_seconds;
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
      if (!ledger.takes_gradient(chunk, step)) continue;
      ledger.put_gradient(chunk, step);
      now += of_gradient / network.bytes_per_second;
    }
  }
  result.seconds = now;
  return result;
}

double steps_of_failing_nodes(const std::vector<double>& speed,
                              const membership::NodeFailures& failures, double end) {
  std::mt19937_64 random(18);
  const auto after = [&](double mean) {
    return mean * -std::log1p(-std::uniform_real_distribution<>()(random));
  };
  std::vector<bool> there(speed.size(), true);
  std::vector<double> next;
  for (std::size_t i = 0; i < speed.size(); ++i) next.push_back(after(failures.mtbf_seconds));
  double now = 0, steps = 0, paused = 0;
  std::size_t members = speed.size();
  while (now < end) {
    const auto who =
        static_cast<std::size_t>(std::min_element(next.begin(), next.end()) - next.begin());
    const bool runs = members >= static_cast<std::size_t>(failures.min_nodes);
    const double time = next[who] - now;
    const double pause = std::min(paused, time);
    paused -= pause;
    if (runs) steps += (time - pause) * speed[members - 1];
    now = next[who];
    there[who] = !there[who];
    members += there[who] ? 1 : -1;
    paused += there[who] ? failures.join_seconds : failures.loss_seconds;
    next[who] = now + after(there[who] ? failures.mtbf_seconds : failures.absence_seconds);
  }
  return steps / now;
}

}  // namespace tandem::simulation
