#include "tandem/comm/network/schedule_task.h"

#include <algorithm>
#include <numeric>

namespace tandem::comm {

using Kind = Step::Kind;

DataType wire_type(const Step& step, DataType sums, DataType type) {
  return step.final || step.leaf ? type : sums;
}

ScheduleTask::ScheduleTask(const Messages& messages, Schedule schedule,
                           std::span<std::byte* const> own, std::vector<int> peers,
                           const kernels::CombineKernels& kernels, const Reduction& reduction,
                           const Finish& finish)
    : messages_(messages),
      schedule_(std::move(schedule)),
      peers_(std::move(peers)),
      kernels_(kernels),
      reduction_(reduction),
      finish_(finish),
      element_(size_of(reduction.type)) {
  const std::vector<std::size_t>& sizes = schedule_.scratch;
  arrays_.reserve(own.size() + sizes.size());
  arrays_.assign(own.begin(), own.end());
  if (sizes.empty()) return;
  // Not cleared: all of it is overwritten by receives.
  const std::size_t elements = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  scratch_ = std::make_unique_for_overwrite<std::byte[]>(elements * element_);
  std::byte* next = scratch_.get();
  for (const std::size_t size : sizes) {
    arrays_.push_back(next);
    next += size * element_;
  }
}

Progress ScheduleTask::advance() {
  bool moved = false;
  while (first_ < schedule_.steps.size()) {
    if (!started_) {
      start_round();
      moved = true;
    }
    if (!messages_.done()) {
      const bool news = messages_.progress();
      if (!messages_.done()) return news || moved ? Progress::kMoved : Progress::kWaiting;
    }
    finish_round();
    moved = true;
  }
  return Progress::kDone;
}

std::span<const Step> ScheduleTask::round() const {
  const std::span rest = std::span<const Step>(schedule_.steps).subspan(first_);
  const auto next = std::find_if(rest.begin(), rest.end(),
                                 [&](const Step& step) { return step.round != rest[0].round; });
  return rest.first(static_cast<std::size_t>(next - rest.begin()));
}

void ScheduleTask::start_round() {
  started_ = true;
  const std::span<const Step> steps = round();
  messages_.reserve(steps.size());
  // Receives first: data that arrives at once goes directly to its destination.
  for (const Step& step : steps) {
    if (step.kind == Kind::kReceive) receive(step);
  }
  for (const Step& step : steps) {
    if (step.kind == Kind::kSend) send(step);
  }
}

void ScheduleTask::finish_round() {
  messages_.clear();
  const std::span<const Step> steps = round();
  std::size_t copy = 0;  // receives were copied first
  for (const Step& step : steps) {
    switch (step.kind) {
      case Kind::kSend:
        break;
      case Kind::kReceive:
        if (!is_narrowed(step)) break;
        widen(kernels_, finish_.type, copies_[copy++].get(), range(step).data(),
              step.end - step.begin);
        break;
      case Kind::kAccumulate:
        accumulate(step);
        break;
      case Kind::kTree:
        add_tree(step);
        break;
      case Kind::kFinish:
        finish(step);
        break;
    }
  }
  copies_.clear();
  first_ += steps.size();
  started_ = false;
}

std::span<std::byte> ScheduleTask::range(const Step& step) const {
  return {arrays_[static_cast<std::size_t>(step.array)] + step.begin * element_,
          (step.end - step.begin) * element_};
}

std::span<std::byte> ScheduleTask::result_range(const Step& step) const {
  const std::size_t element = size_of(finish_.type);
  return {finish_.result + step.begin * element, (step.end - step.begin) * element};
}

bool ScheduleTask::is_narrowed(const Step& step) const {
  return !step.final && wire_type(step, reduction_.type, finish_.type) != reduction_.type;
}

std::span<std::byte> ScheduleTask::add_copy(const Step& step) {
  const std::size_t bytes = (step.end - step.begin) * size_of(finish_.type);
  copies_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
  return {copies_.back().get(), bytes};
}

void ScheduleTask::receive(const Step& step) {
  messages_.receive(peer(step), step.final          ? result_range(step)
                                : is_narrowed(step) ? add_copy(step)
                                                    : range(step));
}

void ScheduleTask::send(const Step& step) {
  if (step.final) return messages_.send(peer(step), result_range(step));
  if (!is_narrowed(step)) return messages_.send(peer(step), range(step));
  const std::span<std::byte> copy = add_copy(step);
  finish_reduction(kernels_, finish_.type, 1, range(step).data(), copy.data(),
                   step.end - step.begin);
  messages_.send(peer(step), copy);
}

void ScheduleTask::accumulate(const Step& step) const {
  static const SumProgram kPair = {0, 1, kAdd};
  const std::span<std::byte> bytes = range(step);
  const std::byte* const inputs[] = {bytes.data(), arrays_[static_cast<std::size_t>(step.from)]};
  std::byte* const output = bytes.data();
  reduce(kernels_, reduction_, kPair, inputs, std::span(&output, 1), step.end - step.begin);
}

void ScheduleTask::add_tree(const Step& step) const {
  std::vector<const std::byte*> inputs;
  for (const Schedule::Operand& operand : schedule_.operands) {
    inputs.push_back(arrays_[static_cast<std::size_t>(operand.array)] +
                     (operand.whole ? step.begin * element_ : 0));
  }
  std::byte* const output = range(step).data();
  reduce(kernels_, reduction_, schedule_.program, inputs, std::span(&output, 1),
         step.end - step.begin);
}

void ScheduleTask::finish(const Step& step) const {
  finish_reduction(kernels_, finish_.type, finish_.divisor, range(step).data(),
                   result_range(step).data(), step.end - step.begin);
}

}  // namespace tandem::comm
