// Texts and their embeddings by a bi-encoder in memory: what `tandem embed` writes.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "apps/answering/inference_model.h"
#include "tandem/models/heads/sentence_files.h"

namespace tandem::apps {

// Texts that a command embeds together: sorted by length among themselves.
inline constexpr std::size_t kTextsAtOnce = 1024;

struct EmbedOptions {
  std::optional<std::string> prompt;       // in front of every text
  std::optional<std::string> prompt_name;  // one of the model's prompts; not together with `prompt`
  std::size_t max_seq_length = 0;          // special tokens included; 0: the model's own
  bool normalize = false;                  // to length 1, in addition to the model's modules
  std::size_t truncate_dim = 0;            // keep the first values; 0: all
};

// The model's prompt of this name. Throws ConfigError that begins with `flag` and lists the names.
std::string prompt_named(const models::SentenceFiles& files, const std::string& name,
                         std::string_view flag);

// A text of a request.
struct TextToEmbed {
  std::string name;  // for messages
  std::string text;
};

// Options of one request; they replace the Embedder's.
struct EmbedRequest {
  std::optional<std::string> prompt_name;  // absent: the Embedder's prompt
  bool normalize = true;                   // to length 1
  std::size_t truncate_dim = 0;            // keep the first values; 0: as the Embedder
  bool truncate = true;                    // cut texts that are too long; false: refuse them
};

struct Embeddings {
  std::vector<float> values;  // [texts, size]
  std::size_t size = 0;
  std::size_t tokens = 0;  // tokens of all texts, special ones included
};

// How messages number texts: "text 1", "names.txt, line 1".
struct TextNumbers {
  std::size_t first = 1;
  std::string what = "text";
};

// A model directory of sentence-transformers, or a bare encoder, which gets mean pooling.
// The files of a bi-encoder, of any family. Throws as FoundModel().
FoundModel find_bi_encoder(const ModelOptions& model, const Environment& environment);

class Embedder {
 public:
  // `found` with the files of sentence-transformers. Throws what InferenceModel's constructor and
  // read_sentence_files() throw, and ConfigError for options that the model cannot follow.
  Embedder(const FoundModel& found, EmbedOptions options, const Environment& environment);

  // Values of an embedding.
  std::size_t size() const { return size_; }
  // Embeddings [texts, size()], f32, in the order of the texts, with `prompt` in front of each. A
  // text's embedding has the same bits whatever is computed with it. Texts longer than the limit
  // are truncated. Throws DataError that names the text by its number, if it is not UTF-8, and
  // Interrupted. For one thread at a time.
  std::vector<float> embed(const std::string& prompt, std::span<const std::string> texts,
                           const TextNumbers& numbers, const std::stop_token& cancelled = {});
  // The same bits for a request. Several threads may ask at once; each tokenizes its own texts.
  // Throws DataError that names the text or the parameter, and Interrupted.
  Embeddings answer(std::span<const TextToEmbed> texts, const EmbedRequest& request,
                    const std::stop_token& cancelled);

  const models::SentenceFiles& files() const { return files_; }
  const InferenceModel& model() const { return model_; }
  // The text in front of every text; empty: none.
  const std::string& prompt() const { return prompt_; }
  std::size_t max_tokens() const;
  // Idle while embed() does not run.
  ThreadPool& threads() { return tokenizing_; }

 private:
  // The tokens of a text, one at least. Throws DataError with the name in front.
  void encode(std::string_view text, FunctionRef<std::string()> name,
              text::Encoding& encoding) const;
  std::vector<std::vector<std::int32_t>> tokenize(const std::string& prompt,
                                                  std::span<const std::string> texts,
                                                  const TextNumbers& numbers);
  // Tokens of a prompt that are left out of the pooling.
  std::size_t unpooled_tokens(const std::string& prompt) const;
  void finish(std::span<const float> pooled, bool normalize, std::span<float> out) const;

  EmbedOptions options_;
  models::SentenceFiles files_;
  std::string prompt_;
  InferenceModel model_;
  text::SequenceTemplate frame_;  // around each text
  ThreadPool tokenizing_;
  std::size_t size_ = 0;
};

}  // namespace tandem::apps
