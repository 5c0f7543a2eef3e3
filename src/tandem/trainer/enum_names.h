// The command line's names of the enumerators in training_arguments.h, in the enumerators' order.
#pragma once

#include <string_view>

#include "tandem/core/enum_name.h"
#include "tandem/trainer/training_arguments.h"

namespace tandem::trainer {

inline constexpr std::string_view kIntervalStrategyNames[] = {"no", "steps", "epoch"};
inline constexpr std::string_view kSaveStrategyNames[] = {"no", "steps", "epoch", "best"};
inline constexpr std::string_view kSamplingStrategyNames[] = {"random", "sequential",
                                                              "group_by_length"};
inline constexpr std::string_view kDdpBackendNames[] = {"ccl", "mpi", "gloo"};
inline constexpr std::string_view kLogLevelNames[] = {"detail", "debug",    "info",   "warning",
                                                      "error",  "critical", "passive"};
inline constexpr std::string_view kTokenCountNames[] = {"no", "all", "non_padding"};
inline constexpr std::string_view kGradientDtypeNames[] = {"float32", "bf16"};

inline EnumNames enum_names(IntervalStrategy) { return kIntervalStrategyNames; }
inline EnumNames enum_names(SaveStrategy) { return kSaveStrategyNames; }
inline EnumNames enum_names(SamplingStrategy) { return kSamplingStrategyNames; }
inline EnumNames enum_names(DdpBackend) { return kDdpBackendNames; }
inline EnumNames enum_names(LogLevel) { return kLogLevelNames; }
inline EnumNames enum_names(TokenCount) { return kTokenCountNames; }
inline EnumNames enum_names(GradientDtype) { return kGradientDtypeNames; }

}  // namespace tandem::trainer
