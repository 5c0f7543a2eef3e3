#include "tandem/job/job.h"

#include <chrono>
#include <optional>

#include "tandem/job/job_output.h"
#include "tandem/job/machine.h"
#include "tandem/job/memory_plan.h"
#include "tandem/job/model.h"
#include "tandem/job/quantize.h"
#include "tandem/job/run_reports.h"
#include "tandem/job/settings.h"
#include "tandem/job/stages.h"
#include "tandem/job/start_report.h"
#include "tandem/job/training_run.h"
#include "tandem/job/views.h"

namespace tandem::job {
namespace {

// The plan in bytes at the peak of this rank's node. Throws ConfigError if it exceeds the memory.
std::size_t plan_job_memory(const TrainingRun& run, const World& world,
                            const dist::GradientEngine& gradients) {
  comm::Communicator& communicator = *world.communicator;
  Console& console = run.observers.console;
  const Arguments& arguments = run.request.arguments;
  const std::size_t of_quantization = quantization_bytes(arguments, run.model.task);
  MemoryPlan plan =
      plan_memory(run.training, run.machine.context(), communicator, gradients,
                  {run.task, run.model.task}, world.elastic ? world.elastic->info().workers : 0);
  plan.quantization =
      of_quantization + compared_output_bytes(arguments.quantization, run.task, communicator);
  const std::size_t planned = print_memory_plan(plan, communicator, console);
  check_memory_limits(plan, communicator, console);
  return planned;
}

}  // namespace

Outcome run(const Request& asked, tasks::JobTask& task, const World& world,
            const Environment& environment, const Observers& observers, const StopRequests& stop) {
  const auto started = std::chrono::system_clock::now();
  Request request = asked;
  const Arguments& arguments = request.arguments;
  comm::Communicator& communicator = *world.communicator;
  Console& console = observers.console;
  print_start(request, task, world.identity, communicator, console);
  if (!arguments.trains() && !arguments.training.do_eval && !arguments.training.do_predict) {
    console.warning("nothing is to do: pass --do_train, --do_eval or --do_predict");
    return Outcome::kDone;
  }
  warn_of_no_training(arguments, task.examples(), world.is_main(), console);
  PreparedOutput output;
  const trainer::TrainingArguments training = settle(request, output, environment, world, console);

  Machine machine(environment, precision_of(training), communicator);
  console.set_peak_flops(machine.peak_flops());
  machine.describe(communicator, console);

  const Model model = open_model(request, training, output.resume, task, environment, observers,
                                 machine, communicator);
  Weights weights = make_weights(training, model.task.layout(), machine, world);
  TrainingRun training_run{request, task,    environment, observers, stop,   training,
                           output,  machine, model,       weights,   started};
  std::optional<dist::GradientEngine> gradients;
  gradients.emplace(communicator, machine.context(), *weights.state,
                    engine_options(training, communicator.size()));
  load_weights(training_run, world, *gradients);
  print_estimates(training, {task, model.task}, *weights.state, *gradients, communicator, console);
  training_run.planned_memory = plan_job_memory(training_run, world, *gradients);
  Outcome outcome = Outcome::kDone;
  if (world.elastic) {
    gradients.reset();  // each view has its own
    outcome = compute_in_views(training_run, *world.elastic);
  } else {
    RunReports reports(training_run, communicator);
    JobCallbacks callbacks;
    outcome = compute(training_run, communicator, *gradients, reports, callbacks);
  }
  if (outcome == Outcome::kDone && output.directory) output.directory->finish();
  return outcome;
}

}  // namespace tandem::job
