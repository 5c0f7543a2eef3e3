// A schedule in progress: its messages are sent and received, and its sums are added up.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tandem/comm/algorithms/reduce.h"
#include "tandem/comm/algorithms/schedule.h"
#include "tandem/comm/network/message_task.h"

namespace tandem::comm {

// The type in which the numbers of a kSend or kReceive are sent, if the arrays have type `sums` and
// complete sums are rounded to `type`. The input of one rank had that type, so it is exact.
DataType wire_type(const Step& step, DataType sums, DataType type);

class ScheduleTask final : public CommTask {
 public:
  // Destination of complete sums.
  struct Finish {
    DataType type = DataType::kFloat32;
    int divisor = 1;
    std::byte* result = nullptr;  // elements of `type`
  };

  // `own`: the participant's own arrays, of `reduction.type` (an accumulator type). `peers`: the
  // ranks of the job behind the participants. The pointed-to data must outlive the task.
  ScheduleTask(const Messages& messages, Schedule schedule, std::span<std::byte* const> own,
               std::vector<int> peers, const kernels::CombineKernels& kernels,
               const Reduction& reduction, const Finish& finish);
  // For a schedule that only moves elements of `type`.
  ScheduleTask(const Messages& messages, Schedule schedule, std::span<std::byte* const> own,
               std::vector<int> peers, const kernels::CombineKernels& kernels, DataType type)
      : ScheduleTask(messages, std::move(schedule), own, std::move(peers), kernels,
                     Reduction{.type = type}, {.type = type}) {}
  Progress advance() override;
  int waiting_for() const override { return messages_.waiting_for(); }
  bool waits_for_messages() const override { return true; }

 private:
  std::span<const Step> round() const;
  void start_round();
  void finish_round();
  void send(const Step& step);
  void receive(const Step& step);
  void accumulate(const Step& step) const;
  void add_tree(const Step& step) const;
  void finish(const Step& step) const;

  std::span<std::byte> range(const Step& step) const;
  std::span<std::byte> result_range(const Step& step) const;
  bool is_narrowed(const Step& step) const;
  std::span<std::byte> add_copy(const Step& step);
  int peer(const Step& step) const { return peers_[static_cast<std::size_t>(step.peer)]; }

  Messages messages_;
  Schedule schedule_;
  std::vector<int> peers_;
  const kernels::CombineKernels& kernels_;
  Reduction reduction_;
  Finish finish_;
  std::size_t element_;
  std::unique_ptr<std::byte[]> scratch_;
  std::vector<std::byte*> arrays_;
  // Numbers in the type in which they are sent, for the narrowed steps of this round, in order.
  std::vector<std::unique_ptr<std::byte[]>> copies_;
  std::size_t first_ = 0;  // among the steps of this round
  bool started_ = false;
};

}  // namespace tandem::comm
