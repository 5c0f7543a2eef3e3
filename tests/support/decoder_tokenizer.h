// A small tokenizer of a decoder for tests, and decoders that embed and label texts.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/formats/safetensors.h"

namespace tandem::testing {

// Writes the tokenizer of golden/tokenizers/modernbert without special tokens around texts, but
// with this post-processor.
inline void write_decoder_tokenizer(const std::filesystem::path& folder,
                                    const std::string& chat_template = "",
                                    const nlohmann::ordered_json& post_processor = nullptr) {
  const auto source =
      std::filesystem::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/tokenizers/modernbert";
  auto tokenizer = nlohmann::ordered_json::parse(read_file(source / "tokenizer.json"));
  tokenizer["post_processor"] = post_processor;
  write_file(folder / "tokenizer.json", tokenizer.dump());
  nlohmann::ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                   {"eos_token", "<|endoftext|>"},
                                   {"pad_token", "[PAD]"},
                                   {"padding_side", "left"},
                                   {"unk_token", "[UNK]"}};
  if (!chat_template.empty()) config["chat_template"] = chat_template;
  write_file(folder / "tokenizer_config.json", config.dump());
}

inline std::filesystem::path golden_decoder() {
  return std::filesystem::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/decoders/qwen2";
}

// The tokenizer that puts <|endoftext|> behind every text.
inline void write_ending_tokenizer(const std::filesystem::path& folder) {
  write_decoder_tokenizer(folder, "", nlohmann::ordered_json::parse(R"({
      "type": "TemplateProcessing",
      "single": [{"Sequence": {"id": "A", "type_id": 0}},
                 {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}],
      "pair": [{"Sequence": {"id": "A", "type_id": 0}},
               {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
               {"Sequence": {"id": "B", "type_id": 0}},
               {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}],
      "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [1],
                                           "tokens": ["<|endoftext|>"]}}})"));
}

// Writes the labeller of golden/decoders as make_decoder_label_goldens.py makes it. `score`: the
// rows of score.weight, one for each label.
inline void write_decoder_label_model(const std::filesystem::path& folder,
                                      const nlohmann::json& score) {
  const formats::SafetensorsFile base(golden_decoder() / "model.safetensors");
  std::vector<formats::TensorView> tensors(base.tensors().begin(), base.tensors().end());
  std::vector<float> weight;
  for (const auto& row : score) {
    const auto values = row.get<std::vector<float>>();
    weight.insert(weight.end(), values.begin(), values.end());
  }
  tensors.push_back({.name = "score.weight",
                     .dtype = formats::DType::kF32,
                     .shape = {score.size(), weight.size() / score.size()},
                     .bytes = std::as_bytes(std::span(weight))});
  formats::write_safetensors(folder / "model.safetensors", tensors);
  auto config = nlohmann::ordered_json::parse(read_file(golden_decoder() / "config.json"));
  config["architectures"] = {"Qwen2ForSequenceClassification"};
  for (std::size_t id = 0; id < score.size(); ++id)
    config["id2label"][std::to_string(id)] = "LABEL_" + std::to_string(id);
  write_file(folder / "config.json", config.dump());
  write_ending_tokenizer(folder);
}

// Writes the reranker of golden/decoders that scores pairs by the logits of two tokens. `golden`:
// "logits" of labels.json.
inline void write_logit_reranker(const std::filesystem::path& folder,
                                 const nlohmann::json& golden) {
  namespace fs = std::filesystem;
  for (const auto& file : fs::directory_iterator(golden_decoder())) fs::copy(file.path(), folder);
  write_ending_tokenizer(folder);
  write_file(folder / "chat_template.jinja", golden.at("template").get<std::string>());
  write_file(folder / "modules.json", R"([
      {"idx": 0, "name": "0", "path": "",
       "type": "sentence_transformers.base.modules.transformer.Transformer"},
      {"idx": 1, "name": "1", "path": "1_LogitScore",
       "type": "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"}])");
  fs::create_directory(folder / "1_LogitScore");
  write_file(folder / "1_LogitScore/config.json", golden.at("tokens").dump());
  write_file(folder / "sentence_bert_config.json",
             R"({"transformer_task": "text-generation", "module_output_name": "causal_logits",
                 "modality_config": {"message": {"method": "forward", "format": "flat"}}})");
  const nlohmann::json prompts = {{"prompts", {{"own", golden.at("instruction")}}},
                                  {"default_prompt_name", "own"}};
  write_file(folder / "config_sentence_transformers.json", prompts.dump());
}

// Writes the bi-encoder of golden/decoders as make_decoder_goldens.py makes it.
inline void write_decoder_embedding_model(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  for (const auto& file : fs::directory_iterator(golden_decoder())) fs::copy(file.path(), folder);
  write_ending_tokenizer(folder);
  const auto put = [&](const char* name, const char* text) {
    fs::create_directories((folder / name).parent_path());
    write_file(folder / name, text);
  };
  put("modules.json", R"([
      {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
      {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
      {"idx": 2, "name": "2", "path": "2_Normalize",
       "type": "sentence_transformers.models.Normalize"}])");
  put("1_Pooling/config.json",
      R"({"word_embedding_dimension": 16, "pooling_mode_lasttoken": true})");
  put("config_sentence_transformers.json",
      R"({"prompts": {"query": "find: ", "document": ""}, "default_prompt_name": null,
          "similarity_fn_name": "cosine"})");
}

}  // namespace tandem::testing
