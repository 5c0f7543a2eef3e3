// This process's place among the ranks of a job.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tandem/comm/api/communicator.h"
#include "tandem/core/env.h"
#include "tandem/elastic/seat.h"
#include "tandem/job/console.h"
#include "tandem/rendezvous/identity.h"
#include "tandem/trainer/training_arguments.h"

namespace tandem::job {

struct World {
  rendezvous::Identity identity;
  std::unique_ptr<comm::Communicator> communicator;
  // Of a worker of an elastic job, which is alone here and computes in views; else null.
  std::unique_ptr<elastic::Seat> seat = nullptr;
  comm::Options view_options = {};  // of the views' communicators
  bool is_main() const { return seat ? seat->card().speaks != 0 : communicator->rank() == 0; }
};

// What joining tells to the process, before there is a console.
struct WorldEvents {
  std::function<void(const std::string& line)> log;  // of the communication layer; may be empty
  bool tell_place = false;                           // whether log() gets this rank's place, too
  // This process goes to meet the other ranks: from now on they hear of its errors. May be empty.
  std::function<void()> meets = {};
  // A peer failed while this process may be deep in a computation. Called on a thread of its own;
  // does not return.
  std::function<void(const std::string& message)> on_failure;
};

// Meets the other ranks that the launcher's variables name. Throws ConfigError, CommError.
World join_world(const Environment& environment, const trainer::TrainingArguments& training,
                 WorldEvents events);

// Who writes what: the library's lines of the first rank of every node (or only of rank 0) follow
// --log_level, the others' --log_level_replica. What is true of the whole job rank 0 says alone:
// the start, notes, warnings, progress, log dicts and tables.
ConsoleOptions console_options(const trainer::TrainingArguments& training, const World& world);

}  // namespace tandem::job
