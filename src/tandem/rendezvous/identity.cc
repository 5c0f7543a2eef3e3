#include "tandem/rendezvous/identity.h"

#include <fcntl.h>

#include <array>
#include <cctype>
#include <string_view>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/net/address.h"

namespace tandem::rendezvous {
namespace {

// The variables of one launcher, in the order in which it is asked.
struct Launcher {
  std::string_view name;
  std::string_view rank;
  std::string_view size;
  std::string_view local_rank;
  std::string_view local_size;
};

constexpr Launcher kByHand = {"RANK and WORLD_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK",
                              "LOCAL_WORLD_SIZE"};
constexpr Launcher kHydra = {"Hydra", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
constexpr Launcher kOpenMpi = {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                               "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Launcher kMvapich = {"MVAPICH2", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE",
                               "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"};
constexpr std::array kLaunchers = {kByHand, kHydra, kOpenMpi, kMvapich};

// "RANK=1, WORLD_SIZE=2" of those that are set, for error messages.
std::string settings(const Environment& environment,
                     std::initializer_list<std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) {
    if (const auto value = environment.get(name)) {
      text += fmt::format("{}{}={}", text.empty() ? "" : ", ", name, *value);
    }
  }
  return text.empty() ? "none of them set" : text;
}

bool present(const Environment& environment, const Launcher& launcher) {
  return environment.get(launcher.rank).has_value() || environment.get(launcher.size).has_value();
}

void check_rank(const Environment& environment, const Launcher& launcher, int rank, int size) {
  if (rank < size) return;
  raise<ConfigError>(
      "{}: the rank must be below the number of ranks; check the launcher's settings",
      settings(environment, {launcher.rank, launcher.size}));
}

// A person who starts ranks by hand may start several jobs from one shell.
RankVariables variables_of(const Environment& environment, const Launcher& launcher) {
  RankVariables variables;
  variables.rank = launcher.rank;
  if (launcher.name != kByHand.name) return variables;
  for (const auto* variable : {"WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
    variables.same[variable] = environment.get(variable).value_or("");
  return variables;
}

// Fills rank, size and the local pair from a launcher's variables. A missing local pair means one
// node.
Identity read_launcher(const Environment& environment, const Launcher& launcher) {
  const auto rank = environment.get_int(launcher.rank, 0, kMaxWorldSize - 1);
  const auto size = environment.get_int(launcher.size, 1, kMaxWorldSize);
  if (!rank || !size) {
    raise<ConfigError>(
        "incomplete settings of a distributed run: {}, but {} is not set; set both, or "
        "neither for a single process",
        settings(environment, {launcher.rank, launcher.size}),
        rank ? launcher.size : launcher.rank);
  }
  Identity identity;
  identity.source = launcher.name;
  identity.variables = variables_of(environment, launcher);
  identity.rank = static_cast<int>(*rank);
  identity.world_size = static_cast<int>(*size);
  check_rank(environment, launcher, identity.rank, identity.world_size);

  const auto local_rank = environment.get_int(launcher.local_rank, 0, kMaxWorldSize - 1);
  const auto local_size = environment.get_int(launcher.local_size, 1, kMaxWorldSize);
  identity.local_size = static_cast<int>(local_size.value_or(*size));
  identity.local_rank =
      static_cast<int>(local_rank.value_or(local_size ? *rank % *local_size : *rank));
  if (identity.local_size > identity.world_size) {
    raise<ConfigError>("{}: more ranks on this node than in the whole job",
                       settings(environment, {launcher.size, launcher.local_size}));
  }
  if (identity.local_rank >= identity.local_size) {
    raise<ConfigError>("{}: the rank on the node must be below the number of ranks on the node",
                       settings(environment, {launcher.local_rank, launcher.local_size,
                                              launcher.rank, launcher.size}));
  }
  return identity;
}

// Two launchers that both claim this process must agree. torchrun under mpirun or srun is the
// exception: there the outer one starts agents, not ranks. Slurm's variables are in every shell of
// an allocation, so they never contradict.
void check_contradictions(const Environment& environment, const Identity& chosen,
                          const Launcher& chooser) {
  if (environment.get("TORCHELASTIC_RESTART_COUNT")) return;
  for (const Launcher& other : kLaunchers) {
    if (other.name == chooser.name || !present(environment, other)) continue;
    const auto rank = environment.get_int(other.rank, 0, kMaxWorldSize - 1);
    const auto size = environment.get_int(other.size, 1, kMaxWorldSize);
    if ((rank && *rank != chosen.rank) || (size && *size != chosen.world_size)) {
      raise<ConfigError>(
          "contradictory settings of a distributed run: {} but {}; unset those that were "
          "not set by the launcher you use",
          settings(environment, {chooser.rank, chooser.size}),
          settings(environment, {other.rank, other.size}));
    }
  }
}

// One range list of a Slurm host: "07-09,12" has 4 entries and the first is "07".
SlurmHosts parse_brackets(const std::string& prefix, std::string_view inside,
                          const std::string& list) {
  SlurmHosts hosts;
  while (!inside.empty()) {
    const std::string_view item = inside.substr(0, inside.find(','));
    inside.remove_prefix(std::min(inside.size(), item.size() + 1));
    const auto dash = item.find('-');
    const std::string low(item.substr(0, dash));
    const std::string high(dash == std::string_view::npos ? low
                                                          : std::string(item.substr(dash + 1)));
    const auto is_number = [](const std::string& text) {
      return !text.empty() && text.size() < 9 &&
             text.find_first_not_of("0123456789") == std::string::npos;
    };
    if (!is_number(low) || !is_number(high) || std::stoi(high) < std::stoi(low)) {
      raise<ConfigError>(
          "cannot read the host list SLURM_STEP_NODELIST={}; set MASTER_ADDR to rank 0's host",
          list);
    }
    if (hosts.count == 0) hosts.first = prefix + low;
    hosts.count += std::stoi(high) - std::stoi(low) + 1;
  }
  return hosts;
}

std::optional<Identity> read_slurm(const Environment& environment, std::string& note) {
  const auto rank = environment.get_int("SLURM_PROCID", 0, kMaxWorldSize - 1);
  const auto list = environment.get("SLURM_STEP_NODELIST");
  auto size = environment.get_int("SLURM_STEP_NUM_TASKS", 1, kMaxWorldSize);
  if (!size) size = environment.get_int("SLURM_NTASKS", 1, kMaxWorldSize);
  if (!list) {
    if (rank && size && *size > 1) {
      note = fmt::format(
          "SLURM_NTASKS={} is set, but this process was not started by srun: single process",
          *size);
    }
    return std::nullopt;
  }
  if (!rank || !size) {
    raise<ConfigError>(
        "incomplete settings of a Slurm step: SLURM_PROCID and SLURM_NTASKS are needed, found {}",
        settings(environment,
                 {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_STEP_NODELIST"}));
  }
  Identity identity;
  identity.source = "Slurm";
  identity.variables.rank = "SLURM_PROCID";
  identity.rank = static_cast<int>(*rank);
  identity.world_size = static_cast<int>(*size);
  if (identity.rank >= identity.world_size) {
    raise<ConfigError>(
        "{}: the rank must be below the number of ranks",
        settings(environment, {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}));
  }
  const SlurmHosts hosts = parse_slurm_nodelist(*list);
  const long per_node = (*size + hosts.count - 1) / hosts.count;
  identity.local_size = static_cast<int>(std::min(
      *size, environment.get_int("SLURM_NTASKS_PER_NODE", 1, kMaxWorldSize).value_or(per_node)));
  identity.local_rank = static_cast<int>(environment.get_int("SLURM_LOCALID", 0, kMaxWorldSize - 1)
                                             .value_or(*rank % identity.local_size));
  identity.local_size = std::max(identity.local_size, identity.local_rank + 1);
  if (hosts.count > 1) identity.master_addr = hosts.first;
  return identity;
}

// srun --mpi=pmi2 uses Hydra's protocol, but its own variables show which ranks share a node.
void read_local_ranks_of_slurm(const Environment& environment, Identity& identity) {
  if (environment.get(kHydra.local_rank) || environment.get(kHydra.local_size)) return;
  std::string note;
  const auto slurm = read_slurm(environment, note);
  if (!slurm || slurm->rank != identity.rank || slurm->world_size != identity.world_size) return;
  identity.source = "Slurm, PMI";
  identity.local_rank = slurm->local_rank;
  identity.local_size = slurm->local_size;
  identity.master_addr = slurm->master_addr;
}

bool is_open(int descriptor) { return ::fcntl(descriptor, F_GETFD) != -1; }

void read_master(const Environment& environment, Identity& identity) {
  const auto port = environment.get_int("MASTER_PORT", 1, 65535);
  identity.master_port_given = port.has_value();
  identity.master_port = static_cast<int>(port.value_or(kDefaultMasterPort));
  if (const auto address = environment.get("MASTER_ADDR")) {
    const bool brackets = address->size() > 2 && address->front() == '[' && address->back() == ']';
    identity.master_addr = brackets ? address->substr(1, address->size() - 2) : *address;
    identity.master_addr_given = true;
  }
  if (environment.get_flag("TORCHELASTIC_USE_AGENT_STORE")) {
    // torchrun's agent already listens at MASTER_PORT; all ranks derive the same other port.
    const long restarts = environment.get_int("TORCHELASTIC_RESTART_COUNT", 0, 1000000).value_or(0);
    const long derived = (identity.master_port + 1 + restarts) % 65536;
    identity.master_port =
        static_cast<int>(environment.get_int("TANDEM_PORT", 1, 65535)
                             .value_or(derived < 1024 ? derived + 1024 : derived));
    identity.master_port_given = true;
    // Ranks of an elastic agent use another address.
    if (environment.get("TANDEM_AGENT")) return;
    identity.note = fmt::format(
        "torchrun's agent holds port {}; rank 0 listens at port {} (TANDEM_PORT sets it)",
        port.value_or(kDefaultMasterPort), identity.master_port);
  }
}

}  // namespace

bool Identity::loopback() const {
  if (!master_addr_given) return local_size == world_size && master_addr == "127.0.0.1";
  return master_addr == "127.0.0.1" || master_addr == "localhost" || master_addr == "::1";
}

SlurmHosts parse_slurm_nodelist(const std::string& list) {
  SlurmHosts all;
  std::size_t at = 0;
  while (at < list.size()) {
    const std::size_t stop = list.find_first_of(",[", at);
    const std::string prefix = list.substr(at, stop - at);
    SlurmHosts some{prefix, prefix.empty() ? 0 : 1};
    at = stop == std::string::npos ? list.size() : stop + 1;
    if (stop != std::string::npos && list[stop] == '[') {
      const std::size_t close = list.find(']', stop);
      const bool simple =
          close != std::string::npos && (close + 1 == list.size() || list[close + 1] == ',');
      if (!simple) some.count = 0;
      if (simple)
        some = parse_brackets(prefix, std::string_view(list).substr(at, close - at), list);
      at = close == std::string::npos ? list.size() : close + 2;
    }
    if (some.count == 0) {
      raise<ConfigError>(
          "cannot read the host list SLURM_STEP_NODELIST={}; set MASTER_ADDR to rank 0's host",
          list);
    }
    if (all.count == 0) all.first = some.first;
    all.count += some.count;
  }
  if (all.count == 0) raise<ConfigError>("the host list SLURM_STEP_NODELIST={} is empty", list);
  return all;
}

std::string interface_choice(const Environment& environment) {
  for (const auto* variable : {"TANDEM_IFNAME", "CCL_KVS_IFACE", "GLOO_SOCKET_IFNAME"}) {
    if (auto choice = environment.get(variable)) return *choice;
  }
  return "";
}

std::string job_token_of(const Environment& environment) {
  if (const auto token = environment.get("TANDEM_JOB_TOKEN")) return *token;
  const auto path = environment.get("TANDEM_JOB_TOKEN_FILE");
  if (!path) return "";
  constexpr std::string_view kBlanks = " \t\r\n";
  std::string text;
  try {
    text = read_file(*path);
  } catch (const IoError& error) {
    raise<ConfigError>("TANDEM_JOB_TOKEN_FILE: {}", error.what());
  }
  text.erase(text.find_last_not_of(kBlanks) + 1);
  text.erase(0, text.find_first_not_of(kBlanks));
  if (text.empty() || text.find('\n') != std::string::npos)
    raise<ConfigError>("TANDEM_JOB_TOKEN_FILE={} does not have one line with a secret", *path);
  return text;
}

Identity identify(const Environment& environment) {
  Identity identity;
  std::string note;
  const Launcher* chooser = nullptr;
  for (const Launcher& launcher : kLaunchers) {
    if (!present(environment, launcher)) continue;
    identity = read_launcher(environment, launcher);
    check_contradictions(environment, identity, launcher);
    if (launcher.name == kHydra.name) read_local_ranks_of_slurm(environment, identity);
    chooser = &launcher;
    break;
  }
  if (chooser == nullptr) {
    if (auto slurm = read_slurm(environment, note)) identity = *slurm;
  }
  identity.interface = interface_choice(environment);
  identity.job_token = job_token_of(environment);
  if (!identity.distributed()) {
    identity.note = note;
    return identity;
  }
  const bool by_hand = chooser != nullptr && chooser->name == kByHand.name;
  const bool torchrun = by_hand && environment.get("TORCHELASTIC_RESTART_COUNT").has_value();
  if (torchrun) identity.source = "torchrun";
  identity.ended_by_launcher = chooser != nullptr && (!by_hand || torchrun);
  read_master(environment, identity);
  if (chooser != nullptr && chooser->name == kHydra.name) {
    const auto descriptor = environment.get_int("PMI_FD", 0, 1 << 20);
    if (descriptor && is_open(static_cast<int>(*descriptor))) {
      identity.pmi_fd = static_cast<int>(*descriptor);
    }
  }
  const bool several_nodes = identity.local_size != identity.world_size;
  const bool known =
      identity.master_addr_given || identity.pmi_fd || identity.master_addr != "127.0.0.1";
  if (several_nodes && !known) {
    raise<ConfigError>(
        "Tried to launch on distributed with multinode, but `MASTER_ADDR` env was not set, please "
        "try "
        "exporting rank 0's hostname as `MASTER_ADDR` ({} ranks, {} of them on this node, from {})",
        identity.world_size, identity.local_size, identity.source);
  }
  return identity;
}

std::string describe(const Identity& identity) {
  if (!identity.distributed()) return identity.source;
  const bool published = identity.pmi_fd && !identity.master_port_given;
  return fmt::format("rank {} of {} ({}), local {} of {}, bootstrap {}", identity.rank,
                     identity.world_size, identity.source, identity.local_rank, identity.local_size,
                     published
                         ? std::string("through the process manager")
                         : "at " + net::join_host(identity.master_addr, identity.master_port));
}

}  // namespace tandem::rendezvous
