// `tandem <command> …`: finds the command, runs it, and turns what it throws into a message and an
// exit code (docs/errors.md): 0 done; 1 input, data or configuration; 2 usage; 70 our bug; 143 and
// 130 stopped by SIGTERM and SIGINT; 200 a peer or the network failed.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <system_error>

#include "apps/arguments/job_commands.h"
#include "apps/command/commands.h"
#include "apps/command/line_output.h"
#include "apps/command/log_prefix.h"
#include "apps/command/terminal.h"
#include "apps/command/version.h"
#include "apps/job_command.h"
#include "apps/manual/manual.h"
#include "tandem/core/error.h"
#include "tandem/core/memory_limits.h"
#include "tandem/core/own_program.h"
#include "tandem/core/python_json.h"
#include "tandem/core/stack_limit.h"
#include "tandem/core/volume.h"
#include "tandem/flags/suggest.h"
#include "tandem/job/shared_error.h"
#include "tandem/rendezvous/identity.h"
#include "tandem/rendezvous/pmi.h"

namespace tandem::apps {
namespace {

constexpr int kExitInput = 1;
constexpr int kExitUsage = 2;
constexpr int kExitBug = 70;

// In addition to those that run a job.
constexpr Command kCommands[] = {
    {"ask", "answer a question from a text",
     "tandem ask --model DIR|NAME --context FILE|- QUESTION...", ask},
    {"predict", "label a text, a pair, the lines of a file, or their words",
     "tandem predict --model DIR|NAME TEXT|--file FILE|- [--json]   (tandem predict --help)",
     predict},
    {"embed", "write the embeddings of texts, as sentence-transformers computes them",
     "tandem embed --model DIR|NAME [TEXT...|--file FILE|-] [--output FILE.npy]   "
     "(tandem embed --help)",
     embed},
    {"generate", "continue a text with a decoder",
     "tandem generate --model DIR|NAME --prompt TEXT|--file FILE|- [--do_sample]   "
     "(tandem generate --help)",
     generate},
    {"merge", "merge an adapter of PEFT into its base model",
     "tandem merge ADAPTER [--model_name_or_path DIR|NAME] --output_dir DIR", merge},
    {"mine", "find hard negatives for pairs of queries and answers",
     "tandem mine --model DIR|NAME --file FILE [--corpus FILE] [--output FILE]   "
     "(tandem mine --help)",
     mine},
    {"search", "judge a bi-encoder by a search in a corpus of any size",
     "tandem search --model DIR|NAME --eval_corpus FILE --eval_queries FILE --eval_qrels FILE "
     "--embeddings FILE.npy   (tandem search --help)",
     search},
    {"rerank", "order passages by their relevance for a query, by a cross-encoder",
     "tandem rerank --model DIR|NAME QUERY [--file FILE|-] | --queries FILE|-   "
     "(tandem rerank --help)",
     rerank},
    {"serve", "answer in a browser, and as JSON for programs, what a model was trained for",
     "tandem serve --model DIR|NAME [--port N] [--host ADDRESS]   (tandem serve --help)", serve},
    {"inspect", "show tokens, features or weights as JSON lines",
     "tandem inspect tokens|features|weights ...   (tandem inspect --help)", inspect},
    {"bench", "measure this machine, and tandem on it",
     "tandem bench peak|step|predict|comm|tune ...   (tandem bench --help)", run_bench},
    {"run", "start a job's workers on this host and watch them, as torchrun does",
     "tandem run [flags] SCRIPT [flags of the script]   (tandem run --help)", run},
    {"mpirun", "start a job's ranks on this host and others, as MPICH's mpirun does",
     "tandem mpirun [flags] PROGRAM [its flags]   (tandem mpirun --help)", mpirun},
    {"status", "show a running job of tandem run: view, workers of all hosts, step, losses",
     "tandem status [JOB] [--at HOST:PORT] [--json]   (tandem status --help)", show_status},
    {"drain", "end one worker or one host of a running job; the others continue",
     "tandem drain WORKER|HOST [--at HOST:PORT] [--job JOB]   (tandem drain --help)", drain},
    {"resize", "change how many workers of a running job a host has",
     "tandem resize WORKERS [--at HOST:PORT] [--job JOB]   (tandem resize --help)", resize_job},
    {"doctor",
     "check this machine and the hosts of a host file, and print how to put right what is missing",
     "tandem doctor [--hostfile FILE] [--output_dir DIR] [--json]   (tandem doctor --help)",
     run_doctor},
    {"plan", "predict step time, communication, memory and scaling on a cluster",
     "tandem plan --profile FILE|--measure [--model NAME|DIR] [--nodes N] [--link GBIT] ...   "
     "(tandem plan --help)",
     run_plan},
    {"manifest", "make and check Kubernetes manifests of a job",
     "tandem manifest KIND --image IMAGE --pvc CLAIM [flags] -- run_qa ... | --check FILE   "
     "(tandem manifest --help)",
     run_manifest},
    {"report", "compare runs: charts, results and differing settings on one page",
     "tandem report RUN... [--output FILE]   (tandem report --help)", compare_runs},
    {"man", "print the manual page of a command", "tandem man [COMMAND] | man -l -", print_manual},
    {"completion", "print a script that completes commands and flags in a shell",
     "source <(tandem completion bash|zsh|fish)", print_completion},
};

std::string help() {
  std::string text = "usage: tandem COMMAND ...\n\nFine-tunes transformers on CPUs.\n\ncommands:\n";
  for (const Command& command : commands())
    text += fmt::format("  {:<20}{}\n", command.name, command.summary);
  return text +
         "\n  --help, help COMMAND       this text; what a command takes\n"
         "  --version, -V, version     the version, the commit and the kernels\n";
}

const Command* find_command(std::string_view name) {
  const auto all = commands();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Command& command) { return command.name == name; });
  return found == all.end() ? nullptr : &*found;
}

// Names that other programs use for a command of tandem. Compared without dashes and underscores.
struct Synonym {
  std::string_view words;  // separated by blanks
  std::string_view suggestion;
};
constexpr Synonym kSynonyms[] = {
    {"train training finetune finetuning fit learn",
     "run_qa, run_glue, run_classification or "
     "run_ner, by the task"},
    {"eval evaluate evaluation test validate",
     "run_qa, run_glue, run_classification or run_ner "
     "with --do_eval and without --do_train"},
    {"quantize quantization int8", "run_qa … --apply_quantization"},
    {"encode embedding embeddings vectors", "embed"},
    {"merge_and_unload export unload", "merge"},
    {"mine_hard_negatives negatives hard", "mine"},
    {"retrieve retrieval beir", "search"},
    {"rank ranking reranking reranker crossencoder", "rerank"},
    {"infer inference classify label tag pipeline", "predict"},
    {"answer query question", "ask"},
    {"chat complete completion sample write continue", "generate"},
    {"server start http api", "serve"},
    {"launch torchrun accelerate", "run"},
    {"mpiexec srun", "mpirun"},
    {"tokenize tokens features weights show", "inspect"},
    {"benchmark perf", "bench"},
    {"compare plot tensorboard", "report"},
    {"check env info", "doctor"},
};

std::optional<std::string> synonym_of(std::string name) {
  std::erase_if(name, [](char c) { return c == '-' || c == '_'; });
  for (const Synonym& row : kSynonyms) {
    if (fmt::format(" {} ", row.words).find(fmt::format(" {} ", name)) != std::string::npos)
      return std::string(row.suggestion);
  }
  return std::nullopt;
}

// A command that ends workers is never what a typing error meant.
bool is_destructive(std::string_view name) { return name == "drain" || name == "resize"; }

std::string unknown_command(const std::string& name) {
  std::vector<std::string> names, harmless;
  for (const Command& command : commands()) {
    names.emplace_back(command.name);
    if (!is_destructive(command.name)) harmless.emplace_back(command.name);
  }
  auto suggestion = synonym_of(name);
  if (!suggestion) {
    const auto near = flags::nearest(name, harmless);
    if (near) suggestion = fmt::format("'{}'", *near);
  }
  return fmt::format("unknown command '{}'{}; the commands are {}", name,
                     suggestion ? fmt::format(", did you mean {}?", *suggestion) : "",
                     fmt::join(names, ", "));
}

// Format of the log lines of a job and its launchers, known before their flags are read: errors in
// these are lines of the log too.
Environment with_log_format(const Command& command, const Invocation& invocation) {
  const bool logs = is_job(command) || command.name == "run" || command.name == "mpirun";
  const auto format = logs ? find_log_format(invocation.words) : std::nullopt;
  if (!format) return invocation.environment;
  auto values = invocation.environment.values();
  values["TANDEM_LOG_FORMAT"] = enum_name(*format);
  return Environment(std::move(values));
}

LogPrefix log_prefix_of(const Environment& environment) {
  LogPrefix log_prefix;
  try {
    log_prefix.format = log_format(environment);
    const rendezvous::Identity identity = rendezvous::identify(environment);
    if (identity.distributed()) log_prefix.rank = identity.rank;
  } catch (const Error&) {  // the text to report
  }
  return log_prefix;
}

std::string usage(const Command& command) {
  if (!is_job(command)) return std::string(command.usage);
  return fmt::format(
      "tandem {0} --model_name_or_path DIR|NAME [flags]   (tandem {0} --help lists all flags)",
      command.name);
}

// Prints what went wrong, in a catch block, and returns the exit code. `usage` is printed before
// usage errors.
int explain_current_error(const Command& command, const Environment& environment) {
  const LogPrefix log_prefix = log_prefix_of(environment);
  const auto print_error = [&log_prefix](std::string_view message) {
    write_log(log_prefix, message, "ERROR");
  };
  try {
    throw;
  } catch (const OutputClosed&) {
    return 0;
  } catch (const CommandDescription&) {
    print_error(fmt::format("{} is for tandem itself; see --help", kDescribe));
    return kExitUsage;
  } catch (const job::SharedError& error) {
    return error.exit_code();  // run_job() has logged it
  } catch (const Error& error) {
    // Workers of an elastic job begin it each alone, and the first end is the job's.
    const bool alike = error.exit_code() == kExitUsage ||
                       (error.exit_code() == kExitInput && environment.get("TANDEM_AGENT"));
    if (alike && is_job(command)) let_rank_0_log(environment);
    if (error.exit_code() == kExitUsage) {
      if (log_prefix.format == LogFormat::kText) fmt::print(stderr, "usage: {}\n", usage(command));
    }
    print_error(error.what());
    return error.exit_code();
  } catch (const std::bad_alloc&) {
    print_error(
        fmt::format("not enough memory{}; try a smaller batch size or max_seq_length, or fewer "
                    "ranks on this machine",
                    describe_address_space_limit()));
    return kExitInput;
  } catch (const std::system_error& error) {
    // Threads and mappings that found no room throw this.
    print_error(fmt::format("the system refused: {}{}{}", error.what(),
                            advice_on(error.code().value()), describe_address_space_limit()));
    return means_volume_gone(error.code().value()) ? kVolumeGone : kExitInput;
  } catch (const std::exception& error) {
    print_error(fmt::format("internal error, please report it: {}", json_reason(error.what())));
    return kExitBug;
  }
}

// In a catch block.
void leave_current_reason(const Environment& environment) {
  try {
    throw;
  } catch (const std::exception& error) {
    leave_reason(environment, error.what());
  } catch (...) {
  }
}

int run_command(const Command& command, const Invocation& asked) {
  const Environment described = with_log_format(command, asked);
  const Invocation invocation{asked.words, is_job(command) ? described : asked.environment,
                              asked.subcommand};
  const JobCommand* const job = find_job_command(command.name);
  bool meets = false;
  try {
    const auto& words = invocation.words;
    const bool asks_help = std::any_of(words.begin(), words.end(), [](const std::string& word) {
      return word == "--help" || word == "-h";
    });
    if (job != nullptr && asks_help) {
      fmt::print("{}", help_text(job_description(*job), fold_columns(STDOUT_FILENO)));
      return 0;
    }
    const std::string own_agent = is_job(command) ? why_own_agent(invocation.environment) : "";
    if (!own_agent.empty()) {
      write_log(log_prefix_of(described), own_agent);
      std::vector<std::string> under_agent = words;
      under_agent.insert(under_agent.begin(), fmt::format("{}.py", command.name));
      return run({std::move(under_agent), invocation.environment});
    }
    return job != nullptr ? run_job(*job, invocation, meets) : command.run(invocation);
  } catch (...) {
    if (is_job(command)) leave_current_reason(invocation.environment);
    const int code = explain_current_error(command, described);
    if (job != nullptr && !meets) {
      std::fflush(nullptr);
      notify_ranks_of_current_error(invocation.environment, log_prefix_of(described));
    }
    // mpirun waits for every rank; one that is stopped or out of reach must not keep it.
    if (job != nullptr && code != 0) rendezvous::end_job(invocation.environment, code);
    return code;
  }
}

int print_version() {
  try {
    fmt::print("{}", version_text());
    return 0;
  } catch (const Error& error) {  // TANDEM_CPU_FEATURES names what this CPU has not
    write_log({}, error.what(), "ERROR");
    return kExitInput;
  }
}

int dispatch(std::vector<std::string> words) {
  if (words.empty()) {
    fmt::print(stderr, "{}", help());
    return kExitUsage;
  }
  const std::string name = words.front();
  words.erase(words.begin());
  const bool asks_help = name == "--help" || name == "-h" || name == "help";
  if (asks_help && words.empty()) {
    fmt::print("{}", help());
    return 0;
  }
  if (name == "--version" || name == "-V" || name == "version") return print_version();
  const Command* command = find_command(asks_help ? words.front() : name);
  if (command == nullptr) {
    write_log({}, unknown_command(asks_help ? words.front() : name), "ERROR");
    return kExitUsage;
  }
  if (asks_help) {  // help inspect tokens: inspect tokens --help
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  return run_command(*command,
                     {std::move(words), Environment::from_process(), std::string(command->name)});
}

}  // namespace

std::span<const Command> commands() {
  static const std::vector<Command> all = [] {
    std::vector<Command> rows;
    for (const JobCommand& job : job_commands())
      rows.push_back({job.name, job.summary, "", nullptr});
    rows.insert(rows.end(), std::begin(kCommands), std::end(kCommands));
    return rows;
  }();
  return all;
}

}  // namespace tandem::apps

int main(int argc, char** argv) {
  try {
    tandem::ensure_stack();
  } catch (const tandem::ConfigError& error) {
    tandem::apps::write_log({}, error.what(), "ERROR");
    return error.exit_code();
  }
  tandem::name_own_process();
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  // Under torchrun's name: an image whose command is torchrun needs no other.
  if (argc > 0 && std::filesystem::path(argv[0]).filename() == "torchrun")
    words.insert(words.begin(), "run");
  return tandem::apps::dispatch(std::move(words));
}
