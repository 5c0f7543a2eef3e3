// The command line's names of the enumerators in trainer/training_arguments.h and
// quant/quantization_arguments.h, in the enumerators' order.
#pragma once

#include <span>
#include <string_view>

#include "tandem/quant/quantization_arguments.h"
#include "tandem/trainer/training_arguments.h"

namespace tandem::apps {

inline constexpr std::string_view kIntervalStrategyNames[] = {"no", "steps", "epoch"};
inline constexpr std::string_view kSaveStrategyNames[] = {"no", "steps", "epoch", "best"};
inline constexpr std::string_view kSamplingStrategyNames[] = {"random", "sequential",
                                                              "group_by_length"};
inline constexpr std::string_view kDdpBackendNames[] = {"ccl", "mpi", "gloo"};
inline constexpr std::string_view kLogLevelNames[] = {"detail", "debug",    "info",   "warning",
                                                      "error",  "critical", "passive"};
inline constexpr std::string_view kTokenCountNames[] = {"no", "all", "non_padding"};
inline constexpr std::string_view kGradientDtypeNames[] = {"float32", "bf16"};
inline constexpr std::string_view kApproachNames[] = {"dynamic", "static"};

using Names = std::span<const std::string_view>;
inline Names enum_names(trainer::IntervalStrategy) { return kIntervalStrategyNames; }
inline Names enum_names(trainer::SaveStrategy) { return kSaveStrategyNames; }
inline Names enum_names(trainer::SamplingStrategy) { return kSamplingStrategyNames; }
inline Names enum_names(trainer::LrSchedulerType) { return optim::kScheduleTypeNames; }
inline Names enum_names(trainer::OptimizerName) { return optim::kOptimizerNames; }
inline Names enum_names(trainer::DdpBackend) { return kDdpBackendNames; }
inline Names enum_names(trainer::LogLevel) { return kLogLevelNames; }
inline Names enum_names(trainer::TokenCount) { return kTokenCountNames; }
inline Names enum_names(trainer::GradientDtype) { return kGradientDtypeNames; }
inline Names enum_names(quant::Approach) { return kApproachNames; }

// The name of one enumerator, for messages.
template <class E>
std::string_view enum_name(E value) {
  return enum_names(value)[static_cast<std::size_t>(value)];
}

}  // namespace tandem::apps
