// A small tokenizer of a decoder for tests, and a decoder that embeds texts.
#pragma once

#include <filesystem>
#include <string>

#include "tandem/core/file.h"
#include "tandem/core/json.h"

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

// Writes the bi-encoder of golden/decoders as make_decoder_goldens.py makes it.
inline void write_decoder_embedding_model(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  for (const auto& file :
       fs::directory_iterator(fs::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/decoders/qwen2"))
    fs::copy(file.path(), folder);
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
