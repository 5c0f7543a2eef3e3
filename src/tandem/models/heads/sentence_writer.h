// Writes the files of sentence-transformers next to an encoder, under the names and keys of
// versions 2 to 5.2, which later versions read too (sentence_files.h reads them).
#pragma once

#include <cstddef>
#include <filesystem>

#include "tandem/models/heads/sentence_files.h"

namespace tandem::models {

// modules.json, a folder for each module behind the encoder, sentence_bert_config.json and
// config_sentence_transformers.json in an existing directory. `hidden_size` is the encoder's. A
// file is replaced atomically. Throws IoError.
void write_sentence_files(const std::filesystem::path& directory, const SentenceFiles& files,
                          std::size_t hidden_size);

}  // namespace tandem::models
