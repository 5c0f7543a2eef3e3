#include "apps/manifest/write.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <random>
#include <sstream>

#include "tandem/core/error.h"
#include "tandem/core/json.h"

namespace tandem::apps::manifest {
namespace {

constexpr int kPort = 29400;  // where agents meet
constexpr int kMetricsPort = 9400;

// A text in quotes: JSON's are YAML's.
std::string in_quotes(const std::string& text) { return nlohmann::json(text).dump(); }

std::string indented(const std::string& text, int blanks) {
  std::istringstream stream(text);
  std::string result;
  for (std::string line; std::getline(stream, line);)
    result +=
        line.empty() ? "\n" : std::string(static_cast<std::size_t>(blanks), ' ') + line + "\n";
  return result;
}

std::string metadata(const ManifestJob& job, const std::string& name,
                     const std::string& more = "") {
  return fmt::format("metadata:\n  name: {}\n{}{}", name,
                     job.space.empty() ? "" : fmt::format("  namespace: {}\n", job.space),
                     indented(more, 2));
}

std::string labels(const ManifestJob& job) {
  return fmt::format(
      "labels:\n  app.kubernetes.io/name: tandem\n  app.kubernetes.io/instance: {}\n", job.name);
}

std::string selector(const ManifestJob& job) {
  return fmt::format("matchLabels:\n  app.kubernetes.io/instance: {}\n", job.name);
}

bool is_job_command(const std::string& word) { return word.starts_with("run_"); }

// The words of the job with a place on the volume; `in_front`: what starts its ranks.
std::vector<std::string> words_of(const ManifestJob& job, std::vector<std::string> in_front,
                                  bool script) {
  if (!is_job_command(job.command.front())) return job.command;
  std::vector<std::string> words = std::move(in_front);
  words.push_back(job.command.front() + (script ? ".py" : ""));
  words.insert(words.end(), job.command.begin() + 1, job.command.end());
  if (std::find(words.begin(), words.end(), "--output_dir") == words.end()) {
    words.emplace_back("--output_dir");
    words.push_back(fmt::format("{}/{}", job.mount, job.name));
  }
  return words;
}

std::vector<std::string> agent_command(const ManifestJob& job) {
  return words_of(job, {"tandem", "run"}, true);
}

std::string list(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += fmt::format("- {}\n", in_quotes(word));
  return text;
}

std::string variable(const std::string& name, const std::string& value) {
  return fmt::format("- name: {}\n  value: {}\n", name, in_quotes(value));
}

// Downloads and features lie on the volume, where every pod finds them.
std::string environment(const ManifestJob& job, const std::string& more) {
  std::string text = variable("TANDEM_METRICS_PORT", std::to_string(kMetricsPort)) +
                     variable("HF_HOME", job.mount + "/huggingface") +
                     variable("TANDEM_FEATURE_CACHE", job.mount + "/features") + more;
  for (const std::string& pair : job.environment) {
    const std::size_t equals = pair.find('=');
    if (equals == 0 || equals == std::string::npos)
      raise<ConfigError>("--env: '{}' is not of the form NAME=VALUE", pair);
    text += variable(pair.substr(0, equals), pair.substr(equals + 1));
  }
  if (!job.token_secret.empty()) {
    text += fmt::format(
        "- name: TANDEM_JOB_TOKEN\n  valueFrom:\n    secretKeyRef:\n      name: {}\n      key: "
        "token\n",
        job.token_secret);
  }
  return text;
}

// Variables by which agents meet where no operator sets them.
std::string meeting(const ManifestJob& job, const std::string& first_host) {
  return variable("PET_NNODES", fmt::format("{}:{}", job.min_replicas, job.replicas)) +
         variable("PET_NPROC_PER_NODE", job.processes) + variable("PET_RDZV_BACKEND", "c10d") +
         variable("PET_RDZV_ENDPOINT", fmt::format("{}:{}", first_host, kPort)) +
         variable("PET_RDZV_ID", job.name) +
         variable("PET_MAX_RESTARTS", std::to_string(job.max_restarts));
}

std::string metrics_port() {
  return fmt::format("ports:\n  - name: metrics\n    containerPort: {}\n", kMetricsPort);
}

// For a container whose process is the agent of tandem's own job. The agent has the port from its
// first moment, and is ready before it trains, since a headless Service names only pods that are
// ready, and the pods of a job have to find each other first. Processes that train leave little of
// a CPU quota to others, so an answer may take its time.
std::string agent_port(const ManifestJob& job) {
  if (!is_job_command(job.command.front())) return metrics_port();
  return metrics_port() +
         "livenessProbe:\n  httpGet:\n    path: /healthz\n    port: metrics\n  periodSeconds: 20\n "
         " "
         "timeoutSeconds: 10\nreadinessProbe:\n  httpGet:\n    path: /readyz\n    port: metrics\n  "
         "periodSeconds: 2\n  timeoutSeconds: 10\n";
}

struct Container {
  std::string name;
  std::vector<std::string> command;
  std::string environment;
  std::string more;  // fields of the container
};

std::string container_text(const ManifestJob& job, const Container& container) {
  const std::string amounts = fmt::format("cpu: {}\nmemory: {}\n", job.cpus, job.memory);
  return fmt::format(
      "- name: {}\n  image: {}\n  command:\n{}  env:\n{}  resources:\n    requests:\n{}    "
      "limits:\n{}  volumeMounts:\n    - name: volume\n      mountPath: {}\n    - name: dshm\n     "
      " "
      "mountPath: /dev/shm\n{}",
      container.name, in_quotes(job.image), indented(list(container.command), 4),
      indented(environment(job, container.environment), 4), indented(amounts, 6),
      indented(amounts, 6), job.mount, indented(container.more, 2));
}

std::string node_selector(const ManifestJob& job) {
  if (job.node_selector.empty()) return "";
  std::string text = "nodeSelector:\n";
  for (const std::string& pair : job.node_selector) {
    const std::size_t equals = pair.find('=');
    if (equals == 0 || equals == std::string::npos)
      raise<ConfigError>("--node_selector: '{}' is not of the form LABEL=VALUE", pair);
    text += fmt::format("  {}: {}\n", pair.substr(0, equals), in_quotes(pair.substr(equals + 1)));
  }
  return text;
}

// A pod's template: "metadata: … spec: …". `more`: fields of its spec. SIGTERM gives a rank half of
// the grace period for its checkpoint (--shutdown-timeout is 30 s).
std::string pod_template(const ManifestJob& job, const Container& container,
                         const std::string& more, const std::string& metadata_more = "") {
  return fmt::format(
      "metadata:\n{}{}spec:\n{}  terminationGracePeriodSeconds: 60\n  securityContext:\n    "
      "runAsNonRoot: true\n    fsGroup: 1000\n{}  containers:\n{}  volumes:\n    - name: volume\n  "
      "    "
      "persistentVolumeClaim:\n        claimName: {}\n    - name: dshm\n      emptyDir:\n        "
      "medium: Memory\n",
      indented(labels(job), 2), indented(metadata_more, 2), indented(more, 2),
      indented(node_selector(job), 2), indented(container_text(job, container), 4), job.claim);
}

// A job that ends with 1, 2 or 70 would fail again (docs/errors.md). Evictions do not count as
// failures.
constexpr const char* kFailurePolicy =
    "podFailurePolicy:\n  rules:\n    - action: Ignore\n      onPodConditions:\n        - type: "
    "DisruptionTarget\n    - action: FailJob\n      onExitCodes:\n        operator: In\n        "
    "values: [1, 2, 70]\n";

std::string pytorch_job(const ManifestJob& job) {
  const Container container{"pytorch", agent_command(job), "", agent_port(job)};
  return fmt::format(
      "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\n{}spec:\n  elasticPolicy:\n    rdzvBackend: "
      "c10d\n    rdzvId: {}\n    minReplicas: {}\n    maxReplicas: {}\n    maxRestarts: {}\n  "
      "nprocPerNode: {}\n  pytorchReplicaSpecs:\n    Worker:\n      replicas: {}\n      # 1 to 127 "
      "ends the job, 128 and more (preempted, a lost peer) starts the pod again.\n      "
      "restartPolicy: ExitCode\n      template:\n{}",
      metadata(job, job.name), job.name, job.min_replicas, job.replicas, job.max_restarts,
      in_quotes(job.processes), job.replicas, indented(pod_template(job, container, ""), 8));
}

std::string mpi_job(const ManifestJob& job) {
  const int slots = job.processes == "auto" ? 1 : std::stoi(job.processes);
  std::vector<std::string> launch = {"mpirun",
                                     "-f",
                                     "/etc/mpi/hostfile",
                                     "-n",
                                     std::to_string(job.replicas * slots),
                                     "-ppn",
                                     std::to_string(slots),
                                     "tandem"};
  const Container launcher{"launcher", words_of(job, std::move(launch), false), "", ""};
  const Container worker{
      "worker",
      {"tandem-sshd"},
      "",
      metrics_port() +
          "  - name: ssh\n    containerPort: 2222\nreadinessProbe:\n  tcpSocket:\n    port: "
          "2222\n"};
  return fmt::format(
      "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\n{}spec:\n  mpiImplementation: {}\n  "
      "slotsPerWorker: {}\n  sshAuthMountPath: /home/tandem/.ssh\n  launcherCreationPolicy: "
      "WaitForWorkersReady\n  runPolicy:\n    cleanPodPolicy: Running\n    backoffLimit: {}\n  "
      "mpiReplicaSpecs:\n    Launcher:\n      replicas: 1\n      restartPolicy: OnFailure\n      "
      "template:\n{}    Worker:\n      replicas: {}\n      restartPolicy: OnFailure\n      "
      "template:\n{}",
      metadata(job, job.name), job.implementation, slots, job.max_restarts,
      indented(pod_template(job, launcher, ""), 8), job.replicas,
      indented(pod_template(job, worker, ""), 8));
}

std::string train_job(const ManifestJob& job) {
  const Container container{"node", agent_command(job), "", agent_port(job)};
  const std::string runtime = job.name + "-runtime";
  return fmt::format(
      "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainingRuntime\n{}spec:\n  mlPolicy:\n    "
      "numNodes: {}\n    torch: {{}}\n  template:\n    spec:\n      replicatedJobs:\n        - "
      "name: "
      "node\n          template:\n            metadata:\n              labels:\n                "
      "trainer.kubeflow.org/trainjob-ancestor-step: trainer\n            spec:\n              "
      "backoffLimit: {}\n{}              template:\n{}---\napiVersion: "
      "trainer.kubeflow.org/v1alpha1\nkind: TrainJob\n{}spec:\n  "
      "runtimeRef:\n    apiGroup: trainer.kubeflow.org\n    kind: TrainingRuntime\n    name: {}\n  "
      "trainer:\n    numNodes: {}\n",
      metadata(job, runtime, "labels:\n  trainer.kubeflow.org/framework: torch\n"), job.replicas,
      job.replicas * job.max_restarts, indented(kFailurePolicy, 14),
      indented(pod_template(job, container, "restartPolicy: Never\n"), 16), metadata(job, job.name),
      runtime, job.replicas);
}

std::string indexed_job_spec(const ManifestJob& job, const std::string& first_host,
                             const std::string& pod) {
  const Container container{"tandem", agent_command(job), meeting(job, first_host),
                            agent_port(job)};
  return fmt::format(
      "completionMode: Indexed\ncompletions: {0}\nparallelism: {0}\nbackoffLimit: "
      "{1}\n{2}template:\n"
      "{3}",
      job.replicas, job.replicas * job.max_restarts, kFailurePolicy,
      indented(pod_template(job, container, "restartPolicy: Never\n" + pod), 2));
}

std::string queue_label(const ManifestJob& job) {
  if (job.queue.empty()) return "";
  return fmt::format(
      "labels:\n  kueue.x-k8s.io/queue-name: {}\nannotations:\n  kueue.x-k8s.io/elastic-job: "
      "\"true\"\n",
      job.queue);
}

std::string job_set(const ManifestJob& job) {
  return fmt::format(
      "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\n{}spec:\n  network:\n    "
      "publishNotReadyAddresses: true\n  failurePolicy:\n    maxRestarts: {}\n    rules:\n      - "
      "name: wrongInput\n  "
      "      action: FailJobSet\n        onJobFailureReasons: [PodFailurePolicy]\n  "
      "replicatedJobs:\n  "
      "  "
      "- name: node\n      replicas: 1\n      template:\n        spec:\n{}",
      metadata(job, job.name, queue_label(job)), job.max_restarts,
      indented(indexed_job_spec(job, fmt::format("{0}-node-0-0.{0}", job.name), ""), 10));
}

std::string indexed_job(const ManifestJob& job) {
  return fmt::format(
      "apiVersion: v1\nkind: Service\n{}spec:\n  clusterIP: None\n  # The agents look for each "
      "other "
      "before they are ready.\n  publishNotReadyAddresses: true\n  selector:\n    "
      "app.kubernetes.io/instance: {}\n---\napiVersion: batch/v1\nkind: Job\n{}spec:\n{}",
      metadata(job, job.name), job.name, metadata(job, job.name, queue_label(job)),
      indented(indexed_job_spec(job, fmt::format("{0}-0.{0}", job.name),
                                fmt::format("subdomain: {}\n", job.name)),
               2));
}

// A bucket is not a class to choose from: a volume is written down, and the claim names it.
std::string bucket_volume(const ManifestJob& job, const std::string& name) {
  return fmt::format(
      "apiVersion: v1\nkind: PersistentVolume\nmetadata:\n  name: {0}\nspec:\n  accessModes: "
      "[ReadWriteMany]\n  capacity:\n    storage: {1}\n  storageClassName: \"\"\n  "
      "persistentVolumeReclaimPolicy: Retain\n{2}  csi:\n    driver: {3}\n    volumeHandle: "
      "{4}\n---\n",
      name, job.size,
      job.csi_driver.starts_with("gcsfuse") ? "  mountOptions: [implicit-dirs]\n" : "",
      job.csi_driver, in_quotes(job.bucket));
}

std::string claim(const ManifestJob& job) {
  const std::string name = job.claim.empty() ? job.name : job.claim;
  if (!job.bucket.empty()) {
    return bucket_volume(job, name) +
           fmt::format(
               "apiVersion: v1\nkind: PersistentVolumeClaim\n{}spec:\n  accessModes: "
               "[ReadWriteMany]\n  storageClassName: \"\"\n  volumeName: {}\n  resources:\n    "
               "requests:\n      storage: {}\n",
               metadata(job, name), name, job.size);
  }
  return fmt::format(
      "apiVersion: v1\nkind: PersistentVolumeClaim\n{}spec:\n  accessModes: [ReadWriteMany]\n{}  "
      "resources:\n    requests:\n      storage: {}\n",
      metadata(job, name),
      job.storage_class.empty() ? "" : fmt::format("  storageClassName: {}\n", job.storage_class),
      job.size);
}

std::string secret(const ManifestJob& job) {
  std::random_device device;
  std::string token;
  for (int i = 0; i < 8; ++i) token += fmt::format("{:08x}", device());
  return fmt::format("apiVersion: v1\nkind: Secret\n{}type: Opaque\nstringData:\n  token: {}\n",
                     metadata(job, job.token_secret.empty() ? job.name : job.token_secret),
                     in_quotes(token));
}

std::string network_policy(const ManifestJob& job) {
  return fmt::format(
      "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n{}spec:\n  podSelector:\n{}  "
      "policyTypes: [Ingress]\n  ingress:\n    - from:\n        - podSelector:\n{}    # Prometheus "
      "and "
      "probes.\n    - ports:\n        - port: {}\n",
      metadata(job, job.name), indented(selector(job), 4), indented(selector(job), 12),
      kMetricsPort);
}

std::string disruption_budget(const ManifestJob& job) {
  return fmt::format(
      "apiVersion: policy/v1\nkind: PodDisruptionBudget\n{}spec:\n  minAvailable: {}\n  "
      "selector:\n{}",
      metadata(job, job.name), job.min_replicas, indented(selector(job), 4));
}

// Ranks use what they get, so the job grows to its maximum as long as the cluster has room.
std::string autoscaler(const ManifestJob& job) {
  return fmt::format(
      "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\n{}spec:\n  scaleTargetRef:\n    "
      "apiVersion: kubeflow.org/v1\n    kind: PyTorchJob\n    name: {}\n  minReplicas: {}\n  "
      "maxReplicas: {}\n  metrics:\n    - type: Resource\n      resource:\n        name: cpu\n     "
      "   "
      "target:\n          type: Utilization\n          averageUtilization: 50\n",
      metadata(job, job.name), job.name, job.min_replicas, job.replicas);
}

constexpr ManifestKind kKinds[] = {
    {"pytorchjob", "an elastic PyTorchJob (Kubeflow's training operator 1.9)", true, pytorch_job},
    {"mpijob", "an MPIJob: a launcher with mpirun, workers with ssh (Kubeflow's mpi-operator)",
     true, mpi_job},
    {"trainjob", "a TrainJob and its TrainingRuntime (Kubeflow Trainer 2)", true, train_job},
    {"jobset", "a JobSet", true, job_set},
    {"job", "an Indexed Job and its headless Service: no operator at all", true, indexed_job},
    {"pvc", "the claim of a volume that all pods write to", false, claim},
    {"secret", "a Secret with a random job token", false, secret},
    {"networkpolicy",
     "a NetworkPolicy: only the job's pods reach each other; every pod the metrics", false,
     network_policy},
    {"pdb", "a PodDisruptionBudget: drained nodes leave --min_replicas pods", false,
     disruption_budget},
    {"hpa", "a HorizontalPodAutoscaler of an elastic PyTorchJob", false, autoscaler},
};

void require(bool is_there, const ManifestKind& kind, std::string_view what) {
  if (!is_there) raise<ConfigError>("tandem manifest {} needs {}", kind.name, what);
}

}  // namespace

std::span<const ManifestKind> manifest_kinds() { return kKinds; }

std::string write_manifest(const ManifestJob& job) {
  const auto kind = std::find_if(std::begin(kKinds), std::end(kKinds),
                                 [&](const ManifestKind& one) { return one.name == job.kind; });
  if (kind == std::end(kKinds)) raise<ConfigError>("there is no kind '{}' of manifest", job.kind);
  if (kind->runs_job) {
    require(!job.command.empty(), *kind, "the job's command behind '--', for example: -- run_qa …");
    require(!job.image.empty(), *kind, "--image");
    require(!job.claim.empty(), *kind,
            "--pvc, the claim of a volume for checkpoints: a pod's own disk goes with the pod");
  }
  return kind->write(job);
}

}  // namespace tandem::apps::manifest
