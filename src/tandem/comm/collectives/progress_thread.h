// Operations that a rank has started, and the progress thread that advances them if a core is free
// (worker.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tandem/comm/collectives/worker.h"
#include "tandem/comm/communicator.h"
#include "tandem/comm/network/transport.h"

namespace tandem::comm {

struct CommContext;

class ProgressThread {
 public:
  explicit ProgressThread(CommContext& comm_context) : comm_context_(comm_context) {}
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  // Started operations of this communicator are advanced as well, until it is removed.
  void add(Communicator::State& state) { states_.push_back(&state); }
  void remove(const Communicator::State& state) { std::erase(states_, &state); }
  void note_message(const std::shared_ptr<const Message>& message) {
    if (worker_ && !message->done) messages_.push_back(message);
  }

  // From now on a progress thread on `core` works, or none (a negative core); `text` describes it
  // with the reason.
  void start(int core, std::string text);
  void stop() { worker_.reset(); }
  // Description of the thread that advances operations; empty: none was requested.
  const std::string& describe() const { return text_; }

  // Held while a call uses data of the thread. Without a thread it does nothing.
  Worker::Entry enter() const { return Worker::Entry(worker_.get()); }
  // True on the progress thread itself: a failure reported there has not reached the caller.
  bool inside() const { return inside_; }

 private:
  bool has_work();
  Progress advance_all();

  CommContext& comm_context_;
  std::string text_;
  std::vector<Communicator::State*> states_;
  std::vector<std::shared_ptr<const Message>> messages_;  // perhaps in flight; kept for the thread
  bool inside_ = false;
  std::unique_ptr<Worker> worker_;  // none without a free core
};

}  // namespace tandem::comm
