#include "apps/job_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "apps/arguments/job_command_line.h"
#include "apps/command/communication_log.h"
#include "apps/command/download_progress.h"
#include "apps/command/log_prefix.h"
#include "apps/command/own_path.h"
#include "apps/console.h"
#include "apps/lost_mappings.h"
#include "apps/monitor/agent_metrics.h"
#include "apps/monitor/metrics.h"
#include "apps/monitor/trainjob_status.h"
#include "apps/proxy.h"
#include "apps/stop_signals.h"
#include "tandem/comm/communicator.h"
#include "tandem/comm/failure/flight_recorder.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/interruption.h"
#include "tandem/core/log_line.h"
#include "tandem/core/volume.h"
#include "tandem/job/job.h"
#include "tandem/job/shared_error.h"
#include "tandem/job/world.h"
#include "tandem/launch/process/failure.h"
#include "tandem/rendezvous/bootstrap.h"
#include "tandem/rendezvous/identity.h"
#include "tandem/rendezvous/pmi.h"

namespace tandem::apps {
namespace {

constexpr int kExitFailed = 1;

void handle_record_request(int) { comm::request_flight_records(); }

// Launchers pass both on; neither may end a rank.
void handle_user_signals() {
  for (const int number : {SIGUSR1, SIGUSR2}) std::signal(number, handle_record_request);
}

// The training thread may be deep in a matrix product when a peer dies: then this function ends the
// process.
[[noreturn]] void end_after_failure(const Environment& environment, const LogPrefix& log_prefix,
                                    const std::string& message) {
  write_log(log_prefix, message, "ERROR");
  std::fflush(nullptr);
  const int code = CommError("").exit_code();
  rendezvous::end_job(environment, code);
  _exit(code);
}

// A thread waits for bytes that never come.
[[noreturn]] void end_without_volume(const Environment& environment, const LogPrefix& log_prefix,
                                     comm::Communicator& communicator, const std::string& message) {
  leave_reason(environment, message);
  communicator.life().abort(message);
  write_log(log_prefix, message, "ERROR");
  std::fflush(nullptr);
  rendezvous::end_job(environment, kVolumeGone);
  _exit(kVolumeGone);
}

job::World join_world(const Environment& environment, const trainer::TrainingArguments& training,
                      const LogPrefix& log_prefix, bool& meets) {
  const CommunicationLog level = communication_log(environment);
  return job::join_world(environment, training,
                         {.log = log_printer(level, log_prefix),
                          .log_position = level == CommunicationLog::kInfo,
                          .meets = [&meets] { meets = true; },
                          .on_failure =
                              [environment, log_prefix](const std::string& message) {
                                end_after_failure(environment, log_prefix, message);
                              }});
}

// Rank 0 logs the error, and no rank ends before: a launcher ends all ranks as soon as one has.
// Each worker of an elastic job has found it out alone.
void write_log_once(const job::World& world, const Environment& environment,
                    const StopSignals& signals, const LogPrefix& log_prefix,
                    const std::string& message) {
  if (world.elastic && !let_rank_0_log(environment, [&] { return signals.requested().load(); }))
    return;
  comm::Communicator& communicator = *world.communicator;
  if (communicator.rank() == 0) write_log(log_prefix, message, "ERROR");
  try {
    communicator.barrier();
    communicator.close();
  } catch (const CommError&) {  // a dead rank needs no waiting for
  }
}

int exit_code(job::Outcome outcome) {
  if (outcome == job::Outcome::kRejected) return kExitFailed;
  return outcome == job::Outcome::kStopped ? StopSignals::exit_code() : 0;
}

// Further observers of the job: Prometheus and Kubernetes, if the environment asks for them.
class Watchers {
 public:
  Watchers(const Environment& environment, const job::World& world, Console& console) {
    if (auto server = status_server(environment)) {
      status_.emplace(std::move(*server),
                      [&console](const std::string& text) { console.warning(text); });
    }
    const auto port = environment.get_int("TANDEM_METRICS_PORT", 1, 65535);
    if (!port || (!world.elastic && world.identity.local_rank != 0)) return;
    metrics_.emplace(world.identity.world_size,
                     environment.get_int("TORCHELASTIC_RESTART_COUNT", 0, 1000000).value_or(0));
    if (world.elastic) {  // its agent has the port
      to_agent_.emplace(*world.elastic->channel, *metrics_);
      return;
    }
    try {
      server_.emplace(*metrics_, static_cast<std::uint16_t>(*port));
    } catch (const ConfigError& error) {
      console.warning_of_host(fmt::format("TANDEM_METRICS_PORT={}: {}; the job continues without",
                                          *port, error.what()));
    }
  }
  trainer::Observer& of_every_rank() {
    if (to_agent_) return *to_agent_;
    if (metrics_) return *metrics_;
    return none_;
  }
  trainer::Observer& of_main_process() {
    if (status_) return *status_;
    return none_;
  }

 private:
  trainer::Observer none_;
  std::optional<TrainJobStatus> status_;
  std::optional<TrainingMetrics> metrics_;
  std::optional<MetricsServer> server_;
  std::optional<WorkerMetrics> to_agent_;
};

// The console of this process, and the other observers of its job.
class JobObservers {
 public:
  JobObservers(const job::ConsoleOptions& options, const job::World& world,
               const Environment& environment, const LogPrefix& log_prefix)
      : console_(options),
        downloads_(options.progress_bars, world.is_main(), log_prefix),
        watchers_(environment, world, console_) {}

  job::Observers get() {
    return {console_, downloads_, watchers_.of_every_rank(), watchers_.of_main_process()};
  }

 private:
  Console console_;
  DownloadProgress downloads_;
  Watchers watchers_;
};

job::ConsoleOptions console_options(const trainer::TrainingArguments& training,
                                    const job::World& world, LogFormat format) {
  job::ConsoleOptions options = job::console_options(training, world);
  options.format = format;
  return options;
}

job::StopRequests stop_requests(StopSignals& signals) {
  return {
      .requested = signals.requested(),
      .during_training = [&signals] { return std::make_shared<StopSignals::Training>(signals); },
      .name = [] { return std::string(StopSignals::name()); }};
}

// In a catch block, of an error of the job. Notifies the other ranks, and rethrows it or returns
// the exit code.
int end_after_current_error(const job::World& world, const Environment& environment,
                            StopSignals& signals, const LogPrefix& log_prefix) {
  signals.let_end();
  try {
    throw;
  } catch (const CommError&) {
    throw;
  } catch (const job::SharedError& error) {
    write_log_once(world, environment, signals, log_prefix, error.what());
    throw;
  } catch (const Interrupted&) {
    write_log(log_prefix, fmt::format("stopped by {}", StopSignals::name()), "WARNING");
    world.communicator->life().abort(fmt::format("it was stopped by {}", StopSignals::name()));
    return StopSignals::exit_code();
  } catch (const std::exception& error) {
    world.communicator->life().abort(error.what());  // the other ranks end too, and log the reason
    throw;
  }
}

std::span<const models::Family* const> families_of(const JobCommand& command) {
  if (command.trained == Trained::kBoth) return models::all_families();
  return command.trained == Trained::kDecoders ? models::decoder_families() : models::families();
}

LogPrefix log_prefix_of(const trainer::TrainingArguments& arguments,
                        const Environment& environment) {
  LogPrefix log_prefix;
  log_prefix.format = arguments.log_format.value_or(log_format(environment));
  if (const auto identity = rendezvous::identify(environment); identity.distributed())
    log_prefix.rank = identity.rank;
  return log_prefix;
}

}  // namespace

bool let_rank_0_log(const Environment& environment, const std::function<bool()>& ended) {
  constexpr std::chrono::milliseconds kRank0AndItsLauncher{3000};
  constexpr std::chrono::milliseconds kLook{20};
  long rank = 0;
  try {
    // A worker of an elastic job has no rank yet, only its place on its host.
    const bool elastic = environment.get("TANDEM_AGENT").has_value();
    if (elastic) {
      rank = environment.get_int("RANK", 0, 1 << 20).value_or(0);
    } else if (const auto identity = rendezvous::identify(environment);
               identity.ended_by_launcher) {
      rank = identity.rank;
    }
  } catch (const Error&) {  // this process cannot be identified either: it logs at once
  }
  for (std::chrono::milliseconds waited{0}; rank > 0 && waited < kRank0AndItsLauncher;
       waited += kLook) {
    if (ended()) return false;
    std::this_thread::sleep_for(kLook);
  }
  return true;
}

void leave_reason(const Environment& environment, std::string_view reason) {
  const auto path = environment.get("TORCHELASTIC_ERROR_FILE");
  if (!path) return;
  try {
    write_file(*path, launch::error_file_text(std::string(reason), "",
                                              static_cast<long>(std::time(nullptr))));
  } catch (const IoError&) {  // the reason is printed, too
  }
}

void notify_ranks_of_current_error(const Environment& environment,
                                   const LogPrefix& log_prefix) noexcept {
  try {
    throw;
  } catch (const std::exception& error) {
    try {
      if (environment.get("TANDEM_AGENT")) return;
      rendezvous::BootstrapOptions options;
      options.late_ranks = rendezvous::kLateRanks;
      options.late_rank_0 = rendezvous::kLateRank0;
      options.log = [&log_prefix](const std::string& line) { write_log(log_prefix, line); };
      rendezvous::report_failure(rendezvous::identify(environment), error.what(), options);
    } catch (const std::exception&) {  // the rank of this process is unknown
    }
  } catch (...) {
  }
}

int run_job(const JobCommand& command, const Invocation& invocation, bool& meets,
            std::span<const models::Family* const> families) {
  const Environment& environment = invocation.environment;
  const auto arguments = command.arguments();
  job::Request request =
      parse_request(invocation.words, std::filesystem::current_path(), environment, *arguments);
  request.program = shown_program(environment);
  request.families = families.empty() ? families_of(command) : families;
  const auto task = arguments->make_job();
  const LogPrefix log_prefix = log_prefix_of(request.arguments.training, environment);
  if (log_prefix.format == LogFormat::kJson) print_failed_checks_as_json();
  if (const auto code =
          run_proxy_for_rank(command.name, invocation, request.arguments.training, log_prefix))
    return *code;
  StopSignals signals(log_prefix);
  handle_user_signals();
  std::signal(SIGPIPE, SIG_IGN);  // `… | head` ends the reader, not the training
  const job::World world = join_world(environment, request.arguments.training, log_prefix, meets);
  const LostMappings lost([&](const std::string& message) {
    end_without_volume(environment, log_prefix, *world.communicator, message);
  });
  try {
    job::Outcome outcome = job::Outcome::kDone;
    {
      JobObservers observers(console_options(request.arguments.training, world, log_prefix.format),
                             world, environment, log_prefix);
      outcome =
          job::run(request, *task, world, environment, observers.get(), stop_requests(signals));
    }
    signals.let_end();
    world.communicator->close();
    return exit_code(outcome);
  } catch (const std::exception&) {
    return end_after_current_error(world, environment, signals, log_prefix);
  }
}

}  // namespace tandem::apps
