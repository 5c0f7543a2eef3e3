#include "tandem/launch/process/pinning.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "tandem/core/error.h"

namespace tandem::launch {
namespace {

using CpuSets = std::vector<std::vector<int>>;

constexpr int kMaxCpu = 65535;

std::vector<int> all_cpus(const Machine& machine) {
  std::vector<int> cpus;
  for (const Domain& domain : machine.numa) {
    for (const auto& core : domain.cores) cpus.insert(cpus.end(), core.begin(), core.end());
  }
  return cpus;
}

CpuSets cores_of(const Machine& machine) {
  CpuSets sets;
  for (const Domain& domain : machine.numa)
    sets.insert(sets.end(), domain.cores.begin(), domain.cores.end());
  return sets;
}

// One of each socket alternately.
std::vector<int> scattered(const Machine& machine) {
  std::vector<int> cpus;
  const std::size_t wanted = all_cpus(machine).size();
  for (std::size_t i = 0; cpus.size() < wanted; ++i) {
    for (const Domain& socket : machine.sockets) {
      if (i < socket.cpus.size()) cpus.push_back(socket.cpus[i]);
    }
  }
  return cpus;
}

// "[55,aa]": hexadecimal masks of CPUs, of which those that may be used count.
CpuSets masks(const Machine& machine, const std::string& value) {
  const std::vector<int> usable = all_cpus(machine);
  CpuSets sets(1);
  std::vector<int> digits;
  const auto end_mask = [&] {
    for (std::size_t i = 0; i < digits.size(); ++i) {
      for (int bit = 0; bit < 4; ++bit) {
        const int cpu = static_cast<int>(digits.size() - 1 - i) * 4 + bit;
        const bool there = std::find(usable.begin(), usable.end(), cpu) != usable.end();
        if ((digits[i] >> bit & 1) != 0 && there) sets.back().push_back(cpu);
      }
    }
    std::sort(sets.back().begin(), sets.back().end());
    digits.clear();
    if (sets.back().empty())
      raise<ConfigError>("I_MPI_PIN_DOMAIN={} has a mask without a CPU that may be used", value);
  };
  std::string text = value.substr(1, value.size() - 2);
  for (std::size_t at = 0; (at = text.find("0x", at)) != std::string::npos;) text.erase(at, 2);
  for (const char c : text) {
    if (c == ',') {
      end_mask();
      sets.emplace_back();
      continue;
    }
    int digit = 0;
    if (std::from_chars(&c, &c + 1, digit, 16).ec != std::errc() || digits.size() >= 1024)
      raise<ConfigError>("I_MPI_PIN_DOMAIN={} is not a list of hexadecimal masks", value);
    digits.push_back(digit);
  }
  end_mask();
  return sets;
}

CpuSets of_size(const Machine& machine, const std::string& value, int size,
                std::string_view layout) {
  std::vector<int> cpus = layout == "scatter" ? scattered(machine) : all_cpus(machine);
  if (layout == "platform") std::sort(cpus.begin(), cpus.end());
  if (layout != "compact" && layout != "platform" && layout != "scatter") {
    raise<ConfigError>("I_MPI_PIN_DOMAIN={}: '{}' is not one of compact, platform, scatter", value,
                       layout);
  }
  CpuSets sets;
  const auto step = static_cast<std::size_t>(std::clamp(size, 1, static_cast<int>(cpus.size())));
  for (std::size_t i = 0; i + step <= cpus.size(); i += step) {
    sets.emplace_back(cpus.begin() + static_cast<std::ptrdiff_t>(i),
                      cpus.begin() + static_cast<std::ptrdiff_t>(i + step));
    std::sort(sets.back().begin(), sets.back().end());
  }
  return sets;
}

bool is_off(const std::string& value) {
  constexpr std::string_view kWords[] = {"0",     "off",   "no",   "disable",
                                         "false", "FALSE", "none", "disabled"};
  return std::find(std::begin(kWords), std::end(kWords), value) != std::end(kWords);
}

int positive(const VariableLookup& get, std::string_view name) {
  const std::string text = get(name).value_or("");
  int value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return std::max(0, value);
}

// "3,22-23".
std::vector<int> cpu_numbers(const std::string& text) {
  std::vector<int> cpus;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    int first = 0;
    auto read = std::from_chars(at, end, first);
    int last = first;
    if (read.ec == std::errc() && read.ptr != end && *read.ptr == '-')
      read = std::from_chars(read.ptr + 1, end, last);
    if (read.ec != std::errc() || first < 0 || last < first || last > kMaxCpu)
      raise<ConfigError>("CCL_WORKER_AFFINITY={}: expected 'auto' or cores as in 3,22-23", text);
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (read.ptr == end) return cpus;
    if (*read.ptr != ',')
      raise<ConfigError>("CCL_WORKER_AFFINITY={}: expected 'auto' or cores as in 3,22-23", text);
    at = read.ptr + 1;
  }
}

void keep_communication_apart(const VariableLookup& get, PlacementRequest& request,
                              std::vector<std::string>& notes) {
  request.communication_threads = positive(get, "CCL_WORKER_COUNT");
  const auto affinity = get("CCL_WORKER_AFFINITY");
  if (request.communication_threads == 0 || !affinity || *affinity == "auto") return;
  request.reserved = cpu_numbers(*affinity);
  request.communication_threads = 0;
  notes.push_back(
      fmt::format("CCL_WORKER_AFFINITY={}: no worker computes on these CPUs", *affinity));
}

// Domains are taken in order, surplus ones at even distances.
void use_domains(const CpuSets& domains, int count, PlacementRequest& request) {
  for (int worker = 0; worker < count; ++worker) {
    const auto i = static_cast<std::size_t>(worker);
    const auto n = static_cast<std::size_t>(count);
    request.cpus.push_back(
        domains[n < domains.size() ? i * domains.size() / n : i % domains.size()]);
  }
}

}  // namespace

CpuSets cpus_of(const std::vector<Domain>& domains) {
  CpuSets sets;
  for (const Domain& domain : domains) sets.push_back(domain.cpus);
  return sets;
}

std::vector<std::vector<int>> pin_domains(const Machine& machine, const std::string& value,
                                          std::optional<int> threads, int count) {
  if (value.size() > 2 && value.front() == '[' && value.back() == ']') return masks(machine, value);
  const std::size_t colon = std::min(value.find(':'), value.size());
  const std::string size = value.substr(0, colon);
  if (size == "core" || size == "cache1" || size == "cache2") return cores_of(machine);
  if (size == "socket" || size == "sock") return cpus_of(machine.sockets);
  if (size == "numa") return cpus_of(machine.numa);
  if (size == "cache" || size == "cache3") return cpus_of(machine.caches);
  const int cpus = machine.num_cpus();
  if (size == "node") return of_size(machine, value, cpus, "compact");
  const std::string layout = colon < value.size() ? value.substr(colon + 1) : "compact";
  if (size == "auto") return of_size(machine, value, cpus / std::max(1, count), layout);
  if (size == "omp") return of_size(machine, value, threads.value_or(cpus), layout);
  int number = 0;
  const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), number);
  if (error != std::errc() || end != size.data() + size.size() || number < 1) {
    raise<ConfigError>(
        "I_MPI_PIN_DOMAIN={}: expected core, socket, numa, node, cache, omp, auto, a number of "
        "CPUs, "
        "or [masks]",
        value);
  }
  return of_size(machine, value, number, layout);
}

std::vector<std::string> apply_pin_variables(const VariableLookup& get, const Machine& machine,
                                             PlacementRequest& request) {
  std::vector<std::string> notes;
  if (const int threads = positive(get, "OMP_NUM_THREADS"); threads > 0)
    request.omp_threads = threads;
  keep_communication_apart(get, request, notes);
  if (request.binding != Binding::kDefault || !request.cpus.empty()) return notes;
  for (const char* name : {"I_MPI_PIN", "OMP_PROC_BIND", "KMP_AFFINITY"}) {
    const auto value = get(name);
    const bool about_processes = std::string_view(name) == "I_MPI_PIN";
    if (!value || !is_off(*value) || !(request.own_job || about_processes)) continue;
    request.binding = Binding::kNone;
    notes.push_back(fmt::format("{}={}: workers are tied to no cores", name, *value));
    return notes;
  }
  if (const auto value = get("I_MPI_PIN_DOMAIN")) {
    const int count = num_workers(machine, request.nproc);
    use_domains(pin_domains(machine, *value, request.omp_threads, count), count, request);
    notes.push_back(fmt::format("I_MPI_PIN_DOMAIN={}: workers are tied to these domains", *value));
  }
  for (const char* name : {"KMP_AFFINITY", "OMP_PLACES"}) {
    if (!request.own_job || !get(name)) continue;
    notes.push_back(fmt::format(
        "{} has no effect here: it places OpenMP's threads, and tandem has its own, one for each "
        "core of the worker; see --numa-binding",
        name));
  }
  return notes;
}

}  // namespace tandem::launch
