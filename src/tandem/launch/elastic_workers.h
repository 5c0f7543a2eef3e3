// The workers of an elastic agent as processes: each place of its placement has one after another,
// with their streams, logs and error files. Who starts again, and when, is the agent's to say.
//
// Thread-safety: one thread.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tandem/elastic/node.h"
#include "tandem/launch/agent.h"
#include "tandem/launch/console_writer.h"
#include "tandem/launch/elastic_member.h"

namespace tandem::launch {

class ElasticWorkers {
 public:
  // Starts none. `parts` and `node` must outlive it. Throws ConfigError when there is no place for
  // logs.
  ElasticWorkers(const AgentParts& parts, elastic::Node& node);

  std::span<ElasticMember> members() { return members_; }
  std::span<const ElasticMember> members() const { return members_; }
  int size() const { return static_cast<int>(members_.size()); }
  int restarts() const { return restarts_; }

  // Throws ConfigError and IoError when one cannot be started.
  void start_all();
  void start_due();
  // At once or after a pause; counts as a restart.
  void start_again(int worker);
  // Who has ended since, and how; nothing is said to the node.
  std::vector<Failure> take_ended();

  // Lines that go with what the node keeps. They do not wait for a console that stands still, and
  // the worker that waits for them does not long.
  void print(int worker, const std::string& lines);
  // What is still on its way to consoles and logs, when all have ended.
  void finish_output();

 private:
  void start(int worker);
  Console console_of(int worker) const;
  Failure describe_end(int worker, const Ending& ending);

  const AgentParts& parts_;
  elastic::Node& node_;
  RunLogs logs_;
  OutputRelay relay_;
  ConsoleWriter lines_;
  std::vector<rendezvous::FileDescriptor> stale_;
  std::vector<ElasticMember> members_;
  MemoryKills memory_kills_;
  int restarts_ = 0;
};

}  // namespace tandem::launch
