#include "tandem/core/env.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "tandem/core/error.h"

namespace tandem {
namespace {

// Sorted by name. docs/environment_variables.md has the same rows.
constexpr EnvironmentVariable kRegistry[] = {
    {"ALL_PROXY",
     "proxy for downloads where neither http_proxy nor https_proxy is set; lower case too"},
    {"CCL_ALLGATHER", "algorithm of all_gather by size (oneCCL's syntax)"},
    {"CCL_ALLGATHERV", "the same as CCL_ALLGATHER (older versions of oneCCL)"},
    {"CCL_ALLREDUCE",
     "algorithm of all_reduce between nodes by size, for example "
     "recursive_doubling:0-8192;ring:8193-max (oneCCL's syntax)"},
    {"CCL_ALLTOALL", "algorithm of all_to_all by size (oneCCL's syntax)"},
    {"CCL_ATL_TRANSPORT",
     "what carries messages between ranks with --ddp_backend ccl: ofi (libfabric), mpi, or tcp, "
     "the default"},
    {"CCL_BARRIER", "algorithm of barriers (oneCCL's syntax)"},
    {"CCL_BCAST", "algorithm of broadcast by size (oneCCL's syntax)"},
    {"CCL_KVS_IFACE", "network interfaces for connections between hosts (oneCCL's name)"},
    {"CCL_LOG_LEVEL", "verbosity of the communication layer: error, warn, info, debug, trace"},
    {"CCL_MPI_LIBRARY_PATH",
     "the MPI library to load instead of libmpi.so.12 or libmpich.so.12 (MPICH, Intel MPI)"},
    {"CCL_REDUCE", "algorithm of reduce between nodes by size (oneCCL's syntax)"},
    {"CCL_REDUCE_SCATTER", "algorithm of reduce_scatter by size (oneCCL's syntax)"},
    {"CCL_WORKER_AFFINITY",
     "cores of the communication threads, for example 22,23 or auto (oneCCL's name)"},
    {"CCL_WORKER_COUNT", "number of communication threads asked for (oneCCL's name)"},
    {"CURL_CA_BUNDLE", "file of certificates that downloads trust, instead of the system's"},
    {"DISABLE_KUBEFLOW_INTEGRATION", "true: no progress goes to KUBEFLOW_TRAINER_SERVER_URL"},
    {"ETCDCTL_CACERT", "file of certificates for --rdzv-conf etcd=https://… (etcdctl's name)"},
    {"ETCDCTL_CERT", "certificate that is shown to etcd (etcdctl's name)"},
    {"ETCDCTL_KEY", "key of ETCDCTL_CERT (etcdctl's name)"},
    {"ETCDCTL_USER", "NAME:PASSWORD of a user of etcd (etcdctl's name)"},
    {"FI_PROVIDER",
     "libfabric's choice of providers; libfabric itself reads this and its other FI_* variables"},
    {"GLOO_SOCKET_IFNAME", "network interfaces for connections between hosts (Gloo's name)"},
    {"HF_DATASETS_CACHE", "where Hugging Face datasets keeps its caches"},
    {"HF_DATASETS_OFFLINE", "no network connection is tried for data sets"},
    {"HF_ENDPOINT", "address of the Hub or a mirror (default https://huggingface.co)"},
    {"HF_HOME", "root of the Hugging Face caches"},
    {"HF_HUB_CACHE", "where Hugging Face keeps downloaded models"},
    {"HF_HUB_DISABLE_IMPLICIT_TOKEN", "the Hub gets a token only if --token gives one"},
    {"HF_HUB_DOWNLOAD_TIMEOUT",
     "seconds without data after which a download is begun again (default 10)"},
    {"HF_HUB_ETAG_TIMEOUT", "seconds to wait for an answer about a file of the Hub (default 10)"},
    {"HF_HUB_OFFLINE", "no network connection is tried"},
    {"HF_TOKEN", "access token of the Hub"},
    {"HF_TOKEN_PATH", "file with the access token of the Hub (default $HF_HOME/token)"},
    {"HOME", "home of the default caches"},
    {"HTTPS_PROXY", "proxy for downloads over https; lower case too"},
    {"HTTP_PROXY", "proxy for downloads over http; lower case too"},
    {"HUGGINGFACE_HUB_CACHE", "older name of HF_HUB_CACHE"},
    {"HUGGING_FACE_HUB_TOKEN", "older name of HF_TOKEN"},
    {"HYDRA_HOST_FILE", "-f of tandem mpirun where it is not given (MPICH's name)"},
    {"HYDRA_LAUNCHER_EXEC", "-launcher-exec of tandem mpirun (MPICH's name)"},
    {"HYDRA_LAUNCHER_EXTRA_ARGS", "more options for the ssh of tandem mpirun (MPICH's name)"},
    {"HYDRA_LAUNCH_EXTRA_ARGS", "the same, by the name that Kubeflow's MPIJob sets"},
    {"I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS",
     "more options for the ssh of tandem mpirun (Intel MPI's name)"},
    {"I_MPI_HYDRA_HOST_FILE", "-f of tandem mpirun where it is not given (Intel MPI's name)"},
    {"I_MPI_PERHOST", "-ppn of tandem mpirun where it is not given (Intel MPI's name)"},
    {"I_MPI_PIN",
     "workers and ranks of tandem run and tandem mpirun are tied to no cores when this is 0, off, "
     "no or disable (Intel MPI's name)"},
    {"I_MPI_PIN_DOMAIN",
     "the cores of each worker: core, socket, numa, node, cache, omp, auto, a size, or [masks] "
     "(Intel MPI's name)"},
    {"KMP_AFFINITY",
     "none or disabled: workers are tied to no cores; else for OpenMP's threads, which tandem's "
     "jobs do not have; tandem run logs that"},
    {"KUBEFLOW_TRAINER_SERVER_CA_CERT", "file of certificates of KUBEFLOW_TRAINER_SERVER_URL"},
    {"KUBEFLOW_TRAINER_SERVER_TOKEN", "file with the token for KUBEFLOW_TRAINER_SERVER_URL"},
    {"KUBEFLOW_TRAINER_SERVER_URL", "where a Kubeflow TrainJob takes the progress of its job"},
    {"KUBERNETES_SERVICE_HOST", "set on a host that is a pod (Kubernetes)"},
    {"LOCAL_RANK", "rank of this process on its node (torchrun)"},
    {"LOCAL_WORLD_SIZE", "number of ranks on this node (torchrun)"},
    {"MASTER_ADDR", "host name or address of rank 0"},
    {"MASTER_PORT", "port at which rank 0 listens (default 29500)"},
    {"MPIEXEC_TIMEOUT", "seconds after which tandem mpirun ends the job (MPICH's name)"},
    {"MPIR_CVAR_CH3_INTERFACE_HOSTNAME",
     "mpirun's name for this host (Hydra): under it the agents of an elastic job "
     "find each other"},
    {"MPI_LOCALNRANKS", "number of ranks on this node (Hydra)"},
    {"MPI_LOCALRANKID", "rank of this process on its node (Hydra)"},
    {"MV2_COMM_WORLD_LOCAL_RANK", "rank of this process on its node (MVAPICH2)"},
    {"MV2_COMM_WORLD_LOCAL_SIZE", "number of ranks on this node (MVAPICH2)"},
    {"MV2_COMM_WORLD_RANK", "rank of this process (MVAPICH2)"},
    {"MV2_COMM_WORLD_SIZE", "number of ranks (MVAPICH2)"},
    {"NO_PROXY", "hosts that are reached without a proxy, separated by commas; lower case too"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "rank of this process on its node (Open MPI)"},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "number of ranks on this node (Open MPI)"},
    {"OMPI_COMM_WORLD_RANK", "rank of this process (Open MPI)"},
    {"OMPI_COMM_WORLD_SIZE", "number of ranks (Open MPI)"},
    {"OMP_NUM_THREADS",
     "threads per rank; unset or 0: the available cores divided among the ranks of the node"},
    {"OMP_PLACES", "for OpenMP's threads, which tandem's jobs do not have; tandem run logs that"},
    {"OMP_PROC_BIND", "tandem run ties no worker to cores when this is false"},
    {"PATH", "where programs are looked for"},
    {"PET_DUPLICATE_STDERR_FILTERS", "--duplicate-stderr-filters of tandem run (torchrun's name)"},
    {"PET_DUPLICATE_STDOUT_FILTERS", "--duplicate-stdout-filters of tandem run (torchrun's name)"},
    {"PET_EVENT_LOG_HANDLER", "--event-log-handler of tandem run (torchrun's name)"},
    {"PET_LOCAL_ADDR", "--local-addr of tandem run (torchrun's name)"},
    {"PET_LOCAL_RANKS_FILTER", "--local-ranks-filter of tandem run (torchrun's name)"},
    {"PET_LOG_DIR", "--log-dir of tandem run (torchrun's name)"},
    {"PET_LOG_LINE_PREFIX_TEMPLATE", "--log-line-prefix-template of tandem run (torchrun's name)"},
    {"PET_MASTER_ADDR", "--master-addr of tandem run (torchrun's name)"},
    {"PET_MASTER_PORT", "--master-port of tandem run (torchrun's name)"},
    {"PET_MAX_RESTARTS", "--max-restarts of tandem run (torchrun's name)"},
    {"PET_MODULE", "--module of tandem run (torchrun's name)"},
    {"PET_MONITOR_INTERVAL", "--monitor-interval of tandem run (torchrun's name)"},
    {"PET_NNODES", "--nnodes of tandem run (torchrun's name)"},
    {"PET_NODE_RANK", "--node-rank of tandem run (torchrun's name)"},
    {"PET_NO_PYTHON", "--no-python of tandem run (torchrun's name)"},
    {"PET_NPROC_PER_NODE", "--nproc-per-node of tandem run (torchrun's name)"},
    {"PET_RDZV_BACKEND", "--rdzv-backend of tandem run (torchrun's name)"},
    {"PET_RDZV_CONF", "--rdzv-conf of tandem run (torchrun's name)"},
    {"PET_RDZV_ENDPOINT", "--rdzv-endpoint of tandem run (torchrun's name)"},
    {"PET_RDZV_ID", "--rdzv-id of tandem run (torchrun's name)"},
    {"PET_REDIRECTS", "--redirects of tandem run (torchrun's name)"},
    {"PET_ROLE", "--role of tandem run (torchrun's name)"},
    {"PET_RUN_PATH", "--run-path of tandem run (torchrun's name)"},
    {"PET_SHUTDOWN_TIMEOUT", "--shutdown-timeout of tandem run (torchrun's name)"},
    {"PET_SIGNALS_TO_HANDLE", "--signals-to-handle of tandem run (torchrun's name)"},
    {"PET_STANDALONE", "--standalone of tandem run (torchrun's name)"},
    {"PET_START_METHOD", "--start-method of tandem run (torchrun's name)"},
    {"PET_TEE", "--tee of tandem run (torchrun's name)"},
    {"PET_VIRTUAL_LOCAL_RANK", "--virtual-local-rank of tandem run (torchrun's name)"},
    {"PMI_FD", "file descriptor of Hydra's process manager (PMI-1)"},
    {"PMI_RANK", "rank of this process (Hydra, MPICH, Intel MPI)"},
    {"PMI_SIZE", "number of ranks (Hydra, MPICH, Intel MPI)"},
    {"PYTHON_EXEC",
     "the Python whose torchrun starts programs that are not jobs of tandem (default python3)"},
    {"PYTORCH_PRETRAINED_BERT_CACHE", "older name of HF_HUB_CACHE"},
    {"PYTORCH_TRANSFORMERS_CACHE", "older name of HF_HUB_CACHE"},
    {"RANK", "rank of this process (torchrun)"},
    {"REQUESTS_CA_BUNDLE", "comes before CURL_CA_BUNDLE (the Python tools' name)"},
    {"SLURM_JOB_ID", "identifies the Slurm job"},
    {"SLURM_LOCALID", "rank of this process on its node (Slurm)"},
    {"SLURM_MPI_TYPE",
     "kind of MPI that srun serves (Slurm); pmix means Open MPI for --ddp_backend mpi"},
    {"SLURM_NTASKS", "number of ranks (Slurm)"},
    {"SLURM_NTASKS_PER_NODE", "number of ranks on a node (Slurm)"},
    {"SLURM_PROCID", "rank of this process (Slurm)"},
    {"SLURM_STEP_NODELIST", "hosts of the job step (Slurm); the first one is rank 0's"},
    {"SLURM_STEP_NUM_TASKS", "number of ranks of the job step that srun started (Slurm)"},
    {"SSL_CERT_FILE", "comes after CURL_CA_BUNDLE (OpenSSL's name)"},
    {"TANDEM_AGENT", "set by tandem run for the workers of tandem's own jobs: their line to it"},
    {"TANDEM_COMM_TUNING",
     "milliseconds that measuring the table of collectives may take at the start (default 50; 0: a "
     "fixed table)"},
    {"TANDEM_CPU_FEATURES",
     "hides what the CPU has beyond this list of avx2, avx512, avx512_vnni, avx512_bf16, amx_bf16 "
     "and amx_int8, or none; to see on one machine what another will do"},
    {"TANDEM_ELASTIC",
     "1: ranks that mpirun has started outlive each other, 0: they do not; unset: under tandem "
     "mpirun, and on one host under mpirun -disable-auto-cleanup"},
    {"TANDEM_EMULATED_CPU",
     "the class of processors that the test build tandem_emulated claims; tandem itself ignores "
     "it"},
    {"TANDEM_FEATURE_CACHE",
     "folder in which features are kept for the next run, or off; unset: tandem/features in "
     "XDG_CACHE_HOME or ~/.cache"},
    {"TANDEM_FLIGHT_RECORD",
     "folder for the last operations of a rank when the job fails or on SIGUSR1; unset: "
     "--output_dir"},
    {"TANDEM_HOST_TIMEOUT",
     "seconds for which a host may answer nothing before its ranks count as dead (default 2; never "
     "fewer than eight round trips)"},
    {"TANDEM_IFNAME",
     "network interfaces for connections between hosts, for example ib0,eth0 or ^docker0; comes "
     "before CCL_KVS_IFACE and GLOO_SOCKET_IFNAME"},
    {"TANDEM_JOB_RECORDS",
     "folder in which tandem run keeps what the restarts of a job without a name have to know of "
     "each other; set by it alone"},
    {"TANDEM_JOB_TOKEN", "a secret that every rank of the job must know; empty: none"},
    {"TANDEM_JOB_TOKEN_FILE", "file with the secret, read where TANDEM_JOB_TOKEN is not set"},
    {"TANDEM_KERNELS", "forces kernels, for example gemm=reference,attention=avx2"},
    {"TANDEM_LOG_FORMAT",
     "value of --log_format when it is not given: text, or json for one JSON object a line"},
    {"TANDEM_MAX_DOWNLOAD_GIB",
     "GiB that one run may download of one repository of the Hub (default 100)"},
    {"TANDEM_METRICS_PORT",
     "port at which tandem run, or without it the first rank of a host, answers /metrics, /healthz "
     "and /readyz; unset: none"},
    {"TANDEM_NODE_ID",
     "ranks share memory only if this agrees too: makes several nodes of one machine, for tests"},
    {"TANDEM_PLUGIN_PATH",
     "directories, separated by colons, in which transport plugins are looked for first"},
    {"TANDEM_PORT", "port at which rank 0 listens when a torchrun agent holds MASTER_PORT"},
    {"TANDEM_STALL_TIMEOUT",
     "seconds after which a rank whose process is stopped counts as failed (default 10; 0: never)"},
    {"TANDEM_STATUS_INTERVAL",
     "seconds between the lines in which tandem run reports the state of an elastic job (default "
     "60; 0: none)"},
    {"TENSORBOARD_LOGGING_DIR",
     "where TensorBoard's events go without --logging_dir (transformers 5)"},
    {"TERM", "dumb: the terminal gets no escape sequences"},
    {"TMPDIR", "where temporary files go (default /tmp)"},
    {"TORCHELASTIC_ERROR_FILE",
     "file that gets the reason, as JSON, when a job or all of its workers fail (torchrun)"},
    {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "--log-line-prefix-template of tandem run"},
    {"TORCHELASTIC_RESTART_COUNT", "how often torchrun restarted the job"},
    {"TORCHELASTIC_RUN_ID", "name of the job (torchrun)"},
    {"TORCHELASTIC_USE_AGENT_STORE", "True when a torchrun agent already listens at MASTER_PORT"},
    {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "--shutdown-timeout of tandem run"},
    {"TRANSFORMERS_CACHE", "older name of HF_HUB_CACHE"},
    {"TRANSFORMERS_OFFLINE", "no network connection is tried"},
    {"WORLD_SIZE", "number of ranks (torchrun)"},
    {"XDG_CACHE_HOME", "root of the default caches"},
    {"all_proxy", "see ALL_PROXY"},
    {"http_proxy", "see HTTP_PROXY"},
    {"https_proxy", "see HTTPS_PROXY"},
    {"no_proxy", "see NO_PROXY"},
};

bool is_registered(std::string_view name) {
  return std::any_of(std::begin(kRegistry), std::end(kRegistry),
                     [&](const EnvironmentVariable& row) { return row.name == name; });
}

}  // namespace

Environment::Environment(std::map<std::string, std::string, std::less<>> values)
    : values_(std::move(values)) {}

Environment Environment::from_process() {
  std::map<std::string, std::string, std::less<>> values;
  for (const EnvironmentVariable& row : kRegistry) {
    if (const char* value = std::getenv(
            std::string(row.name).c_str())) {  // NOLINT(concurrency-mt-unsafe): at start
      values.emplace(row.name, value);
    }
  }
  return Environment(std::move(values));
}

std::map<std::string, std::string, std::less<>> inherited_environment() {
  std::map<std::string, std::string, std::less<>> values;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos)
      values.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return values;
}

std::span<const EnvironmentVariable> Environment::registry() { return kRegistry; }

std::optional<std::string> Environment::get(std::string_view name) const {
  TANDEM_CHECK(is_registered(name), "environment variable {} is not in the registry", name);
  const auto found = values_.find(name);
  if (found == values_.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

std::optional<long> Environment::get_int(std::string_view name, long min, long max) const {
  const auto text = get(name);
  if (!text) return std::nullopt;
  long value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < min || value > max) {
    raise<ConfigError>("the environment variable {} is '{}', expected an integer from {} to {}",
                       name, *text, min, max);
  }
  return value;
}

bool Environment::get_flag(std::string_view name) const {
  auto text = get(name);
  if (!text) return false;
  for (char& c : *text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return *text == "1" || *text == "ON" || *text == "YES" || *text == "TRUE";
}

}  // namespace tandem
