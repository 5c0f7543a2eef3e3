#include "tandem/models/encoder/model_keys.h"

#include <algorithm>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/models/encoder/family.h"

namespace tandem::models {
namespace {

constexpr KeyUse kHonoured = KeyUse::kHonoured;
constexpr KeyUse kIrrelevant = KeyUse::kIrrelevant;
constexpr KeyUse kRefused = KeyUse::kRefused;

constexpr std::string_view kBertLike = "bert deberta-v2 electra mpnet roberta xlm-roberta";
constexpr std::string_view kWithTokenTypes = "bert electra roberta xlm-roberta";
constexpr std::string_view kWithPadding =
    "bert deberta-v2 distilbert electra llama modernbert qwen2 qwen3 roberta xlm-roberta";
constexpr std::string_view kDeberta = "deberta-v2";
constexpr std::string_view kLlamaLike = "llama qwen2 qwen3";
constexpr std::string_view kQwen = "qwen2 qwen3";
constexpr std::string_view kGpt = "gpt2";
constexpr std::string_view kModern = "modernbert";
constexpr std::string_view kShape = "the shape of the model";
constexpr std::string_view kRate = "a rate of dropout";
constexpr std::string_view kEncoder = "the form of a model follows from its family";
constexpr std::string_view kOutputs = "what a Python call returns";
constexpr std::string_view kGeneration = "for text generation";
constexpr std::string_view kMemory = "saves memory; the result is the same";
constexpr std::string_view kUnread = "a description that transformers does not read";
constexpr std::string_view kChoice = "for multiple choice only";
constexpr std::string_view kToken = "the tokenizer has its own";
constexpr std::string_view kBackend = "how it is computed; the result is the same";
constexpr std::string_view kBias = "tandem's layers of ModernBERT have no biases";
constexpr std::string_view kNoBias = "tandem's layers of these families have no biases";
constexpr std::string_view kForm = "tandem has the form of DeBERTa-v3; others are refused";
constexpr std::string_view kAngles = "the base of the angles of rotary positions";

constexpr KnownKey kKeys[] = {
    {"model_type", "", kHonoured, "chooses the family; others are refused"},
    {"vocab_size", "", kHonoured, kShape},
    {"max_position_embeddings", "", kHonoured, kShape},
    {"hidden_size", "", kHonoured, "the shape of the model; in DistilBERT another name of dim"},
    {"num_hidden_layers", "", kHonoured, "the shape; in DistilBERT another name of n_layers"},
    {"num_attention_heads", "", kHonoured, "the shape; in DistilBERT another name of n_heads"},
    {"intermediate_size",
     "bert deberta-v2 electra llama modernbert mpnet qwen2 qwen3 roberta xlm-roberta", kHonoured,
     kShape},
    {"type_vocab_size", kWithTokenTypes, kHonoured, kShape},
    {"embedding_size", "electra", kHonoured, kShape},
    {"dim", "distilbert", kHonoured, kShape},
    {"n_layers", "distilbert", kHonoured, kShape},
    {"n_heads", "distilbert", kHonoured, kShape},
    {"hidden_dim", "distilbert", kHonoured, kShape},
    {"hidden_act", kBertLike, kHonoured, "the activation; unknown ones are refused"},
    {"hidden_act", kLlamaLike, kHonoured, "the activation; unknown ones are refused"},
    {"num_key_value_heads", kLlamaLike, kHonoured, "heads of keys; null: num_attention_heads"},
    {"head_dim", kLlamaLike, kHonoured, "columns of a head; null: hidden_size over the heads"},
    {"rms_norm_eps", kLlamaLike, kHonoured, "the epsilon of RMSNorm"},
    {"rope_theta", kLlamaLike, kHonoured, kAngles},
    {"rope_scaling", kLlamaLike, kHonoured, "the types default and llama3; others are refused"},
    {"rope_parameters", kLlamaLike, kHonoured, "rope_theta and rope_scaling of transformers 5"},
    {"attention_bias", "llama qwen3", kRefused, kNoBias, "[false]"},
    {"mlp_bias", "llama", kRefused, kNoBias, "[false]"},
    {"is_llama_config", "llama", kIrrelevant, kUnread},
    {"rope_interleaved", "llama", kRefused, "transformers computes by halves", "[false]"},
    {"pretraining_tp", "llama", kIrrelevant, "how it is computed; the result is the same"},
    {"use_sliding_window", kQwen, kRefused, "tandem's layers of Qwen read all before", "[false]"},
    {"use_mrope", "qwen2", kRefused, "tandem's positions have one dimension", "[false]"},
    {"layer_types", kLlamaLike, kHonoured, "full_attention; others are refused"},
    {"sliding_window", kQwen, kIrrelevant, "only use_sliding_window makes it count"},
    {"max_window_layers", kQwen, kIrrelevant, "only use_sliding_window makes it count"},
    {"activation", "distilbert", kHonoured, "the activation; unknown ones are refused"},
    {"hidden_dropout_prob", kBertLike, kHonoured, kRate},
    {"attention_probs_dropout_prob", kBertLike, kHonoured, kRate},
    {"classifier_dropout", "bert electra modernbert roberta xlm-roberta", kHonoured, kRate},
    {"dropout", "distilbert", kHonoured, kRate},
    {"n_embd", kGpt, kHonoured, kShape},
    {"n_layer", kGpt, kHonoured, kShape},
    {"n_head", kGpt, kHonoured, kShape},
    {"n_positions", kGpt, kHonoured, kShape},
    {"n_ctx", kGpt, kIrrelevant, "the number of positions is n_positions"},
    {"n_inner", kGpt, kHonoured, "the shape of the model; null: four times n_embd"},
    {"activation_function", kGpt, kHonoured, "the activation; unknown ones are refused"},
    {"embd_pdrop", kGpt, kHonoured, kRate},
    {"attn_pdrop", kGpt, kHonoured, kRate},
    {"resid_pdrop", kGpt, kHonoured, kRate},
    {"layer_norm_epsilon", kGpt, kHonoured, "the epsilon of LayerNorm"},
    {"scale_attn_weights", kGpt, kRefused, "tandem's attention divides scores", "[true]"},
    {"scale_attn_by_inverse_layer_idx", kGpt, kRefused, "tandem's layers are alike", "[false]"},
    {"reorder_and_upcast_attn", kGpt, kIrrelevant, kBackend},
    {"pad_token_id", kGpt, kIrrelevant, kToken},
    {"attention_dropout", "distilbert llama modernbert qwen2 qwen3", kHonoured, kRate},
    {"qa_dropout", "distilbert", kHonoured, kRate},
    {"seq_classif_dropout", "distilbert", kHonoured, kRate},
    {"layer_norm_eps", kBertLike, kHonoured, "the epsilon of LayerNorm"},
    {"layer_norm_eps", kModern, kIrrelevant, "the epsilon is norm_eps"},
    {"hidden_activation", kModern, kHonoured, "the activation; unknown ones are refused"},
    {"embedding_dropout", kModern, kHonoured, kRate},
    {"mlp_dropout", kModern, kHonoured, kRate},
    {"norm_eps", kModern, kHonoured, "the epsilon of LayerNorm"},
    {"classifier_pooling", kModern, kHonoured, "what the head of texts reads: cls or mean"},
    {"classifier_activation", kModern, kHonoured, "the activation of the heads"},
    {"local_attention", kModern, kHonoured, "the keys of a local layer, half to each side"},
    {"global_attn_every_n_layers", kModern, kHonoured, "which layers read the whole text"},
    {"layer_types", kModern, kHonoured, "which layers read the whole text; every n-th must"},
    {"global_rope_theta", kModern, kHonoured, kAngles},
    {"local_rope_theta", kModern, kHonoured, kAngles},
    {"rope_parameters", kModern, kHonoured, "rope_theta by type of layer; other types are refused"},
    {"cls_dropout", kDeberta, kHonoured, "the rate of dropout of the head of texts"},
    {"position_buckets", kDeberta, kHonoured, "buckets of the distances to one side"},
    {"max_relative_positions", kDeberta, kHonoured,
     "where the last bucket begins; below 1: max_position_embeddings"},
    {"relative_attention", kDeberta, kHonoured, kForm},
    {"pos_att_type", kDeberta, kHonoured, kForm},
    {"share_att_key", kDeberta, kHonoured, kForm},
    {"norm_rel_ebd", kDeberta, kHonoured, kForm},
    {"position_biased_input", kDeberta, kHonoured, kForm},
    {"conv_kernel_size", kDeberta, kHonoured, kForm},
    {"type_vocab_size", kDeberta, kHonoured, kForm},
    {"legacy", kDeberta, kHonoured, kForm},
    {"pooler_dropout", kDeberta, kHonoured, kForm},
    {"pooler_hidden_act", kDeberta, kHonoured, kForm},
    {"pooler_hidden_size", kDeberta, kHonoured, "hidden_size; others are refused"},
    {"embedding_size", kDeberta, kHonoured, "hidden_size; others are refused"},
    {"attention_head_size", kDeberta, kHonoured, "that of the heads; others are refused"},
    {"conv_act", kDeberta, kIrrelevant, "only conv_kernel_size makes it count"},
    {"conv_groups", kDeberta, kIrrelevant, "only conv_kernel_size makes it count"},
    {"initializer_cutoff_factor", kModern, kHonoured, "where new weights are cut off"},
    {"initializer_range", "", kHonoured, "the standard deviation of new weights"},
    {"pad_token_id", kWithPadding, kHonoured,
     "the row without a gradient; RoBERTa's first position"},
    {"pad_token_id", "mpnet", kIrrelevant, "transformers has 1 whatever the file has"},
    {"sinusoidal_pos_embds", "distilbert", kHonoured, "fixed positions"},
    {"tie_word_embeddings", "", kHonoured,
     "the output matrix of a language model is that of the words"},
    {"id2label", "", kHonoured, "the labels; read only by tasks that have labels"},
    {"label2id", "", kHonoured, "kept with id2label, from which ids are taken"},
    {"num_labels", "", kHonoured, "the number of labels without id2label"},
    {"problem_type", "", kHonoured, "the loss of text classification"},
    {"architectures", "", kHonoured, "what predict and serve do with the model"},
    {"tokenizer_class", "", kHonoured, "where tokenizer_config.json names none"},
    {"quantization_config", "", kHonoured, "int8 as tandem writes it; others are refused"},
    {"relative_attention_num_buckets", "mpnet", kRefused, "transformers computes with 32 buckets",
     "[32]"},
    {"attention_bias", kModern, kRefused, kBias, "[false]"},
    {"mlp_bias", kModern, kRefused, kBias, "[false]"},
    {"norm_bias", kModern, kRefused, kBias, "[false]"},
    {"classifier_bias", kModern, kRefused, kBias, "[false]"},
    {"decoder_bias", kModern, kRefused, "tandem's output layers have biases", "[true]"},
    {"rope_scaling", kModern, kRefused, "tandem has the default angles only"},
    {"sparse_pred_ignore_index", kModern, kRefused, "the labels that do not count", "[-100]"},
    {"sparse_prediction", kModern, kIrrelevant, kMemory},
    {"reference_compile", kModern, kIrrelevant, kBackend},
    {"deterministic_flash_attn", kModern, kIrrelevant, kBackend},
    {"repad_logits_with_grad", kModern, kIrrelevant, kBackend},
    {"position_embedding_type", "", kRefused, "tandem has absolute positions only",
     R"(["absolute"])"},
    {"is_decoder", "", kRefused, kEncoder, "[false]"},
    {"add_cross_attention", "", kRefused, kEncoder, "[false]"},
    {"is_encoder_decoder", "", kRefused, kEncoder, "[false]"},
    {"tie_encoder_decoder", "", kRefused, kEncoder, "[false]"},
    {"cross_attention_hidden_size", "", kRefused, kEncoder},
    {"is_causal", "bert deberta-v2 distilbert electra modernbert mpnet roberta xlm-roberta",
     kRefused, kEncoder, "[false]"},
    {"is_causal", "gpt2 llama qwen2 qwen3", kRefused, "a token of a decoder reads those before it",
     "[true]"},
    {"pruned_heads", "", kRefused, "tandem has all heads in every layer", "[{}]"},
    {"per_layer_config", "", kRefused, "all layers are alike", "[{}]"},
    {"transformers_weights", "", kRefused, "it names another file of weights"},
    {"adapters", "", kRefused, "tandem has no adapters",
     R"([{}, {"adapters": {}, "config_map": {}}])"},
    {"chunk_size_feed_forward", "", kIrrelevant, kMemory},
    {"gradient_checkpointing", "", kIrrelevant, kMemory},
    {"use_cache", "", kIrrelevant, kGeneration},
    {"output_past", "", kIrrelevant, kGeneration},
    {"output_attentions", "", kIrrelevant, kOutputs},
    {"output_hidden_states", "", kIrrelevant, kOutputs},
    {"return_dict", "", kIrrelevant, kOutputs},
    {"use_return_dict", "", kIrrelevant, kOutputs},
    {"torchscript", "", kIrrelevant, kOutputs},
    {"keys_to_ignore_at_inference", "", kIrrelevant, kOutputs},
    {"torch_dtype", "", kIrrelevant, "weights are kept in float32, as in transformers 4"},
    {"dtype", "", kIrrelevant, "weights are kept in float32, as in transformers 4"},
    {"use_bfloat16", "", kIrrelevant, "for TensorFlow"},
    {"tf_legacy_loss", "", kIrrelevant, "for TensorFlow"},
    {"attn_implementation", "", kIrrelevant, kBackend},
    {"_attn_implementation", "", kIrrelevant, kBackend},
    {"_attn_implementation_internal", "", kIrrelevant, kBackend},
    {"_attn_implementation_autoset", "", kIrrelevant, kBackend},
    {"experts_implementation", "", kIrrelevant, kBackend},
    {"distributed_config", "", kIrrelevant, kBackend},
    {"_pre_quantization_dtype", "", kIrrelevant, kBackend},
    {"tie_weights_", "", kIrrelevant, "the head of language models"},
    {"bos_token_id", "", kIrrelevant, kToken},
    {"eos_token_id", "", kIrrelevant, kToken},
    {"sep_token_id", "", kIrrelevant, kToken},
    {"cls_token_id", "", kIrrelevant, kToken},
    {"mask_token_id", "", kIrrelevant, kToken},
    {"unk_token_id", "", kIrrelevant, kToken},
    {"eos_token_ids", "", kIrrelevant, kToken},
    {"decoder_start_token_id", "", kIrrelevant, kGeneration},
    {"prefix", "", kIrrelevant, kGeneration},
    {"task_specific_params", "", kIrrelevant, kGeneration},
    {"max_length", "", kIrrelevant, kGeneration},
    {"min_length", "", kIrrelevant, kGeneration},
    {"do_sample", "", kIrrelevant, kGeneration},
    {"early_stopping", "", kIrrelevant, kGeneration},
    {"num_beams", "", kIrrelevant, kGeneration},
    {"num_beam_groups", "", kIrrelevant, kGeneration},
    {"diversity_penalty", "", kIrrelevant, kGeneration},
    {"temperature", "", kIrrelevant, kGeneration},
    {"top_k", "", kIrrelevant, kGeneration},
    {"top_p", "", kIrrelevant, kGeneration},
    {"typical_p", "", kIrrelevant, kGeneration},
    {"repetition_penalty", "", kIrrelevant, kGeneration},
    {"length_penalty", "", kIrrelevant, kGeneration},
    {"no_repeat_ngram_size", "", kIrrelevant, kGeneration},
    {"encoder_no_repeat_ngram_size", "", kIrrelevant, kGeneration},
    {"bad_words_ids", "", kIrrelevant, kGeneration},
    {"num_return_sequences", "", kIrrelevant, kGeneration},
    {"output_scores", "", kIrrelevant, kGeneration},
    {"return_dict_in_generate", "", kIrrelevant, kGeneration},
    {"forced_bos_token_id", "", kIrrelevant, kGeneration},
    {"forced_eos_token_id", "", kIrrelevant, kGeneration},
    {"remove_invalid_values", "", kIrrelevant, kGeneration},
    {"exponential_decay_length_penalty", "", kIrrelevant, kGeneration},
    {"suppress_tokens", "", kIrrelevant, kGeneration},
    {"begin_suppress_tokens", "", kIrrelevant, kGeneration},
    {"summary_type", "", kIrrelevant, kChoice},
    {"summary_use_proj", "", kIrrelevant, kChoice},
    {"summary_activation", "", kIrrelevant, kChoice},
    {"summary_last_dropout", "", kIrrelevant, kChoice},
    {"summary_first_dropout", "", kIrrelevant, kChoice},
    {"summary_proj_to_labels", "", kIrrelevant, kChoice},
    {"auto_map", "", kIrrelevant, "code of the repository is not run"},
    {"finetuning_task", "", kIrrelevant, kUnread},
    {"transformers_version", "", kIrrelevant, kUnread},
    {"name_or_path", "", kIrrelevant, kUnread},
    {"_name_or_path", "", kIrrelevant, kUnread},
    {"_commit_hash", "", kIrrelevant, kUnread},
    {"_num_labels", "", kIrrelevant, kUnread},
    {"language", "", kIrrelevant, kUnread},
    {"name", "", kIrrelevant, kUnread},
    {"directionality", "", kIrrelevant, kUnread},
    {"pooler_fc_size", "", kIrrelevant, kUnread},
    {"pooler_num_attention_heads", "", kIrrelevant, kUnread},
    {"pooler_num_fc_layers", "", kIrrelevant, kUnread},
    {"pooler_size_per_head", "", kIrrelevant, kUnread},
    {"pooler_type", "", kIrrelevant, kUnread},
    {"sbert_ce_default_activation_function", "", kIrrelevant,
     "of the package sentence-transformers"},
    {"sentence_transformers", "", kIrrelevant, "of the package sentence-transformers"},
};

}  // namespace

std::span<const KnownKey> model_keys() { return kKeys; }

void check_model_keys(const nlohmann::json& config, const Family& family, std::string_view where,
                      std::vector<std::string>& notes) {
  KeyFindings findings = check_keys(config, kKeys, family.model_type);
  if (!findings.refusal.empty()) raise<ConfigError>("{}: {}", where, findings.refusal);
  std::erase_if(findings.unknown, [&](const std::string& name) {
    return std::any_of(family.keys.begin(), family.keys.end(),
                       [&](const ConfigKey& key) { return key.name == name; });
  });
  if (std::string note = unknown_keys_note(findings, where); !note.empty())
    notes.push_back(std::move(note));
}

}  // namespace tandem::models
