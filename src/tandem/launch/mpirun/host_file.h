// The host file of `mpirun -f`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tandem::launch {

inline constexpr int kMaxRanks = 65536;

// Settings of a host in a host file besides its name and slots. Empty: not set.
struct HostSettings {
  std::string user;              // for ssh
  std::optional<int> port;       // for ssh
  std::string bind_to, map_by;   // replace -bind-to and -map-by
  std::string interface;         // TANDEM_IFNAME of its ranks
  std::optional<int> max_ranks;  // maximum number of its ranks
};

struct HostfileEntry {
  std::string host;
  int ranks = 1;
  HostSettings settings = {};
};

// One host per line, in the formats of Hydra, Intel MPI and Open MPI: "node0", "node0:2" or "node0
// slots=2"; a line of SGE's PE_HOSTFILE, "node0 2 queue range"; attributes after the name; comments
// after '#' and "//"; blank lines; a byte order mark; lines that end with CR LF. As in Hydra, the
// slots of all lines of one host add up: consecutive lines are one entry, others are separate
// entries, which keeps the order of the ranks.
// Throws IoError. Throws ConfigError with file and line for an invalid line, an unsupported
// attribute, contradicting lines, or a file without hosts.
std::vector<HostfileEntry> read_hostfile(const std::filesystem::path& path);

// The same for one text, as after `mpirun -hosts`: "node0:2,node1".
std::vector<HostfileEntry> read_host_list(const std::string& list);

// One entry for each host, in the order of first occurrence, with the sum of its ranks.
std::vector<HostfileEntry> each_host_once(const std::vector<HostfileEntry>& entries);

}  // namespace tandem::launch
