#include "tandem/tasks/question_answering/span_head.h"

#include "tandem/models/heads/row_head.h"

namespace tandem::question_answering {

std::unique_ptr<models::Head> make_span_head(const models::ModelConfig& config,
                                             nn::ParameterLayout& layout) {
  return models::make_row_head({.class_suffix = "ForQuestionAnswering",
                                .name = "qa_outputs",
                                .num_labels = kSpanLabels,
                                .dropout = config.qa_dropout},
                               config, layout);
}

}  // namespace tandem::question_answering
