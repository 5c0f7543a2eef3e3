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
  return std::all_of(messages_.begin(), messages_.end(), [](const auto& one) { return one->done; });
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

std::vector<Round> rounds_of(const Schedule& schedule, std::span<std::byte* const> own,
                             std::span<const int> peers, const kernels::CombineKernels& kernels,
                             const Reduction& reduction) {
  const std::size_t element = size_of(reduction.type);
  auto scratch = std::make_shared<std::vector<std::vector<std::byte>>>();
  std::vector<std::byte*> arrays(own.begin(), own.end());
  for (const std::size_t elements : schedule.scratch) {
    scratch->emplace_back(elements * element);
    arrays.push_back(scratch->back().data());
  }
  const auto operands = std::make_shared<std::vector<Schedule::Operand>>(schedule.operands);
  const auto program = std::make_shared<SumProgram>(schedule.program);
  std::vector<Round> rounds;
  std::vector<std::vector<std::function<void()>>> works;
  for (const Step& step : schedule.steps) {
    while (rounds.size() <= static_cast<std::size_t>(step.round)) {
      rounds.emplace_back();
      works.emplace_back();
    }
    Round& round = rounds.back();
    std::byte* base = arrays[static_cast<std::size_t>(step.array)];
    const std::span<std::byte> bytes(base + step.begin * element,
                                     (step.end - step.begin) * element);
    switch (step.kind) {
      case Step::Kind::kSend:
        round.send(peers[static_cast<std::size_t>(step.peer)], bytes);
        break;
      case Step::Kind::kReceive:
        round.receive(peers[static_cast<std::size_t>(step.peer)], bytes);
        break;
      case Step::Kind::kAccumulate: {
        const std::byte* from = arrays[static_cast<std::size_t>(step.from)];
        works.back().push_back([=, &kernels, count = step.end - step.begin] {
          const SumProgram pair = {0, 1, kAdd};
          const std::byte* const inputs[] = {bytes.data(), from};
          std::byte* const output = bytes.data();
          reduce(kernels, reduction, pair, inputs, std::span(&output, 1), count);
        });
        break;
      }
      case Step::Kind::kTree:
        works.back().push_back([=, &kernels, begin = step.begin, count = step.end - step.begin] {
          std::vector<const std::byte*> inputs;
          for (const Schedule::Operand& operand : *operands) {
            inputs.push_back(arrays[static_cast<std::size_t>(operand.array)] +
                             (operand.whole ? begin * element : 0));
          }
          std::byte* const output = bytes.data();
          reduce(kernels, reduction, *program, inputs, std::span(&output, 1), count);
        });
        break;
    }
  }
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    rounds[i].then = [scratch, work = std::move(works[i])] {
      for (const auto& one : work) one();
    };
  }
  return rounds;
}

}  // namespace tandem::comm
