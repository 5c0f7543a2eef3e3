#include "apps/agent_process.h"

#include <chrono>
#include <csignal>
#include <memory>

#include "apps/monitor/agent_metrics.h"
#include "tandem/elastic/agent/elastic_host.h"

namespace tandem::apps {

launch::AgentParts agent_parts(const Environment& environment, const LogPrefix& log_prefix) {
  launch::AgentParts parts;
  parts.log = [log_prefix](const std::string& line) { write_log(log_prefix, line); };
  parts.inherited = inherited_environment();
  parts.temporary = environment.get("TMPDIR").value_or("/tmp");
  parts.error_file = environment.get("TORCHELASTIC_ERROR_FILE").value_or("");
  parts.status_interval_s = status_interval(environment);
  if (const auto seconds = environment.get_int("TANDEM_HOST_TIMEOUT", 1, 1000000))
    parts.host_timeout = std::chrono::seconds(*seconds);
  return parts;
}

int run_agent_process(launch::AgentParts parts, std::shared_ptr<elastic::ExternalLock> lock,
                      const Environment& environment) {
  std::signal(SIGPIPE, SIG_IGN);
  AgentMetrics metrics;
  const std::unique_ptr<MetricsServer> server = agent_server(metrics, environment, parts.log);
  if (server)
    parts.publish = [&metrics](const launch::JobStatus& status) { metrics.publish(status); };
  return elastic::run_elastic_agent(std::move(parts), std::move(lock));
}

}  // namespace tandem::apps
