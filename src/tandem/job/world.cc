#include "tandem/job/world.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "tandem/comm/algorithms/tuning.h"
#include "tandem/core/enum_name.h"
#include "tandem/job/rank_threads.h"
#include "tandem/trainer/enum_names.h"

namespace tandem::job {
namespace {

World elastic_world(rendezvous::Identity identity, std::unique_ptr<elastic::AgentChannel> channel,
                    const comm::Options& options) {
  elastic::ViewNetwork network{identity.interface, options};
  network.options.tuning = {};                // there are many views
  network.options.flight_record_folder = "";  // and their ends are not failures of the job
  return {.identity = std::move(identity),
          .communicator = comm::Communicator::create(0, 1, {}, /*loopback_only=*/true, options),
          .elastic = ElasticWorker{std::move(channel), std::move(network)}};
}

}  // namespace

World join_world(const Environment& environment, const trainer::TrainingArguments& training,
                 WorldEvents events) {
  rendezvous::Identity identity = rendezvous::identify(environment);
  comm::Options options;
  options.timeout = std::chrono::seconds(training.ddp_timeout);
  options.node_id = environment.get("TANDEM_NODE_ID").value_or("");
  options.transport =
      comm::choose_transport(enum_name(training.ddp_backend), environment, identity.distributed());
  options.selection = comm::Selection::from_environment(environment);
  options.worker =
      comm::WorkerOptions::from_environment(environment, openmp_threads(environment).value_or(0));
  options.tuning = comm::tuning_from_environment(environment);
  options.flight_record_folder =
      environment.get("TANDEM_FLIGHT_RECORD").value_or(training.output_dir);
  comm::read_limits_of_silence(environment, options);
  options.log = events.log;
  auto channel = elastic::AgentChannel::take(environment);
  if (events.meets) events.meets();
  if (channel) return elastic_world(std::move(identity), std::move(channel), options);
  options.on_failure = std::move(events.on_failure);
  auto communicator = comm::Communicator::create(identity, std::move(options));
  World world{std::move(identity), std::move(communicator)};
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
  const bool leads = world.elastic || world.is_main() ||
                     (training.log_on_each_node && communicator.local_rank() == 0);
  const LogLevel level = leads ? training.log_level : training.log_level_replica;
  return {.main_process = world.is_main(),
          .details = level == LogLevel::kDebug || level == LogLevel::kDetail,
          .library_lines = !is_silent(level) && (leads || level != LogLevel::kPassive),
          .only_main_process = world.elastic.has_value(),
          .progress_bars = !training.disable_tqdm.value_or(false),
          .rank = world.identity.rank,
          .world_size = world.elastic ? world.elastic->info().workers : communicator.size()};
}

}  // namespace tandem::job
