#include "tandem/launch/mpirun/mpi_launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <thread>

#include "tandem/core/error.h"
#include "tandem/launch/mpirun/host_link.h"
#include "tandem/launch/mpirun/job_outcome.h"
#include "tandem/launch/mpirun/pmi_server.h"
#include "tandem/launch/mpirun/rank_output.h"
#include "tandem/launch/mpirun/rank_plan.h"
#include "tandem/launch/mpirun/rank_start.h"
#include "tandem/launch/mpirun/stop_times.h"
#include "tandem/launch/process/failure.h"
#include "tandem/launch/process/signal_inbox.h"
#include "tandem/launch/run/endpoint_plan.h"
#include "tandem/net/event_loop.h"

namespace tandem::launch {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// Ranks of tandem's own jobs learn of a failure from each other and report why they end.
constexpr auto kOwnLastWords = 3s;
// Time for other ends with the same cause.
constexpr auto kSameMoment = 100ms;
constexpr auto kFarewell = 3s;
constexpr auto kFirstNotice = 4s;  // notice of hosts and ranks that have not started
constexpr int kHostLost = 200;
constexpr int kTimeoutExitCode = 124;

double now_in_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Variables of a launcher above this one are not for these ranks, nor is a host's name for others.
EnvironmentMap own_environment(EnvironmentMap inherited) {
  std::erase_if(inherited, [](const auto& entry) {
    const std::string& name = entry.first;
    return name.starts_with("PMI_") || name.starts_with("PMIX_") || name.starts_with("HYDI_") ||
           name.starts_with("OMPI_COMM_WORLD_") || name.starts_with("MPI_LOCAL") ||
           name == "HOSTNAME";
  });
  return inherited;
}

std::vector<HostfileEntry> hosts_of(const MpiLine& line) {
  if (!line.hosts.empty()) return line.hosts;
  if (!line.host_file.empty()) return read_hostfile(line.host_file);
  return {{"localhost", 1}};
}

class MpiJob {
 public:
  explicit MpiJob(MpirunParts parts)
      : parts_(std::move(parts)),
        own_job_(is_own_job(parts_.line, parts_.job_commands)),
        elastic_(own_job_ && may_be_elastic(parts_.line, parts_.inherited)),
        plan_(plan_ranks(parts_.line, hosts_of(parts_.line))),
        inbox_({SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}),
        pmi_(pmi_rules()),
        ranks_(static_cast<std::size_t>(plan_.size())),
        output_(parts_.line, parts_.console) {}

  int run() {
    begun_ = Clock::now();
    for (int host = 0; host < static_cast<int>(plan_.hosts.size()); ++host) reach(host);
    while (!over()) step();
    let_daemons_go();
    return finish();
  }

 private:
  struct Rank {
    int local = 0;
    pid_t pid = 0;
    std::optional<Ending> ending;
    bool gone = false;  // ended, or its host is lost
  };

  PmiRules pmi_rules() const {
    PmiRules rules;
    rules.size = plan_.size();
    rules.universe_size =
        parts_.line.universe_size.value_or(std::max(plan_.num_slots, plan_.size()));
    rules.mapping = process_mapping(plan_.host_of);
    rules.program_of = plan_.block_of;
    rules.space = fmt::format("kvs_{}_0", ::getpid());
    return rules;
  }

  Rank& rank(int number) { return ranks_[static_cast<std::size_t>(number)]; }
  int host_of(int number) const { return plan_.host_of[static_cast<std::size_t>(number)]; }
  const HostSettings& settings_of(int host) const {
    return plan_.settings[static_cast<std::size_t>(host)];
  }
  HostLink& link_of(int number) { return *links_[static_cast<std::size_t>(host_of(number))]; }
  PrintingRank printing(int number) const {
    const int host = host_of(number);
    return {number, host, plan_.hosts[static_cast<std::size_t>(host)]};
  }

  void reach(int host) {
    const std::string& name = plan_.hosts[static_cast<std::size_t>(host)];
    const bool remote =
        parts_.line.launcher == "ssh" && !names_this_machine(name, names_of_this_machine());
    HostLinkParts parts;
    parts.host = name;
    parts.remote = remote;
    parts.environment = parts_.inherited;
    parts.command = daemon_command(parts_.line, parts_.self, parts_.daemon_word, name, remote,
                                   settings_of(host));
    if (parts_.line.verbose) {
      parts_.log(fmt::format("ranks {} on {}: {}", fmt::join(plan_.ranks_on(host), ", "), name,
                             fmt::join(parts.command, " ")));
    }
    links_.push_back(std::make_unique<HostLink>(std::move(parts)));
    links_.back()->send({DaemonMessage::Kind::kStart, -1, to_text(start_of(host))});
  }

  RankStart start_of(int host) {
    RankStart start;
    start.size = plan_.size();
    start.own_job = own_job_;
    const HostSettings& settings = settings_of(host);
    start.bind_to = settings.bind_to.empty() ? parts_.line.bind_to : settings.bind_to;
    start.map_by = !settings.map_by.empty()    ? settings.map_by
                   : !settings.bind_to.empty() ? settings.bind_to
                                               : parts_.line.map_by;
    start.input_rank = parts_.line.input_rank;
    for (const MpiBlock& block : parts_.line.blocks) {
      start.programs.push_back(program_of(block));
      if (!settings.interface.empty())
        start.programs.back().environment["TANDEM_IFNAME"] = settings.interface;
      if (!elastic_) continue;
      EnvironmentMap& environment = start.programs.back().environment;
      environment["TANDEM_ELASTIC"] = "1";
      // In Hydra's words.
      environment["MPIR_CVAR_CH3_INTERFACE_HOSTNAME"] = plan_.hosts[static_cast<std::size_t>(host)];
    }
    int local = 0;
    for (const int number : plan_.ranks_on(host)) {
      rank(number).local = local++;
      start.ranks.push_back({number, plan_.block_of[static_cast<std::size_t>(number)]});
    }
    return start;
  }

  RankStart::Program program_of(const MpiBlock& block) const {
    RankStart::Program program;
    program.command = block.command;
    program.directory = block.directory.empty() ? parts_.directory : block.directory;
    EnvironmentRule rule = parts_.line.environment;
    if (block.environment) {
      rule.base = block.environment->base;
      rule.listed = block.environment->listed;
      rule.set.insert(rule.set.end(), block.environment->set.begin(), block.environment->set.end());
    }
    program.environment = rule.of(own_environment(parts_.inherited));
    if (!parts_.line.interface.empty())
      program.environment["TANDEM_IFNAME"] = parts_.line.interface;
    return program;
  }

  bool over() const {
    const bool all_gone =
        std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.gone; });
    return all_gone || times_.given_up();
  }

  // Each has a moment to end alone, so that no process is left behind on its host.
  void let_daemons_go() {
    for (auto& link : links_) link->close();
    const auto limit = Clock::now() + kFarewell;
    const auto is_gone = [](const auto& link) { return link->gone(); };
    while (Clock::now() < limit && !std::all_of(links_.begin(), links_.end(), is_gone))
      std::this_thread::sleep_for(5ms);
  }

  void step() {
    const bool listen = !output_.crowded();
    wait(listen);
    while (const auto number = inbox_.take()) take_signal(*number);
    for (std::size_t host = 0; host < links_.size(); ++host) serve(static_cast<int>(host), listen);
    read_input();
    look_at_clock();
    log_waiting();
  }

  // One line for all hosts whose daemon has not answered, or whose ranks have not started.
  void log_waiting() {
    if (logged_waiting_ || times_.stopping() || Clock::now() - begun_ < kFirstNotice) return;
    logged_waiting_ = true;
    std::vector<HostWait> waits;
    for (std::size_t host = 0; host < links_.size(); ++host) {
      std::vector<int> ranks = plan_.ranks_on(static_cast<int>(host));
      std::erase_if(ranks, [&](int number) { return rank(number).pid != 0 || rank(number).gone; });
      if (!ranks.empty()) waits.push_back({*links_[host], std::move(ranks)});
    }
    if (!waits.empty()) parts_.log(describe_waits(waits));
  }

  void wait(bool listen) const {
    net::EventLoop loop;
    loop.read(inbox_.descriptor());
    for (const auto& link : links_) link->add_to(loop, listen);
    if (takes_input()) loop.add(parts_.input, POLLIN);
    times_.add_to(loop);
    loop.run_once(250ms);
  }

  void serve(int host, bool listen) {
    HostLink& link = *links_[static_cast<std::size_t>(host)];
    link.serve(listen);
    while (const auto frame = link.take()) obey(host, *frame);
    if (!link.lost().empty()) lose(host);
  }

  void obey(int host, const DaemonMessage& frame) {
    if (frame.kind == DaemonMessage::Kind::kFailed) return fail_to_start(host, frame.payload);
    if (frame.kind == DaemonMessage::Kind::kErr && frame.rank == -1)
      return parts_.log(
          fmt::format("{}: {}", links_[static_cast<std::size_t>(host)]->host(), frame.payload));
    // A host reports only its own ranks.
    const int number = frame.rank;
    if (number < 0 || number >= plan_.size() || host_of(number) != host || rank(number).gone)
      return;
    switch (frame.kind) {
      case DaemonMessage::Kind::kStarted:
        rank(number).pid = std::atoi(frame.payload.c_str());
        return;
      case DaemonMessage::Kind::kOut:
      case DaemonMessage::Kind::kErr:
        return output_.add(printing(number), frame.kind == DaemonMessage::Kind::kErr,
                           frame.payload);
      case DaemonMessage::Kind::kPmi:
        return handle_pmi(number, frame.payload);
      case DaemonMessage::Kind::kInputTaken:
        input_.waits = false;
        return;
      case DaemonMessage::Kind::kEnded:
        return end(number, frame.payload);
      default:
        return;
    }
  }

  void fail_to_start(int host, const std::string& reason) {
    note_cause(1, fmt::format("{}: {}", links_[static_cast<std::size_t>(host)]->host(), reason));
    for (const int number : plan_.ranks_on(host)) {
      if (rank(number).pid == 0) rank(number).gone = true;
    }
    stop();
  }

  void handle_pmi(int number, const std::string& line) {
    const bool was_aborted = pmi_.aborted().has_value();
    for (const PmiServer::Reply& reply : pmi_.take(number, line))
      link_of(reply.rank).send({DaemonMessage::Kind::kPmi, reply.rank, reply.line});
    if (!pmi_.broken(number).empty()) {
      note_cause(1, fmt::format("rank {} on {} does not use PMI-1: {}", number,
                                printing(number).host, pmi_.broken(number)));
      stop();
    }
    if (pmi_.aborted() && !was_aborted) {
      const auto& abort = *pmi_.aborted();
      note_cause(abort.exit_code,
                 fmt::format("rank {} on {} asked to end the job with exit code {}{}{}", number,
                             printing(number).host, abort.exit_code,
                             abort.reason.empty() ? "" : ": ", abort.reason));
      stop();
    }
    look_for_stuck();
  }

  // "<exit code> <signal>".
  void end(int number, const std::string& text) {
    Ending ending;
    const char* const last = text.data() + text.size();
    const auto [next, error] = std::from_chars(text.data(), last, ending.code);
    if (error == std::errc() && next != last) std::from_chars(next + 1, last, ending.signal);
    Rank& ended = rank(number);
    ended.ending = ending;
    ended.gone = true;
    pmi_.left(number);
    output_.end(printing(number));
    times_.note_end();
    const bool left_early = ending.ok() && pmi_.began(number) && !pmi_.finalized(number);
    // A bad end after MPI_Finalize has harmed no other rank; its exit code counts at the end.
    const bool harmless = !ending.ok() && ending.signal == 0 && pmi_.finalized(number);
    if (left_early) note_failure(number, ending, "it left without MPI_Finalize");
    if (!ending.ok() && !harmless) note_failure(number, ending, "");
    look_for_stuck();
  }

  void look_for_stuck() {
    if (!parts_.line.auto_cleanup || times_.stop_is_planned() || times_.requested()) return;
    const auto stuck = pmi_.stuck();
    if (!stuck) return;
    note_failure(
        stuck->ended, rank(stuck->ended).ending.value_or(Ending{}),
        fmt::format("rank {} waits for it in PMI's barrier, and it has ended", stuck->waiting));
  }

  void note_failure(int number, const Ending& ending, const std::string& message) {
    if (times_.stopping() || times_.requested()) return;
    Failure failure;
    failure.rank = number;
    failure.local_rank = rank(number).local;
    failure.pid = rank(number).pid;
    failure.host = printing(number).host;
    failure.ending = ending;
    failure.time = now_in_seconds();
    failure.message = message;
    failure.victim = is_victim(ending);
    outcome_.note_failure(std::move(failure));
    if (!parts_.line.auto_cleanup || times_.stop_is_planned() || outlived(ending)) return;
    times_.stop_in(own_job_ ? Clock::duration(kOwnLastWords) : Clock::duration(kSameMoment));
  }

  // The agents of an elastic job make the others continue or end.
  bool outlived(const Ending& ending) const {
    return elastic_ && !ending.ok() && !ending.is_final();
  }

  // A process has seen the end of the job.
  bool finished() const {
    return elastic_ && std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
             return rank.ending && rank.ending->ok();
           });
  }

  // Causes that follow from a stop do not count.
  void note_cause(int exit_code, std::string text) {
    if (!times_.stopping()) outcome_.note_cause(exit_code, std::move(text));
  }

  void lose(int host) {
    HostLink& link = *links_[static_cast<std::size_t>(host)];
    const auto ranks = plan_.ranks_on(host);
    const bool news = std::any_of(ranks.begin(), ranks.end(), [&](int r) { return !rank(r).gone; });
    if (!news) return;
    for (const int number : ranks) {
      if (rank(number).gone) continue;
      rank(number).gone = true;
      pmi_.left(number);
      output_.end(printing(number));
    }
    note_cause(kHostLost, fmt::format("host {} with ranks {} is lost: {}", link.host(),
                                      fmt::join(ranks, ", "), link.lost()));
    look_for_stuck();
    if (parts_.line.auto_cleanup && !elastic_) stop();
  }

  void signal_all(int number) {
    for (auto& link : links_)
      link->send({DaemonMessage::Kind::kSignal, -1, std::to_string(number)});
  }

  void stop() {
    if (!times_.begin_stop()) return;
    signal_all(SIGTERM);
    signal_all(SIGCONT);
  }

  void take_signal(int number) {
    if (number == SIGUSR1 || number == SIGUSR2) return signal_all(number);
    const StopRequests::Kind request = times_.request(number);
    if (request == StopRequests::Kind::kSame) return;
    if (request == StopRequests::Kind::kAgain) {
      parts_.log(fmt::format("{} again: the ranks are killed", signal_name(number)));
      return;
    }
    parts_.log(
        fmt::format("{}: passed on to all ranks; a second one kills them", signal_name(number)));
    signal_all(number);
  }

  void look_at_clock() {
    const bool timed_out = parts_.line.timeout_s > 0 &&
                           Clock::now() - begun_ >= std::chrono::seconds(parts_.line.timeout_s);
    if (timed_out && !times_.stopping()) {
      note_cause(kTimeoutExitCode, fmt::format("the job took longer than MPIEXEC_TIMEOUT={} s",
                                               parts_.line.timeout_s));
      stop();
    }
    if (times_.stop_is_due()) stop();
    if (times_.kill_is_due()) signal_all(SIGKILL);
  }

  // Returns true if a rank can take input now. A job in the background must not read from its
  // terminal: it would be stopped.
  bool takes_input() const {
    const int reader = parts_.line.input_rank;
    if (input_.ended || input_.waits || reader < 0 || reader >= plan_.size()) return false;
    if (ranks_[static_cast<std::size_t>(reader)].pid == 0) return false;
    return ::isatty(parts_.input) == 0 || ::tcgetpgrp(parts_.input) == ::getpgrp();
  }

  void read_input() {
    if (!takes_input()) return;
    const int reader = parts_.line.input_rank;
    if (!net::wait_readable(parts_.input, net::Deadline(0ms))) return;
    char bytes[16384];
    const ssize_t count = ::read(parts_.input, bytes, sizeof bytes);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    input_.ended = count <= 0;
    input_.waits = count > 0;
    link_of(reader).send(
        {DaemonMessage::Kind::kInput, reader,
         std::string(bytes, static_cast<std::size_t>(std::max<ssize_t>(0, count)))});
  }

  void print_exit_codes() const {
    std::string text = "exit codes:";
    for (std::size_t number = 0; number < ranks_.size(); ++number) {
      const auto& ending = ranks_[number].ending;
      text += fmt::format(" {}={}", number, ending ? std::to_string(ending->exit_code()) : "lost");
    }
    parts_.log(text);
  }

  int finish() {
    output_.drain(5s);
    if (parts_.line.print_exit_codes) print_exit_codes();
    if (const auto code = outcome_.report(parts_.log, finished())) return *code;
    for (const Rank& rank : ranks_) {
      if (!rank.ending) return kHostLost;
      if (!rank.ending->ok()) return rank.ending->exit_code();
    }
    return 0;
  }

  MpirunParts parts_;
  bool own_job_;
  bool elastic_;  // a job whose ranks are restarted
  RankPlan plan_;
  SignalInbox inbox_;
  PmiServer pmi_;
  std::vector<Rank> ranks_;
  RankOutput output_;
  std::vector<std::unique_ptr<HostLink>> links_;  // by host
  JobOutcome outcome_;
  StopTimes times_;
  struct Input {
    bool ended = false;
    bool waits = false;  // the last input is still in flight
  } input_;
  bool logged_waiting_ = false;
  Clock::time_point begun_;
};

}  // namespace

int run_mpi_job(MpirunParts parts) {
  for (const std::string& note : parts.line.notes) parts.log(note);
  return MpiJob(std::move(parts)).run();
}

}  // namespace tandem::launch
