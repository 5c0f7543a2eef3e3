#include "tandem/launch/control/job_status.h"

#include <algorithm>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/core/text_layout.h"
#include "tandem/core/whole_number.h"

namespace tandem::launch {

using nlohmann::ordered_json;

int JobStatus::num_computing() const {
  return static_cast<int>(
      std::count_if(members.begin(), members.end(),
                    [](const WorkerStatus& worker_status) { return worker_status.rank >= 0; }));
}

std::string to_json(const JobStatus& status) {
  ordered_json json = {{"job", status.job},
                       {"host", status.host},
                       {"agent", status.agent},
                       {"address", status.address},
                       {"program", status.program},
                       {"view", status.view},
                       {"step", status.step},
                       {"losses", status.losses},
                       {"restarts", status.restarts},
                       {"nodes", status.nodes},
                       {"ranks", status.ranks},
                       {"seconds_lost", status.seconds_lost},
                       {"members", ordered_json::array()}};
  for (const auto& worker_status : status.members) {
    json["members"].push_back({{"worker", worker_status.worker},
                               {"rank", worker_status.rank},
                               {"pid", worker_status.pid},
                               {"doing", worker_status.doing}});
  }
  // A name may be invalid UTF-8.
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

JobStatus job_status_from(const std::string& text) {
  try {
    const ordered_json json = parse_ordered_json(text);
    JobStatus status;
    status.job = printable(json.at("job").get<std::string>());
    status.host = printable(json.at("host").get<std::string>());
    status.agent = whole_number<int>(json.at("agent"));
    status.address = printable(json.at("address").get<std::string>());
    status.program = printable(json.at("program").get<std::string>());
    status.view = whole_number<std::uint64_t>(json.at("view"));
    status.step = whole_number<std::uint64_t>(json.at("step"));
    status.losses = whole_number<int>(json.at("losses"));
    status.restarts = whole_number<int>(json.at("restarts"));
    status.nodes = whole_number<int>(json.at("nodes"));
    status.ranks = whole_number<int>(json.at("ranks"));
    status.seconds_lost = json.at("seconds_lost").get<double>();
    for (const ordered_json& worker_status : json.at("members")) {
      status.members.push_back({whole_number<int>(worker_status.at("worker")),
                                whole_number<int>(worker_status.at("rank")),
                                whole_number<int>(worker_status.at("pid")),
                                printable(worker_status.at("doing").get<std::string>())});
    }
    return status;
  } catch (const ordered_json::exception& error) {
    raise<DataError>("the agent's answer is not a status of a job: {}", error.what());
  }
}

std::string progress_line(const JobStatus& status) {
  if (status.view == 0) {
    return fmt::format("{} workers are being started, {} lost so far", status.members.size(),
                       status.losses);
  }
  const bool alone = status.nodes <= 1;
  return fmt::format(
      "view {}{}: {} of {} workers{} compute, step {} is applied, {} worker{} lost so far",
      status.view, alone ? "" : fmt::format(" of {} ranks on {} nodes", status.ranks, status.nodes),
      status.num_computing(), status.members.size(), alone ? "" : " here", status.step,
      status.losses, status.losses == 1 ? "" : "s");
}

std::string for_people(const JobStatus& status) {
  const std::string where =
      status.address.empty() ? status.host : fmt::format("{} ({})", status.host, status.address);
  std::string text = fmt::format("job {} ({}), agent {} on {}: {}\n", status.job, status.program,
                                 status.agent, where, progress_line(status));
  for (const auto& worker_status : status.members) {
    text += fmt::format("  worker {} {}", worker_status.worker, worker_status.doing);
    if (worker_status.rank >= 0) text += fmt::format(" as rank {}", worker_status.rank);
    if (worker_status.pid > 0) text += fmt::format(" (pid {})", worker_status.pid);
    text += '\n';
  }
  return text;
}

}  // namespace tandem::launch
