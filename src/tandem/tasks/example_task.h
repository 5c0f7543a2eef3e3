// An EncoderTask with the examples that it computes with: one set of training, and for each split
// one or several that are evaluated.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/tasks/encoder_task.h"
#include "tandem/tasks/evaluation.h"

namespace tandem::tasks {

// Input of an evaluation: logits of each feature in the order of the features, [rows of the
// feature, labels] for a head over rows, with those of its padding, and [labels] for a head over
// sequences; and where prediction files go, as Task::evaluate() has it.
struct EvaluationInput {
  Split split;
  std::vector<std::span<const float>> logits;
  const std::filesystem::path& directory;
  const std::string& prefix;
  ThreadPool& threads;
};

// `Set` is what a task knows of some examples: its member `features` are their TokenSequences, the
// rest is the task's own (labels, texts, words). It is default-constructible and movable.
template <class Set>
class ExampleTask : public EncoderTask {
 public:
  using EncoderTask::EncoderTask;

  // Once, before training.
  void set_train(Set set) {
    train_ = std::move(set);
    set_train_sequences(train_.features);
  }
  // The first set of a split is the selected one.
  void add_evaluation(Split split, Set set) {
    evaluations(split).sets.push_back(std::move(set));
    select_set(split, 0);
  }
  // Which of the split's sets is evaluated from here on.
  void select_set(Split split, std::size_t index) {
    Evaluations& all = evaluations(split);
    all.selected = index;
    set_evaluation_sequences(split, all.sets.at(index).features);
  }
  std::span<const Set> sets(Split split) const { return evaluations(split).sets; }

  std::string train_fingerprint() const override { return fingerprint(train_); }
  std::string evaluation_fingerprint(Split split) const override {
    std::string text;
    for (const Set& set : sets(split)) text += fingerprint(set);
    return text;
  }
  Evaluation evaluate(Split split, std::span<const float> output,
                      const std::filesystem::path& directory, const std::string& prefix,
                      ThreadPool& threads) final {
    const Evaluations& all = evaluations(split);
    TANDEM_CHECK(!all.sets.empty(), "no evaluation set was given");
    return evaluate_set(all.sets[all.selected],
                        {split, outputs_in_order(split, output), directory, prefix, threads});
  }

 protected:
  const Set& train() const { return train_; }
  std::size_t selected_set(Split split) const { return evaluations(split).selected; }
  // Names the data of a set: tokens, labels and padding. Equal texts mean equal data.
  virtual std::string fingerprint(const Set& set) const = 0;
  // Task::evaluate() of one of the sets.
  virtual Evaluation evaluate_set(const Set& set, const EvaluationInput& input) = 0;

 private:
  struct Evaluations {
    std::vector<Set> sets;
    std::size_t selected = 0;
  };
  const Evaluations& evaluations(Split split) const {
    return split == Split::kEval ? eval_ : predict_;
  }
  Evaluations& evaluations(Split split) { return split == Split::kEval ? eval_ : predict_; }

  Set train_;
  Evaluations eval_, predict_;
};

}  // namespace tandem::tasks
