#include "tandem/launch/process/placement.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>

#include "tandem/core/error.h"

namespace tandem::launch {
namespace {

using Cores = std::vector<std::vector<int>>;

std::vector<int> cpus_in(const Cores& cores) {
  std::vector<int> cpus;
  for (const auto& threads : cores) cpus.insert(cpus.end(), threads.begin(), threads.end());
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

// Part `index` of `parts` nearly equal ones of [0, size).
std::pair<std::size_t, std::size_t> part(std::size_t size, std::size_t index, std::size_t parts) {
  return {size * index / parts, size * (index + 1) / parts};
}

// The cores of worker `index` of `count`: whole domains while there are enough, else its share of
// one. Empty if there are fewer cores than workers.
Cores share_of(const std::vector<Domain>& domains, std::size_t index, std::size_t count) {
  Cores cores;
  if (count <= domains.size()) {
    const auto [begin, end] = part(domains.size(), index, count);
    for (std::size_t i = begin; i < end; ++i)
      cores.insert(cores.end(), domains[i].cores.begin(), domains[i].cores.end());
    return cores;
  }
  const auto domain_of = [&](std::size_t worker) { return worker * domains.size() / count; };
  const std::size_t home = domain_of(index);
  std::size_t first = index;
  while (first > 0 && domain_of(first - 1) == home) --first;
  std::size_t last = index + 1;
  while (last < count && domain_of(last) == home) ++last;
  const auto [begin, end] = part(domains[home].cores.size(), index - first, last - first);
  return {domains[home].cores.begin() + static_cast<std::ptrdiff_t>(begin),
          domains[home].cores.begin() + static_cast<std::ptrdiff_t>(end)};
}

const std::vector<Domain>& domains_for(const Machine& machine, Binding binding) {
  if (binding == Binding::kSocket) return machine.sockets;
  if (binding == Binding::kCoreComplex) return machine.caches;
  return machine.numa;
}

// A quota is time, not cores: bound workers could not use quota that belongs to other cores.
bool quota_binds(const Machine& machine) { return machine.usable_cores() < machine.num_cores(); }

bool wants_cores(const Machine& machine, const PlacementRequest& request, std::size_t count) {
  if (request.binding == Binding::kNone) return false;
  if (request.binding != Binding::kDefault) return true;
  return request.own_job && !quota_binds(machine) && (count > 1 || machine.numa.size() > 1) &&
         count <= static_cast<std::size_t>(machine.num_cores());
}

// Whole domains (node, socket, core-complex) or a share of them.
std::vector<int> cores_for(const Machine& machine, const PlacementRequest& request,
                           std::size_t index, std::size_t count, int& cores) {
  const auto& domains = domains_for(machine, request.binding);
  const bool shares =
      request.binding == Binding::kDefault || request.binding == Binding::kExclusive;
  const Cores mine =
      shares ? share_of(domains, index, count)
             : domains[count <= domains.size() ? index : index * domains.size() / count].cores;
  cores = static_cast<int>(mine.size());
  return cpus_in(mine);
}

int cores_touched(const Machine& machine, const std::vector<int>& cpus) {
  const auto is_ours = [&](int cpu) {
    return std::find(cpus.begin(), cpus.end(), cpu) != cpus.end();
  };
  int count = 0;
  for (const Domain& domain : machine.numa) {
    for (const auto& core : domain.cores)
      count += std::any_of(core.begin(), core.end(), is_ours) ? 1 : 0;
  }
  return std::max(1, count);
}

std::vector<int> common(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> both;
  std::copy_if(a.begin(), a.end(), std::back_inserter(both),
               [&](int cpu) { return std::find(b.begin(), b.end(), cpu) != b.end(); });
  return both;
}

std::vector<int> left_of(std::vector<int> cpus, const std::vector<int>& reserved) {
  std::erase_if(cpus, [&](int cpu) {
    return std::find(reserved.begin(), reserved.end(), cpu) != reserved.end();
  });
  if (cpus.empty())
    raise<ConfigError>("CCL_WORKER_AFFINITY takes all CPUs of a worker: {}; leave it some",
                       cpu_list(reserved));
  return cpus;
}

// The machine without some of its CPUs; domains and cores without CPUs are removed.
std::vector<Domain> without(const std::vector<Domain>& domains, const std::vector<int>& reserved) {
  std::vector<Domain> left;
  const auto is_reserved = [&](int cpu) {
    return std::find(reserved.begin(), reserved.end(), cpu) != reserved.end();
  };
  for (Domain domain : domains) {
    std::erase_if(domain.cpus, is_reserved);
    for (auto& core : domain.cores) std::erase_if(core, is_reserved);
    std::erase_if(domain.cores, [](const auto& core) { return core.empty(); });
    if (!domain.cpus.empty()) left.push_back(std::move(domain));
  }
  return left;
}

Machine without(Machine machine, const std::vector<int>& reserved) {
  if (reserved.empty()) return machine;
  machine.numa = without(machine.numa, reserved);
  machine.sockets = without(machine.sockets, reserved);
  machine.caches = without(machine.caches, reserved);
  if (machine.numa.empty())
    raise<ConfigError>("CCL_WORKER_AFFINITY takes all CPUs: {}; leave some", cpu_list(reserved));
  return machine;
}

std::string number(int count, std::string_view word) {
  return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
}

// Threads of one worker of an own job, from its cores.
int threads_for(const PlacementRequest& request, int cores, Placement& placement) {
  const int most = std::max(1, cores);
  const int fitting = std::max(1, cores - request.communication_threads);
  if (!request.omp_threads) return fitting;
  if (*request.omp_threads <= most) return *request.omp_threads;
  const std::string warning =
      fmt::format("OMP_NUM_THREADS is {} and a worker here has {}: it gets {}",
                  *request.omp_threads, number(most, "core"), number(fitting, "thread"));
  if (std::find(placement.warnings.begin(), placement.warnings.end(), warning) ==
      placement.warnings.end()) {
    placement.warnings.push_back(warning);
  }
  return fitting;
}

std::string available(const Machine& machine) {
  std::string text = fmt::format("{} of {} CPUs may be used, {} in {}", machine.num_cpus(),
                                 machine.online_cpus, number(machine.num_cores(), "core"),
                                 number(static_cast<int>(machine.numa.size()), "memory domain"));
  if (machine.quota) text += fmt::format(", quota {:g} CPUs", *machine.quota);
  return text;
}

std::string summarize(const Machine& machine, const PlacementRequest& request,
                      const Placement& placement) {
  std::string text = number(static_cast<int>(placement.workers.size()), "worker");
  if (request.nproc == "auto") {
    text += fmt::format(" (auto: one for each memory domain; torchrun would start {})",
                        machine.num_cpus());
  }
  const WorkerPlacement& first = placement.workers.front();
  if (first.threads) text += fmt::format(" of {}", number(*first.threads, "thread"));
  if (!first.cpus.empty()) {
    text += ", on CPUs";
    for (const WorkerPlacement& worker : placement.workers) text += ' ' + cpu_list(worker.cpus);
  }
  return text + "; " + available(machine);
}

void warn(const Machine& machine, Placement& placement) {
  const int count = static_cast<int>(placement.workers.size());
  if (count > machine.usable_cores()) {
    placement.warnings.push_back(fmt::format("{} share {}", number(count, "worker"),
                                             number(machine.usable_cores(), "core")));
  }
}

}  // namespace

int Machine::num_cpus() const {
  int count = 0;
  for (const Domain& domain : numa) count += static_cast<int>(domain.cpus.size());
  return count;
}

int Machine::num_cores() const {
  int count = 0;
  for (const Domain& domain : numa) count += static_cast<int>(domain.cores.size());
  return count;
}

int Machine::usable_cores() const {
  const int cores = std::max(1, num_cores());
  return quota ? std::clamp(static_cast<int>(std::ceil(*quota)), 1, cores) : cores;
}

std::string cpu_list(const std::vector<int>& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cpus[i]);
    if (end - i > 1) text += fmt::format("-{}", cpus[end - 1]);
    i = end;
  }
  return text;
}

int num_workers(const Machine& machine, const std::string& nproc) {
  if (nproc == "auto")
    return std::clamp(static_cast<int>(machine.numa.size()), 1, machine.usable_cores());
  if (nproc == "cpu") {
    const int cpus = machine.num_cpus();
    return machine.quota ? std::clamp(static_cast<int>(std::ceil(*machine.quota)), 1, cpus) : cpus;
  }
  return std::atoi(nproc.c_str());
}

Placement place_workers(const Machine& whole, const PlacementRequest& request) {
  const Machine machine = without(whole, request.reserved);
  const auto count = static_cast<std::size_t>(num_workers(machine, request.nproc));
  if (count < 1) raise<ConfigError>("--nproc-per-node {} starts no worker", request.nproc);
  Placement placement;
  const bool pinned = wants_cores(machine, request, count);
  for (std::size_t index = 0; index < count; ++index) {
    WorkerPlacement worker;
    int cores = std::max(1, machine.usable_cores() / static_cast<int>(count));
    if (index < request.cpus.size() && !request.cpus[index].empty()) {
      worker.cpus = left_of(request.cpus[index], request.reserved);
      cores = cores_touched(machine, worker.cpus);
    } else if (pinned) {
      worker.cpus = cores_for(machine, request, index, count, cores);
    } else if (!request.reserved.empty()) {
      for (const Domain& domain : machine.numa)
        worker.cpus.insert(worker.cpus.end(), domain.cpus.begin(), domain.cpus.end());
    }
    if (request.own_job) worker.threads = threads_for(request, cores, placement);
    placement.workers.push_back(std::move(worker));
  }
  if (request.own_job) warn(machine, placement);
  placement.summary = summarize(machine, request, placement);
  return placement;
}

namespace {

// In the form of dist::MemoryDomains: a domain with all CPUs of the worker.
std::string memory_of(const Machine& machine, const std::vector<int>& cpus) {
  for (std::size_t i = 0; i < machine.numa.size(); ++i) {
    if (!cpus.empty() && common(cpus, machine.numa[i].cpus).size() == cpus.size())
      return fmt::format("from domain {}", i);
  }
  return "from where it is touched first";
}

}  // namespace

std::vector<std::string> draw(const Machine& machine, const Placement& placement) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < machine.numa.size(); ++i) {
    const Domain& domain = machine.numa[i];
    std::string text =
        fmt::format("memory domain {}, {}, CPUs {}:", i,
                    number(static_cast<int>(domain.cores.size()), "core"), cpu_list(domain.cpus));
    for (std::size_t worker = 0; worker < placement.workers.size(); ++worker) {
      const auto& cpus = placement.workers[worker].cpus;
      const std::vector<int> here = cpus.empty() ? domain.cpus : common(cpus, domain.cpus);
      if (!here.empty()) text += fmt::format(" worker {} [{}]", worker, cpu_list(here));
    }
    lines.push_back(std::move(text));
  }
  if (machine.numa.size() < 2) return lines;
  std::string memory = "memory of tandem's own jobs, its part of what workers share, too:";
  for (std::size_t worker = 0; worker < placement.workers.size(); ++worker)
    memory += fmt::format("{} worker {} {}", worker == 0 ? "" : ",", worker,
                          memory_of(machine, placement.workers[worker].cpus));
  lines.push_back(std::move(memory));
  return lines;
}

}  // namespace tandem::launch
