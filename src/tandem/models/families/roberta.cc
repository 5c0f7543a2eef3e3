// RoBERTa (Liu et al. 2019), transformers' RobertaModel.
#include "tandem/models/families/roberta_like.h"

namespace tandem::models {

constinit const Family kRoberta = roberta_like("roberta", "Roberta", [](ModelConfig& config) {
  config.vocab_size = 50265;
  config.pad_token_id = 1;
});

}  // namespace tandem::models
