// This process's place among the ranks of a job.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tandem/comm/communicator.h"
#include "tandem/core/env.h"
#include "tandem/elastic/worker/agent_channel.h"
#include "tandem/elastic/worker/view_loop.h"
#include "tandem/job/console.h"
#include "tandem/rendezvous/identity.h"
#include "tandem/trainer/training_arguments.h"

namespace tandem::job {

// How a worker of an elastic job reaches its agent, and the other workers of a view.
struct ElasticWorker {
  std::unique_ptr<elastic::AgentChannel> channel;  // never null
  elastic::ViewNetwork network;
  const elastic::WorkerInfo& info() const { return channel->info(); }
};

struct World {
  rendezvous::Identity identity;
  std::unique_ptr<comm::Communicator> communicator;  // never null
  // Present in an elastic job: then this worker is alone here, and computes in views.
  std::optional<ElasticWorker> elastic = {};
  bool is_main() const { return elastic ? elastic->info().prints != 0 : communicator->rank() == 0; }
};

// Callbacks of the bootstrap, before there is a console.
struct WorldEvents {
  std::function<void(const std::string& line)> log;  // log of the communication layer; may be empty
  bool log_position = false;                         // true if log() also gets this rank's position
  // Called before the bootstrap: from then on the other ranks receive its errors. May be empty.
  std::function<void()> meets = {};
  // Called when a peer failed while this process may be inside a kernel. Called on a separate
  // thread; does not return.
  std::function<void(const std::string& message)> on_failure;
};

// Connects to the other ranks that the launcher's variables name. Throws ConfigError, CommError.
World join_world(const Environment& environment, const trainer::TrainingArguments& training,
                 WorldEvents events);

// Output of each rank: the library's lines of the first rank of every node (or only of rank 0)
// follow --log_level, the others' --log_level_replica. Messages about the whole job come only from
// rank 0: the start, notes, warnings, progress, log dicts and tables.
ConsoleOptions console_options(const trainer::TrainingArguments& training, const World& world);

}  // namespace tandem::job
