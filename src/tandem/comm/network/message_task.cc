#include "tandem/comm/network/message_task.h"

#include <algorithm>

namespace tandem::comm {

void Messages::send(int peer, std::span<const std::byte> bytes) {
  header_.bytes = bytes.size();
  messages_.push_back(transport_.send(peer, header_, bytes));
}

void Messages::receive(int peer, std::span<std::byte> bytes) {
  header_.bytes = bytes.size();
  messages_.push_back(transport_.receive(peer, header_, bytes));
}

bool Messages::done() const {
  return std::all_of(messages_.begin(), messages_.end(),
                     [](const auto& one) { return one->done.load(); });
}

int Messages::waiting_for() const {
  for (const auto& message : messages_) {
    if (!message->done) return message->peer;
  }
  return -1;
}

Progress MessageTask::advance() {
  const bool starts = !started_;
  if (starts) start();
  if (!messages_.done()) {
    const bool news = messages_.progress();
    if (!messages_.done()) return news || starts ? Progress::kMoved : Progress::kWaiting;
  }
  messages_.clear();
  if (round_.then) round_.then();
  return Progress::kDone;
}

void MessageTask::start() {
  started_ = true;
  // Receives first: data that arrives at once goes directly to its destination.
  for (const Round::Transfer& transfer : round_.transfers) {
    if (!transfer.sending) messages_.receive(transfer.peer, transfer.bytes);
  }
  for (const Round::Transfer& transfer : round_.transfers) {
    if (transfer.sending) messages_.send(transfer.peer, transfer.bytes);
  }
}

Progress ChainTask::advance() {
  bool moved = false;
  while (true) {
    if (!task_) {
      if (next_ == parts()) return Progress::kDone;
      task_ = make(next_++);
      moved = true;
      continue;
    }
    const Progress progress = task_->advance();
    if (progress == Progress::kWaiting) return moved ? Progress::kMoved : progress;
    if (progress == Progress::kMoved) return progress;
    task_.reset();
    moved = true;
  }
}

void SequenceTask::then(std::function<void()> work) {
  parts_.push_back([work = std::move(work)]() -> std::unique_ptr<CommTask> {
    work();
    return nullptr;
  });
}

}  // namespace tandem::comm
