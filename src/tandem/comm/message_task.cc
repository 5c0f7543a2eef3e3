#include "tandem/comm/message_task.h"

#include <algorithm>

namespace tandem::comm {

Progress MessageTask::advance() {
  bool moved = false;
  while (current_ < rounds_.size()) {
    if (!started_) {
      start_round();
      moved = true;
    }
    if (!round_done()) {
      const bool news = transport_.progress({});
      if (!round_done()) return news || moved ? Progress::kMoved : Progress::kWaiting;
    }
    messages_.clear();
    if (rounds_[current_].then) rounds_[current_].then();
    ++current_;
    started_ = false;
  }
  return Progress::kDone;
}

void MessageTask::start_round() {
  // Receives first: what comes at once goes straight to its place.
  for (const Round::Transfer& transfer : rounds_[current_].transfers) {
    header_.bytes = transfer.bytes.size();
    if (!transfer.sending)
      messages_.push_back(transport_.receive(transfer.peer, header_, transfer.bytes));
  }
  for (const Round::Transfer& transfer : rounds_[current_].transfers) {
    header_.bytes = transfer.bytes.size();
    if (transfer.sending)
      messages_.push_back(transport_.send(transfer.peer, header_, transfer.bytes));
  }
  started_ = true;
}

bool MessageTask::round_done() const {
  return std::all_of(messages_.begin(), messages_.end(),
                     [](const auto& one) { return one->done.load(); });
}

int MessageTask::waiting_for() const {
  for (const auto& message : messages_) {
    if (!message->done) return message->peer;
  }
  return -1;
}

void SequenceTask::then(std::function<void()> work) {
  parts_.push_back([work = std::move(work)]() -> std::unique_ptr<Task> {
    work();
    return nullptr;
  });
}

Progress SequenceTask::advance() {
  bool moved = false;
  while (true) {
    if (!task_) {
      if (current_ == parts_.size()) return Progress::kDone;
      task_ = parts_[current_++]();
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

namespace {

// Turns the steps of one participant into rounds.
class RoundWriter {
 public:
  RoundWriter(const Schedule& schedule, std::span<std::byte* const> own, std::span<const int> peers,
              const kernels::CombineKernels& kernels, const Reduction& reduction,
              const Finish& finish)
      : peers_(peers),
        kernels_(kernels),
        reduction_(reduction),
        finish_(finish),
        element_(size_of(reduction.type)),
        scratch_(std::make_shared<std::vector<std::unique_ptr<std::byte[]>>>()),
        arrays_(own.begin(), own.end()),
        operands_(std::make_shared<std::vector<Schedule::Operand>>(schedule.operands)),
        program_(std::make_shared<SumProgram>(schedule.program)) {
    for (const std::size_t elements : schedule.scratch)
      arrays_.push_back(add_scratch(elements * element_));
  }

  void add(const Step& step) {
    while (rounds_.size() <= static_cast<std::size_t>(step.round)) {
      rounds_.emplace_back();
      works_.emplace_back();
    }
    switch (step.kind) {
      case Step::Kind::kSend:
        return send(step);
      case Step::Kind::kReceive:
        return receive(step);
      case Step::Kind::kAccumulate:
        return accumulate(step);
      case Step::Kind::kTree:
        return add_tree(step);
      case Step::Kind::kFinish:
        return finish(step);
    }
  }

  std::vector<Round> take() {
    for (std::size_t i = 0; i < rounds_.size(); ++i) {
      rounds_[i].then = [scratch = scratch_, work = std::move(works_[i])] {
        for (const auto& one : work) one();
      };
    }
    return std::move(rounds_);
  }

 private:
  // Not cleared: all of it is received into.
  std::byte* add_scratch(std::size_t bytes) {
    scratch_->push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
    return scratch_->back().get();
  }
  std::span<std::byte> range(const Step& step) const {
    return {arrays_[static_cast<std::size_t>(step.array)] + step.begin * element_,
            (step.end - step.begin) * element_};
  }
  std::span<std::byte> final_range(const Step& step) const {
    const std::size_t element = size_of(finish_.type);
    return {finish_.result + step.begin * element, (step.end - step.begin) * element};
  }
  bool narrow(const Step& step) const {
    return step.leaf && finish_.result != nullptr && finish_.type != reduction_.type;
  }
  int peer(const Step& step) const { return peers_[static_cast<std::size_t>(step.peer)]; }

  void send(const Step& step) {
    Round& round = rounds_.back();
    if (step.final) return round.send(peer(step), final_range(step));
    if (!narrow(step)) return round.send(peer(step), range(step));
    // What one rank brought was of the narrow type: exact.
    const std::size_t count = step.end - step.begin;
    std::byte* copy = add_scratch(count * size_of(finish_.type));
    finish_reduction(kernels_, finish_.type, 1, range(step).data(), copy, count);
    round.send(peer(step), {copy, count * size_of(finish_.type)});
  }

  void receive(const Step& step) {
    Round& round = rounds_.back();
    if (step.final) return round.receive(peer(step), final_range(step));
    if (!narrow(step)) return round.receive(peer(step), range(step));
    const std::size_t count = step.end - step.begin;
    std::byte* copy = add_scratch(count * size_of(finish_.type));
    round.receive(peer(step), {copy, count * size_of(finish_.type)});
    works_.back().push_back([copy, count, to = range(step).data(), &kernels = kernels_,
                             type = finish_.type] { widen(kernels, type, copy, to, count); });
  }

  void accumulate(const Step& step) {
    works_.back().push_back([bytes = range(step), count = step.end - step.begin,
                             from = arrays_[static_cast<std::size_t>(step.from)],
                             &kernels = kernels_, reduction = reduction_] {
      const SumProgram pair = {0, 1, kAdd};
      const std::byte* const inputs[] = {bytes.data(), from};
      std::byte* const output = bytes.data();
      reduce(kernels, reduction, pair, inputs, std::span(&output, 1), count);
    });
  }

  void add_tree(const Step& step) {
    works_.back().push_back([bytes = range(step), begin = step.begin, count = step.end - step.begin,
                             arrays = arrays_, operands = operands_, program = program_,
                             element = element_, &kernels = kernels_, reduction = reduction_] {
      std::vector<const std::byte*> inputs;
      for (const Schedule::Operand& operand : *operands) {
        inputs.push_back(arrays[static_cast<std::size_t>(operand.array)] +
                         (operand.whole ? begin * element : 0));
      }
      std::byte* const output = bytes.data();
      reduce(kernels, reduction, *program, inputs, std::span(&output, 1), count);
    });
  }

  void finish(const Step& step) {
    works_.back().push_back([from = range(step).data(), to = final_range(step).data(),
                             count = step.end - step.begin, &kernels = kernels_, how = finish_] {
      finish_reduction(kernels, how.type, how.divisor, from, to, count);
    });
  }

  std::span<const int> peers_;
  const kernels::CombineKernels& kernels_;
  Reduction reduction_;
  Finish finish_;
  std::size_t element_;
  std::shared_ptr<std::vector<std::unique_ptr<std::byte[]>>> scratch_;
  std::vector<std::byte*> arrays_;
  std::shared_ptr<std::vector<Schedule::Operand>> operands_;
  std::shared_ptr<SumProgram> program_;
  std::vector<Round> rounds_;
  std::vector<std::vector<std::function<void()>>> works_;
};

}  // namespace

std::vector<Round> rounds_of(const Schedule& schedule, std::span<std::byte* const> own,
                             std::span<const int> peers, const kernels::CombineKernels& kernels,
                             const Reduction& reduction, const Finish& finish) {
  RoundWriter writer(schedule, own, peers, kernels, reduction, finish);
  for (const Step& step : schedule.steps) writer.add(step);
  return writer.take();
}

}  // namespace tandem::comm
