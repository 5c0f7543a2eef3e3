// `tandem run`: torchrun's command line and contract for tandem's own jobs. Other programs run
// under torch's torchrun. The agent is elastic/agent/elastic_host.h; this file gives it this
// process's environment, console and machine.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>

#include "apps/agent_process.h"
#include "apps/command/commands.h"
#include "apps/command/log_prefix.h"
#include "apps/command/own_path.h"
#include "apps/command/terminal.h"
#include "apps/manual/manual.h"
#include "apps/other_programs.h"
#include "tandem/core/env.h"
#include "tandem/core/error.h"
#include "tandem/elastic/lock/etcd_lock.h"
#include "tandem/launch/process/pinning.h"
#include "tandem/launch/process/placement.h"
#include "tandem/launch/run/agent.h"
#include "tandem/launch/run/program.h"
#include "tandem/launch/run/run_flags.h"
#include "tandem/net/job_token.h"
#include "tandem/rendezvous/identity.h"

namespace tandem::apps {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRunText =
    "Starts the workers of a job of tandem on this host, watches them, and starts them again, with "
    "the command line and the environment of torchrun. A script .../run_qa.py is `tandem run_qa`. "
    "Any other script or program runs under the torchrun of its Python, with the same words.";

CommandDescription run_description() {
  CommandDescription described;
  described.usage = {"tandem run [flags] SCRIPT [flags of the script]"};
  described.text = kRunText;
  for (const launch::RunFlag& flag : launch::run_flags()) {
    OptionDescription option;
    if (!flag.letter.empty()) option.names.push_back(fmt::format("-{}", flag.letter));
    option.names.push_back(fmt::format("--{}", flag.name));
    option.value = flag.value;
    option.help = flag.help;
    if (!flag.variable.empty()) option.help += fmt::format(" ({})", flag.variable);
    described.options.push_back(std::move(option));
  }
  described.options.push_back(argument("SCRIPT", "the script or program and its flags"));
  return described;
}

// Help is asked for in front of the script; behind it, it is the script's.
bool asks_help(const std::vector<std::string>& words) {
  return !words.empty() && (words.front() == "--help" || words.front() == "-h");
}

launch::ProgramPaths program_paths() {
  launch::ProgramPaths program_paths;
  program_paths.self = own_path();
  program_paths.job_commands = job_command_names();
  return program_paths;
}

// Returns true if the words can only be meant for torchrun: they name a script or a program, and it
// is not a job of tandem.
bool start_another_program(const std::vector<std::string>& words) {
  constexpr std::string_view kSigns[] = {"-m", "--module", "--no-python", "--no_python"};
  const auto is_sign = [&](const std::string& word) {
    return word.ends_with(".py") || std::ranges::find(kSigns, word) != std::end(kSigns);
  };
  return std::ranges::any_of(words, is_sign) && !starts_tandem(words);
}

// A job of tandem's: the options, and the command of a worker.
struct OwnJob {
  launch::RunOptions options;
  std::vector<std::string> command;
};

// Empty for any other program, of which torchrun may know flags that tandem does not.
std::optional<OwnJob> own_job(const Invocation& invocation) {
  OwnJob job;
  try {
    job.options = launch::parse_run_line(invocation.words, invocation.environment);
  } catch (const ConfigError&) {
    if (!start_another_program(invocation.words)) throw;
    return std::nullopt;
  }
  job.command = launch::job_command(job.options, program_paths());
  if (job.command.empty()) return std::nullopt;
  return job;
}

[[noreturn]] void run_under_torchrun(const Invocation& invocation) {
  const LogPrefix log_prefix{log_format(invocation.environment), "tandem run", {}};
  const auto command = torchrun_command(invocation.words, invocation.environment);
  write_log(log_prefix,
            fmt::format("this is not a job of tandem: it runs under torch's own torchrun, {} -m {}",
                        command[0], command[2]));
  execute(command);
}

launch::Placement choose_placement(const launch::RunOptions& options,
                                   const Environment& environment, const launch::Log& log_line) {
  const launch::Machine machine = launch::this_machine();
  launch::PlacementRequest request;
  request.nproc = options.nproc_per_node;
  request.own_job = true;
  request.binding = options.binding;
  const auto get = [&](std::string_view name) { return environment.get(name); };
  for (const std::string& note : launch::apply_pin_variables(get, machine, request)) log_line(note);
  launch::Placement placement = launch::place_workers(machine, request);
  log_line(placement.summary);
  for (const std::string& warning : placement.warnings) log_line("warning: " + warning);
  return placement;
}

// A job that no node can join has a name of its own, as under torchrun: a UUID. Returns whether.
bool name_job(launch::RunOptions& options) {
  const bool alone = options.standalone ||
                     (options.backend == launch::Backend::kStatic && options.max_nodes == 1 &&
                      !options.master_port && options.rdzv_endpoint.empty());
  if (!alone) return false;
  std::string text = fmt::format("{:02x}", fmt::join(net::make_nonce(), ""));
  for (const std::size_t dash : {8, 13, 18, 23}) text.insert(dash, "-");
  options.rdzv_id = text;
  return true;
}

// Records that restarted workers share where no other start can have the job's name; the folder
// ends with the agent.
class RecordFolder {
 public:
  explicit RecordFolder(const fs::path& temporary) {
    std::string path = (temporary / "tandem_records_XXXXXX").native();
    if (::mkdtemp(path.data()) != nullptr) path_ = path;
  }
  ~RecordFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  RecordFolder(const RecordFolder&) = delete;
  RecordFolder& operator=(const RecordFolder&) = delete;
  const fs::path& path() const { return path_; }  // empty: it could not be made

 private:
  fs::path path_;
};

// Jobs of one host have a secret of their own, so that no other process can meet them.
std::string job_token(const launch::RunOptions& options, const Environment& environment) {
  std::string given = rendezvous::job_token_of(environment);
  if (!given.empty() || options.max_nodes > 1) return given;
  return fmt::format("{:02x}", fmt::join(net::make_nonce(), ""));
}

}  // namespace

std::string why_own_agent(const Environment& environment) {
  constexpr std::string_view kSigns[] = {"PET_NNODES", "PET_NPROC_PER_NODE", "PET_RDZV_ENDPOINT",
                                         "PET_NODE_RANK", "PET_MASTER_ADDR"};
  for (const std::string_view sign : kSigns) {
    const auto value = environment.get(sign);
    if (!value) continue;
    if (rendezvous::identify(environment).source != "single process") return "";
    return fmt::format(
        "{}={} is set, as for torchrun, and no RANK: this process acts as the agent of its node, "
        "as "
        "`tandem run` would, instead of training alone",
        sign, *value);
  }
  return "";
}

int run(const Invocation& invocation) {
  if (invocation.words == std::vector<std::string>{std::string(kDescribe)}) throw run_description();
  if (asks_help(invocation.words)) {
    fmt::print("{}", help_text(run_description(), fold_columns(STDOUT_FILENO)));
    return 0;
  }
  const Environment& environment = invocation.environment;
  std::optional<OwnJob> job = own_job(invocation);
  if (!job) run_under_torchrun(invocation);
  launch::RunOptions& options = job->options;
  // The job's own flag has the same meaning as the agent's.
  if (const auto of_job = find_log_format(options.script_arguments)) options.log_format = *of_job;
  launch::AgentParts parts = agent_parts(environment, {options.log_format, "tandem run", {}});
  for (const std::string& note : options.notes) parts.log(note);
  std::optional<RecordFolder> records;
  parts.inherited.erase("TANDEM_JOB_RECORDS");  // records of an agent around this one
  if (name_job(options)) {
    records.emplace(parts.temporary);
    if (!records->path().empty()) parts.inherited["TANDEM_JOB_RECORDS"] = records->path().native();
  }
  parts.placement = choose_placement(options, environment, parts.log);
  if (options.log_format == LogFormat::kJson)
    parts.inherited["TANDEM_LOG_FORMAT"] = enum_name(options.log_format);
  parts.job_token = job_token(options, environment);
  std::shared_ptr<elastic::ExternalLock> lock;
  if (options.max_nodes > 1) {
    if (auto of_etcd = elastic::etcd_lock_options(options.rdzv_conf, environment, options.rdzv_id,
                                                  parts.job_token)) {
      of_etcd->log = parts.log;
      lock = std::make_shared<elastic::EtcdLock>(std::move(*of_etcd));
    }
  }
  parts.command = std::move(job->command);
  parts.options = std::move(options);
  return run_agent_process(std::move(parts), std::move(lock), environment);
}

}  // namespace tandem::apps
