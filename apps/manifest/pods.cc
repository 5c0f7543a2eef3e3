#include "apps/manifest/pods.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

namespace tandem::apps::manifest {
namespace {

const YamlNode kNothing;

// The entries of a list, or none.
const std::vector<YamlNode>& items(const YamlNode* list) {
  return list == nullptr ? kNothing.items : list->items;
}

// The entry of a list whose field `name` is `value`.
const YamlNode* named(const YamlNode* list, std::string_view name, std::string_view value) {
  for (const YamlNode& item : items(list)) {
    if (item.text_of({name}) == value) return &item;
  }
  return nullptr;
}

void add_replicas(const YamlNode& object, std::string_view field, bool mpi,
                  std::vector<Pods>& pods) {
  const YamlNode* specs = object.find({"spec", field});
  if (specs == nullptr) return;
  for (const Field& replica : specs->fields) {
    const YamlNode* spec = replica.value.find({"template", "spec"});
    if (spec == nullptr) continue;
    pods.push_back({spec, fmt::format("spec.{}.{}.template.spec", field, replica.name),
                    replica.value.int_of({"replicas"}).value_or(1),
                    !mpi || replica.name != "Launcher", mpi ? "" : "pytorch"});
  }
}

void add_job(const YamlNode& job_spec, const std::string& path, long jobs,
             const std::string& container, std::vector<Pods>& pods) {
  const YamlNode* spec = job_spec.find({"template", "spec"});
  if (spec == nullptr) return;
  pods.push_back({spec, path + ".template.spec",
                  jobs * job_spec.int_of({"parallelism"}).value_or(1), true, container});
}

void add_replicated_jobs(const YamlNode* jobs, const std::string& path,
                         const std::string& container, std::vector<Pods>& pods) {
  const auto& list = items(jobs);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const YamlNode* spec = list[i].find({"template", "spec"});
    if (spec == nullptr) continue;
    add_job(*spec, fmt::format("{}[{}].template.spec", path, i),
            list[i].int_of({"replicas"}).value_or(1), container, pods);
  }
}

// The amount in units, from "500m", "8" or "128Gi"; nothing for an invalid amount.
std::optional<double> amount(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str()) return std::nullopt;
  const std::string unit = end;
  if (unit.empty()) return value;
  if (unit == "m") return value / 1000;
  constexpr std::string_view kPrefixes = "KMGTPE";
  const std::size_t power = kPrefixes.find(unit[0] == 'k' ? 'K' : unit[0]);
  if (power == std::string_view::npos) return std::nullopt;
  return value * std::pow(unit.size() == 2 ? 1024 : 1000, static_cast<double>(power + 1));
}

class PodCheck {
 public:
  PodCheck(const Pods& pods, const std::vector<YamlNode>& all, Findings& findings)
      : pods_(pods), all_(all), findings_(findings) {}

  void run() {
    const auto& containers = items(pods_.spec->find("containers"));
    const bool has_main = pods_.main_container.empty() ||
                          named(pods_.spec->find("containers"), "name", pods_.main_container);
    if (!containers.empty() && !has_main) {
      add(containers.front(), "containers[0].name",
          fmt::format("no container is called '{}', and the operator looks for that name",
                      pods_.main_container),
          fmt::format("write name: {}", pods_.main_container));
    }
    for (std::size_t i = 0; i < containers.size(); ++i)
      check_container(containers[i], fmt::format("containers[{}]", i));
    check_claims();
  }

 private:
  void add(const YamlNode& where, const std::string& field, std::string problem, std::string fix) {
    findings_.push_back({where.line, pods_.path + "." + field, std::move(problem), std::move(fix)});
  }

  void check_container(const YamlNode& container, const std::string& path) {
    check_image(container, path);
    check_resources(container, path);
    check_environment(container, path);
    check_mounts(container, path);
    if (!pods_.computes) return;
    check_shared_memory(container, path);
    check_output_dir(container, path);
  }

  void check_image(const YamlNode& container, const std::string& path) {
    const YamlNode* image = container.find("image");
    if (image == nullptr) {
      add(container, path + ".image", "no image", "add image: NAME:TAG");
    } else if (image->text.find_first_of("<> ") != std::string::npos) {
      add(*image, path + ".image", fmt::format("'{}' is not an image's name", image->text),
          "fill in the name of your image, for example registry.example/tandem:0.1");
    }
  }

  void check_resources(const YamlNode& container, const std::string& path) {
    const YamlNode* limits = container.find({"resources", "limits"});
    if (limits == nullptr) return;
    for (const std::string_view what : {"cpu", "memory"}) {
      const std::string limit = limits->text_of({what});
      const std::string request = container.text_of({"resources", "requests", what});
      if (limit.empty()) continue;
      const std::string field = fmt::format("{}.resources.requests.{}", path, what);
      if (request.empty()) {
        add(*limits, field, fmt::format("a limit of {} without a request", limit),
            fmt::format("add requests: {}: {}", what, limit));
      } else if (amount(request) != amount(limit)) {
        add(*container.find({"resources", "requests", what}), field,
            fmt::format("the request {} is not the limit {}: the pod is the first to go where "
                        "memory or cores get short",
                        request, limit),
            fmt::format("write {}: {}", what, limit));
      }
    }
  }

  void check_environment(const YamlNode& container, const std::string& path) {
    std::set<std::string> seen;
    for (const YamlNode& variable : items(container.find("env"))) {
      const std::string name = variable.text_of({"name"});
      if (!seen.insert(name).second)
        add(variable, path + ".env", fmt::format("{} is set twice", name), "remove one of the two");
      if (name == "OMP_NUM_THREADS") check_threads(container, variable, path);
    }
  }

  void check_threads(const YamlNode& container, const YamlNode& variable, const std::string& path) {
    const auto threads = amount(variable.text_of({"value"}));
    const auto cores = amount(container.text_of({"resources", "limits", "cpu"}));
    if (threads && cores && *threads > *cores) {
      add(variable, path + ".env",
          fmt::format("OMP_NUM_THREADS={} is more than the {} CPUs of the pod", *threads, *cores),
          fmt::format("write \"{}\", or remove it", std::floor(*cores)));
    }
  }

  const YamlNode* volume(std::string_view name) const {
    return named(pods_.spec->find("volumes"), "name", name);
  }

  void check_mounts(const YamlNode& container, const std::string& path) {
    const auto& mounts = items(container.find("volumeMounts"));
    for (std::size_t i = 0; i < mounts.size(); ++i) {
      const std::string name = mounts[i].text_of({"name"});
      if (name.empty() || volume(name) != nullptr) continue;
      add(mounts[i], fmt::format("{}.volumeMounts[{}].name", path, i),
          fmt::format("there is no volume '{}'", name), "add it to volumes, or correct the name");
    }
  }

  void check_shared_memory(const YamlNode& container, const std::string& path) {
    const YamlNode* mount = named(container.find("volumeMounts"), "mountPath", "/dev/shm");
    const YamlNode* shm = mount == nullptr ? nullptr : volume(mount->text_of({"name"}));
    if (shm != nullptr && shm->text_of({"emptyDir", "medium"}) == "Memory") return;
    add(mount == nullptr ? container : *mount, path + ".volumeMounts",
        "/dev/shm has the 64 MB that containers get, too little for libraries that use it",
        "add a volume 'name: dshm, emptyDir: {medium: Memory}' and mount it at /dev/shm");
  }

  // The words of a command that is a list, or one long text for a shell.
  static std::vector<std::string> words_of(const YamlNode& container) {
    std::vector<std::string> words;
    for (const std::string_view field : {"command", "args"}) {
      for (const YamlNode& item : items(container.find(field))) {
        for (std::size_t begin = 0; begin < item.text.size();) {
          const std::size_t end =
              std::min(item.text.find_first_of(" \t\n;", begin), item.text.size());
          if (end > begin) words.push_back(item.text.substr(begin, end - begin));
          begin = end + 1;
        }
      }
    }
    return words;
  }

  // The mount under which a path lies: the longest.
  static const YamlNode* mount_of(const YamlNode& container, const std::string& path) {
    const YamlNode* best = nullptr;
    std::size_t length = 0;
    for (const YamlNode& mount : items(container.find("volumeMounts"))) {
      std::string at = mount.text_of({"mountPath"});
      while (!at.empty() && at.back() == '/') at.pop_back();
      const bool holds =
          path.starts_with(at) && (path.size() == at.size() || path[at.size()] == '/');
      if (holds && at.size() >= length) {
        best = &mount;
        length = at.size();
      }
    }
    return best;
  }

  void check_output_dir(const YamlNode& container, const std::string& path) {
    const std::vector<std::string> words = words_of(container);
    const auto flag = std::find(words.begin(), words.end(), "--output_dir");
    if (flag == words.end() || flag + 1 == words.end()) return;
    const std::string& directory = *(flag + 1);
    const YamlNode* mount = mount_of(container, directory);
    const YamlNode* source = mount == nullptr ? nullptr : volume(mount->text_of({"name"}));
    const YamlNode& where =
        *(container.find("args") != nullptr ? container.find("args") : container.find("command"));
    if (mount == nullptr || (source != nullptr && source->find("emptyDir") != nullptr)) {
      add(where, path + ".command",
          fmt::format(
              "--output_dir {} lies on the pod's own disk: checkpoints are gone with the pod",
              directory),
          "mount a persistentVolumeClaim and put the directory on it");
    } else if (mount->text_of({"readOnly"}) == "true") {
      add(*mount, path + ".volumeMounts",
          fmt::format("--output_dir {} lies on a volume that is mounted read-only", directory),
          "remove readOnly: true");
    }
  }

  // A volume that one node may write to, for pods on several.
  void check_claims() {
    if (pods_.count < 2) return;
    for (const YamlNode& source : items(pods_.spec->find("volumes"))) {
      const std::string name = source.text_of({"persistentVolumeClaim", "claimName"});
      for (const YamlNode& object : all_) {
        if (name.empty() || object.text_of({"kind"}) != "PersistentVolumeClaim" ||
            object.text_of({"metadata", "name"}) != name)
          continue;
        check_access(object, name);
      }
    }
  }

  void check_access(const YamlNode& claim, const std::string& name) {
    const YamlNode* modes = claim.find({"spec", "accessModes"});
    for (const YamlNode& mode : items(modes)) {
      if (mode.text == "ReadWriteMany") return;
    }
    findings_.push_back(
        {modes == nullptr ? claim.line : modes->line, "spec.accessModes",
         fmt::format("{} pods write to '{}', which only one node may", pods_.count, name),
         "write accessModes: [ReadWriteMany], with a storage class that has it (NFS)"});
  }

  const Pods& pods_;
  const std::vector<YamlNode>& all_;
  Findings& findings_;
};

}  // namespace

std::vector<Pods> pods_of(const YamlNode& object) {
  std::vector<Pods> pods;
  const std::string kind = object.text_of({"kind"});
  if (kind == "PyTorchJob") add_replicas(object, "pytorchReplicaSpecs", false, pods);
  if (kind == "MPIJob") add_replicas(object, "mpiReplicaSpecs", true, pods);
  if (kind == "JobSet")
    add_replicated_jobs(object.find({"spec", "replicatedJobs"}), "spec.replicatedJobs", "", pods);
  if (kind == "TrainingRuntime" || kind == "ClusterTrainingRuntime") {
    add_replicated_jobs(object.find({"spec", "template", "spec", "replicatedJobs"}),
                        "spec.template.spec.replicatedJobs", "node", pods);
  }
  const YamlNode* spec = object.find("spec");
  if (kind == "Job" && spec != nullptr) add_job(*spec, "spec", 1, "", pods);
  return pods;
}

void check_pods(const Pods& pods, const std::vector<YamlNode>& all, Findings& findings) {
  PodCheck(pods, all, findings).run();
}

}  // namespace tandem::apps::manifest
