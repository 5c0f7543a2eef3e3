// Extensions of `tandem run_clm` to the common job.
#pragma once

#include "tandem/tasks/causal_language/causal_language_arguments.h"
#include "tandem/tasks/causal_language/causal_language_task.h"
#include "tandem/tasks/encoder_job.h"

namespace tandem::causal_language {

class CausalLanguageJob final
    : public tasks::ExampleJob<CausalLanguageTask, CausalLanguageArguments> {
 public:
  using ExampleJob::ExampleJob;

  std::string_view examples() const override { return "blocks of text"; }
  hub::DatasetFiles find_data(const tasks::Stages& stages, const hub::ModelArguments& model,
                              const Environment& environment,
                              hub::DownloadObserver& downloads) const override;
  bool grows_vocabulary() const override { return true; }
  tasks::Task& make_task(models::ModelConfig config, const text::Tokenizer& tokenizer,
                         const tasks::TaskSettings& settings) override;
  void load_data(const tasks::DataParts& parts) override;

  // perplexity, as the script writes it in addition to eval_loss.
  void complete_results(tasks::Split split, nlohmann::ordered_json& metrics) const override;
  std::string main_metric() const override { return "perplexity"; }
  std::string title() const override { return "causal language modelling"; }
  tasks::CardTask card_task() const override;
  tasks::LeadingMetrics leading_metrics() const override;
};

}  // namespace tandem::causal_language
