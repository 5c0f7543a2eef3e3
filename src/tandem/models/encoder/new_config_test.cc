#include "tandem/models/encoder/new_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/core/error.h"
#include "tandem/models/encoder/model_config.h"

namespace tandem::models {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string error(std::string_view type, std::string_view overrides) {
  try {
    ModelConfig::parse(new_config_json(type, overrides), "new model");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(NewConfig, HasTheDefaultsOfTheFamily) {
  for (const Family* family : families()) {
    const auto config = ModelConfig::parse(new_config_json(family->model_type, ""), "new model");
    EXPECT_EQ(config.to_json("X"), ModelConfig::defaults(*family).to_json("X"));
  }
}

TEST(NewConfig, OverridesAreReadByType) {
  const auto config = ModelConfig::parse(
      new_config_json("bert",
                      "hidden_size=64,num_attention_heads=4,hidden_dropout_prob=0,hidden_act=relu,"
                      "layer_norm_eps=1e-5,tie_word_embeddings=No,pad_token_id=3"),
      "new model");
  EXPECT_EQ(config.hidden_size, 64u);
  EXPECT_EQ(config.num_attention_heads, 4u);
  EXPECT_EQ(config.hidden_dropout_prob, 0);
  EXPECT_EQ(config.hidden_act, kernels::Activation::kRelu);
  EXPECT_EQ(config.layer_norm_eps, 1e-5);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_EQ(config.pad_token_id, 3);
  EXPECT_TRUE(ModelConfig::parse(new_config_json("distilbert", "sinusoidal_pos_embds=y"), "new")
                  .sinusoidal_pos_embds);
}

TEST(NewConfig, MistakesAreNamed) {
  EXPECT_THAT(error("gpt2", ""), AllOf(HasSubstr("--model_type: found 'gpt2'"), HasSubstr("bert")));
  EXPECT_THAT(error("bert", "n_embd=3"),
              AllOf(HasSubstr("unknown key 'n_embd' of a bert model"), HasSubstr("hidden_size")));
  EXPECT_THAT(error("bert", "hidden_size"), HasSubstr("expected KEY=VALUE"));
  EXPECT_THAT(error("bert", "hidden_size=64.5"), HasSubstr("a non-negative integer"));
  EXPECT_THAT(error("bert", "hidden_size=-1"), HasSubstr("a non-negative integer"));
  EXPECT_THAT(error("bert", "hidden_dropout_prob=x"), HasSubstr("found 'x', expected a number"));
  EXPECT_THAT(error("bert", "hidden_size=65"), HasSubstr("not a multiple"));
  EXPECT_THAT(error("bert", "tie_word_embeddings=2"), HasSubstr("true or false"));
}

}  // namespace
}  // namespace tandem::models
