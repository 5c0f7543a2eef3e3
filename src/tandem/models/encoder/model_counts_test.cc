// How many parameters a model has, and how many operations it takes.
#include <gtest/gtest.h>

#include <functional>

#include "tandem/models/encoder/encoder_model.h"
#include "tandem/models/heads/causal_language_head.h"
#include "tandem/models/heads/pooling_head.h"
#include "tandem/models/test_models.h"

namespace tandem::models {
namespace {

using models::testing::tiny_config;

// The numbers of parameters that Hugging Face prints.
TEST(EncoderModel, CountsParametersAsHuggingFace) {
  const auto count = [](const char* json) {
    return EncoderModel(ModelConfig::parse(json, "test"), testing::make_head)
        .layout()
        .num_parameters();
  };
  EXPECT_EQ(count(R"({"model_type": "bert"})"), 108'893'186u);
  EXPECT_EQ(count(R"({"model_type": "bert", "hidden_size": 1024, "num_hidden_layers": 24,
                      "num_attention_heads": 16, "intermediate_size": 4096})"),
            334'094'338u);
  EXPECT_EQ(count(R"({"model_type": "distilbert"})"), 66'364'418u);
  EXPECT_EQ(count(R"({"model_type": "modernbert"})"), 149'606'402u);
}

// As above, of decoders: SmolLM2-135M, Qwen2.5-0.5B and Qwen3-0.6B are tied.
TEST(EncoderModel, CountsParametersOfDecoders) {
  const auto count = [](const char* json) {
    return EncoderModel(ModelConfig::parse(json, "test", decoder_families()),
                        make_causal_language_head)
        .layout()
        .num_parameters();
  };
  EXPECT_EQ(count(R"({"model_type": "llama", "hidden_size": 576, "intermediate_size": 1536,
                      "num_hidden_layers": 30, "num_attention_heads": 9,
                      "num_key_value_heads": 3, "vocab_size": 49152,
                      "tie_word_embeddings": true})"),
            134'515'008u);
  EXPECT_EQ(count(R"({"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864,
                      "num_hidden_layers": 24, "num_attention_heads": 14,
                      "num_key_value_heads": 2, "vocab_size": 151936,
                      "tie_word_embeddings": true})"),
            494'032'768u);
  EXPECT_EQ(count(R"({"model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072,
                      "num_hidden_layers": 28, "num_attention_heads": 16,
                      "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
                      "tie_word_embeddings": true})"),
            596'049'920u);
}

// Forward, and the gradients of inputs and of weights, 2 operations each. The head has no product.
TEST(EncoderModel, AProductOfTrainingCountsThreeTimes) {
  for (const Family* family : all_families()) {
    const EncoderModel model(tiny_config(*family),
                             std::bind_front(make_pooling_head, std::vector{Pooling::kMean}, true));
    double products = 0;
    model.count_products(8, 8, [&](std::string_view, double number) { products += number; });
    EXPECT_DOUBLE_EQ(model.training_flops(8, 8), 6 * products) << family->model_type;
  }
}

// Attention reads the pairs on and below the diagonal.
TEST(EncoderModel, CountsTheCausalHalfOfAttention) {
  ModelConfig config = tiny_config(kLlama);
  const EncoderModel model(config, make_causal_language_head);
  double attention = 0;
  model.count_products(16, 16, [&](std::string_view stage, double number) {
    if (stage == "attention") attention += number;
  });
  EXPECT_EQ(attention, 2.0 * 2 * 32 * (16 * 17 / 2.0));  // layers, products, columns, pairs
}

// The scores read three products instead of one, and each layer projects the positions of the
// longest text once for all texts: 3 products forward and backward, 2 operations each.
TEST(EncoderModel, CountsTheProductsWithPositions) {
  const ModelConfig config = tiny_config(kDebertaV2);
  const EncoderModel model(config, testing::make_head);
  const auto H = static_cast<double>(config.hidden_size);
  const auto layers = static_cast<double>(config.num_hidden_layers);
  double attention = 0;
  model.count_products(3, 3, [&](std::string_view stage, double number) {
    if (stage == "attention") attention += number;
  });
  EXPECT_EQ(attention, layers * H * 4 * 3 * 3);  // a distance below 4 has a position of its own
  EXPECT_EQ(model.shared_training_flops(3), 6 * layers * 3 * H * H * 5);
  nn::PackedBatch batch;
  batch.row_begin = {0, 3, 5};
  batch.key_count = {3, 2};
  EXPECT_EQ(model.training_flops(batch), model.training_flops(3, 3) + model.training_flops(2, 2) +
                                             model.shared_training_flops(3));
  const EncoderModel bert(tiny_config(kBert), testing::make_head);
  EXPECT_EQ(bert.shared_training_flops(3), 0);
}

}  // namespace
}  // namespace tandem::models
