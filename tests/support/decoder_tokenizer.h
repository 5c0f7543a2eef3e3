// A small tokenizer of a decoder for tests.
#pragma once

#include <filesystem>
#include <string>

#include "tandem/core/file.h"
#include "tandem/core/json.h"

namespace tandem::testing {

// Writes the tokenizer of golden/tokenizers/modernbert without special tokens around texts.
inline void write_decoder_tokenizer(const std::filesystem::path& folder,
                                    const std::string& chat_template = "") {
  const auto source =
      std::filesystem::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/tokenizers/modernbert";
  auto tokenizer = nlohmann::ordered_json::parse(read_file(source / "tokenizer.json"));
  tokenizer["post_processor"] = nullptr;
  write_file(folder / "tokenizer.json", tokenizer.dump());
  nlohmann::ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                   {"eos_token", "<|endoftext|>"},
                                   {"pad_token", "[PAD]"},
                                   {"unk_token", "[UNK]"}};
  if (!chat_template.empty()) config["chat_template"] = chat_template;
  write_file(folder / "tokenizer_config.json", config.dump());
}

}  // namespace tandem::testing
