#include "tandem/launch/run/worker_environment.h"

namespace tandem::launch {
namespace {

// Variables of an agent above this one are not for its workers.
void forget_outer_launchers(std::map<std::string, std::string, std::less<>>& environment) {
  std::erase_if(environment, [](const auto& entry) {
    return entry.first.starts_with("PMI_") || entry.first.starts_with("OMPI_COMM_WORLD_");
  });
}

}  // namespace

std::map<std::string, std::string, std::less<>> worker_environment(const AgentParts& parts,
                                                                   int restarts, int local_rank,
                                                                   const std::string& error_file) {
  auto environment = parts.inherited;
  forget_outer_launchers(environment);
  const RunOptions& options = parts.options;
  const int workers = static_cast<int>(parts.placement.workers.size());
  const int world_size = workers * options.max_nodes;
  const auto set = [&](const char* name, std::string value) {
    environment[name] = std::move(value);
  };
  set("RANK", std::to_string(local_rank));
  set("LOCAL_RANK", std::to_string(options.virtual_local_rank ? 0 : local_rank));
  set("GROUP_RANK", "0");
  set("ROLE_RANK", std::to_string(local_rank));
  set("ROLE_NAME", options.role);
  set("LOCAL_WORLD_SIZE", std::to_string(workers));
  set("WORLD_SIZE", std::to_string(world_size));
  set("GROUP_WORLD_SIZE", std::to_string(options.max_nodes));
  set("ROLE_WORLD_SIZE", std::to_string(world_size));
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", "29500");
  set("TORCHELASTIC_RESTART_COUNT", std::to_string(restarts));
  set("TORCHELASTIC_MAX_RESTARTS", std::to_string(options.max_restarts));
  set("TORCHELASTIC_RUN_ID", options.rdzv_id);
  set("TORCHELASTIC_USE_AGENT_STORE", "True");
  set("TORCHELASTIC_SIGNALS_TO_HANDLE", options.signal_names);
  set("TORCHELASTIC_ERROR_FILE", error_file);
  environment.try_emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  if (!parts.job_token.empty()) set("TANDEM_JOB_TOKEN", parts.job_token);
  const WorkerPlacement& own = parts.placement.workers[static_cast<std::size_t>(local_rank)];
  if (own.threads) set("OMP_NUM_THREADS", std::to_string(*own.threads));
  return environment;
}

}  // namespace tandem::launch
