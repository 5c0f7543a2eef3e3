#include "tandem/launch/mpirun/mpi_line.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/flags/suggest.h"

namespace tandem::launch {
namespace {

int number(const std::string& text, int min, int max) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < min || value > max)
    raise<ConfigError>("'{}' is not an integer from {} to {}", text, min, max);
  return value;
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::vector<std::string> names_in(const std::string& list) {
  std::string spaced = list;
  std::replace(spaced.begin(), spaced.end(), ',', ' ');
  return words_of(spaced);
}

std::pair<std::string, std::string> assignment(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    raise<ConfigError>("'{}' is not of the form NAME=VALUE or NAME VALUE", text);
  return {text.substr(0, equals), text.substr(equals + 1)};
}

EnvironmentRule& block_rule(MpiLine& line) {
  auto& rule = line.blocks.back().environment;
  if (!rule) rule = EnvironmentRule{line.environment.base, line.environment.listed, {}};
  return *rule;
}

void set_launcher(MpiLine& line, const std::string& value) {
  if (value != "ssh" && value != "fork") {
    raise<ConfigError>(
        "'{}' is not one of ssh, fork; with Slurm start the ranks by srun --mpi=pmi2, elsewhere "
        "give a program that is called as ssh is with -launcher-exec",
        value);
  }
  line.launcher = value;
}

void set_input(MpiLine& line, const std::string& value) {
  line.input_rank = value == "none" ? -1 : number(value, 0, kMaxRanks - 1);
}

void no_effect(MpiLine& line, std::string_view what) {
  line.notes.push_back(fmt::format("{} has no effect here", what));
}

constexpr MpiFlag kMpiFlags[] = {
    {"f|hostfile|machinefile|machine", "FILE",
     "the hosts, one a line: `node0`, `node0:2` or `node0 slots=2`; lines of one host add up "
     "(HYDRA_HOST_FILE)",
     [](MpiLine& line, const std::string& value) { line.host_file = value; }},
    {"hosts", "HOST[:N],...", "the same on the command line",
     [](MpiLine& line, const std::string& value) { line.hosts = read_host_list(value); }},
    {"n|np", "N", "number of ranks of this program (default: one for each slot of the hosts)",
     [](MpiLine& line, const std::string& value) {
       line.blocks.back().count = number(value, 1, kMaxRanks);
     }},
    {"ppn|perhost|ranks-per-host", "N", "ranks that follow each other on a host",
     [](MpiLine& line, const std::string& value) {
       line.ranks_per_host = number(value, 1, kMaxRanks);
     }},
    {"rr", "", "the same as -ppn 1",
     [](MpiLine& line, const std::string&) { line.ranks_per_host = 1; }},
    {"genv", "NAME=VALUE", "a variable for all ranks; also -genv NAME VALUE",
     [](MpiLine& line, const std::string& value) {
       line.environment.set.push_back(assignment(value));
     }},
    {"genvlist", "NAME,...", "pass on only these variables of this environment",
     [](MpiLine& line, const std::string& value) {
       line.environment.base = EnvironmentRule::Base::kListed;
       line.environment.listed = names_in(value);
     }},
    {"genvall", "", "pass on this whole environment (default)",
     [](MpiLine& line, const std::string&) {
       line.environment.base = EnvironmentRule::Base::kAll;
     }},
    {"genvnone", "", "pass on nothing of this environment",
     [](MpiLine& line, const std::string&) {
       line.environment.base = EnvironmentRule::Base::kNone;
     }},
    {"env", "NAME=VALUE", "a variable for the ranks of this program; also -env NAME VALUE",
     [](MpiLine& line, const std::string& value) {
       block_rule(line).set.push_back(assignment(value));
     }},
    {"envlist", "NAME,...", "as -genvlist, for this program",
     [](MpiLine& line, const std::string& value) {
       block_rule(line).base = EnvironmentRule::Base::kListed;
       block_rule(line).listed = names_in(value);
     }},
    {"envall", "", "as -genvall, for this program",
     [](MpiLine& line, const std::string&) {
       block_rule(line).base = EnvironmentRule::Base::kAll;
     }},
    {"envnone", "", "as -genvnone, for this program",
     [](MpiLine& line, const std::string&) {
       block_rule(line).base = EnvironmentRule::Base::kNone;
     }},
    {"host", "HOST", "where the ranks of this program run",
     [](MpiLine& line, const std::string& value) {
       line.blocks.back().host = read_host_list(value).front().host;
     }},
    {"wdir", "DIR", "working directory of this program's ranks (default: this one)",
     [](MpiLine& line, const std::string& value) { line.blocks.back().directory = value; }},
    {"l|prepend-rank", "", "begin each line of output with [rank]",
     [](MpiLine& line, const std::string&) { line.prefix_ranks = true; }},
    {"prepend-pattern", "TEXT",
     "begin each line with this: %r rank, %g 0, %p host's number, %h host",
     [](MpiLine& line, const std::string& value) { line.prefix_pattern = value; }},
    {"outfile-pattern", "FILE", "write what ranks print to files; knows %r, %g, %p, %h",
     [](MpiLine& line, const std::string& value) { line.out_pattern = value; }},
    {"errfile-pattern", "FILE", "the same for stderr",
     [](MpiLine& line, const std::string& value) { line.err_pattern = value; }},
    {"bind-to", "UNIT[:N]",
     "tie each rank to a unit: none, hwthread, core, l3cache, numa, socket, board, or "
     "user:0+1,2+3 (default: tandem's own jobs to their share of the memory domains, other "
     "programs not at all)",
     [](MpiLine& line, const std::string& value) { line.bind_to = value; }},
    {"map-by", "UNIT",
     "ranks that follow each other get units in this order (default: as -bind-to)",
     [](MpiLine& line, const std::string& value) { line.map_by = value; }},
    {"iface", "NAME", "network interface of tandem's jobs (TANDEM_IFNAME)",
     [](MpiLine& line, const std::string& value) { line.interface = value; }},
    {"launcher|bootstrap", "ssh|fork", "how hosts are reached; fork: all ranks here", set_launcher},
    {"launcher-exec|bootstrap-exec", "FILE", "program to use as ssh (HYDRA_LAUNCHER_EXEC)",
     [](MpiLine& line, const std::string& value) { line.launcher_program = value; }},
    {"disable-auto-cleanup", "", "a rank that fails does not end the others",
     [](MpiLine& line, const std::string&) { line.auto_cleanup = false; }},
    {"print-all-exitcodes", "", "print how each rank ended",
     [](MpiLine& line, const std::string&) { line.print_exit_codes = true; }},
    {"s|stdin", "RANK|none", "the rank that reads this stdin (default 0)", set_input},
    {"usize", "N|SYSTEM|INFINITE", "size of the universe that MPI programs see",
     [](MpiLine& line, const std::string& value) {
       line.universe_size.reset();
       if (value != "SYSTEM" && value != "INFINITE")
         line.universe_size = number(value, 1, kMaxRanks);
     }},
    {"v|verbose", "", "print what is started where",
     [](MpiLine& line, const std::string&) { line.verbose = true; }},
    {"configfile", "FILE", "read the rest of the command line from a file, one program a line",
     nullptr},
    {"topolib", "NAME", "accepted; the topology is hwloc's", [](MpiLine&, const std::string&) {}},
    {"membind", "POLICY", "accepted; memory is placed by first touch",
     [](MpiLine& line, const std::string& value) {
       if (value != "none" && value != "firsttouch") no_effect(line, "-membind " + value);
     }},
    {"demux", "NAME", "accepted without effect", [](MpiLine&, const std::string&) {}},
    {"rmk", "NAME", "accepted without effect",
     [](MpiLine& line, const std::string& value) { no_effect(line, "-rmk " + value); }},
    {"localhost", "NAME", "accepted without effect",
     [](MpiLine& line, const std::string&) { no_effect(line, "-localhost"); }},
    {"hostname-propagation|disable-hostname-propagation", "", "accepted without effect",
     [](MpiLine& line, const std::string&) { no_effect(line, "-hostname-propagation"); }},
    {"enable-auto-cleanup", "", "a rank that fails ends the others (default)",
     [](MpiLine& line, const std::string&) { line.auto_cleanup = true; }},
};

[[noreturn]] void usage_error(const std::string& message) { throw ConfigError(message, true); }

bool has_name(const MpiFlag& flag, std::string_view name) {
  std::string_view names = flag.names;
  while (!names.empty()) {
    const std::string_view one = names.substr(0, names.find('|'));
    if (one == name) return true;
    names.remove_prefix(std::min(names.size(), one.size() + 1));
  }
  return false;
}

const MpiFlag& find_flag(const std::string& word, std::string_view name) {
  const auto found = std::find_if(std::begin(kMpiFlags), std::end(kMpiFlags),
                                  [&](const MpiFlag& flag) { return has_name(flag, name); });
  if (found != std::end(kMpiFlags)) return *found;
  std::vector<std::string> names;
  for (const MpiFlag& flag : kMpiFlags)
    names.push_back(std::string(flag.names.substr(0, flag.names.find('|'))));
  const auto near = flags::nearest(std::string(name), names);
  usage_error(
      fmt::format("unknown flag of tandem mpirun: {}{}; flags of the program come behind it", word,
                  near ? fmt::format(" (did you mean -{}?)", *near) : ""));
}

// The words of one call.
class MpiReader {
 public:
  MpiReader(std::vector<std::string> words, MpiLine& line)
      : words_(std::move(words)), line_(line) {}

  void read() {
    line_.blocks.emplace_back();
    while (at_ < words_.size()) {
      const std::string word = words_[at_++];
      if (word.size() > 1 && word.front() == '-') {
        read_flag(word);
      } else {
        read_command(word);
      }
    }
    if (line_.blocks.back().command.empty()) {
      usage_error(
          "no program: tandem mpirun [flags] PROGRAM [its flags], for example tandem mpirun -f "
          "hostfile -n 4 -ppn 2 tandem run_qa --model_name_or_path …");
    }
  }

 private:
  void read_flag(const std::string& word) {
    const std::size_t dashes = word[1] == '-' ? 2 : 1;
    const std::size_t equals = std::min(word.find('='), word.size());
    const MpiFlag& flag = find_flag(word, std::string_view(word).substr(dashes, equals - dashes));
    std::optional<std::string> value;
    if (equals < word.size()) value = word.substr(equals + 1);
    if (flag.value.empty() && value) usage_error(fmt::format("{} takes no value", word));
    if (!flag.value.empty() && !value) value = next_value(word, flag);
    if (flag.value == "NAME=VALUE" && value->find('=') == std::string::npos)
      *value += '=' + next_value(word, flag);
    apply(flag, word.substr(0, equals), value.value_or(""));
  }

  void apply(const MpiFlag& flag, const std::string& name, const std::string& value) {
    try {
      flag.apply == nullptr ? read_file_of_words(value) : flag.apply(line_, value);
    } catch (const ConfigError& error) {
      usage_error(fmt::format("{}: {}", name, error.what()));
    }
  }

  std::string next_value(const std::string& name, const MpiFlag& flag) {
    if (at_ == words_.size()) usage_error(fmt::format("{} expects {}", name, flag.value));
    return words_[at_++];
  }

  // Up to ":" all words belong to the program.
  void read_command(const std::string& first) {
    auto& command = line_.blocks.back().command;
    command.push_back(first);
    while (at_ < words_.size()) {
      const std::string& word = words_[at_++];
      if (word == ":") {
        line_.blocks.emplace_back();
        return;
      }
      command.push_back(word);
    }
  }

  // One program per line; '#' begins a comment at the start of a word.
  void read_file_of_words(const std::string& path) {
    std::istringstream lines(read_file(path));
    std::vector<std::string> all;
    for (std::string text; std::getline(lines, text);) {
      std::vector<std::string> words = words_of(text);
      const auto comment = std::find_if(
          words.begin(), words.end(), [](const std::string& word) { return word.front() == '#'; });
      words.erase(comment, words.end());
      if (words.empty()) continue;
      if (!all.empty()) all.emplace_back(":");
      all.insert(all.end(), words.begin(), words.end());
    }
    if (++depth_ > 8) raise<ConfigError>("'{}' includes itself", path);
    words_.insert(words_.begin() + static_cast<std::ptrdiff_t>(at_), all.begin(), all.end());
  }

  std::vector<std::string> words_;
  MpiLine& line_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

// The first of these variables that is set.
std::string first_of(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const auto value = environment.get(name)) return *value;
  }
  return "";
}

void read_variables(const Environment& environment, MpiLine& line) {
  line.host_file = first_of(environment, {"HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE"});
  line.launcher_program = first_of(environment, {"HYDRA_LAUNCHER_EXEC"});
  // Kubeflow's MPIJob sets HYDRA_LAUNCH_EXTRA_ARGS, which MPICH does not know.
  line.launcher_words =
      words_of(first_of(environment, {"HYDRA_LAUNCHER_EXTRA_ARGS", "HYDRA_LAUNCH_EXTRA_ARGS",
                                      "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS"}));
  if (const auto count = environment.get_int("I_MPI_PERHOST", 1, kMaxRanks))
    line.ranks_per_host = static_cast<int>(*count);
  line.timeout_s =
      static_cast<int>(environment.get_int("MPIEXEC_TIMEOUT", 1, 100'000'000).value_or(0));
}

}  // namespace

EnvironmentMap EnvironmentRule::of(const EnvironmentMap& inherited) const {
  EnvironmentMap result;
  if (base == Base::kAll) result = inherited;
  for (const std::string& name : listed) {
    const auto found = inherited.find(name);
    if (base == Base::kListed && found != inherited.end()) result.insert(*found);
  }
  for (const auto& [name, value] : set) result[name] = value;
  return result;
}

std::span<const MpiFlag> mpi_flags() { return kMpiFlags; }

bool is_own_job(const MpiLine& line, const std::vector<std::string>& job_commands) {
  return std::all_of(line.blocks.begin(), line.blocks.end(), [&](const MpiBlock& block) {
    return std::filesystem::path(block.command.front()).filename() == "tandem" &&
           block.command.size() > 1 &&
           std::find(job_commands.begin(), job_commands.end(), block.command[1]) !=
               job_commands.end();
  });
}

bool may_be_elastic(const MpiLine& line, const EnvironmentMap& inherited) {
  if (line.blocks.size() != 1) return false;
  const MpiBlock& block = line.blocks.front();
  EnvironmentMap all = line.environment.of(inherited);
  if (block.environment) {
    for (const auto& [name, value] : block.environment->set) all[name] = value;
  }
  const auto wish = all.find("TANDEM_ELASTIC");
  if (wish != all.end() && !wish->second.empty()) return wish->second == "1";
  // An MPI library needs the processes that mpirun has started.
  std::string before;
  for (const std::string& word : block.command) {
    const bool asks = before == "--ddp_backend" || before == "--xpu_backend";
    if ((asks && word == "mpi") || word == "--ddp_backend=mpi" || word == "--xpu_backend=mpi")
      return false;
    before = word;
  }
  return true;
}

MpiLine parse_mpi_line(const std::vector<std::string>& words, const Environment& environment) {
  MpiLine line;
  read_variables(environment, line);
  MpiReader(words, line).read();
  if (!line.hosts.empty()) line.host_file.clear();
  if (line.map_by.empty()) line.map_by = line.bind_to;
  return line;
}

}  // namespace tandem::launch
