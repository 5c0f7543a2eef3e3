// GradientEngine::synchronize_state() with a state that a link has damaged: the receiver discards
// all of it, and the next transfer is right.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>

#include "support/require.h"
#include "tandem/comm/collectives/test_ranks.h"
#include "tandem/core/error.h"
#include "tandem/dist/gradient_engine.h"
#include "tandem/dist/gradient_engine_state.h"
#include "tandem/kernels/kernel_set.h"
#include "tandem/kernels/scratch.h"

namespace tandem::dist {
namespace {

using comm::Communicator;
using tandem::testing::require;

constexpr std::size_t kStateElements = 2 * ModelState::kChunk + 3;
constexpr std::uint64_t kNewest = 9;
const std::string kTrainingProgress = "after step 9 the loss was 0.25";

struct StateMachine {
  ThreadPool threads{1};
  kernels::KernelSet kernels = kernels::select_kernels(kernels::CpuFeatures::detect(), "");
  kernels::Scratch scratch{1};
  kernels::Context context{threads, kernels, scratch};
};

// All that belongs to one step.
struct Sent {
  std::vector<float> weights = std::vector<float>(kStateElements, 3.0f);
  std::vector<float> moments = std::vector<float>(kStateElements, 0.125f);
  std::vector<double> record = {0.25};
  std::string training_progress = kTrainingProgress;
};

void put(ModelState& model, std::uint64_t step, const Sent& values) {
  std::copy(values.weights.begin(), values.weights.end(), model.weights().begin());
  std::copy(values.moments.begin(), values.moments.end(), model.optimizer_state().begin());
  model.set_step(step, values.record);
  model.set_filled();
}

bool holds(const ModelState& model, std::uint64_t step, const Sent& values) {
  return model.filled() && model.step() == step && model.record() == values.record &&
         std::ranges::equal(model.weights(), values.weights) &&
         std::ranges::equal(model.optimizer_state(), values.moments);
}

void report_level(Communicator& communicator, std::uint64_t step) {
  const std::uint64_t own[] = {step, 0};
  std::vector<std::uint64_t> all(4);
  communicator.all_gather(std::span<const std::uint64_t>(own), std::span(all));
}

// Takes part in synchronize_state() as a node without state, and keeps what came.
Sent intercept(Communicator& communicator, std::uint64_t& checksum) {
  Sent taken;
  report_level(communicator, 0);
  std::vector<std::uint64_t> length(1), sum(1);
  const auto receive = [&](auto& values) {
    communicator.receive(std::span(values), 0, kWeightsChannel);
  };
  receive(taken.weights);
  receive(taken.moments);
  receive(taken.record);
  receive(length);
  taken.training_progress.resize(length[0]);
  receive(taken.training_progress);
  receive(sum);
  checksum = sum[0];
  return taken;
}

// Takes part in synchronize_state() as the source.
void pass_on(Communicator& communicator, const Sent& values, std::uint64_t checksum) {
  report_level(communicator, kNewest);
  const auto send = [&](const auto& sent) {
    communicator.send(std::span(sent), 0, kWeightsChannel);
  };
  send(values.weights);
  send(values.moments);
  send(values.record);
  send(std::vector<std::uint64_t>{values.training_progress.size()});
  send(values.training_progress);
  send(std::vector<std::uint64_t>{checksum});
}

// Bits of one part are changed.
void damage(std::string_view part, Sent& sent, std::uint64_t& checksum) {
  if (part == "weights") sent.weights.back() = std::nextafter(3.0f, 4.0f);
  if (part == "moments") sent.moments[7] = -sent.moments[7];
  if (part == "record") sent.record[0] = -sent.record[0];
  if (part == "account") sent.training_progress[11] = '8';
  if (part == "checksum") checksum ^= 1;
}

using Part = std::tuple<std::string, std::uint64_t>;
class DamagedTransfer : public ::testing::TestWithParam<Part> {};

// Rank 0 has the newest state; rank 1 is the wire to a node, on rank 0 again, that is behind.
void transfer(Communicator& communicator, std::string_view part, std::uint64_t has) {
  StateMachine machine;
  const ModelStateOptions options = {
      .elements = kStateElements, .optimizer_state_elements = kStateElements, .record_values = 1};
  ModelState newest(options), behind(options);
  GradientEngine of_newest(communicator, machine.context, newest, {});
  GradientEngine of_behind(communicator, machine.context, behind, {});
  if (communicator.rank() == 1) {
    std::uint64_t checksum = 0;
    const Sent sent = intercept(communicator, checksum);
    Sent changed = sent;
    std::uint64_t changed_sum = checksum;
    damage(part, changed, changed_sum);
    pass_on(communicator, changed, changed_sum);
    return pass_on(communicator, sent, checksum);
  }
  put(newest, kNewest, Sent());
  of_newest.synchronize_state({.training_progress = kTrainingProgress});
  Sent own;
  std::fill(own.weights.begin(), own.weights.end(), -1.0f);
  if (has > 0) put(behind, has, own);
  std::string training_progress, why;
  try {
    of_behind.synchronize_state(
        {.arrives = [&](const std::string& text) { training_progress = text; }});
  } catch (const CommError& error) {
    why = error.what();
  }
  require(why.find("arrived damaged") != why.npos, "the damage was not found");
  require(training_progress.empty(), "a damaged account counts");
  const bool kept = has > 0 ? holds(behind, has, own) : behind.step() == 0 && !behind.filled();
  require(kept, "what it had is not kept");
  of_behind.synchronize_state(
      {.arrives = [&](const std::string& text) { training_progress = text; }});
  require(holds(behind, kNewest, Sent()) && training_progress == kTrainingProgress,
          "what was sent again");
}

TEST_P(DamagedTransfer, IsRefusedAndRepeated) {
  const auto ended = comm::testing::run_processes(
      2,
      [](Communicator& communicator) {
        transfer(communicator, std::get<0>(GetParam()), std::get<1>(GetParam()));
        communicator.barrier();
      },
      [](int rank) {
        comm::Options options = comm::testing::test_options(rank);
        options.node_id = rank == 0 ? "a" : "b";
        return options;
      });
  for (const auto& one : ended) EXPECT_TRUE(one.exited_with(0)) << one.output;
}

INSTANTIATE_TEST_SUITE_P(Of, DamagedTransfer,
                         ::testing::Combine(::testing::Values("weights", "moments", "record",
                                                              "account", "checksum"),
                                            ::testing::Values(0, 4)));

}  // namespace
}  // namespace tandem::dist
