#include "tandem/elastic/protocol/goodput.h"

#include <algorithm>
#include <cmath>

#include "tandem/core/error.h"

namespace tandem::membership {

double steps_with_failures(std::span<const double> steps_per_second, const NodeFailures& failures) {
  const auto nodes = static_cast<double>(steps_per_second.size());
  if (steps_per_second.empty() || !(failures.mtbf_seconds > 0) || failures.absence_seconds < 0) {
    raise<InvalidArgument>("goodput: {} nodes that fail every {} s for {} s; expected some of each",
                           steps_per_second.size(), failures.mtbf_seconds,
                           failures.absence_seconds);
  }
  const double there = failures.mtbf_seconds / (failures.mtbf_seconds + failures.absence_seconds);
  double speed = 0;
  for (std::size_t i = 0; i < steps_per_second.size(); ++i) {
    const double n = static_cast<double>(i + 1);
    if (n < failures.min_nodes) continue;
    // In logarithms: thousands of nodes overflow binomial coefficients.
    const double log_choose =
        std::lgamma(nodes + 1) - std::lgamma(n + 1) - std::lgamma(nodes - n + 1);
    const double absent = nodes - n;
    const double log_absent = absent > 0 ? absent * std::log1p(-there) : 0;
    speed += std::exp(log_choose + n * std::log(there) + log_absent) * steps_per_second[i];
  }
  const double losses = nodes * there / failures.mtbf_seconds;
  return speed * std::max(0.0, 1 - losses * (failures.loss_seconds + failures.join_seconds));
}

}  // namespace tandem::membership
