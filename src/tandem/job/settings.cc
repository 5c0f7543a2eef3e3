#include "tandem/job/settings.h"

#include <utility>

#include "tandem/comm/texts.h"
#include "tandem/job/elastic.h"

namespace tandem::job {
namespace {

// In an elastic job one worker chooses the output directory, looks for a checkpoint and counts the
// shards, once, and all use its results. Returns the logical shards, unless a flag sets them.
int choose_output(Request& request, PreparedOutput& output, const Environment& environment,
                  const World& world, Console& console) {
  trainer::TrainingArguments training = request.arguments.training;
  training.do_train = request.arguments.trains();
  const auto prepare = [&] {
    output.directory.emplace(request, environment, *world.communicator, console);
    agree(*world.communicator, "command line", request.lines());
    training.output_dir = request.arguments.training.output_dir;
    prepare_output(training, output, *world.communicator, console);
    output.directory->keep();
  };
  if (!world.elastic) {
    prepare();
    return world.communicator->size();
  }
  const auto decide = [&] {
    prepare();
    return to_text(Decision{training.output_dir, output.resume ? output.resume->native() : "",
                            world.elastic->info().shards});
  };
  const Decision decision = decision_from(world.elastic->channel->decision(decide));
  set_output_dir(request, decision.output_dir);
  if (!decision.resume.empty()) output.resume = decision.resume;
  return decision.shards;
}

}  // namespace

trainer::TrainingArguments settle(Request& request, PreparedOutput& output,
                                  const Environment& environment, const World& world,
                                  Console& console) {
  const int shards = choose_output(request, output, environment, world, console);
  trainer::TrainingArguments training = request.arguments.training;
  output.volume.emplace(training.output_dir);
  training.do_train = request.arguments.trains();
  split_batch_sizes(training.logical_shards.value_or(shards), training);
  if (output.resume && training.do_train)
    adopt_checkpoint_settings(*output.resume, shards, training, console);
  if (world.elastic && !training.logical_shards) training.logical_shards = shards;
  return training;
}

}  // namespace tandem::job
