#include "tandem/job/views.h"

#include <memory>
#include <optional>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/elastic/transfer/state_transfer.h"
#include "tandem/elastic/worker/view_loop.h"
#include "tandem/job/agreed_inputs.h"
#include "tandem/job/elastic.h"
#include "tandem/job/job_output.h"
#include "tandem/job/stages.h"
#include "tandem/job/start_report.h"
#include "tandem/trainer/elastic_callbacks.h"
#include "tandem/trainer/training_plan.h"

namespace tandem::job {
namespace {

Progress sync_learned(elastic::AgentChannel& channel, const elastic::Assignment& assignment,
                      dist::ModelState& state, dist::GradientEngine& gradients,
                      comm::Communicator& communicator, elastic::StateTransfer& transfer,
                      Console& console) {
  SyncedProgress synced =
      synchronize_state(channel, assignment, state, gradients, communicator, transfer.learner());
  if (synced.moved && transfer.learner() != nullptr)
    console.warning_of_host("the state that was learned was not the job's: it came in the view");
  transfer.forget();
  return std::move(synced.progress);
}

// One view of an elastic job, to the end of the job or of the view (CommError, ViewChanges).
Outcome compute_in_view(const TrainingRun& run, comm::Communicator& communicator,
                        elastic::AgentChannel& channel, const elastic::Assignment& assignment,
                        elastic::StateTransfer& transfer, std::optional<RunReports>& reports) {
  const bool is_main = communicator.rank() == 0;
  Weights& weights = run.weights;
  const kernels::Context& context = run.machine.context();
  Console& console = run.observers.console;
  console.set_main_process(is_main);
  if (is_main) keep_locked(run.training.output_dir, run.output.lock);
  if (!reports) console.fact("ranks", communicator.describe());
  dist::GradientEngineOptions options = engine_options(run.training, communicator.size());
  transfer.take_part_in(options);
  dist::GradientEngine gradients(communicator, context, *weights.state, options);
  if (!reports) log_memory_location(gradients, console);
  if (gradients.node_leader() && transfer.learner() == nullptr) weights.state->clear_remains();
  communicator.barrier();
  gradients.finish_update(context, *weights.optimizer);
  const Progress progress =
      sync_learned(channel, assignment, *weights.state, gradients, communicator, transfer, console);
  // A joining node has received the job's weights by now and reads none: the others would wait for
  // it.
  fill_weights(run, communicator, gradients.node_leader());
  TANDEM_CHECK(!progress.trainer.empty() || run.output.resume || !weights.state->step(),
               "weights of step {} without the record of their progress", weights.state->step());
  // The previous main process continues with its data; a new one begins with none.
  if (!reports || reports->is_main() != is_main) {
    reports.emplace(run, communicator);
    for (const auto& [stage, metrics] : progress.results) reports->add_results(stage, metrics);
  }
  // Otherwise a checkpoint is read into it now.
  if (gradients.node_leader() && !progress.trainer.empty())
    transfer.source().settled(weights.state->step());
  ViewCallbacks callbacks(channel, assignment, progress);
  if (callbacks.paused() && callbacks.stage() != Stage::kTrain)
    raise<trainer::ViewChanges>("the job waits for more nodes");
  const DivertedLog diverted(console, callbacks);
  const Outcome outcome = compute(run, communicator, gradients, *reports, callbacks, progress);
  communicator.barrier();  // no rank is done before the files of the job exist
  return outcome;
}

int done_code(Outcome outcome) {
  return outcome == Outcome::kStopped ? 143 : outcome == Outcome::kDone ? 0 : 1;
}

// The job's first batch, with placeholder weights. The gradient uses the memory of the first real
// one.
void compute_first_batch(const TrainingRun& run) {
  const trainer::TrainingArguments& training = run.training;
  tasks::Task& task = run.model.task;
  const trainer::TrainingPlan plan =
      trainer::make_training_plan(training, task, *training.logical_shards);
  const data::EpochBatches order = trainer::epoch_batches(training, plan, task, 0);
  const dist::ModelState& state = *run.weights.state;
  const nn::Weights weights{state.weights(), state.bf16_weights()};
  const nn::DropoutStream dropout{.enabled = true};
  const kernels::Context& context = run.machine.context();
  task.load_train_batch(order.batch(0, 0), 0);
  task.forward(context, weights, dropout);
  task.backward(context, weights, dropout, 1.0, state.gradient(), /*accumulate=*/false,
                [](std::size_t) {});
}

}  // namespace

Outcome compute_in_views(const TrainingRun& run, const ElasticWorker& worker) {
  elastic::AgentChannel& channel = *worker.channel;
  Weights& weights = run.weights;
  std::optional<RunReports> reports;
  elastic::StateTransfer transfer(channel, worker.network,
                                  {.model = *weights.state,
                                   .optimizer = *weights.optimizer,
                                   .context = run.machine.context(),
                                   .rehearse = [&run] { compute_first_batch(run); }});
  elastic::AgentChannel::Ready ready =
      ready_to_compute(0, *run.training.logical_shards, run.machine.arithmetic(),
                       run.request.lines() + describe_inputs(run.task, run.model));
  Outcome outcome = Outcome::kDone;
  const auto compute_one = [&](const elastic::Assignment& assignment,
                               comm::Communicator& communicator) -> std::optional<int> {
    try {
      outcome = compute_in_view(run, communicator, channel, assignment, transfer, reports);
      return done_code(outcome);
    } catch (const trainer::ViewChanges&) {
      return std::nullopt;
    }
  };
  elastic::compute_in_views(channel, worker.network,
                            {.ready =
                                 [&] {
                                   ready.step = weights.state->reachable_step();
                                   return ready;
                                 },
                             .reachable_step = [&] { return weights.state->reachable_step(); },
                             .learn = [&] { transfer.learn(); },
                             .compute = compute_one});
  return outcome;
}

}  // namespace tandem::job
