// Tasks made of messages, and tasks made of tasks.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tandem/comm/reduce.h"
#include "tandem/comm/schedule.h"
#include "tandem/comm/task.h"
#include "tandem/comm/transport.h"

namespace tandem::comm {

// Messages that start together, and what to do when all are done.
struct Round {
  struct Transfer {
    int peer = 0;  // rank of the job
    bool sending = false;
    std::span<std::byte> bytes;
  };
  std::vector<Transfer> transfers;
  std::function<void()> then;

  void send(int peer, std::span<const std::byte> bytes) {
    transfers.push_back({peer, true, {const_cast<std::byte*>(bytes.data()), bytes.size()}});
  }
  void receive(int peer, std::span<std::byte> bytes) { transfers.push_back({peer, false, bytes}); }
};

class MessageTask final : public Task {
 public:
  MessageTask(Transport& transport, const Header& header, std::vector<Round> rounds)
      : transport_(transport), header_(header), rounds_(std::move(rounds)) {}
  Progress advance() override;
  int waiting_for() const override;
  bool waits_for_messages() const override { return true; }

 private:
  void start_round();
  bool round_done() const;

  Transport& transport_;
  Header header_;
  std::vector<Round> rounds_;
  std::size_t current_ = 0;
  bool started_ = false;
  std::vector<std::shared_ptr<const Message>> messages_;
};

// One after the other. A part is made when its turn comes.
class SequenceTask final : public Task {
 public:
  using Part = std::function<std::unique_ptr<Task>()>;  // may return null: nothing to do
  void add(Part part) { parts_.push_back(std::move(part)); }
  // Something that needs no waiting.
  void then(std::function<void()> work);
  // Keeps memory alive as long as the task.
  void keep(std::shared_ptr<void> object) { kept_.push_back(std::move(object)); }
  Progress advance() override;
  int waiting_for() const override { return task_ ? task_->waiting_for() : -1; }
  bool waits_for_messages() const override { return task_ && task_->waits_for_messages(); }

 private:
  std::vector<Part> parts_;
  std::size_t current_ = 0;
  std::unique_ptr<Task> task_;
  std::vector<std::shared_ptr<void>> kept_;
};

// Where the complete sums of a schedule go.
struct Finish {
  DataType type = DataType::kFloat32;  // of the data; the arrays are of its accumulator type
  int divisor = 1;
  std::byte* result = nullptr;
};

// The rounds of a schedule over arrays of `reduction.type` (an accumulator type). `own`: the own arrays. `peers`: the ranks of
// the job behind the participants. `finish`: of schedules that reduce. The returned rounds own the scratch arrays; everything else
// must outlive them.
std::vector<Round> rounds_of(const Schedule& schedule, std::span<std::byte* const> own,
                             std::span<const int> peers, const kernels::CombineKernels& kernels,
                             const Reduction& reduction, const Finish& finish = {});

}  // namespace tandem::comm
