// The subcommands of `tandem` and what main() hands to each.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/core/env.h"

namespace tandem::apps {

// One call of a subcommand: the words after its name, and the environment as it was at start.
struct Invocation {
  std::vector<std::string> words;  // behind the subcommand
  Environment environment;
  std::string subcommand = {};  // empty in a program of one command
};

// In addition to the jobs. Each returns the process's exit code and throws tandem::Error for what
// the user can change.
int run(const Invocation& invocation);
int mpirun(const Invocation& invocation);
int show_status(const Invocation& invocation);
int drain(const Invocation& invocation);
int resize_job(const Invocation& invocation);
int ask(const Invocation& invocation);
int embed(const Invocation& invocation);
int generate(const Invocation& invocation);
int merge(const Invocation& invocation);
int mine(const Invocation& invocation);
int search(const Invocation& invocation);
int rerank(const Invocation& invocation);
int predict(const Invocation& invocation);
int serve(const Invocation& invocation);
int inspect(const Invocation& invocation);
int run_bench(const Invocation& invocation);
int run_doctor(const Invocation& invocation);
int run_manifest(const Invocation& invocation);
int run_plan(const Invocation& invocation);
int compare_runs(const Invocation& invocation);
int print_manual(const Invocation& invocation);
int print_completion(const Invocation& invocation);

struct Command {
  std::string_view name;
  std::string_view summary;       // one line of `tandem --help`
  std::string_view usage;         // printed before a usage error
  int (*run)(const Invocation&);  // null: a job, whose row is in apps/arguments/job_commands.h
};

// Whether the command is a job, of which several processes make one: `run_qa` and its like.
inline bool is_job(const Command& command) { return command.run == nullptr; }

// A job that was started with variables of an elastic PyTorchJob (PET_*) and no launcher's, which
// would train alone: why it is started as if `tandem run` had been typed. Empty: it is not so.
std::string why_own_agent(const Environment& environment);

// All subcommands, in the order of `tandem --help`.
std::span<const Command> commands();

}  // namespace tandem::apps
