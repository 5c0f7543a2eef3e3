// What a rank has started and does not wait for, and the helper thread that advances it where there
// is a core for one (worker.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tandem/comm/api/communicator.h"
#include "tandem/comm/api/worker.h"
#include "tandem/comm/network/transport.h"

namespace tandem::comm {

struct Fabric;

class Helper {
 public:
  explicit Helper(Fabric& fabric) : fabric_(fabric) {}
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;

  // Started operations of this communicator are advanced, too, until it is removed.
  void add(Communicator::State& state) { states_.push_back(&state); }
  void remove(const Communicator::State& state) { std::erase(states_, &state); }
  void note_message(const std::shared_ptr<const Message>& message) {
    if (worker_ && !message->done) messages_.push_back(message);
  }

  // From now on a thread on `core` helps, or none does (a negative core); `text` says which and
  // why.
  void start(int core, std::string text);
  void stop() { worker_.reset(); }
  // Who advances operations; empty: nobody has asked.
  const std::string& describe() const { return text_; }

  // For as long as a call uses what the thread does, too. Without a thread it does nothing.
  Worker::Entry enter() const { return Worker::Entry(worker_.get()); }
  // It is the thread that is inside: whom it tells of a failure is no caller.
  bool inside() const { return inside_; }

 private:
  bool has_work();
  Progress advance_all();

  Fabric& fabric_;
  std::string text_;
  std::vector<Communicator::State*> states_;
  std::vector<std::shared_ptr<const Message>> messages_;  // perhaps under way; kept for the thread
  bool inside_ = false;
  std::unique_ptr<Worker> worker_;  // none without a core for it
};

}  // namespace tandem::comm
