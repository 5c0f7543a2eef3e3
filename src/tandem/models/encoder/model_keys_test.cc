#include "tandem/models/encoder/model_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/models/encoder/model_config.h"

namespace tandem::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

// config.json of popular models, written down by hand: the keys are complete, lists of labels are
// shortened.
struct PopularModel {
  const char* name;
  const char* config;
};

constexpr PopularModel kPopularModels[] = {
    {"bert-base-uncased", R"({"architectures": ["BertForMaskedLM"],
      "attention_probs_dropout_prob": 0.1, "gradient_checkpointing": false, "hidden_act": "gelu",
      "hidden_dropout_prob": 0.1, "hidden_size": 768, "initializer_range": 0.02,
      "intermediate_size": 3072, "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
      "model_type": "bert", "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 0,
      "position_embedding_type": "absolute", "transformers_version": "4.6.0.dev0",
      "type_vocab_size": 2, "use_cache": true, "vocab_size": 30522})"},
    {"bert-large-cased", R"({"architectures": ["BertForMaskedLM"],
      "attention_probs_dropout_prob": 0.1, "directionality": "bidi", "hidden_act": "gelu",
      "hidden_dropout_prob": 0.1, "hidden_size": 1024, "initializer_range": 0.02,
      "intermediate_size": 4096, "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
      "model_type": "bert", "num_attention_heads": 16, "num_hidden_layers": 24, "pad_token_id": 0,
      "pooler_fc_size": 768, "pooler_num_attention_heads": 12, "pooler_num_fc_layers": 3,
      "pooler_size_per_head": 128, "pooler_type": "first_token_transform", "type_vocab_size": 2,
      "vocab_size": 28996})"},
    {"distilbert-base-uncased", R"({"activation": "gelu", "architectures":
      ["DistilBertForMaskedLM"], "attention_dropout": 0.1, "dim": 768, "dropout": 0.1,
      "hidden_dim": 3072, "initializer_range": 0.02, "max_position_embeddings": 512,
      "model_type": "distilbert", "n_heads": 12, "n_layers": 6, "pad_token_id": 0,
      "qa_dropout": 0.1, "seq_classif_dropout": 0.2, "sinusoidal_pos_embds": false,
      "tie_weights_": true, "transformers_version": "4.10.0.dev0", "vocab_size": 30522})"},
    {"distilbert-base-uncased-finetuned-sst-2-english", R"({"activation": "gelu",
      "architectures": ["DistilBertForSequenceClassification"], "attention_dropout": 0.1,
      "dim": 768, "dropout": 0.1, "finetuning_task": "sst-2", "hidden_dim": 3072,
      "id2label": {"0": "NEGATIVE", "1": "POSITIVE"}, "initializer_range": 0.02,
      "label2id": {"NEGATIVE": 0, "POSITIVE": 1}, "max_position_embeddings": 512,
      "model_type": "distilbert", "n_heads": 12, "n_layers": 6, "output_past": true,
      "pad_token_id": 0, "qa_dropout": 0.1, "seq_classif_dropout": 0.2,
      "sinusoidal_pos_embds": false, "tie_weights_": true, "vocab_size": 30522})"},
    {"roberta-base", R"({"architectures": ["RobertaForMaskedLM"],
      "attention_probs_dropout_prob": 0.1, "bos_token_id": 0, "eos_token_id": 2,
      "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
      "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-05,
      "max_position_embeddings": 514, "model_type": "roberta", "num_attention_heads": 12,
      "num_hidden_layers": 12, "pad_token_id": 1, "type_vocab_size": 1, "vocab_size": 50265})"},
    {"xlm-roberta-base", R"({"architectures": ["XLMRobertaForMaskedLM"],
      "attention_probs_dropout_prob": 0.1, "bos_token_id": 0, "eos_token_id": 2,
      "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
      "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-05,
      "max_position_embeddings": 514, "model_type": "xlm-roberta", "num_attention_heads": 12,
      "num_hidden_layers": 12, "output_past": true, "pad_token_id": 1,
      "position_embedding_type": "absolute", "transformers_version": "4.17.0.dev0",
      "type_vocab_size": 1, "use_cache": true, "vocab_size": 250002})"},
    {"ModernBERT-base", R"({"architectures": ["ModernBertForMaskedLM"], "attention_bias": false,
      "attention_dropout": 0.0, "bos_token_id": 50281, "classifier_activation": "gelu",
      "classifier_bias": false, "classifier_dropout": 0.0, "classifier_pooling": "mean",
      "cls_token_id": 50281, "decoder_bias": true, "deterministic_flash_attn": false,
      "embedding_dropout": 0.0, "eos_token_id": 50282, "global_attn_every_n_layers": 3,
      "global_rope_theta": 160000.0, "gradient_checkpointing": false, "hidden_activation": "gelu",
      "hidden_size": 768, "initializer_cutoff_factor": 2.0, "initializer_range": 0.02,
      "intermediate_size": 1152, "layer_norm_eps": 1e-05, "local_attention": 128,
      "local_rope_theta": 10000.0, "max_position_embeddings": 8192, "mlp_bias": false,
      "mlp_dropout": 0.0, "model_type": "modernbert", "norm_bias": false, "norm_eps": 1e-05,
      "num_attention_heads": 12, "num_hidden_layers": 22, "pad_token_id": 50283,
      "position_embedding_type": "absolute", "sep_token_id": 50282, "tie_word_embeddings": true,
      "torch_dtype": "float32", "transformers_version": "4.47.0.dev0", "vocab_size": 50368})"},
    {"all-mpnet-base-v2", R"({"_name_or_path": "microsoft/mpnet-base", "architectures":
      ["MPNetForMaskedLM"], "attention_probs_dropout_prob": 0.1, "bos_token_id": 0,
      "eos_token_id": 2, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
      "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-05,
      "max_position_embeddings": 514, "model_type": "mpnet", "num_attention_heads": 12,
      "num_hidden_layers": 12, "pad_token_id": 1, "relative_attention_num_buckets": 32,
      "transformers_version": "4.8.2", "vocab_size": 30527})"},
    {"deberta-v3-base", R"({"attention_probs_dropout_prob": 0.1, "hidden_act": "gelu",
      "hidden_dropout_prob": 0.1, "hidden_size": 768, "initializer_range": 0.02,
      "intermediate_size": 3072, "layer_norm_eps": 1e-07, "max_position_embeddings": 512,
      "max_relative_positions": -1, "model_type": "deberta-v2", "norm_rel_ebd": "layer_norm",
      "num_attention_heads": 12, "num_hidden_layers": 12, "pos_att_type": "p2c|c2p",
      "position_biased_input": false, "position_buckets": 256, "relative_attention": true,
      "share_att_key": true, "type_vocab_size": 0, "vocab_size": 128100})"},
    {"electra-small-discriminator", R"({"architectures": ["ElectraForPreTraining"],
      "attention_probs_dropout_prob": 0.1, "embedding_size": 128, "hidden_act": "gelu",
      "hidden_dropout_prob": 0.1, "hidden_size": 256, "initializer_range": 0.02,
      "intermediate_size": 1024, "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
      "model_type": "electra", "num_attention_heads": 4, "num_hidden_layers": 12,
      "pad_token_id": 0, "summary_activation": "gelu", "summary_last_dropout": 0.1,
      "summary_type": "first", "summary_use_proj": true, "type_vocab_size": 2,
      "vocab_size": 30522})"},
    {"all-MiniLM-L6-v2", R"({"_name_or_path": "nreimers/MiniLM-L6-H384-uncased",
      "architectures": ["BertModel"], "attention_probs_dropout_prob": 0.1,
      "gradient_checkpointing": false, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
      "hidden_size": 384, "initializer_range": 0.02, "intermediate_size": 1536,
      "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "bert",
      "num_attention_heads": 12, "num_hidden_layers": 6, "pad_token_id": 0,
      "position_embedding_type": "absolute", "transformers_version": "4.8.2",
      "type_vocab_size": 2, "use_cache": true, "vocab_size": 30522})"},
    {"bge-small-en-v1.5", R"({"_name_or_path": "/root/.cache/torch/x/", "architectures":
      ["BertModel"], "attention_probs_dropout_prob": 0.1, "classifier_dropout": null,
      "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 384,
      "id2label": {"0": "LABEL_0"}, "initializer_range": 0.02, "intermediate_size": 1536,
      "label2id": {"LABEL_0": 0}, "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
      "model_type": "bert", "num_attention_heads": 12, "num_hidden_layers": 12,
      "pad_token_id": 0, "position_embedding_type": "absolute", "torch_dtype": "float32",
      "transformers_version": "4.30.0", "type_vocab_size": 2, "use_cache": true,
      "vocab_size": 30522})"},
    {"multilingual-e5-small", R"({"_name_or_path": "intfloat/multilingual-e5-small",
      "architectures": ["BertModel"], "attention_probs_dropout_prob": 0.1,
      "classifier_dropout": null, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
      "hidden_size": 384, "initializer_range": 0.02, "intermediate_size": 1536,
      "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "bert",
      "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 0,
      "position_embedding_type": "absolute", "tokenizer_class": "XLMRobertaTokenizer",
      "transformers_version": "4.27.0.dev0", "type_vocab_size": 2, "use_cache": true,
      "vocab_size": 250037})"},
    {"e5-small-v2", R"({"architectures": ["BertModel"], "attention_probs_dropout_prob": 0.1,
      "classifier_dropout": null, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
      "hidden_size": 384, "initializer_range": 0.02, "intermediate_size": 1536,
      "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "bert",
      "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 0,
      "position_embedding_type": "absolute", "torch_dtype": "float32",
      "transformers_version": "4.29.0", "type_vocab_size": 2, "use_cache": true,
      "vocab_size": 30522})"},
    {"gte-small", R"({"_name_or_path": "gte-small", "architectures": ["BertModel"],
      "attention_probs_dropout_prob": 0.1, "classifier_dropout": null, "hidden_act": "gelu",
      "hidden_dropout_prob": 0.1, "hidden_size": 384, "initializer_range": 0.02,
      "intermediate_size": 1536, "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
      "model_type": "bert", "num_attention_heads": 12, "num_hidden_layers": 12,
      "pad_token_id": 0, "position_embedding_type": "absolute", "torch_dtype": "float16",
      "transformers_version": "4.28.1", "type_vocab_size": 2, "use_cache": true,
      "vocab_size": 30522})"},
    {"finbert", R"({"_name_or_path": "/home/ubuntu/finbert/models/language_model/finbertTRC2",
      "architectures": ["BertForSequenceClassification"], "attention_probs_dropout_prob": 0.1,
      "gradient_checkpointing": false, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
      "hidden_size": 768, "id2label": {"0": "positive", "1": "negative", "2": "neutral"},
      "initializer_range": 0.02, "intermediate_size": 3072,
      "label2id": {"positive": 0, "negative": 1, "neutral": 2}, "layer_norm_eps": 1e-12,
      "max_position_embeddings": 512, "model_type": "bert", "num_attention_heads": 12,
      "num_hidden_layers": 12, "pad_token_id": 0, "position_embedding_type": "absolute",
      "type_vocab_size": 2, "vocab_size": 30522})"},
    {"bert-base-NER", R"({"_num_labels": 9, "architectures": ["BertForTokenClassification"],
      "attention_probs_dropout_prob": 0.1, "directionality": "bidi", "hidden_act": "gelu",
      "hidden_dropout_prob": 0.1, "hidden_size": 768, "id2label": {"0": "O", "1": "B-MISC"},
      "initializer_range": 0.02, "intermediate_size": 3072, "label2id": {"B-MISC": 1, "O": 0},
      "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "bert",
      "num_attention_heads": 12, "num_hidden_layers": 12, "output_past": true,
      "pad_token_id": 0, "pooler_fc_size": 768, "pooler_num_attention_heads": 12,
      "pooler_num_fc_layers": 3, "pooler_size_per_head": 128,
      "pooler_type": "first_token_transform", "type_vocab_size": 2, "vocab_size": 28996})"},
    {"twitter-roberta-base-sentiment-latest", R"({"_name_or_path": "tweeteval_new",
      "architectures": ["RobertaForSequenceClassification"], "attention_probs_dropout_prob": 0.1,
      "bos_token_id": 0, "classifier_dropout": null, "eos_token_id": 2,
      "gradient_checkpointing": false, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
      "hidden_size": 768, "id2label": {"0": "negative", "1": "neutral", "2": "positive"},
      "initializer_range": 0.02, "intermediate_size": 3072,
      "label2id": {"negative": 0, "neutral": 1, "positive": 2}, "layer_norm_eps": 1e-05,
      "max_position_embeddings": 514, "model_type": "roberta", "num_attention_heads": 12,
      "num_hidden_layers": 12, "pad_token_id": 1, "position_embedding_type": "absolute",
      "torch_dtype": "float32", "transformers_version": "4.13.0.dev0", "type_vocab_size": 1,
      "use_cache": true, "vocab_size": 50265})"},
    {"roberta-base-squad2", R"({"architectures": ["RobertaForQuestionAnswering"],
      "attention_probs_dropout_prob": 0.1, "bos_token_id": 0, "eos_token_id": 2,
      "gradient_checkpointing": false, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
      "hidden_size": 768, "initializer_range": 0.02, "intermediate_size": 3072,
      "language": "english", "layer_norm_eps": 1e-05, "max_position_embeddings": 514,
      "model_type": "roberta", "name": "Roberta", "num_attention_heads": 12,
      "num_hidden_layers": 12, "pad_token_id": 1, "position_embedding_type": "absolute",
      "type_vocab_size": 1, "use_cache": true, "vocab_size": 50265})"},
    {"ms-marco-MiniLM-L-6-v2", R"({"_name_or_path": "cross-encoder/ms-marco-MiniLM-L-12-v2",
      "architectures": ["BertForSequenceClassification"], "attention_probs_dropout_prob": 0.1,
      "classifier_dropout": null, "gradient_checkpointing": false, "hidden_act": "gelu",
      "hidden_dropout_prob": 0.1, "hidden_size": 384, "id2label": {"0": "LABEL_0"},
      "initializer_range": 0.02, "intermediate_size": 1536, "label2id": {"LABEL_0": 0},
      "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "bert",
      "num_attention_heads": 12, "num_hidden_layers": 6, "pad_token_id": 0,
      "position_embedding_type": "absolute", "sentence_transformers":
      {"activation_fn": "torch.nn.modules.linear.Identity", "version": "4.1.0.dev0"},
      "sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity",
      "transformers_version": "4.4.0", "type_vocab_size": 2, "use_cache": true,
      "vocab_size": 30522})"},
    {"BiomedBERT-base-uncased-abstract", R"({"architectures": ["BertForMaskedLM"],
      "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
      "hidden_size": 768, "initializer_range": 0.02, "intermediate_size": 3072,
      "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "bert",
      "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 0,
      "type_vocab_size": 2, "vocab_size": 30522})"},
    {"legal-bert-base-uncased", R"({"attention_probs_dropout_prob": 0.1, "bos_token_id": 0,
      "do_sample": false, "eos_token_ids": 0, "finetuning_task": null, "hidden_act": "gelu",
      "hidden_dropout_prob": 0.1, "hidden_size": 768, "id2label": {"0": "LABEL_0",
      "1": "LABEL_1"}, "initializer_range": 0.02, "intermediate_size": 3072,
      "is_decoder": false, "label2id": {"LABEL_0": 0, "LABEL_1": 1}, "layer_norm_eps": 1e-12,
      "length_penalty": 1.0, "max_length": 20, "max_position_embeddings": 512,
      "model_type": "bert", "num_attention_heads": 12, "num_beams": 1, "num_hidden_layers": 12,
      "num_labels": 2, "num_return_sequences": 1, "output_attentions": false,
      "output_hidden_states": false, "output_past": true, "pad_token_id": 0,
      "pruned_heads": {}, "repetition_penalty": 1.0, "temperature": 1.0, "top_k": 50,
      "top_p": 1.0, "torchscript": false, "type_vocab_size": 2, "use_bfloat16": false,
      "vocab_size": 30522})"},
    {"nli-roberta-base", R"({"architectures":
      ["RobertaForSequenceClassification"], "attention_probs_dropout_prob": 0.1,
      "bos_token_id": 0, "eos_token_id": 2, "gradient_checkpointing": false,
      "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
      "id2label": {"0": "contradiction", "1": "entailment", "2": "neutral"},
      "initializer_range": 0.02, "intermediate_size": 3072, "label2id":
      {"contradiction": 0, "entailment": 1, "neutral": 2}, "layer_norm_eps": 1e-05,
      "max_position_embeddings": 514, "model_type": "roberta", "num_attention_heads": 12,
      "num_hidden_layers": 12, "pad_token_id": 1, "type_vocab_size": 1,
      "vocab_size": 50265})"},
};

TEST(ModelKeys, PopularModelsHaveNoUnknownKey) {
  EXPECT_GE(std::size(kPopularModels), 20u);
  for (const PopularModel& model : kPopularModels)
    EXPECT_THAT(ModelConfig::parse(model.config, model.name).notes, IsEmpty()) << model.name;
}

// The same of decoders, of their config.json on the Hub.
constexpr PopularModel kPopularDecoders[] = {
    {"gpt2", R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
      "attn_pdrop": 0.1, "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256,
      "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gpt2",
      "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
      "resid_pdrop": 0.1, "summary_activation": null, "summary_first_dropout": 0.1,
      "summary_proj_to_labels": true, "summary_type": "cls_index", "summary_use_proj": true,
      "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
      "vocab_size": 50257})"},
    {"SmolLM2-135M", R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "bos_token_id": 0, "eos_token_id": 0, "hidden_act": "silu",
      "hidden_size": 576, "initializer_range": 0.041666666666666664, "intermediate_size": 1536,
      "is_llama_config": true, "max_position_embeddings": 8192, "model_type": "llama",
      "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3,
      "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_interleaved": false,
      "rope_scaling": null, "rope_theta": 100000, "tie_word_embeddings": true,
      "torch_dtype": "bfloat16", "transformers_version": "4.40.1", "use_cache": true,
      "vocab_size": 49152})"},
    {"Qwen2.5-0.5B", R"({"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0,
      "bos_token_id": 151643, "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 896,
      "initializer_range": 0.02, "intermediate_size": 4864, "max_position_embeddings": 32768,
      "max_window_layers": 24, "model_type": "qwen2", "num_attention_heads": 14,
      "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
      "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true,
      "torch_dtype": "bfloat16", "transformers_version": "4.40.1", "use_cache": true,
      "use_mrope": false, "use_sliding_window": false, "vocab_size": 151936})"},
    {"Qwen3-0.6B", R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645,
      "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024, "initializer_range": 0.02,
      "intermediate_size": 3072, "max_position_embeddings": 40960, "max_window_layers": 28,
      "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28,
      "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null,
      "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": true,
      "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": true,
      "use_sliding_window": false, "vocab_size": 151936})"},
};

TEST(ModelKeys, PopularDecodersHaveNoUnknownKey) {
  for (const PopularModel& model : kPopularDecoders) {
    EXPECT_THAT(ModelConfig::parse(model.config, model.name, decoder_families()).notes, IsEmpty())
        << model.name;
  }
}

// Models whose results tandem would get wrong.
TEST(ModelKeys, ModelsThatNeedWhatTandemLacksAreRefused) {
  const auto refused = [](const char* config, const char* message) {
    EXPECT_THAT([&] { ModelConfig::parse(config, "config.json"); },
                ThrowsMessage<ConfigError>(HasSubstr(message)));
  };
  // jina-embeddings-v2-base-en
  refused(R"({"model_type": "bert", "position_embedding_type": "alibi", "attn_implementation":
      null, "auto_map": {"AutoModel": "x--modeling_bert.JinaBertModel"}})",
          R"(position_embedding_type is "alibi"; expected "absolute")");
  // nomic-embed-text-v1.5, gte-base-en-v1.5
  refused(R"({"model_type": "nomic_bert"})", "model_type is nomic_bert; tandem supports");
  refused(R"({"model_type": "new"})", "model_type is new; tandem supports");
  refused(R"({"model_type": "bert", "pruned_heads": {"1": [0, 2]}})",
          R"(pruned_heads is {"1":[0,2]}; expected {})");
  refused(R"({"model_type": "roberta", "is_decoder": true})", "is_decoder is true");
  refused(R"({"model_type": "bert", "tie_encoder_decoder": true})", "tie_encoder_decoder is true");
  refused(R"({"model_type": "bert", "transformers_weights": "other.safetensors"})",
          R"(transformers_weights is "other.safetensors"; expected null)");
}

TEST(ModelKeys, UnknownKeysGetOneNote) {
  const auto config =
      ModelConfig::parse(R"({"model_type": "distilbert", "layer_norm_eps": 1, "b": 2})", "dir/c");
  EXPECT_THAT(config.notes, ElementsAre("'dir/c': unknown keys are ignored: b, layer_norm_eps"));
}

TEST(ModelKeys, EveryKeyOfAFamilyIsInTheTable) {
  for (const auto table : {families(), decoder_families()}) {
    for (const Family* family : table) {
      for (const ConfigKey& key : family->keys) {
        const nlohmann::json object = {{key.name, nullptr}};
        EXPECT_THAT(check_keys(object, model_keys(), family->model_type).unknown, IsEmpty())
            << family->model_type;
      }
    }
  }
}

// Expected values: transformers 4.57.6 and 5.24.0, DistilBertConfig's attribute_map.
TEST(ModelKeys, DistilBertHasBertsNamesToo) {
  const auto config = ModelConfig::parse(
      R"({"model_type": "distilbert", "dim": 768, "hidden_size": 64, "num_hidden_layers": 3,
          "num_attention_heads": 4})",
      "c");
  EXPECT_EQ(config.hidden_size, 64u);
  EXPECT_EQ(config.num_hidden_layers, 3u);
  EXPECT_EQ(config.num_attention_heads, 4u);
  const auto saved = parse_json(config.to_json("X"));
  EXPECT_EQ(saved["dim"], 64);
  EXPECT_FALSE(saved.contains("hidden_size"));
}

TEST(ModelKeys, AByteOrderMarkIsNoPartOfTheFile) {
  const auto config = ModelConfig::parse("\xef\xbb\xbf{\"model_type\": \"bert\"}", "c");
  EXPECT_EQ(config.family, &kBert);
  EXPECT_EQ(config.to_json("X").front(), '{');
}

TEST(ModelKeys, ThePageHasTheTable) {
  EXPECT_THAT(read_file(std::filesystem::path(TANDEM_SOURCE_DIR) / "docs" / "model_keys.md"),
              HasSubstr(key_rows(model_keys())));
}

}  // namespace
}  // namespace tandem::models
