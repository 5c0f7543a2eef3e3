// What enters the computation of a job beside its command line, as text on which the ranks agree
// before the first step.
#pragma once

#include <string>

#include "tandem/models/model_config.h"
#include "tandem/tasks/question_answering/question_answering_task.h"

namespace tandem::apps {

// Lines "name=value": the program (version and SHA-256 of its file), every key of config.json, and
// a fingerprint of what the tokenizer made of the questions to train on, to evaluate and to
// predict. Throws IoError.
std::string describe_inputs(const models::ModelConfig& config,
                            const question_answering::QuestionAnsweringTask& task,
                            const std::string& train_fingerprint);

}  // namespace tandem::apps
