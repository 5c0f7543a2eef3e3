// BERT (Devlin et al. 2019), transformers' BertModel.
#include "tandem/models/families/bert_like.h"

namespace tandem::models {
namespace {

constexpr std::string_view kPretrainingHeads[] = {"cls.", "vocab_"};

}  // namespace

constinit const Family kBert = {
    .model_type = "bert",
    .class_prefix = "Bert",
    .base_prefix = "bert.",
    .layers = &kBertLayers,
    .sequence_head = {.dense = "bert.pooler.dense",
                      .output = "classifier",
                      .activation = kernels::Activation::kTanh,
                      .drops_input = false},
    .masked_language_head = {.dense = "cls.predictions.transform.dense",
                             .norm = "cls.predictions.transform.LayerNorm",
                             .output = "cls.predictions.decoder",
                             .bias = "cls.predictions.bias",
                             .bias_first = true},
    .pretraining_heads = kPretrainingHeads,
    .attention_output_dropout = true,
    .positions = nn::Positions::kRows,
    .reads_token_types = true,
    .keys = kBertKeys,
    .written_defaults = R"({"position_embedding_type": "absolute", "use_cache": true})",
    .set_defaults = [](ModelConfig&) {},
};

}  // namespace tandem::models
