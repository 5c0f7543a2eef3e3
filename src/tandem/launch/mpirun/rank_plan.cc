#include "tandem/launch/mpirun/rank_plan.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "tandem/core/error.h"

namespace tandem::launch {
namespace {

constexpr std::size_t kMaxPmiValue = 1023;

int index_of(std::vector<std::string>& hosts, const std::string& host) {
  const auto found = std::find(hosts.begin(), hosts.end(), host);
  if (found != hosts.end()) return static_cast<int>(found - hosts.begin());
  hosts.push_back(host);
  return static_cast<int>(hosts.size()) - 1;
}

// The slots of all hosts in a row, as numbers of hosts.
std::vector<int> slots_of(const MpiLine& line, const std::vector<HostfileEntry>& hosts,
                          std::vector<std::string>& names) {
  std::vector<int> slots;
  for (const HostfileEntry& entry : hosts) {
    const int count = line.ranks_per_host.value_or(entry.ranks);
    slots.insert(slots.end(), static_cast<std::size_t>(count), index_of(names, entry.host));
  }
  return slots;
}

// Hosts without ranks are not reached at all.
void forget_idle_hosts(RankPlan& plan) {
  std::vector<int> renumbered(plan.hosts.size(), -1);
  std::vector<std::string> used;
  for (int& host : plan.host_of) {
    int& number = renumbered[static_cast<std::size_t>(host)];
    if (number < 0) {
      number = static_cast<int>(used.size());
      used.push_back(plan.hosts[static_cast<std::size_t>(host)]);
    }
    host = number;
  }
  plan.hosts = std::move(used);
}

// Settings in the host file for the hosts of the plan.
void add_settings(RankPlan& plan, const std::vector<HostfileEntry>& entries) {
  for (std::size_t host = 0; host < plan.hosts.size(); ++host) {
    const auto entry = std::find_if(
        entries.begin(), entries.end(),
        [&](const HostfileEntry& candidate) { return candidate.host == plan.hosts[host]; });
    plan.settings.push_back(entry == entries.end() ? HostSettings{} : entry->settings);
    const std::optional<int>& most = plan.settings.back().max_ranks;
    const auto ranks = plan.ranks_on(static_cast<int>(host)).size();
    if (most && ranks > static_cast<std::size_t>(*most)) {
      raise<ConfigError>(
          "host {} would get {} ranks, expected at most its max_slots={}; give fewer ranks (-n, "
          "-ppn) or more hosts",
          plan.hosts[host], ranks, *most);
    }
  }
}

// The shortest prefix that gives the whole list when repeated.
std::size_t period_of(const std::vector<int>& values) {
  for (std::size_t period = 1; period < values.size(); ++period) {
    if (std::equal(values.begin() + static_cast<std::ptrdiff_t>(period), values.end(),
                   values.begin()))
      return period;
  }
  return values.size();
}

struct Run {
  int first = 0, nodes = 1, ranks = 1;
};

std::vector<Run> runs_of(const std::vector<int>& values, std::size_t count) {
  std::vector<Run> single;
  for (std::size_t i = 0; i < count; ++i) {
    const bool same = i > 0 && values[i] == values[i - 1];
    same ? void(++single.back().ranks) : void(single.push_back({values[i], 1, 1}));
  }
  std::vector<Run> joined;
  for (const Run& run : single) {
    const bool next = !joined.empty() && joined.back().ranks == run.ranks &&
                      joined.back().first + joined.back().nodes == run.first;
    next ? void(++joined.back().nodes) : void(joined.push_back(run));
  }
  return joined;
}

}  // namespace

std::vector<int> RankPlan::ranks_on(int host) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank) {
    if (host_of[static_cast<std::size_t>(rank)] == host) ranks.push_back(rank);
  }
  return ranks;
}

RankPlan plan_ranks(const MpiLine& line, const std::vector<HostfileEntry>& hosts) {
  TANDEM_CHECK(!hosts.empty());
  RankPlan plan;
  const std::vector<int> slots = slots_of(line, hosts, plan.hosts);
  plan.num_slots = static_cast<int>(slots.size());
  std::size_t next = 0;
  for (std::size_t block = 0; block < line.blocks.size(); ++block) {
    const MpiBlock& program = line.blocks[block];
    for (int left = program.count.value_or(plan.num_slots); left > 0; --left) {
      plan.block_of.push_back(static_cast<int>(block));
      plan.host_of.push_back(program.host.empty() ? slots[next++ % slots.size()]
                                                  : index_of(plan.hosts, program.host));
    }
  }
  if (plan.size() > kMaxRanks)
    raise<ConfigError>("{} ranks are more than {}", plan.size(), kMaxRanks);
  forget_idle_hosts(plan);
  add_settings(plan, hosts);
  return plan;
}

std::vector<int> hosts_of_mapping(std::string_view mapping, int size) {
  constexpr std::string_view kBegin = "(vector";
  std::vector<int> period;
  if (!mapping.starts_with(kBegin) || !mapping.ends_with(')')) return {};
  mapping.remove_prefix(kBegin.size());
  while (mapping.starts_with(",(")) {
    std::array<int, 3> numbers{};  // first host, hosts, ranks on each
    for (int& number : numbers) {
      const std::size_t begin = &number == &numbers.front() ? 2 : 1;
      const char* const last = mapping.data() + mapping.size();
      if (mapping.size() <= begin) return {};
      const auto [next, error] = std::from_chars(mapping.data() + begin, last, number);
      if (error != std::errc() || number < 0 || number > kMaxRanks) return {};
      mapping.remove_prefix(static_cast<std::size_t>(next - mapping.data()));
    }
    for (int host = 0; host < numbers[1]; ++host) {
      if (period.size() + static_cast<std::size_t>(numbers[2]) > kMaxRanks) return {};
      period.insert(period.end(), static_cast<std::size_t>(numbers[2]), numbers[0] + host);
    }
    if (!mapping.starts_with(')')) return {};
    mapping.remove_prefix(1);
  }
  if (mapping != ")" || period.empty()) return {};
  std::vector<int> host_of;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(size); ++rank)
    host_of.push_back(period[rank % period.size()]);
  return host_of;
}

std::string process_mapping(const std::vector<int>& host_of) {
  std::string text = "(vector";
  for (const Run& run : runs_of(host_of, period_of(host_of)))
    text += fmt::format(",({},{},{})", run.first, run.nodes, run.ranks);
  text += ')';
  return text.size() <= kMaxPmiValue ? text : "";
}

}  // namespace tandem::launch
