// Extensions of `tandem run_sft` to the common job.
#pragma once

#include "tandem/tasks/causal_language/causal_language_task.h"
#include "tandem/tasks/encoder_job.h"
#include "tandem/tasks/supervised/sample_reader.h"
#include "tandem/tasks/supervised/supervised_arguments.h"

namespace tandem::supervised {

class SupervisedJob final
    : public tasks::ExampleJob<causal_language::CausalLanguageTask, SupervisedArguments> {
 public:
  using ExampleJob::ExampleJob;

  std::string_view examples() const override { return "samples"; }
  bool grows_vocabulary() const override { return true; }
  tasks::Task& make_task(models::ModelConfig config, const text::Tokenizer& tokenizer,
                         const tasks::TaskSettings& settings) override;
  void load_data(const tasks::DataParts& parts) override;

  std::string main_metric() const override { return "loss"; }
  std::string title() const override { return "supervised fine-tuning"; }
  tasks::CardTask card_task() const override;
  tasks::LeadingMetrics leading_metrics() const override;

 private:
  SampleOptions options_of(std::size_t max_length, bool packing) const;
  std::size_t max_length(tasks::StartLog& log) const;
  causal_language::CausalSamples read(std::string_view part,
                                      std::span<const std::filesystem::path> files,
                                      const SampleOptions& options, ThreadPool& threads,
                                      tasks::StartLog& log) const;
};

}  // namespace tandem::supervised
