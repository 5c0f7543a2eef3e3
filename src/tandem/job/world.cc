#include "tandem/job/world.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "tandem/comm/algorithms/tuning.h"
#include "tandem/core/enum_name.h"
#include "tandem/job/rank_threads.h"
#include "tandem/trainer/enum_names.h"

namespace tandem::job {

World join_world(const Environment& environment, const trainer::TrainingArguments& training,
                 WorldEvents events) {
  World world{.identity = rendezvous::identify(environment), .communicator = nullptr};
  comm::Options options;
  options.timeout = std::chrono::seconds(training.ddp_timeout);
  options.node_id = environment.get("TANDEM_NODE_ID").value_or("");
  options.transport = comm::choose_transport(enum_name(training.ddp_backend), environment,
                                             world.identity.distributed());
  options.selection = comm::Selection::from_environment(environment);
  options.worker =
      comm::WorkerOptions::from_environment(environment, openmp_threads(environment).value_or(0));
  options.tuning = comm::tuning_from_environment(environment);
  options.flight_record_folder =
      environment.get("TANDEM_FLIGHT_RECORD").value_or(training.output_dir);
  comm::read_limits_of_silence(environment, options);
  options.log = events.log;
  world.channel = elastic::AgentChannel::take(environment);
  if (events.meets) events.meets();
  if (world.channel) {
    world.view_options = options;
    world.view_options.tuning = {};                // there are many views
    world.view_options.flight_record_folder = "";  // and their ends are not failures of the job
    world.communicator = comm::Communicator::create(0, 1, {}, /*loopback_only=*/true, options);
    return world;
  }
  options.on_failure = std::move(events.on_failure);
  world.communicator = comm::Communicator::create(world.identity, std::move(options));
  if (!events.log) return world;
  if (events.log_position) {
    events.log(fmt::format("{}; {}", rendezvous::describe(world.identity),
                           world.communicator->describe()));
  }
  if (world.is_main()) {
    for (const std::string& note : world.communicator->options().selection.notes) events.log(note);
  }
  return world;
}

ConsoleOptions console_options(const trainer::TrainingArguments& training, const World& world) {
  using trainer::LogLevel;
  const comm::Communicator& communicator = *world.communicator;
  const auto is_silent = [](LogLevel level) {
    return level == LogLevel::kWarning || level == LogLevel::kError || level == LogLevel::kCritical;
  };
  const bool leads = world.channel || world.is_main() ||
                     (training.log_on_each_node && communicator.local_rank() == 0);
  const LogLevel level = leads ? training.log_level : training.log_level_replica;
  return {.main_process = world.is_main(),
          .details = level == LogLevel::kDebug || level == LogLevel::kDetail,
          .library_lines = !is_silent(level) && (leads || level != LogLevel::kPassive),
          .only_main_process = world.channel != nullptr,
          .progress_bars = !training.disable_tqdm.value_or(false),
          .rank = world.identity.rank,
          .world_size = world.channel ? world.channel->info().workers : communicator.size()};
}

}  // namespace tandem::job
