#include "tandem/launch/mpirun/rank_binding.h"

#include <algorithm>
#include <charconv>

#include "tandem/core/ascii.h"
#include "tandem/core/error.h"
#include "tandem/launch/process/pinning.h"

namespace tandem::launch {
namespace {

using CpuSets = std::vector<std::vector<int>>;

int number(std::string_view text, int min, const std::string& whole) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < min || value > 65535)
    raise<ConfigError>("'{}' holds '{}' where a number is expected", whole, text);
  return value;
}

// All units of one kind, in the machine's order.
CpuSets units(const Machine& machine, std::string_view kind) {
  if (kind == "numa") return cpus_of(machine.numa);
  if (kind == "socket") return cpus_of(machine.sockets);
  if (kind == "l3cache") return cpus_of(machine.caches);
  CpuSets sets;
  const bool whole = kind == "board" || kind == "machine";
  if (whole) sets.emplace_back();
  for (const Domain& domain : machine.numa) {
    for (const auto& core : domain.cores) {
      if (kind == "core") sets.push_back(core);
      if (whole) sets.front().insert(sets.front().end(), core.begin(), core.end());
    }
    if (kind != "hwthread") continue;
    for (const int cpu : domain.cpus) sets.push_back({cpu});
  }
  if (sets.empty()) {
    raise<ConfigError>(
        "'{}' is not one of none, hwthread, core, l3cache, numa, socket, board, user", kind);
  }
  return sets;
}

bool overlap(const std::vector<int>& a, const std::vector<int>& b) {
  return std::any_of(a.begin(), a.end(),
                     [&](int cpu) { return std::find(b.begin(), b.end(), cpu) != b.end(); });
}

// `size` units each, as many as there are whole ones.
CpuSets joined(const CpuSets& single, int size) {
  CpuSets sets;
  const auto step = static_cast<std::size_t>(size);
  for (std::size_t i = 0; i + step <= single.size(); i += step) {
    sets.emplace_back();
    for (std::size_t k = i; k < i + step; ++k)
      sets.back().insert(sets.back().end(), single[k].begin(), single[k].end());
    std::sort(sets.back().begin(), sets.back().end());
  }
  return sets;
}

CpuSets user_sets(const Machine& machine, const std::string& bind_to, int count) {
  const CpuSets all = units(machine, "board");
  CpuSets given;
  for (const std::string_view rank : split(std::string_view(bind_to).substr(5), ',')) {
    given.emplace_back();
    for (const std::string_view cpu : split(rank, '+'))
      given.back().push_back(number(cpu, 0, bind_to));
    for (const int cpu : given.back()) {
      if (!overlap({cpu}, all.front()))
        raise<ConfigError>("'{}' names CPU {}, which may not be used here", bind_to, cpu);
    }
  }
  CpuSets sets;
  for (int rank = 0; rank < count; ++rank)
    sets.push_back(given[static_cast<std::size_t>(rank) % given.size()]);
  return sets;
}

}  // namespace

std::vector<std::vector<int>> bind_ranks(const Machine& machine, const std::string& bind_to,
                                         const std::string& map_by, int count) {
  if (bind_to.empty() || bind_to == "none") return CpuSets(static_cast<std::size_t>(count));
  if (bind_to.starts_with("user:")) return user_sets(machine, bind_to, count);
  const auto parts = split(bind_to == "rr" ? std::string_view("core") : bind_to, ':');
  const CpuSets single = units(machine, parts.front());
  const CpuSets targets = joined(single, parts.size() > 1 ? number(parts[1], 1, bind_to) : 1);
  if (targets.empty())
    raise<ConfigError>("'{}' asks for more than the {} of this host", bind_to, single.size());
  const auto map_parts = split(map_by.empty() || map_by == "rr" ? parts.front() : map_by, ':');
  // The targets of each unit over which ranks alternate.
  std::vector<CpuSets> choices;
  for (const auto& unit : units(machine, map_parts.front())) {
    CpuSets inside;
    for (const auto& target : targets) {
      if (overlap(target, unit)) inside.push_back(target);
    }
    if (!inside.empty()) choices.push_back(std::move(inside));
  }
  CpuSets sets;
  if (map_parts.front() == parts.front()) choices = {targets};
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(count); ++rank) {
    const CpuSets& inside = choices[rank % choices.size()];
    sets.push_back(inside[rank / choices.size() % inside.size()]);
  }
  return sets;
}

}  // namespace tandem::launch
