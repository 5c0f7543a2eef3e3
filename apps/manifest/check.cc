#include "apps/manifest/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <regex>

#include "apps/manifest/pods.h"

namespace tandem::apps::manifest {
namespace {

constexpr std::size_t kLongestLabel = 63;

void add(Findings& findings, const YamlNode* where, const YamlNode& object, std::string field,
         std::string problem, std::string fix) {
  findings.push_back({where == nullptr ? object.line : where->line, std::move(field),
                      std::move(problem), std::move(fix)});
}

// Names become those of hosts. `longest_suffix`: what the operator appends for a pod.
void check_name(const YamlNode& object, std::string_view longest_suffix, Findings& findings) {
  static const std::regex kLabel("[a-z0-9]([-a-z0-9]*[a-z0-9])?");
  const YamlNode* name = object.find({"metadata", "name"});
  if (name == nullptr) {
    add(findings, nullptr, object, "metadata.name", "the object has no name",
        "add metadata: name: NAME");
  } else if (!std::regex_match(name->text, kLabel)) {
    add(findings, name, object, "metadata.name",
        fmt::format("'{}' cannot be the name of a host", name->text),
        "use small letters, digits and '-', with a letter or digit at both ends");
  } else if (name->text.size() + longest_suffix.size() > kLongestLabel) {
    add(findings, name, object, "metadata.name",
        fmt::format("with '{}' behind it the name has {} characters, and a host's has 63 at most",
                    longest_suffix, name->text.size() + longest_suffix.size()),
        "choose a shorter name");
  }
}

void check_elastic(const YamlNode& object, Findings& findings) {
  const YamlNode* policy = object.find({"spec", "elasticPolicy"});
  const YamlNode* worker = object.find({"spec", "pytorchReplicaSpecs", "Worker"});
  const YamlNode* master = object.find({"spec", "pytorchReplicaSpecs", "Master"});
  if (policy == nullptr) return;
  const auto least = policy->int_of({"minReplicas"});
  const auto most = policy->int_of({"maxReplicas"});
  if (least && most && *least > *most) {
    add(findings, policy->find("minReplicas"), object, "spec.elasticPolicy.minReplicas",
        fmt::format("minReplicas {} is more than maxReplicas {}", *least, *most),
        fmt::format("write minReplicas: {} or less", *most));
  }
  const auto replicas = worker == nullptr ? std::nullopt : worker->int_of({"replicas"});
  if (replicas && ((least && *replicas < *least) ||
                   (most && *replicas > *most && (!least || *least <= *most)))) {
    add(findings, worker->find("replicas"), object, "spec.pytorchReplicaSpecs.Worker.replicas",
        fmt::format("{} replicas are not between minReplicas {} and maxReplicas {}", *replicas,
                    least.value_or(1), most.value_or(*replicas)),
        "correct one of the three");
  }
  if (master != nullptr) {
    add(findings, master, object, "spec.pytorchReplicaSpecs.Master",
        "an elastic job has no Master: the workers meet at worker 0",
        "move its pods to Worker, or remove elasticPolicy");
  }
  if (const std::string backend = policy->text_of({"rdzvBackend"});
      !backend.empty() && backend != "c10d") {
    add(findings, policy->find("rdzvBackend"), object, "spec.elasticPolicy.rdzvBackend",
        fmt::format("tandem's agents do not meet by '{}'", backend), "write rdzvBackend: c10d");
  }
}

void check_processes(const YamlNode* value, const YamlNode& object, Findings& findings) {
  if (value == nullptr || value->is_null()) return;
  static const std::regex kProcesses("auto|cpu|[1-9][0-9]{0,3}");
  if (std::regex_match(value->text, kProcesses)) return;
  add(findings, value, object, "spec.nprocPerNode",
      fmt::format("'{}' is not a number of processes of a pod without GPUs", value->text),
      "write \"auto\" (one for each memory domain) or a number in quotes");
}

void check_pytorch_job(const YamlNode& object, Findings& findings) {
  const YamlNode* replicas = object.find({"spec", "pytorchReplicaSpecs"});
  check_name(object, "-worker-0", findings);
  check_elastic(object, findings);
  check_processes(object.find({"spec", "nprocPerNode"}), object, findings);
  if (replicas == nullptr) return;
  for (const Field& field : replicas->fields) {
    if (field.name == "Master" || field.name == "Worker") continue;
    findings.push_back({field.line, "spec.pytorchReplicaSpecs." + field.name,
                        "there is no such replica", "write Worker or Master"});
  }
}

void check_mpi_job(const YamlNode& object, Findings& findings) {
  const YamlNode* replicas = object.find({"spec", "mpiReplicaSpecs"});
  check_name(object, "-launcher-abcde", findings);
  if (replicas == nullptr) return;
  for (const std::string_view name : {"Launcher", "Worker"}) {
    if (replicas->find(name) == nullptr) {
      add(findings, replicas, object, fmt::format("spec.mpiReplicaSpecs.{}", name),
          "the field is missing", "add it: an MPIJob has a Launcher and Workers");
    }
  }
  if (replicas->int_of({"Launcher", "replicas"}).value_or(1) != 1) {
    add(findings, replicas->find({"Launcher", "replicas"}), object,
        "spec.mpiReplicaSpecs.Launcher.replicas", "there is one launcher", "write replicas: 1");
  }
}

// A batch Job, in the file itself or inside a JobSet.
void check_job_spec(const YamlNode& spec, const std::string& path, Findings& findings) {
  const std::string restart = spec.text_of({"template", "spec", "restartPolicy"});
  const bool policy = spec.find("podFailurePolicy") != nullptr;
  if (restart != "Never" && (restart != "OnFailure" || policy)) {
    const YamlNode* where = spec.find({"template", "spec", "restartPolicy"});
    add(findings, where, spec, path + ".template.spec.restartPolicy",
        fmt::format("'{}' where a Job{} takes {}", restart.empty() ? "Always" : restart,
                    policy ? " with a podFailurePolicy" : "",
                    policy ? "Never" : "Never or OnFailure"),
        "write restartPolicy: Never");
  }
  const long pods = spec.int_of({"parallelism"}).value_or(1);
  if (pods > 1 && spec.text_of({"completionMode"}) != "Indexed") {
    add(findings, spec.find("completionMode"), spec, path + ".completionMode",
        "the pods have no numbers, so they cannot find their ranks",
        "write completionMode: Indexed");
  }
  const auto completions = spec.int_of({"completions"});
  if (pods > 1 && completions && *completions != pods) {
    add(findings, spec.find("completions"), spec, path + ".completions",
        fmt::format("{} completions and a parallelism of {}: not all ranks would run together",
                    *completions, pods),
        fmt::format("write completions: {}", pods));
  }
}

// The pods of an Indexed Job reach each other under a headless Service's name.
void check_indexed_job(const YamlNode& object, const std::vector<YamlNode>& all,
                       Findings& findings) {
  const YamlNode* spec = object.find("spec");
  check_name(object, "-0", findings);
  if (spec == nullptr) return;
  check_job_spec(*spec, "spec", findings);
  if (spec->int_of({"parallelism"}).value_or(1) < 2) return;
  const std::string subdomain = spec->text_of({"template", "spec", "subdomain"});
  for (const YamlNode& other : all) {
    if (other.text_of({"kind"}) == "Service" && other.text_of({"metadata", "name"}) == subdomain &&
        other.text_of({"spec", "clusterIP"}) == "None")
      return;
  }
  add(findings, spec->find({"template", "spec", "subdomain"}), *spec,
      "spec.template.spec.subdomain",
      subdomain.empty() ? "the pods have no names by which they reach each other"
                        : fmt::format("the file has no headless Service '{}'", subdomain),
      "add a Service with clusterIP: None, and its name as subdomain");
}

void check_replicated(const YamlNode* jobs, const std::string& path, Findings& findings) {
  if (jobs == nullptr) return;
  for (std::size_t i = 0; i < jobs->items.size(); ++i) {
    if (const YamlNode* spec = jobs->items[i].find({"template", "spec"}))
      check_job_spec(*spec, fmt::format("{}[{}].template.spec", path, i), findings);
  }
}

void check_secret(const YamlNode& object, Findings& findings) {
  static const std::regex kBase64("([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?");
  const YamlNode* data = object.find("data");
  if (data == nullptr) return;
  for (const Field& field : data->fields) {
    if (std::regex_match(field.value.text, kBase64)) continue;
    findings.push_back({field.line, "data." + field.name, "the value is not in base64",
                        "move it to stringData, which takes it as it is"});
  }
}

}  // namespace

void check_object(const YamlNode& object, const std::vector<YamlNode>& all, Findings& findings) {
  const std::string kind = object.text_of({"kind"});
  if (kind == "PyTorchJob") check_pytorch_job(object, findings);
  if (kind == "MPIJob") check_mpi_job(object, findings);
  if (kind == "Job") check_indexed_job(object, all, findings);
  if (kind == "JobSet") {
    check_name(object, "-node-0-0", findings);
    check_replicated(object.find({"spec", "replicatedJobs"}), "spec.replicatedJobs", findings);
  }
  if (kind == "TrainingRuntime" || kind == "ClusterTrainingRuntime") {
    check_replicated(object.find({"spec", "template", "spec", "replicatedJobs"}),
                     "spec.template.spec.replicatedJobs", findings);
  }
  if (kind == "TrainJob") check_name(object, "-node-0-0", findings);
  if (kind == "Secret") check_secret(object, findings);
  for (const Pods& pods : pods_of(object)) check_pods(pods, all, findings);
}

Findings check_text(const std::string& text) {
  Findings findings;
  const std::vector<YamlNode> objects = formats::read_yaml(text, findings);
  if (objects.empty() && findings.empty())
    findings.push_back({1, "", "the file holds no object", "see tandem manifest --help"});
  for (const YamlNode& object : objects) {
    if (object.text_of({"kind"}).empty() || object.text_of({"apiVersion"}).empty()) {
      findings.push_back({object.line, "", "the document has no kind or no apiVersion",
                          "add both, as in the output of tandem manifest"});
    } else {
      check_object(object, objects, findings);
    }
  }
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.line < b.line; });
  return findings;
}

}  // namespace tandem::apps::manifest
