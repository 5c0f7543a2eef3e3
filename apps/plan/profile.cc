#include "apps/plan/profile.h"

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <future>
#include <string>

#include "apps/bench/measure.h"
#include "apps/bench/session.h"
#include "apps/bench/training.h"
#include "apps/plan/json_keys.h"
#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/core/profile.h"
#include "tandem/core/python_json.h"

namespace tandem::apps::plan {
namespace {

using nlohmann::ordered_json;

std::array<NumberKey, 5> keys_of(MachineProfile& profile) {
  return {{{"peak_gflops", &profile.peak_flops, 1e9, 1e9, true},
           {"share_of_peak", &profile.share_of_peak, 1, 1, true},
           {"memory_gbytes_per_second", &profile.memory_bandwidth, 1e9, 1e6, true},
           {"reduce_gbytes_per_second", &profile.reduce_bandwidth, 1e9, 1e6, true},
           {"message_microseconds", &profile.message_seconds, 1e-6, 1e6, false}}};
}

double seconds_of_stage(const Profile& profile, std::string_view name) {
  for (const Profile::Stage& stage : profile.stages()) {
    if (stage.name == name) return std::chrono::duration<double>(stage.time).count();
  }
  return 0;
}

double median(std::vector<double> values) { return bench::statistics(std::move(values)).median; }

// One of several ranks that measure at the same time. They meet before each part, so that each part
// meets the same part of the others.
MachineProfile measure_rank(const Measurement& measurement, const Environment& environment,
                            std::barrier<>& meeting) {
  ThreadPool threads(measurement.threads);
  const auto precision = measurement.bf16 ? nn::Precision::kBfloat16 : nn::Precision::kFloat32;
  const bench::Machine machine(threads, environment.get("TANDEM_KERNELS").value_or(""), precision,
                               environment);
  const kernels::Context& context = machine.context();
  bench::Training training(context, measurement.config, precision, measurement.lengths,
                           measurement.head);
  const auto type = measurement.bf16 ? kernels::PeakType::kBf16 : kernels::PeakType::kF32;
  // Mean and norm of a gradient that no other rank contributes to: read and written once.
  const double reduced =
      2 * sizeof(float) * static_cast<double>(training.task().layout().trained_size());
  bench::Streams streams(context, std::size_t{1} << 24);

  training.step(nullptr);  // memory, scratch, caches
  const double flops = training.task().training_flops();
  std::vector<double> peaks, shares, reductions, updates;
  for (int round = 0; round < measurement.rounds; ++round) {
    meeting.arrive_and_wait();
    peaks.push_back(kernels::measure_peak_flops(context, type).best);
    meeting.arrive_and_wait();
    Profile profile;
    const double step = bench::seconds_of([&] { training.step(&profile); });
    const double reduction = seconds_of_stage(profile, "gradient");
    const double optimizer = seconds_of_stage(profile, "optimizer");
    shares.push_back(flops / (step - reduction - optimizer) / peaks.back());
    reductions.push_back(reduced / reduction);
    meeting.arrive_and_wait();
    updates.push_back(streams.update(measurement.bf16));
  }
  MachineProfile result;
  result.peak_flops = median(peaks);
  result.share_of_peak = std::min(1.0, median(shares));
  result.reduce_bandwidth = median(reductions);
  result.memory_bandwidth = median(updates);
  return result;
}

}  // namespace

MachineProfile parse_profile(std::string_view json, std::string_view where) {
  MachineProfile profile;
  parse_numbers(json, keys_of(profile),
                {where, "profile", "tandem plan --measure --write_profile FILE makes a whole one"});
  return profile;
}

ordered_json to_json(MachineProfile profile) { return numbers_json(keys_of(profile)); }

MachineProfile measure_profile(const Measurement& measurement, const Environment& environment) {
  std::barrier meeting(measurement.ranks);
  std::vector<std::future<MachineProfile>> ranks;
  for (int rank = 0; rank < measurement.ranks; ++rank) {
    ranks.push_back(std::async(std::launch::async, [&] {
      try {
        return measure_rank(measurement, environment, meeting);
      } catch (...) {
        meeting.arrive_and_drop();  // the others continue without it
        throw;
      }
    }));
  }
  std::vector<MachineProfile> profiles;
  for (auto& rank : ranks) rank.wait();
  for (auto& rank : ranks) profiles.push_back(rank.get());
  MachineProfile result;
  const auto median_of = [&](double MachineProfile::*field) {
    std::vector<double> values;
    for (const MachineProfile& one : profiles) values.push_back(one.*field);
    result.*field = median(std::move(values));
  };
  median_of(&MachineProfile::peak_flops);
  median_of(&MachineProfile::share_of_peak);
  median_of(&MachineProfile::memory_bandwidth);
  median_of(&MachineProfile::reduce_bandwidth);
  return result;
}

}  // namespace tandem::apps::plan
