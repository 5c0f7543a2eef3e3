// `tandem mpirun`: Hydra's command line for tandem's own jobs, on machines without an MPI; other
// programs run under the mpiexec of their MPI. The launcher is launch/mpirun/mpi_launcher.h;
// this file gives it this process's environment and streams.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "apps/command/commands.h"
#include "apps/command/log_prefix.h"
#include "apps/command/own_path.h"
#include "apps/command/terminal.h"
#include "apps/manual/manual.h"
#include "apps/other_programs.h"
#include "tandem/core/error.h"
#include "tandem/launch/mpirun/mpi_launcher.h"
#include "tandem/launch/mpirun/rank_host.h"

namespace tandem::apps {
namespace {

constexpr const char* kMpirunText =
    "Starts the ranks of a job of tandem on this host and on others that ssh reaches, with the "
    "command line of MPICH's and Intel MPI's mpirun (Hydra). No MPI has to be installed. Any other "
    "program runs under the mpiexec of an MPI in PATH, with the same words.";

// The command that `tandem mpirun` starts on each host; not for people.
constexpr const char* kDaemon = "--host-ranks";

std::vector<std::string> typed_names(const launch::MpiFlag& flag) {
  std::vector<std::string> names;
  for (std::string_view rest = flag.names; !rest.empty();) {
    const std::string_view name = rest.substr(0, rest.find('|'));
    names.push_back(fmt::format("-{}", name));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
  }
  return names;
}

CommandDescription mpirun_description() {
  CommandDescription described;
  described.usage = {"tandem mpirun [flags] PROGRAM [its flags] [: [flags] PROGRAM ...]"};
  described.text = kMpirunText;
  for (const launch::MpiFlag& flag : launch::mpi_flags()) {
    OptionDescription option;
    option.names = typed_names(flag);
    option.value = flag.value;
    option.help = flag.help;
    described.options.push_back(std::move(option));
  }
  described.options.push_back(argument("PROGRAM", "the program and its flags"));
  return described;
}

// Its stdin and stdout are the connection to mpirun; nothing else may write there.
int help_mpirun() {
  net::FileDescriptor in(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
  net::FileDescriptor out(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  const net::FileDescriptor nowhere(::open("/dev/null", O_RDWR | O_CLOEXEC));
  ::dup2(nowhere.get(), STDIN_FILENO);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  return launch::host_ranks(
      {launch::DaemonStream(std::move(in), std::move(out), true), own_path()});
}

// The line of a program that starts tandem. Any other program is executed under an MPI's own
// mpiexec. Throws ConfigError for a malformed line, unless an MPI can judge it.
launch::MpiLine own_line(const Invocation& invocation) {
  const auto& words = invocation.words;
  const std::string mpiexec = find_mpiexec(invocation.environment, own_path());
  try {
    launch::MpiLine line = launch::parse_mpi_line(words, invocation.environment);
    const bool ours = std::ranges::any_of(
        line.blocks, [](const auto& block) { return starts_tandem(block.command); });
    if (ours) return line;
  } catch (const ConfigError&) {
    if (starts_tandem(words) || mpiexec.empty()) throw;
  }
  if (mpiexec.empty())
    raise<ConfigError>(
        "cannot start a program that is not tandem's: found no mpiexec.hydra, mpirun or mpiexec of "
        "an MPI in PATH, expected one that starts it; install the MPI that the program was built "
        "with (apt install mpich), or start one of tandem's jobs: tandem {}",
        fmt::join(job_command_names(), ", tandem "));
  const LogPrefix log_prefix{log_format(invocation.environment), "tandem mpirun", {}};
  write_log(log_prefix, fmt::format("this is not a program of tandem: {} starts it", mpiexec));
  std::vector<std::string> command = {mpiexec};
  command.insert(command.end(), words.begin(), words.end());
  execute(command);
}

}  // namespace

int mpirun(const Invocation& invocation) {
  const auto& words = invocation.words;
  if (words == std::vector<std::string>{std::string(kDescribe)}) throw mpirun_description();
  if (!words.empty() &&
      (words.front() == "--help" || words.front() == "-h" || words.front() == "-help")) {
    fmt::print("{}", help_text(mpirun_description(), fold_columns(STDOUT_FILENO)));
    return 0;
  }
  if (!words.empty() && (words.front() == "--version" || words.front() == "-version")) {
    fmt::print("tandem mpirun {}, with Hydra's command line\n", TANDEM_VERSION);
    return 0;
  }
  if (words == std::vector<std::string>{kDaemon}) {
    std::signal(SIGPIPE, SIG_IGN);
    return help_mpirun();
  }
  launch::MpirunParts parts;
  parts.line = own_line(invocation);
  std::signal(SIGPIPE, SIG_IGN);
  parts.self = own_path();
  parts.daemon_word = kDaemon;
  parts.job_commands = job_command_names();
  parts.inherited = inherited_environment();
  std::error_code error;
  parts.directory = std::filesystem::current_path(error).string();
  const LogPrefix log_prefix{
      find_log_format(words).value_or(log_format(invocation.environment)), "tandem mpirun", {}};
  parts.log = [log_prefix](const std::string& line) { write_log(log_prefix, line); };
  return launch::run_mpi_job(std::move(parts));
}

}  // namespace tandem::apps
