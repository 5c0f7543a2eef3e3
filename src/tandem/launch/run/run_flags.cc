#include "tandem/launch/run/run_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <csignal>

#include "tandem/core/ascii.h"
#include "tandem/core/error.h"
#include "tandem/flags/suggest.h"

namespace tandem::launch {
namespace {

int number(std::string_view text, int min, int max, std::string_view what) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < min || value > max) {
    raise<ConfigError>("'{}' is not {} (an integer from {} to {})", text, what, min, max);
  }
  return value;
}

double seconds(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value > 0) || value > 3600) {
    raise<ConfigError>("'{}' is not a number of seconds above 0, at most 3600", text);
  }
  return value;
}

constexpr int kMaxNodes = 65536;

void set_nodes(RunOptions& options, const std::string& value) {
  const auto parts = split(value, ':');
  if (parts.size() > 2) raise<ConfigError>("'{}' is neither a number of nodes nor MIN:MAX", value);
  options.min_nodes = number(parts.front(), 1, kMaxNodes, "a number of nodes");
  options.max_nodes = number(parts.back(), 1, kMaxNodes, "a number of nodes");
  if (options.min_nodes > options.max_nodes) {
    raise<ConfigError>("'{}' asks for at least {} and at most {} nodes: MIN must not exceed MAX",
                       value, options.min_nodes, options.max_nodes);
  }
}

void set_processes(RunOptions& options, const std::string& value) {
  if (value == "gpu" || value == "xpu" || value == "cuda") {
    raise<ConfigError>(
        "'{}' counts devices that tandem does not use; give a number, auto (one worker for each "
        "memory domain of this host) or cpu (one for each CPU)",
        value);
  }
  if (value != "auto" && value != "cpu") number(value, 1, 4096, "auto, cpu or a number of workers");
  options.nproc_per_node = value;
}

void set_backend(RunOptions& options, const std::string& value) {
  if (value == "etcd" || value == "etcd-v2") {
    raise<ConfigError>(
        "'{}' uses version 2 of etcd's interface, which etcd no longer has; use c10d, where the "
        "first host of the job keeps the list of members",
        value);
  }
  if (value != "static" && value != "c10d")
    raise<ConfigError>("'{}' is not one of static, c10d", value);
  options.backend = value == "c10d" ? Backend::kC10d : Backend::kStatic;
}

// Keys of torchrun's c10d and static backends.
constexpr std::string_view kConfKeys =
    "join_timeout,last_call_timeout,close_timeout,timeout,keep_alive_interval,"
    "keep_alive_max_attempt,is_host,read_timeout,etcd,etcd_lease,etcd_prefix";

// A key without a counterpart here gets a note.
void set_conf(RunOptions& options, const std::string& value) {
  const std::vector<std::string_view> known = split(kConfKeys, ',');
  if (value.empty()) return;
  for (const std::string_view pair : split(value, ',')) {
    const std::size_t equals = pair.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      raise<ConfigError>("'{}' is not of the form key=value,key=value", value);
    }
    const std::string key(pair.substr(0, equals));
    options.rdzv_conf[key] = pair.substr(equals + 1);
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      options.notes.push_back(fmt::format("--rdzv-conf {}: has no effect here; the keys are {}",
                                          key, fmt::join(known, ", ")));
    }
  }
}

Streams streams(std::string_view text) {
  const int bits = number(text, 0, 3, "0, 1 (stdout), 2 (stderr) or 3 (both)");
  return {.out = (bits & 1) != 0, .err = (bits & 2) != 0};
}

StreamChoice stream_choice(const std::string& value) {
  StreamChoice choice;
  if (value.find(':') == std::string::npos) {
    choice.all = streams(value);
    return choice;
  }
  choice.each = true;
  for (const std::string_view part : split(value, ',')) {
    const auto pair = split(part, ':');
    if (pair.size() != 2) raise<ConfigError>("'{}' is not of the form 0:3,1:1", value);
    choice.by_local_rank[number(pair[0], 0, 4095, "a local rank")] = streams(pair[1]);
  }
  return choice;
}

std::vector<int> rank_list(const std::string& value) {
  std::vector<int> ranks;
  for (const std::string_view part : split(value, ','))
    ranks.push_back(number(part, 0, 4095, "a local rank"));
  return ranks;
}

// "a,,b,c" is {"a,b", "c"}.
std::vector<std::string> filter_list(const std::string& value) {
  std::vector<std::string> filters(1);
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (value[i] != ',') {
      filters.back() += value[i];
    } else if (i + 1 < value.size() && value[i + 1] == ',') {
      filters.back() += ',';
      ++i;
    } else {
      filters.emplace_back();
    }
  }
  std::erase(filters, "");
  return filters;
}

struct SignalName {
  std::string_view name;
  int number;
};
constexpr SignalName kSignalNames[] = {{"SIGTERM", SIGTERM}, {"SIGINT", SIGINT},
                                       {"SIGHUP", SIGHUP},   {"SIGQUIT", SIGQUIT},
                                       {"SIGUSR1", SIGUSR1}, {"SIGUSR2", SIGUSR2}};
constexpr std::string_view kDefaultSignals = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";

void set_signals(RunOptions& options, const std::string& value) {
  options.signals.clear();
  options.signal_names = value;
  for (const std::string_view name : split(value, ',')) {
    const auto found = std::find_if(std::begin(kSignalNames), std::end(kSignalNames),
                                    [&](const SignalName& one) { return one.name == name; });
    if (found == std::end(kSignalNames)) {
      raise<ConfigError>("'{}' cannot be handled; the signals are {},SIGUSR1,SIGUSR2", name,
                         kDefaultSignals);
    }
    options.signals.push_back(found->number);
  }
}

void set_binding(RunOptions& options, const std::string& value) {
  constexpr std::pair<std::string_view, Binding> kBindings[] = {
      {"node", Binding::kNode},
      {"socket", Binding::kSocket},
      {"exclusive", Binding::kExclusive},
      {"core-complex", Binding::kCoreComplex},
      {"none", Binding::kNone}};
  for (const auto& [name, binding] : kBindings) {
    if (name == value) {
      options.binding = binding;
      return;
    }
  }
  raise<ConfigError>("'{}' is not one of node, socket, exclusive, core-complex, none", value);
}

void set_log_format(RunOptions& options, const std::string& value) {
  const auto found = std::find(std::begin(kLogFormatNames), std::end(kLogFormatNames), value);
  if (found == std::end(kLogFormatNames)) raise<ConfigError>("'{}' is not text or json", value);
  options.log_format = static_cast<LogFormat>(found - std::begin(kLogFormatNames));
}

void no_effect(RunOptions& options, std::string_view what) {
  options.notes.push_back(fmt::format("{} has no effect here", what));
}

constexpr RunFlag kRunFlags[] = {
    {"nnodes", "", "N|MIN:MAX", "PET_NNODES", "number of nodes, or the least and the most",
     set_nodes},
    {"nproc-per-node", "", "N|auto|cpu", "PET_NPROC_PER_NODE",
     "workers per node; auto: one for each memory domain that this process may use; cpu: one for "
     "each CPU",
     set_processes},
    {"rdzv-backend", "", "static|c10d", "PET_RDZV_BACKEND",
     "how the nodes meet: fixed ranks at --master-addr, or any that come to --rdzv-endpoint",
     set_backend},
    {"rdzv-endpoint", "", "HOST[:PORT]", "PET_RDZV_ENDPOINT",
     "where the nodes meet; the host that has this name keeps the list of members",
     [](RunOptions& options, const std::string& value) { options.rdzv_endpoint = value; }},
    {"rdzv-id", "", "NAME", "PET_RDZV_ID", "name of the job, the same on all nodes",
     [](RunOptions& options, const std::string& value) { options.rdzv_id = value; }},
    {"rdzv-conf", "", "KEY=VALUE,...", "PET_RDZV_CONF",
     "join_timeout in seconds; etcd=URL, etcd_lease and etcd_prefix: the external lock of the job; "
     "torchrun's other keys have no effect",
     set_conf},
    {"standalone", "", "", "PET_STANDALONE",
     "a job of this node alone, at a free port; other settings of the rendezvous do not count",
     [](RunOptions& options, const std::string&) { options.standalone = true; }},
    {"max-restarts", "", "N", "PET_MAX_RESTARTS",
     "how often a failed worker is started again; any number of times when this is not given",
     [](RunOptions& options, const std::string& value) {
       options.max_restarts = number(value, 0, 1000000, "a number of restarts");
       options.max_restarts_given = true;
     }},
    {"monitor-interval", "", "SECONDS", "PET_MONITOR_INTERVAL",
     "accepted; a worker's end is known at once",
     [](RunOptions& options, const std::string& value) {
       options.monitor_interval = seconds(value);
     }},
    {"start-method", "", "spawn|fork|forkserver", "PET_START_METHOD",
     "accepted; every worker is a program of its own",
     [](RunOptions&, const std::string& value) {
       if (value != "spawn" && value != "fork" && value != "forkserver")
         raise<ConfigError>("'{}' is not one of spawn, fork, forkserver", value);
     }},
    {"event-log-handler", "", "NAME", "PET_EVENT_LOG_HANDLER",
     "accepted without effect: handlers are Python's",
     [](RunOptions& options, const std::string& value) {
       if (value != "null") no_effect(options, "--event-log-handler " + value);
     }},
    {"role", "", "NAME", "PET_ROLE", "name of the workers, in ROLE_NAME and before tee'd lines",
     [](RunOptions& options, const std::string& value) { options.role = value; }},
    {"module", "m", "", "PET_MODULE",
     "the script is a Python module, which torch's torchrun starts",
     [](RunOptions& options, const std::string&) { options.module = true; }},
    {"no-python", "", "", "PET_NO_PYTHON",
     "the script is a program: `tandem run_qa`, or any other, which torch's torchrun starts",
     [](RunOptions& options, const std::string&) { options.no_python = true; }},
    {"run-path", "", "", "PET_RUN_PATH",
     "run the script by Python's runpy.run_path, under torch's torchrun",
     [](RunOptions& options, const std::string&) { options.run_path = true; }},
    {"log-format", "", "text|json", "TANDEM_LOG_FORMAT",
     "json: every line on the console, the workers' too, is one JSON object (the job's flag "
     "--log_format does the same)",
     set_log_format},
    {"log-dir", "", "DIR", "PET_LOG_DIR",
     "where logs and error files go, in a folder per run, attempt and local rank",
     [](RunOptions& options, const std::string& value) { options.log_dir = value; }},
    {"redirects", "r", "N|RANK:N,...", "PET_REDIRECTS",
     "write 1 (stdout), 2 (stderr) or 3 (both) to files instead of the console",
     [](RunOptions& options, const std::string& value) {
       options.redirects = stream_choice(value);
     }},
    {"tee", "t", "N|RANK:N,...", "PET_TEE",
     "the same, to files and to the console, each line with its worker's prefix",
     [](RunOptions& options, const std::string& value) { options.tee = stream_choice(value); }},
    {"log-line-prefix-template", "", "TEXT", "PET_LOG_LINE_PREFIX_TEMPLATE",
     "prefix of tee'd lines; knows ${role_name}, ${local_rank}, ${rank} and ${hostname}",
     [](RunOptions& options, const std::string& value) {
       options.log_line_prefix_template = value;
     }},
    {"local-ranks-filter", "", "RANK,...", "PET_LOCAL_RANKS_FILTER",
     "show only these workers on the console",
     [](RunOptions& options, const std::string& value) {
       if (!value.empty()) options.local_ranks_filter = rank_list(value);
     }},
    {"duplicate-stdout-filters", "", "TEXT,...", "PET_DUPLICATE_STDOUT_FILTERS",
     "copy tee'd lines of stdout that contain one of these to filtered_stdout.log",
     [](RunOptions& options, const std::string& value) {
       options.duplicate_stdout_filters = filter_list(value);
     }},
    {"duplicate-stderr-filters", "", "TEXT,...", "PET_DUPLICATE_STDERR_FILTERS",
     "the same for stderr and filtered_stderr.log",
     [](RunOptions& options, const std::string& value) {
       options.duplicate_stderr_filters = filter_list(value);
     }},
    {"node-rank", "", "N", "PET_NODE_RANK", "this node's place, with static",
     [](RunOptions& options, const std::string& value) {
       options.node_rank = number(value, 0, kMaxNodes - 1, "the rank of a node");
     }},
    {"master-addr", "", "HOST", "PET_MASTER_ADDR", "the host of node rank 0, with static",
     [](RunOptions& options, const std::string& value) { options.master_addr = value; }},
    {"master-port", "", "PORT", "PET_MASTER_PORT",
     "port of node rank 0, with static (default 29500; on one node a free one)",
     [](RunOptions& options, const std::string& value) {
       options.master_port = number(value, 1, 65535, "a port");
     }},
    {"local-addr", "", "HOST", "PET_LOCAL_ADDR", "the name by which others reach this node",
     [](RunOptions& options, const std::string& value) { options.local_addr = value; }},
    {"logs-specs", "", "NAME", "", "refused unless default: others are Python's",
     [](RunOptions&, const std::string& value) {
       if (value != "default")
         raise<ConfigError>(
             "'{}' is code of a Python package, which tandem does not run; see "
             "--log-dir, --redirects and --tee",
             value);
     }},
    {"numa-binding", "", "node|socket|exclusive|core-complex|none", "",
     "tie each worker to the cores of a memory domain, a socket, its share of a domain, or a "
     "shared cache (default: to domains)",
     set_binding},
    {"signals-to-handle", "", "NAME,...", "PET_SIGNALS_TO_HANDLE",
     "signals that are passed on to the workers (default SIGTERM,SIGINT,SIGHUP,SIGQUIT)",
     set_signals},
    {"shutdown-timeout", "", "SECONDS", "PET_SHUTDOWN_TIMEOUT",
     "what workers have between SIGTERM and SIGKILL (default 30)",
     [](RunOptions& options, const std::string& value) {
       options.shutdown_timeout_s = number(value, 0, 1000000, "a number of seconds");
     }},
    {"virtual-local-rank", "", "", "PET_VIRTUAL_LOCAL_RANK",
     "LOCAL_RANK is 0 for every worker (for devices that each sees alone)",
     [](RunOptions& options, const std::string&) { options.virtual_local_rank = true; }},
    {"print-completion", "", "bash|zsh|tcsh", "", "refused: `tandem completion bash|zsh` prints it",
     [](RunOptions&, const std::string&) {
       raise<ConfigError>("is the work of `tandem completion bash` and `tandem completion zsh`");
     }},
};

std::string dashed(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

[[noreturn]] void wrong_usage(const std::string& message) { throw ConfigError(message, true); }

// The flag for a word "--name": the flag of that name, or the only one with that prefix.
const RunFlag& find_long(std::string_view word) {
  const std::string name = dashed(word.substr(2));
  std::vector<const RunFlag*> candidates;
  for (const RunFlag& flag : kRunFlags) {
    if (flag.name == name) return flag;
    if (!name.empty() && flag.name.starts_with(name)) candidates.push_back(&flag);
  }
  if (candidates.size() == 1) return *candidates.front();
  std::vector<std::string> names;
  for (const RunFlag* flag : candidates) names.push_back(fmt::format("--{}", flag->name));
  if (!names.empty())
    wrong_usage(fmt::format("ambiguous flag: {} could be {}", word, fmt::join(names, " ")));
  for (const RunFlag& flag : kRunFlags) names.emplace_back(flag.name);
  const auto near = flags::nearest(name, names);
  wrong_usage(
      fmt::format("unknown flag of tandem run: {}{}; flags of the script come behind the script",
                  word, near ? fmt::format(" (did you mean --{}?)", *near) : ""));
}

const RunFlag& find_letter(const std::string& word) {
  for (const RunFlag& flag : kRunFlags) {
    if (!flag.letter.empty() && word.substr(1, 1) == flag.letter) return flag;
  }
  wrong_usage(fmt::format(
      "unknown flag of tandem run: {}; flags of the script come behind the script", word));
}

void apply(const RunFlag& flag, const std::string& source, RunOptions& options,
           const std::string& value) {
  try {
    flag.apply(options, value);
  } catch (const ConfigError& error) {
    wrong_usage(fmt::format("{}: {}", source, error.what()));
  }
}

void apply_environment(const Environment& environment, RunOptions& options) {
  for (const RunFlag& flag : kRunFlags) {
    if (flag.variable.empty()) continue;
    const auto value = environment.get(flag.variable);
    if (!value) continue;
    if (!flag.value.empty()) {
      apply(flag, std::string(flag.variable), options, *value);
    } else if (number(*value, 0, 1, "0 or 1") == 1) {
      apply(flag, std::string(flag.variable), options, "");
    }
  }
}

// The words of one call, read from the front until the script.
class RunReader {
 public:
  RunReader(const std::vector<std::string>& words, RunOptions& options)
      : words_(words), options_(options) {}

  void read() {
    bool flags_ended = false;  // by "--"
    while (!flags_ended && at_ < words_.size() && words_[at_].size() > 1 && words_[at_][0] == '-') {
      const std::string& word = words_[at_++];
      flags_ended = word == "--";
      if (!flags_ended) word[1] == '-' ? read_long(word) : read_letter(word);
    }
    if (at_ == words_.size()) {
      wrong_usage(
          "no script: tandem run [flags] SCRIPT [flags of the script], for example tandem run "
          "--nproc-per-node 2 run_qa.py --model_name_or_path …");
    }
    options_.script = words_[at_++];
    // torchrun's parser drops the first "--" of a line also where it follows the script.
    if (!flags_ended && at_ < words_.size() && words_[at_] == "--") ++at_;
    options_.script_arguments.assign(words_.begin() + static_cast<std::ptrdiff_t>(at_),
                                     words_.end());
  }

 private:
  void read_long(const std::string& word) {
    const std::size_t equals = word.find('=');
    const RunFlag& flag = find_long(word.substr(0, equals));
    const std::string name = fmt::format("--{}", flag.name);
    if (flag.value.empty()) {
      if (equals != std::string::npos) wrong_usage(name + " takes no value");
      return apply(flag, name, options_, "");
    }
    apply(flag, name, options_,
          equals == std::string::npos ? next_value(name, flag) : word.substr(equals + 1));
  }

  void read_letter(const std::string& word) {
    const RunFlag& flag = find_letter(word);
    const std::string name = fmt::format("-{}", flag.letter);
    std::string attached = word.substr(2);
    if (flag.value.empty()) {
      if (!attached.empty()) wrong_usage(fmt::format("{} takes no value: {}", name, word));
      return apply(flag, name, options_, "");
    }
    if (attached.starts_with("=")) attached.erase(0, 1);
    apply(flag, name, options_, word.size() == 2 ? next_value(name, flag) : attached);
  }

  std::string next_value(const std::string& name, const RunFlag& flag) {
    if (at_ == words_.size()) wrong_usage(fmt::format("{} expects {}", name, flag.value));
    return words_[at_++];
  }

  const std::vector<std::string>& words_;
  RunOptions& options_;
  std::size_t at_ = 0;
};

void check_together(const RunOptions& options) {
  if (options.module && options.no_python && !options.run_path) {
    wrong_usage(
        "--module and --no-python contradict each other: a module is run by Python; drop one");
  }
  if (options.backend == Backend::kC10d && !options.standalone && options.max_nodes > 1 &&
      options.rdzv_endpoint.empty()) {
    wrong_usage(
        "--rdzv-backend c10d with several nodes needs --rdzv-endpoint HOST:PORT, the same on all "
        "nodes: the host with that name keeps the list of members");
  }
}

void note_ignored(RunOptions& options) {
  if (options.standalone && options.max_nodes > 1)
    options.notes.push_back("--standalone: one node, --nnodes is ignored");
  const bool fixed = !options.standalone && options.backend == Backend::kStatic;
  if (fixed && options.min_nodes < options.max_nodes)
    options.notes.push_back(fmt::format(
        "--rdzv-backend static, the default, waits for all {} nodes; c10d begins with {}",
        options.max_nodes, options.min_nodes));
  if (options.backend == Backend::kC10d && options.node_rank != 0)
    options.notes.push_back("--node-rank counts only with --rdzv-backend static");
  const bool tees = options.tee.each || options.tee.all.out || options.tee.all.err;
  const bool filters =
      !options.duplicate_stdout_filters.empty() || !options.duplicate_stderr_filters.empty();
  if (filters && !tees)
    options.notes.push_back(
        "--duplicate-stdout-filters and --duplicate-stderr-filters choose among tee'd lines, and "
        "--tee is not given");
}

}  // namespace

Streams StreamChoice::of(int local_rank) const {
  if (!each) return all;
  const auto found = by_local_rank.find(local_rank);
  return found == by_local_rank.end() ? Streams{} : found->second;
}

std::span<const RunFlag> run_flags() { return kRunFlags; }

RunOptions parse_run_line(const std::vector<std::string>& words, const Environment& environment) {
  RunOptions options;
  set_signals(options, std::string(kDefaultSignals));
  if (const auto seconds = environment.get_int("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", 0, 1000000))
    options.shutdown_timeout_s = static_cast<int>(*seconds);
  options.log_line_prefix_template =
      environment.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE").value_or("");
  apply_environment(environment, options);
  RunReader(words, options).read();
  check_together(options);
  note_ignored(options);
  if (options.standalone) options.min_nodes = options.max_nodes = 1;
  return options;
}

}  // namespace tandem::launch
