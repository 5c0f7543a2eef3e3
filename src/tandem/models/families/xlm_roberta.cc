// XLM-RoBERTa (Conneau et al. 2020), transformers' XLMRobertaModel: RoBERTa for a hundred
// languages. Its tensors are called "roberta." too.
#include "tandem/models/families/roberta_like.h"

namespace tandem::models {

constinit const Family kXlmRoberta =
    roberta_like("xlm-roberta", "XLMRoberta", [](ModelConfig& config) { config.pad_token_id = 1; });

}  // namespace tandem::models
