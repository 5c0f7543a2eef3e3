#include "tandem/models/encoder/model_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/linear.h"
#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/json.h"

namespace tandem::models {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(ModelConfig, ReadsBert) {
  const ModelConfig config = ModelConfig::parse(
      R"({"model_type": "bert", "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 3,
          "num_attention_heads": 4, "intermediate_size": 128, "max_position_embeddings": 77,
          "type_vocab_size": 1, "pad_token_id": null, "hidden_act": "gelu_new",
          "hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.0, "layer_norm_eps": 1e-5,
          "initializer_range": 0.01, "use_cache": true})",
      "config.json");
  EXPECT_EQ(config.family, &kBert);
  EXPECT_EQ(config.vocab_size, 100u);
  EXPECT_EQ(config.hidden_size, 64u);
  EXPECT_EQ(config.num_hidden_layers, 3u);
  EXPECT_EQ(config.num_attention_heads, 4u);
  EXPECT_EQ(config.head_dim(), 16u);
  EXPECT_EQ(config.intermediate_size, 128u);
  EXPECT_EQ(config.max_position_embeddings, 77u);
  EXPECT_EQ(config.type_vocab_size, 1u);
  EXPECT_EQ(config.pad_token_id, -1);
  EXPECT_EQ(config.hidden_act, kernels::Activation::kGeluNew);
  EXPECT_EQ(config.hidden_dropout_prob, 0.2);
  EXPECT_EQ(config.attention_output_dropout_prob(), 0.2);
  EXPECT_EQ(config.attention_probs_dropout_prob, 0.0);
  EXPECT_EQ(config.qa_dropout, 0.0);
  EXPECT_EQ(config.layer_norm_eps, 1e-5);
  EXPECT_EQ(config.initializer_range, 0.01);
}

TEST(ModelConfig, ReadsDistilBert) {
  const ModelConfig config = ModelConfig::parse(
      R"({"model_type": "distilbert", "vocab_size": 100, "dim": 64, "n_layers": 3, "n_heads": 4,
          "hidden_dim": 128, "dropout": 0.2, "attention_dropout": 0.3, "activation": "relu",
          "qa_dropout": 0.4, "sinusoidal_pos_embds": true})",
      "config.json");
  EXPECT_EQ(config.family, &kDistilBert);
  EXPECT_EQ(config.hidden_size, 64u);
  EXPECT_EQ(config.num_hidden_layers, 3u);
  EXPECT_EQ(config.num_attention_heads, 4u);
  EXPECT_EQ(config.intermediate_size, 128u);
  EXPECT_EQ(config.type_vocab_size, 0u);
  EXPECT_EQ(config.hidden_act, kernels::Activation::kRelu);
  EXPECT_EQ(config.hidden_dropout_prob, 0.2);
  EXPECT_EQ(config.attention_output_dropout_prob(), 0.0);
  EXPECT_EQ(config.attention_probs_dropout_prob, 0.3);
  EXPECT_EQ(config.qa_dropout, 0.4);
  EXPECT_EQ(config.layer_norm_eps, 1e-12);
  EXPECT_TRUE(config.sinusoidal_pos_embds);
}

TEST(ModelConfig, DefaultsAreThoseOfHuggingFace) {
  const ModelConfig bert = ModelConfig::parse(R"({"model_type": "bert"})", "test");
  EXPECT_EQ(bert.num_hidden_layers, 12u);
  EXPECT_EQ(bert.type_vocab_size, 2u);
  const ModelConfig distilbert = ModelConfig::parse(R"({"model_type": "distilbert"})", "test");
  EXPECT_EQ(distilbert.num_hidden_layers, 6u);
  EXPECT_EQ(distilbert.intermediate_size, 3072u);
  EXPECT_EQ(distilbert.qa_dropout, 0.1);
}

TEST(ModelConfig, ReadsElectra) {
  const ModelConfig base = ModelConfig::parse(
      R"({"model_type": "electra", "embedding_size": 768, "hidden_size": 768})", "test");
  EXPECT_FALSE(base.has_projection());
  const ModelConfig small = ModelConfig::parse(R"({"model_type": "electra"})", "test");
  EXPECT_EQ(small.embedding_width(), 128u);
  EXPECT_EQ(small.hidden_size, 256u);
  EXPECT_EQ(small.num_attention_heads, 4u);
  EXPECT_EQ(small.intermediate_size, 1024u);
  EXPECT_TRUE(small.has_projection());
  EXPECT_EQ(small.max_tokens(), 512u);
}

TEST(ModelConfig, ReadsRobertaAndXlmRoberta) {
  for (const char* type : {"roberta", "xlm-roberta"}) {
    const ModelConfig config = ModelConfig::parse(
        fmt::format(R"({{"model_type": "{}", "max_position_embeddings": 514}})", type), "test");
    EXPECT_EQ(config.family->base_prefix, "roberta.");
    EXPECT_EQ(config.pad_token_id, 1);
    EXPECT_EQ(config.max_tokens(), 512u);  // positions 0 and 1 are never a token's
    EXPECT_THAT(config.to_json("X"), HasSubstr("\"bos_token_id\": 0,"));
  }
}

// The padding is the code's, not the file's.
TEST(ModelConfig, ReadsMpnet) {
  const ModelConfig config = ModelConfig::parse(
      R"({"model_type": "mpnet", "max_position_embeddings": 514, "pad_token_id": 7,
          "classifier_dropout": 0.5, "type_vocab_size": 2})",
      "test");
  EXPECT_EQ(config.vocab_size, 30527u);
  EXPECT_EQ(config.pad_token_id, 1);
  EXPECT_EQ(config.type_vocab_size, 0u);
  EXPECT_EQ(config.max_tokens(), 512u);
  EXPECT_EQ(config.sequence_head_dropout_prob(), 0.1);
  EXPECT_THAT(config.notes,
              ::testing::ElementsAre(HasSubstr("classifier_dropout, type_vocab_size")));
  const std::string saved = config.to_json("MPNetForQuestionAnswering");
  EXPECT_THAT(saved, HasSubstr("\"relative_attention_num_buckets\": 32,"));
  EXPECT_THAT(saved, HasSubstr("\"pad_token_id\": 7,"));
  EXPECT_THAT(
      [] {
        ModelConfig::parse(R"({"model_type": "mpnet", "relative_attention_num_buckets": 16})",
                           "test");
      },
      ThrowsMessage<ConfigError>(HasSubstr("relative_attention_num_buckets is 16; expected 32")));
}

// The form of version 3, without which transformers computes another model.
constexpr const char* kDebertaForm = R"({"model_type": "deberta-v2", "relative_attention": true,
    "position_biased_input": false, "share_att_key": true, "norm_rel_ebd": "layer_norm",
    "pos_att_type": "c2p|p2c", "position_buckets": 256)";

ModelConfig parse_deberta(const std::string& more) {
  return ModelConfig::parse(kDebertaForm + more + "}", "test");
}

TEST(ModelConfig, ReadsDeberta) {
  const ModelConfig config = parse_deberta("");
  EXPECT_EQ(config.hidden_size, 1536u);
  EXPECT_EQ(config.vocab_size, 128100u);
  EXPECT_EQ(config.layer_norm_eps, 1e-7);
  EXPECT_EQ(config.type_vocab_size, 0u);
  EXPECT_EQ(config.max_tokens(), 512u);
  EXPECT_EQ(config.farthest_position(), 512u);
  EXPECT_EQ(config.embeddings_dropout_prob(), 0.1);
  EXPECT_EQ(config.sequence_head_dropout_prob(), 0.1);
  const ModelConfig other = parse_deberta(
      R"(, "max_relative_positions": 300, "cls_dropout": 0.2, "pos_att_type": ["p2c", "c2p"])");
  EXPECT_EQ(other.farthest_position(), 300u);
  EXPECT_EQ(other.sequence_head_dropout_prob(), 0.2);
  EXPECT_EQ(other.token_head_dropout_prob(), 0.1);
  const ModelConfig saved = ModelConfig::parse(other.to_json("DebertaV2Model"), "saved");
  EXPECT_EQ(saved.farthest_position(), 300u);
  EXPECT_EQ(saved.sequence_head_dropout_prob(), 0.2);
  const ModelConfig made =
      ModelConfig::parse(ModelConfig::defaults(kDebertaV2).to_json("DebertaV2Model"), "made");
  EXPECT_EQ(made.position_buckets, 256u);
}

TEST(ModelConfig, RefusesOtherFormsOfDeberta) {
  const auto refused = [](const std::string& more, const char* message) {
    EXPECT_THAT([&] { parse_deberta(more); }, ThrowsMessage<ConfigError>(HasSubstr(message)))
        << more;
  };
  refused(R"(, "conv_kernel_size": 3)", "conv_kernel_size is 3; expected 0");
  refused(R"(, "share_att_key": false)", "share_att_key is false; expected true");
  refused(R"(, "norm_rel_ebd": "none")", R"(norm_rel_ebd is "none"; expected "layer_norm")");
  refused(R"(, "pos_att_type": ["c2p"])", R"(pos_att_type is ["c2p"]; expected ["p2c", "c2p"])");
  refused(R"(, "type_vocab_size": 2)", "type_vocab_size is 2; expected 0");
  refused(R"(, "embedding_size": 128)", "embedding_size is 128; expected 1536");
  refused(R"(, "position_buckets": 1)", "position_buckets is 1; expected at least 2");
  refused(R"(, "max_relative_positions": 100)", "position_buckets is 256; expected");
  refused(R"(, "legacy": false)", "legacy is false; expected true");
  EXPECT_THAT([] { ModelConfig::parse(R"({"model_type": "deberta-v2"})", "test"); },
              ThrowsMessage<ConfigError>(HasSubstr("relative_attention is false; expected true")));
}

// Both forms, of transformers 4 and of 5, whose names win.
TEST(ModelConfig, ReadsModernBert) {
  const auto parse = [](const char* json) { return ModelConfig::parse(json, "test"); };
  const ModelConfig base = parse(R"({"model_type": "modernbert"})");
  EXPECT_EQ(base.max_tokens(), 8192u);
  EXPECT_EQ(base.type_vocab_size, 0u);
  EXPECT_EQ(base.sequence_head_dropout_prob(), 0.0);
  EXPECT_EQ(base.attention.local_window(), 64u);
  EXPECT_FALSE(base.attention.is_global(20));
  EXPECT_TRUE(base.attention.is_global(21));
  const ModelConfig four = parse(
      R"({"model_type": "modernbert", "global_attn_every_n_layers": 2, "global_rope_theta": 500,
          "local_rope_theta": null, "local_attention": 9, "classifier_pooling": "mean",
          "mlp_dropout": 0.1, "norm_eps": 1e-6})");
  EXPECT_EQ(four.attention.global_every, 2u);
  EXPECT_EQ(four.attention.local_window(), 4u);
  EXPECT_EQ(four.attention.local_theta, 500.0);
  EXPECT_EQ(four.classifier_pooling, ClassifierPooling::kMean);
  EXPECT_EQ(four.hidden_dropout_prob, 0.1);
  EXPECT_EQ(four.layer_norm_eps, 1e-6);
  const ModelConfig five = parse(
      R"({"model_type": "modernbert", "num_hidden_layers": 4, "global_rope_theta": 7,
          "global_attn_every_n_layers": 4,
          "layer_types": ["full_attention", "sliding_attention", "full_attention",
                          "sliding_attention"],
          "rope_parameters": {"full_attention": {"rope_theta": 80000, "rope_type": "default"},
                              "sliding_attention": {"rope_theta": 5000.0}}})");
  EXPECT_EQ(five.attention.global_every, 2u);
  EXPECT_EQ(five.attention.global_theta, 80000.0);
  EXPECT_EQ(five.attention.local_theta, 5000.0);
  // The saved configuration is the same in both forms.
  const ModelConfig again = ModelConfig::parse(five.to_json("ModernBertForMaskedLM"), "test");
  EXPECT_EQ(again.attention.global_theta, 80000.0);
  const auto saved = parse_json(five.to_json("ModernBertForMaskedLM"));
  EXPECT_EQ(saved["global_attn_every_n_layers"], 2);
  EXPECT_EQ(saved["local_rope_theta"], 5000.0);
  EXPECT_EQ(saved["rope_parameters"]["full_attention"]["rope_theta"], 80000);
  EXPECT_EQ(saved["sep_token_id"], 50282);
}

TEST(ModelConfig, RefusesWhatModernBertCannotBe) {
  const auto refuse = [](const char* keys, const char* needle) {
    const std::string json = fmt::format(R"({{"model_type": "modernbert", {}}})", keys);
    EXPECT_THAT([&] { ModelConfig::parse(json, "test"); },
                ThrowsMessage<ConfigError>(HasSubstr(needle)))
        << keys;
  };
  refuse(R"("norm_bias": true)", "norm_bias is true; expected false");
  refuse(R"("decoder_bias": false)", "decoder_bias is false; expected true");
  refuse(R"("classifier_pooling": "max")", "classifier_pooling is 'max'; expected cls or mean");
  refuse(R"("global_attn_every_n_layers": 0)", "expected a positive integer");
  refuse(R"("global_rope_theta": -1)", "global_rope_theta is -1; expected a number > 0");
  refuse(R"("num_hidden_layers": 3, "layer_types": ["full_attention", "sliding_attention"])",
         "expected 3 types");
  refuse(R"("num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"])",
         "in every n-th layer from the first");
  refuse(R"("rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 1}})",
         "expected rope_theta, and rope_type default");
  refuse(R"("rope_scaling": {"factor": 2})", "rope_scaling");
  refuse(R"("initializer_cutoff_factor": 0.1)", "initializer_cutoff_factor is 0.1");
}

TEST(ModelConfig, RatesOfHeadsFallBackToTheEncoders) {
  const auto parse = [](const char* json) { return ModelConfig::parse(json, "test"); };
  const ModelConfig bert = parse(R"({"model_type": "bert", "hidden_dropout_prob": 0.3})");
  EXPECT_EQ(bert.token_head_dropout_prob(), 0.3);
  EXPECT_EQ(bert.sequence_head_dropout_prob(), 0.3);
  const ModelConfig own = parse(R"({"model_type": "roberta", "classifier_dropout": 0.25})");
  EXPECT_EQ(own.token_head_dropout_prob(), 0.25);
  EXPECT_EQ(own.sequence_head_dropout_prob(), 0.25);
  EXPECT_EQ(parse(R"({"model_type": "electra", "classifier_dropout": null})").classifier_dropout,
            std::nullopt);
  const ModelConfig distilbert = parse(R"({"model_type": "distilbert", "dropout": 0.15})");
  EXPECT_EQ(distilbert.token_head_dropout_prob(), 0.15);
  EXPECT_EQ(distilbert.sequence_head_dropout_prob(), 0.2);
}

TEST(ModelConfig, NumLabelsStandsForNames) {
  const auto config =
      ModelConfig::parse(R"({"model_type": "bert", "num_labels": 3})", "config.json");
  EXPECT_EQ(config.labels, (std::vector<std::string>{"LABEL_0", "LABEL_1", "LABEL_2"}));
  const auto saved = ModelConfig::parse(config.to_json("BertForTokenClassification"), "saved");
  EXPECT_EQ(saved.labels, config.labels);
  EXPECT_EQ(saved.source.find("num_labels"), std::string::npos);
}

// A few bytes may not make a head, and files, of any size.
TEST(ModelConfig, ManyLabelsNeedNames) {
  const auto parse = [](std::size_t count) {
    return ModelConfig::parse(fmt::format(R"({{"model_type": "bert", "num_labels": {}}})", count),
                              "config.json");
  };
  EXPECT_EQ(parse(16384).labels.size(), 16384u);
  EXPECT_THAT([&] { parse(16385).usable_labels(); },
              ThrowsMessage<ConfigError>(HasSubstr("num_labels is 16385; expected a number from 1 "
                                                   "to 16384, or a name for each in id2label")));
}

TEST(ModelConfig, ManyLabelsTakeTimeInProportion) {
  EXPECT_TRUE(tandem::testing::takes_linear_time(
      [](std::size_t count) {
        ModelConfig config;
        for (std::size_t i = 0; i < count; ++i) config.labels.push_back(fmt::format("label {}", i));
        const auto saved = ModelConfig::parse(config.to_json("X"), "saved");
        EXPECT_EQ(saved.labels, config.labels);
      },
      4000));
}

TEST(ModelConfig, WhatNestsDeepIsRefused) {
  const std::string deep(200'000, '['), end(200'000, ']');
  EXPECT_THAT(
      [&] {
        ModelConfig::parse(R"({"model_type": "bert", "hidden_size": )" + deep + end + "}", "c");
      },
      ThrowsMessage<ConfigError>(
          HasSubstr("not valid JSON: values inside of more than 64 others")));
}

TEST(ModelConfig, LabelsSurviveASaveAndALoad) {
  ModelConfig config;
  EXPECT_TRUE(ModelConfig::parse(config.to_json("X"), "test").labels.empty());
  config.labels = {"negative", "so so", "positive"};
  config.problem_type = "single_label_classification";
  const std::string json = config.to_json("BertForSequenceClassification");
  EXPECT_THAT(json, HasSubstr("\"so so\": 1"));
  const ModelConfig again = ModelConfig::parse(json, "test");
  EXPECT_EQ(again.labels, config.labels);
  EXPECT_EQ(again.problem_type, config.problem_type);
  EXPECT_EQ(again.to_json("BertForSequenceClassification"), json);
}

// Expected values: transformers 4.57.6, AutoConfig.from_pretrained(…).id2label and num_labels. It
// fails to name an output that has no entry; tandem calls it LABEL_<id>.
TEST(ModelConfig, ReadsLabelsInEveryFormThatTransformersReads) {
  using Names = std::vector<std::string>;
  const auto labels = [](const std::string& keys) {
    return ModelConfig::parse(R"({"model_type": "bert", )" + keys + "}", "config.json").labels;
  };
  EXPECT_EQ(labels(R"("id2label": {"0": 0, "1": 1})"), (Names{"0", "1"}));
  EXPECT_EQ(labels(R"("id2label": {"0": -1, "1": 2.5})"), (Names{"-1", "2.5"}));
  EXPECT_EQ(labels(R"("id2label": {"0": true, "1": false, "2": null})"),
            (Names{"True", "False", "None"}));
  EXPECT_EQ(labels(R"("id2label": {"1": "a", "2": "b", "3": "c"})"), (Names{"LABEL_0", "a", "b"}));
  EXPECT_EQ(labels(R"("id2label": {"0": "a", "2": "b"})"), (Names{"a", "LABEL_1"}));
  EXPECT_EQ(labels(R"("id2label": {"10": "k", "9": "j", "00": "a", " 1 ": "b", "+2": "c"})"),
            (Names{"a", "b", "c", "LABEL_3", "LABEL_4"}));
  EXPECT_EQ(labels(R"("id2label": {"0": "a", "1": "b", "2": "c"}, "num_labels": 2)"),
            (Names{"a", "b", "c"}));
  EXPECT_EQ(labels(R"("id2label": {"0": "a"}, "num_labels": "two")"), (Names{"a"}));
  EXPECT_EQ(labels(R"("id2label": null, "num_labels": 2)"), (Names{"LABEL_0", "LABEL_1"}));

  const auto both = ModelConfig::parse(
      R"({"model_type": "bert", "id2label": {"0": "a", "1": "b", "2": "c"}, "num_labels": 2})",
      "config.json");
  EXPECT_THAT(both.notes, ::testing::ElementsAre(HasSubstr(
                              "config.json: num_labels is 2, but id2label has 3 labels; id2label "
                              "is used")));
}

// Whole numbers from run_glue.py are saved again as they were read.
TEST(ModelConfig, SavesTheMapsOfLabelsAsTheyWereRead) {
  for (const char* maps : {R"("id2label": {"0": 0, "1": 1}, "label2id": {"0": 0, "1": 1})",
                           R"("id2label": {"1": "a", "2": "b"}, "label2id": {"a": 1, "b": 2})",
                           R"("id2label": {"0": "a", "1": "a"}, "label2id": {"a": 0, "A": 7})",
                           R"("id2label": {"0": true}, "label2id": {"true": 0})"}) {
    const std::string text = fmt::format(R"({{"model_type": "bert", {}}})", maps);
    const auto before = parse_json(text);
    const auto after =
        parse_json(ModelConfig::parse(text, "c").to_json("BertForSequenceClassification"));
    EXPECT_EQ(after["id2label"], before["id2label"]) << maps;
    EXPECT_EQ(after["label2id"], before["label2id"]) << maps;
  }
  ModelConfig other = ModelConfig::parse(
      R"({"model_type": "bert", "id2label": {"0": 0, "1": 1}, "label2id": {"0": 0, "1": 1}})", "c");
  other.labels = {"no", "yes"};
  const auto saved = parse_json(other.to_json("X"));
  EXPECT_EQ(saved["id2label"], parse_json(R"({"0": "no", "1": "yes"})"));
  EXPECT_EQ(saved["label2id"], parse_json(R"({"no": 0, "yes": 1})"));
}

// A model for question answering has no use for them.
TEST(ModelConfig, LabelsAreRefusedOnlyWhereTheyAreNeeded) {
  const auto expect_unusable = [](const std::string& keys, const char* message) {
    const auto config =
        ModelConfig::parse(R"({"model_type": "bert", )" + keys + "}", "dir/config.json");
    EXPECT_TRUE(config.labels.empty());
    EXPECT_NE(config.to_json("BertForQuestionAnswering"), "");
    EXPECT_THAT([&] { config.usable_labels(); },
                ThrowsMessage<ConfigError>(
                    ::testing::AllOf(HasSubstr("dir/config.json: "), HasSubstr(message))));
  };
  expect_unusable(R"("id2label": ["a", "b"])", "id2label is of type array; expected an object");
  expect_unusable(R"("id2label": {"a": 0, "b": 1})", R"(id2label has the key "a"; expected whole)");
  expect_unusable(R"("id2label": {"0": ["a"]})", R"(names the id 0 ["a"]; expected a string)");
  expect_unusable(R"("id2label": {"": "a"})", R"(id2label has the key ""; expected whole)");
  expect_unusable(R"("num_labels": 0)", "num_labels is 0; expected");
  expect_unusable(R"("num_labels": "two")", R"(num_labels is "two"; expected a number)");
  EXPECT_TRUE(ModelConfig::parse(R"({"model_type": "bert"})", "c").usable_labels().empty());
}

ModelConfig parse_decoder(std::string_view json) {
  return ModelConfig::parse(json, "dir/config.json", decoder_families());
}

TEST(ModelConfig, ReadsLlama) {
  const ModelConfig base = parse_decoder(R"({"model_type": "llama"})");
  EXPECT_EQ(base.head_dim(), 128u);
  EXPECT_EQ(base.num_key_value_heads, 0u);
  EXPECT_EQ(base.hidden_act, kernels::Activation::kSilu);
  EXPECT_FALSE(base.tie_word_embeddings);
  EXPECT_FALSE(base.attention.scaling);
  const ModelConfig nulls =
      parse_decoder(R"({"model_type": "llama", "num_key_value_heads": null, "head_dim": null})");
  EXPECT_EQ(nulls.head_dim(), 128u);
  EXPECT_EQ(parse_json(nulls.to_json("X"))["num_key_value_heads"], 32);
  // Llama 3.2 1B.
  const ModelConfig three = parse_decoder(
      R"({"model_type": "llama", "hidden_size": 2048, "num_attention_heads": 32,
          "num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 131072,
          "rope_theta": 500000.0, "rms_norm_eps": 1e-05, "tie_word_embeddings": true,
          "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                           "original_max_position_embeddings": 8192, "rope_type": "llama3"}})");
  EXPECT_EQ(three.num_key_value_heads, 8u);
  EXPECT_EQ(three.head_dim(), 64u);
  EXPECT_EQ(three.max_tokens(), 131072u);
  EXPECT_EQ(three.attention.global_theta, 500000.0);
  ASSERT_TRUE(three.attention.scaling);
  EXPECT_EQ(three.attention.scaling->factor, 32.0);
  EXPECT_TRUE(three.tie_word_embeddings);
  EXPECT_THAT(three.notes, ::testing::IsEmpty());
  const ModelConfig again = parse_decoder(three.to_json("LlamaForCausalLM"));
  EXPECT_EQ(again.attention.scaling->original_positions, 8192u);
  // transformers 5 has one object.
  const ModelConfig five = parse_decoder(
      R"({"model_type": "llama", "rope_parameters": {"rope_theta": 7.0, "rope_type": "llama3",
          "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 3.0,
          "original_max_position_embeddings": 64}})");
  EXPECT_EQ(five.attention.global_theta, 7.0);
  EXPECT_EQ(five.attention.scaling->high_frequency_factor, 3.0);
}

TEST(ModelConfig, ReadsQwen3AndGpt2) {
  const ModelConfig qwen = parse_decoder(
      R"({"model_type": "qwen3", "hidden_size": 1024, "num_attention_heads": 16,
          "num_key_value_heads": 8, "layer_types": ["full_attention", "full_attention"]})");
  EXPECT_EQ(qwen.head_dim(), 128u);
  const ModelConfig gpt = parse_decoder(
      R"({"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 3, "n_positions": 40})");
  EXPECT_EQ(gpt.hidden_size, 64u);
  EXPECT_EQ(gpt.intermediate_size, 256u);
  EXPECT_EQ(gpt.max_tokens(), 40u);
  EXPECT_EQ(gpt.embeddings_dropout_prob(), 0.1);
  EXPECT_TRUE(gpt.tie_word_embeddings);
  EXPECT_EQ(parse_decoder(gpt.to_json("GPT2LMHeadModel")).hidden_size, 64u);
}

TEST(ModelConfig, RefusesWhatDecodersCannotBe) {
  const auto refused = [](const char* json, const char* message) {
    EXPECT_THAT([&] { parse_decoder(json); }, ThrowsMessage<ConfigError>(HasSubstr(message)))
        << json;
  };
  refused(
      R"({"model_type": "bert"})",
      "model_type is bert, an encoder; this command needs a decoder: gpt2, llama, qwen2 and qwen3");
  refused(R"({"model_type": "llama", "attention_bias": true})", "attention_bias is true");
  refused(R"({"model_type": "llama", "num_key_value_heads": 5})",
          "num_attention_heads 32 is not a multiple of num_key_value_heads 5");
  refused(R"({"model_type": "llama", "rope_scaling": {"type": "yarn", "factor": 4}})",
          "rope_scaling has the type yarn; expected default or llama3");
  refused(R"({"model_type": "llama", "rope_scaling": {"rope_type": "llama3",
              "low_freq_factor": 4, "high_freq_factor": 4}})",
          "expected less than high_freq_factor 4");
  refused(R"({"model_type": "llama", "rope_theta": 0})", "rope_theta is 0; expected a number > 0");
  refused(R"({"model_type": "llama", "rms_norm_eps": 0})", "rms_norm_eps is 0");
  refused(R"({"model_type": "llama", "max_position_embeddings": 16777217})",
          "expected 1 to 16777216");
  refused(R"({"model_type": "qwen3", "layer_types": ["sliding_attention"]})",
          "expected full_attention for every layer");
  refused(R"({"model_type": "qwen2", "layer_types": ["full_attention", "sliding_attention"]})",
          "expected full_attention for every layer");
  refused(R"({"model_type": "qwen3", "is_causal": false})", "is_causal is false; expected true");
  refused(R"({"model_type": "qwen3", "use_sliding_window": true})", "use_sliding_window is true");
  refused(R"({"model_type": "gpt2", "n_inner": 0})", "n_inner is 0");
  refused(R"({"model_type": "gpt2", "scale_attn_weights": false})", "scale_attn_weights is false");
}

TEST(ModelConfig, RefusesWhatItCannotRun) {
  const auto expect_refused = [](const char* json, const char* message) {
    EXPECT_THAT([&] { ModelConfig::parse(json, "dir/config.json"); },
                ThrowsMessage<ConfigError>(
                    ::testing::AllOf(HasSubstr("dir/config.json: "), HasSubstr(message))))
        << json;
  };
  expect_refused(R"({"model_type": "bert", )", "not valid JSON");
  expect_refused("[]", "found array; expected a JSON object");
  expect_refused("{}",
                 "model_type is missing; tandem supports bert, deberta-v2, distilbert, electra, "
                 "modernbert, mpnet, roberta and xlm-roberta");
  expect_refused(R"({"model_type": "t5"})", "model_type is t5; tandem supports bert, ");
  expect_refused(R"({"model_type": "gpt2"})",
                 "model_type is gpt2, a decoder; this command needs an encoder: bert, ");
  expect_refused(R"({"model_type": "roberta", "pad_token_id": null})",
                 "pad_token_id is null; expected an id below max_position_embeddings 512 - 1");
  expect_refused(R"({"model_type": "roberta", "max_position_embeddings": 2})",
                 "pad_token_id is 1; expected an id below max_position_embeddings 2 - 1");
  expect_refused(R"({"model_type": "electra", "embedding_size": 0})",
                 "embedding_size is 0; expected 1 to 65535");
  expect_refused(R"({"model_type": "bert", "classifier_dropout": 1})",
                 "classifier_dropout is 1; expected a probability in [0, 1)");
  expect_refused(R"({"model_type": "bert", "classifier_dropout": "no"})",
                 R"(classifier_dropout is "no"; expected a number)");
  expect_refused(R"({"model_type": "bert", "hidden_size": 100})",
                 "hidden_size 100 is not a multiple of num_attention_heads 12");
  expect_refused(R"({"model_type": "distilbert", "dim": 100})",
                 "dim 100 is not a multiple of n_heads 12");
  expect_refused(R"({"model_type": "bert", "hidden_size": -768})",
                 "hidden_size is -768; expected a non-negative integer");
  expect_refused(R"({"model_type": "bert", "num_attention_heads": 0})",
                 "num_attention_heads is 0; expected 1 to 65535");
  expect_refused(R"({"model_type": "bert", "hidden_act": "mish"})",
                 "activation 'mish' is not supported; expected one of gelu,");
  expect_refused(R"({"model_type": "bert", "position_embedding_type": "relative_key"})",
                 "position_embedding_type is \"relative_key\"; expected \"absolute\"");
  expect_refused(R"({"model_type": "bert", "is_decoder": true})",
                 "is_decoder is true; expected false: the form of a model follows from its family");
  expect_refused(R"({"model_type": "bert", "hidden_dropout_prob": 1.0})",
                 "hidden_dropout_prob is 1; expected a probability in [0, 1)");
  expect_refused(R"({"model_type": "bert", "layer_norm_eps": 0})", "layer_norm_eps is 0");
  expect_refused(R"({"model_type": "bert", "layer_norm_eps": "1e-12"})",
                 R"(layer_norm_eps is "1e-12"; expected a number)");
  expect_refused(R"({"model_type": "bert", "vocab_size": 10, "pad_token_id": 10})",
                 "pad_token_id is 10; expected null or an id below vocab_size 10");
  expect_refused(R"({"model_type": "bert", "problem_type": "ranking"})",
                 "problem_type is \"ranking\"; expected null or one of regression, ");
  expect_refused(R"({"model_type": "distilbert", "sinusoidal_pos_embds": 1})",
                 "sinusoidal_pos_embds is 1; expected true or false");
}

// As transformers saves it: keys of the source stay, also unknown ones; sorted, 2 spaces, newline.
TEST(ModelConfig, WritesWhatHuggingFaceWrites) {
  ModelConfig config = ModelConfig::parse(
      R"({"model_type": "distilbert", "dim": 64, "n_heads": 4, "tie_weights_": true, "dtype": "bfloat16",
          "hidden_dim": 96, "vocab_size": 50, "architectures": ["DistilBertForMaskedLM"], "seq_classif_dropout": 0.2})",
      "test");
  config.name_or_path = "distilbert-base-uncased";
  EXPECT_EQ(config.to_json("DistilBertForQuestionAnswering"), R"({
  "_name_or_path": "distilbert-base-uncased",
  "activation": "gelu",
  "architectures": [
    "DistilBertForQuestionAnswering"
  ],
  "attention_dropout": 0.1,
  "dim": 64,
  "dropout": 0.1,
  "hidden_dim": 96,
  "initializer_range": 0.02,
  "max_position_embeddings": 512,
  "model_type": "distilbert",
  "n_heads": 4,
  "n_layers": 6,
  "pad_token_id": 0,
  "qa_dropout": 0.1,
  "seq_classif_dropout": 0.2,
  "sinusoidal_pos_embds": false,
  "tie_weights_": true,
  "torch_dtype": "float32",
  "transformers_version": "4.46.0",
  "vocab_size": 50
}
)");
}

TEST(ModelConfig, KeepsTheTransformersVersionThatItWasReadWith) {
  const auto written = [](const std::string& keys) {
    const ModelConfig config = ModelConfig::parse("{\"model_type\": \"bert\"" + keys + "}", "test");
    return nlohmann::json::parse(config.to_json("BertForQuestionAnswering"))
        .at("transformers_version")
        .get<std::string>();
  };
  for (const char* version : {"4.8.2", "4.57.1", "5.24.0", "5.0.0.dev0"}) {
    EXPECT_EQ(written(fmt::format(", \"transformers_version\": \"{}\"", version)), version);
  }
  // A configuration without a version gets the newest one of this form.
  for (const char* keys : {"", ", \"transformers_version\": null", ", \"transformers_version\": 5",
                           ", \"transformers_version\": \"\""}) {
    EXPECT_EQ(written(keys), "4.46.0") << keys;
  }
}

TEST(ModelConfig, SurvivesASaveAndALoad) {
  ModelConfig config;
  config.layer_norm_eps = 1e-12;
  config.pad_token_id = -1;
  config.hidden_act = kernels::Activation::kGeluNew;
  const std::string json = config.to_json("BertForQuestionAnswering");
  EXPECT_THAT(json, HasSubstr("\"layer_norm_eps\": 1e-12,"));
  const ModelConfig again = ModelConfig::parse(json, "test");
  EXPECT_EQ(again.pad_token_id, -1);
  EXPECT_EQ(again.hidden_act, kernels::Activation::kGeluNew);
  EXPECT_EQ(again.to_json("BertForQuestionAnswering"), json);
}

class MiniLmConfigTest : public tandem::testing::MiniLmTest {};

TEST_F(MiniLmConfigTest, ReadsARealConfig) {
  const ModelConfig config = ModelConfig::load(tandem::testing::minilm_dir());
  EXPECT_EQ(config.hidden_size, 384u);
  EXPECT_EQ(config.num_attention_heads, 12u);
  EXPECT_THAT(config.to_json("BertForQuestionAnswering"), HasSubstr("\"use_cache\": true,"));
}

}  // namespace
}  // namespace tandem::models
