#include "tandem/job/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "tandem/comm/texts.h"
#include "tandem/core/cpu_model.h"
#include "tandem/core/disagreement.h"
#include "tandem/job/start_report.h"
#include "tandem/kernels/peak.h"
#include "tandem/kernels/tuned_tiles.h"

namespace tandem::job {
namespace {

// Features common to the CPUs of all ranks.
kernels::CpuFeatures common_features(comm::Communicator& communicator,
                                     kernels::CpuFeatures features) {
  std::array<std::int64_t, kernels::kCpuFlags.size()> flags;
  for (std::size_t i = 0; i < flags.size(); ++i) flags[i] = features.*kernels::kCpuFlags[i] ? 1 : 0;
  communicator.all_reduce(std::span<std::int64_t>(flags), comm::ReduceOp::kMin);
  for (std::size_t i = 0; i < flags.size(); ++i) features.*kernels::kCpuFlags[i] = flags[i] != 0;
  return features;
}

kernels::KernelSet agree_on_kernels(comm::Communicator& communicator, nn::Precision precision,
                                    const Environment& environment) {
  const auto own = kernels::CpuFeatures::detect();
  const auto forced = environment.get("TANDEM_KERNELS").value_or("");
  kernels::KernelSet kernels =
      kernels::select_kernels(common_features(communicator, own), forced, precision);
  agree(communicator, "choice of kernels (TANDEM_KERNELS)", lines_of_list(kernels.signature()));
  // A rank with a more capable CPU uses it if the bits equal those of the others.
  kernels::KernelSet best = kernels::select_kernels(own, forced, precision);
  return best.arithmetic(precision) == kernels.arithmetic(precision) ? best : kernels;
}

}  // namespace

Machine::Machine(const Environment& environment, nn::Precision precision,
                 comm::Communicator& communicator)
    : precision_(precision),
      rank_threads_(threads_for_rank(environment, communicator)),
      threads_(rank_threads_.count),
      kernels_(agree_on_kernels(communicator, precision, environment)),
      tiles_(kernels::load_tuned_tiles(environment, kernels_)),
      scratch_(threads_.num_threads()),
      context_{threads_, kernels_, scratch_} {
  communicator.barrier();  // all ranks measure at once
  const auto type =
      precision == nn::Precision::kBfloat16 ? kernels::PeakType::kBf16 : kernels::PeakType::kF32;
  peak_flops_ = kernels::measure_peak_flops(context_, type).best;
}

std::string Machine::arithmetic() const {
  std::string text = kernels_.arithmetic(precision_);
  if (text.find("=onednn") != std::string::npos) {
    text += fmt::format(",processor={} with {}", cpu_model(),
                        kernels::CpuFeatures::detect().describe());
  }
  return text;
}

void Machine::describe(const comm::Communicator& communicator, Console& console) const {
  print_machine(context_, rank_threads_, peak_flops_, communicator, console);
  if (!tiles_.empty()) console.detail("kernels", tiles_);
  if (precision_ == nn::Precision::kBfloat16) {
    const auto f32 = kernels::measure_peak_flops(context_, kernels::PeakType::kF32);
    print_bf16_rate(f32.best, peak_flops_, console);
  }
}

}  // namespace tandem::job
