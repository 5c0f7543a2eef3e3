#include "tandem/launch/mpirun/rank_host.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "tandem/core/error.h"
#include "tandem/launch/mpirun/pipe.h"
#include "tandem/launch/mpirun/pmi_server.h"
#include "tandem/launch/mpirun/rank_binding.h"
#include "tandem/launch/mpirun/rank_start.h"
#include "tandem/launch/process/pinning.h"
#include "tandem/launch/process/placement.h"
#include "tandem/launch/process/signal_inbox.h"
#include "tandem/launch/process/worker.h"
#include "tandem/launch/run/program.h"
#include "tandem/net/event_loop.h"

namespace tandem::launch {
namespace {

using net::FileDescriptor;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kHostBeat = 1s;
// mpirun may be held up by its console or a debugger for a while, but not forever.
constexpr auto kLauncherSilence = 60s;
constexpr auto kHostGrace = 5s;
constexpr auto kHostAfterSignal = 30s;
// A process started by a rank may hold its streams open forever.
constexpr auto kLastWords = 500ms;
// With more than this in flight to mpirun, the printing ranks wait.
constexpr std::size_t kMuchUnsent = 4 << 20;

void make_nonblocking(const FileDescriptor& descriptor) {
  ::fcntl(descriptor.get(), F_SETFL, O_NONBLOCK);
}

// One rank: its process and the four streams to it.
class RankProcess {
 public:
  RankProcess(int rank, WorkerStart start, bool reads_input) : rank_(rank) {
    PipeEnds out = make_pipe(), err = make_pipe(), in;
    int pmi[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pmi) != 0)
      throw io_error("cannot make", "a socket for PMI", errno);
    pmi_ = FileDescriptor(pmi[0]);
    const FileDescriptor ranks_pmi(pmi[1]);
    if (reads_input) {
      in = make_pipe();
    } else {
      in.read = FileDescriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    }
    start.out = out.write.get();
    start.err = err.write.get();
    start.in = in.read.get();
    start.kept = ranks_pmi.get();
    start.environment["PMI_FD"] = std::to_string(ranks_pmi.get());
    worker_ = std::make_unique<Worker>(start);
    out_ = std::move(out.read);
    err_ = std::move(err.read);
    in_ = std::move(in.write);
    for (const FileDescriptor* descriptor : {&out_, &err_, &pmi_}) make_nonblocking(*descriptor);
    if (in_) make_nonblocking(in_);
  }

  int rank() const { return rank_; }
  pid_t pid() const { return worker_->pid(); }
  bool over() const { return over_; }
  void signal(int number) { worker_->signal(number); }

  void add_to(net::EventLoop& loop, bool may_print) const {
    if (over_) return;
    if (!ended_at_) loop.read(worker_->end_signal());
    if (may_print) {
      loop.read(out_);
      loop.read(err_);
    }
    if (!input_.empty()) loop.write(in_);
    loop.read(pmi_);
    if (!answers_.empty()) loop.write(pmi_);
  }

  void give_input(const std::string& bytes) {
    if (bytes.empty()) input_ends_ = true;
    input_ += bytes;
  }
  void answer(const std::string& line) { answers_ += line + '\n'; }

  // Moves as much as possible; messages for mpirun are sent to `launcher`.
  void serve(DaemonStream& launcher) {
    if (over_) return;
    if (launcher.unsent() < kMuchUnsent) {
      carry(out_, DaemonMessage::Kind::kOut, launcher);
      carry(err_, DaemonMessage::Kind::kErr, launcher);
    }
    feed_input(launcher);
    serve_pmi(launcher);
    watch(launcher);
  }

 private:
  void carry(FileDescriptor& from, DaemonMessage::Kind kind, DaemonStream& launcher) {
    char bytes[16384];
    for (int i = 0; from && i < 16; ++i) {
      const ssize_t count = ::read(from.get(), bytes, sizeof bytes);
      if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (count <= 0) return from.reset();
      launcher.send({kind, rank_, std::string(bytes, static_cast<std::size_t>(count))});
    }
  }

  void feed_input(DaemonStream& launcher) {
    while (in_ && !input_.empty()) {
      const ssize_t count = ::write(in_.get(), input_.data(), input_.size());
      if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (count <= 0) return in_.reset();  // the rank has stopped reading
      input_.erase(0, static_cast<std::size_t>(count));
      if (input_.empty()) launcher.send({DaemonMessage::Kind::kInputTaken, rank_, ""});
    }
    if (input_ends_) in_.reset();
  }

  void serve_pmi(DaemonStream& launcher) {
    if (!pmi_) return;
    while (!answers_.empty()) {
      const ssize_t count = ::send(pmi_.get(), answers_.data(), answers_.size(), MSG_NOSIGNAL);
      if (count < 0 && (errno == EAGAIN || errno == EINTR)) break;
      if (count <= 0) return pmi_.reset();
      answers_.erase(0, static_cast<std::size_t>(count));
    }
    char bytes[4096];
    while (pmi_) {
      const ssize_t count = ::recv(pmi_.get(), bytes, sizeof bytes, 0);
      if (count < 0 && (errno == EAGAIN || errno == EINTR)) break;
      if (count <= 0) pmi_.reset();
      if (count > 0) questions_.append(bytes, static_cast<std::size_t>(count));
      pass_questions(launcher);
    }
  }

  void pass_questions(DaemonStream& launcher) {
    std::size_t begin = 0;
    for (std::size_t end; (end = questions_.find('\n', begin)) != std::string::npos;
         begin = end + 1)
      launcher.send({DaemonMessage::Kind::kPmi, rank_, questions_.substr(begin, end - begin)});
    questions_.erase(0, begin);
    if (questions_.size() <= PmiServer::kMaxLine) return;
    launcher.send(
        {DaemonMessage::Kind::kPmi, rank_, questions_.substr(0, 64)});  // which answers for it
    pmi_.reset();
  }

  // mpirun learns of the end after all earlier output.
  void watch(DaemonStream& launcher) {
    const auto& ending = worker_->poll();
    if (!ending) return;
    if (!ended_at_) ended_at_ = Clock::now();
    if ((out_ || err_) && Clock::now() - *ended_at_ < kLastWords) return;
    launcher.send(
        {DaemonMessage::Kind::kEnded, rank_, fmt::format("{} {}", ending->code, ending->signal)});
    over_ = true;
  }

  int rank_;
  std::unique_ptr<Worker> worker_;
  FileDescriptor out_, err_, in_, pmi_;
  std::string input_, questions_, answers_;
  bool input_ends_ = false;
  bool over_ = false;
  std::optional<Clock::time_point> ended_at_;
};

// The CPUs and the number of threads of each rank of this host. -bind-to takes precedence over
// variables.
Placement choose_placement(const RankStart& start, std::vector<std::string>& notes) {
  const int count = static_cast<int>(start.ranks.size());
  const Machine machine = this_machine();
  PlacementRequest request;
  request.nproc = std::to_string(count);
  request.own_job = start.own_job;
  if (!start.bind_to.empty()) {
    request.cpus = bind_ranks(machine, start.bind_to, start.map_by, count);
    if (start.bind_to == "none") request.binding = Binding::kNone;
  }
  const EnvironmentMap& environment = start.programs.front().environment;
  const auto get = [&](std::string_view name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    const bool set = found != environment.end() && !found->second.empty();
    return set ? std::optional(found->second) : std::nullopt;
  };
  notes = apply_pin_variables(get, machine, request);
  const Placement placement = place_workers(machine, request);
  notes.insert(notes.end(), placement.warnings.begin(), placement.warnings.end());
  return placement;
}

std::string executable(const RankStart::Program& program, const std::string& self) {
  std::string name = program.command.front();
  if (name.find('/') != std::string::npos && name.front() != '/' && !program.directory.empty())
    name = program.directory + '/' + name;
  const auto path = program.environment.find("PATH");
  const std::string found = find_executable(
      name, path == program.environment.end() ? "/usr/local/bin:/usr/bin:/bin" : path->second);
  if (!found.empty()) return found;
  if (name == "tandem") return self;
  raise<ConfigError>(
      "there is no program '{}'{}", name,
      name.find('/') == std::string::npos ? " in PATH" : ", or it is not executable");
}

class RankHost {
 public:
  explicit RankHost(RankHostParts parts)
      : launcher_(std::move(parts.launcher)),
        self_(std::move(parts.self)),
        inbox_({SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {}

  int run() {
    last_received_ = last_sent_ = Clock::now();
    while (!done()) step();
    return 0;
  }

 private:
  void step() {
    wait();
    while (const auto number = inbox_.take()) pass_on(*number);
    launcher_.serve();
    while (const auto frame = launcher_.take()) obey(*frame);
    for (auto& rank : ranks_) rank->serve(launcher_);
    launcher_.serve();
    const auto now = Clock::now();
    if (now - last_sent_ >= kHostBeat) {
      launcher_.send({});
      last_sent_ = now;
    }
    if (!launcher_.ended().empty() || now - last_received_ >= kLauncherSilence) stop();
    if (kill_at_ && now >= *kill_at_) signal_all(SIGKILL);
  }

  void wait() const {
    net::EventLoop loop;
    loop.read(inbox_.descriptor());
    launcher_.add_to(loop);
    for (const auto& rank : ranks_) rank->add_to(loop, launcher_.unsent() < kMuchUnsent);
    // Ends of streams held open by other processes, heartbeats and deadlines are checked by time.
    loop.run_once(std::chrono::milliseconds(250));
  }

  // mpirun closes the connection when it knows all ends.
  bool done() const {
    const bool all_over =
        std::all_of(ranks_.begin(), ranks_.end(), [](const auto& r) { return r->over(); });
    return all_over && (!launcher_.ended().empty() || kill_at_);
  }

  void obey(const DaemonMessage& frame) {
    last_received_ = Clock::now();
    switch (frame.kind) {
      case DaemonMessage::Kind::kStart:
        return start(frame.payload);
      case DaemonMessage::Kind::kSignal: {
        const int number = std::atoi(frame.payload.c_str());
        if (number > 0 && number < NSIG) signal_all(number);
        return;
      }
      case DaemonMessage::Kind::kInput:
      case DaemonMessage::Kind::kPmi:
        for (auto& rank : ranks_) {
          if (rank->rank() != frame.rank) continue;
          frame.kind == DaemonMessage::Kind::kPmi ? rank->answer(frame.payload)
                                                  : rank->give_input(frame.payload);
        }
        return;
      default:
        return;
    }
  }

  void start(const std::string& text) {
    try {
      const RankStart start = rank_start_from(text);
      TANDEM_CHECK(ranks_.empty());
      std::vector<std::string> notes;
      const Placement placement = choose_placement(start, notes);
      for (const std::string& note : notes) launcher_.send({DaemonMessage::Kind::kErr, -1, note});
      for (std::size_t local = 0; local < start.ranks.size(); ++local)
        start_rank(start, local, placement.workers[local]);
    } catch (const Error& error) {
      launcher_.send({DaemonMessage::Kind::kFailed, -1, error.what()});
      stop();
    }
  }

  void start_rank(const RankStart& start, std::size_t local, const WorkerPlacement& placement) {
    const RankStart::Rank& rank = start.ranks[local];
    const RankStart::Program& program = start.programs[static_cast<std::size_t>(rank.program)];
    if (!program.directory.empty() && ::access(program.directory.c_str(), X_OK) != 0) {
      raise<ConfigError>("the working directory '{}' is not there ({}); see -wdir",
                         program.directory, std::strerror(errno));
    }
    WorkerStart worker;
    worker.command = program.command;
    worker.command.front() = executable(program, self_);
    worker.environment = program.environment;
    worker.directory = program.directory;
    worker.cpus = placement.cpus;
    auto& environment = worker.environment;
    environment["PMI_RANK"] = std::to_string(rank.rank);
    environment["PMI_SIZE"] = std::to_string(start.size);
    environment["MPI_LOCALRANKID"] = std::to_string(local);
    environment["MPI_LOCALNRANKS"] = std::to_string(start.ranks.size());
    if (placement.threads) environment["OMP_NUM_THREADS"] = std::to_string(*placement.threads);
    ranks_.push_back(
        std::make_unique<RankProcess>(rank.rank, std::move(worker), rank.rank == start.input_rank));
    launcher_.send(
        {DaemonMessage::Kind::kStarted, rank.rank, std::to_string(ranks_.back()->pid())});
  }

  void signal_all(int number) {
    for (auto& rank : ranks_) {
      if (!rank->over()) rank->signal(number);
    }
  }

  // Slurm and systemd signal every process of a job: the ranks have as long as under mpirun.
  void pass_on(int number) {
    if (is_stop_signal(number) && !kill_at_) kill_at_ = Clock::now() + kHostAfterSignal;
    signal_all(number);
  }

  void stop() {
    if (stopping_) return;
    stopping_ = true;
    kill_at_ = Clock::now() + kHostGrace;
    signal_all(SIGTERM);
    signal_all(SIGCONT);
  }

  DaemonStream launcher_;
  std::string self_;
  SignalInbox inbox_;
  std::vector<std::unique_ptr<RankProcess>> ranks_;
  Clock::time_point last_received_, last_sent_;
  std::optional<Clock::time_point> kill_at_;
  bool stopping_ = false;
};

}  // namespace

int host_ranks(RankHostParts parts) { return RankHost(std::move(parts)).run(); }

}  // namespace tandem::launch
