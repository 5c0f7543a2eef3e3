// Texts to tokens, equal by ids and offsets to Hugging Face's fast tokenizers (crate `tokenizers`).
//
// A text passes five stages (docs in tokenizer.cc and at each model, tokenizer_model.h):
//   1. added tokens ("[SEP]", …) are cut out of the raw text and stand for themselves;
//   2. the normalizer changes characters (BERT's drops controls, strips accents, lower-cases);
//   3. the pre-tokenizer splits into words;
//   4. the model cuts words into entries of its vocabulary;
//   5. the caller puts special tokens around, sequence_template(): encode() yields the tokens of
//   the bare text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/text/sequence_template.h"

namespace tandem::text {

// A half-open range of code points of the original text.
struct Span {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  friend bool operator==(const Span&, const Span&) = default;
};

// The tokens of one text, in order, and the memory to make them. Reuse one object for many texts:
// once its buffers have grown, encoding allocates nothing. The first three have the same length.
struct Encoding {
  std::vector<std::int32_t> ids;
  std::vector<Span> offsets;
  // From encode_words(): the word that a token comes from. From encode(): the pre-tokenizer's word
  // or added token, numbered from 0 in the order of the text. Never descends.
  std::vector<std::uint32_t> word_ids;

  // Scratch of Tokenizer::encode: a stretch of text in normalized form, and the original position
  // of each character.
  struct Character {
    char32_t code_point;
    std::uint32_t source;  // index of the original code point
    std::uint8_t combining_class;
    std::uint8_t inserted;  // 1 when the character shares the source of the one before it
  };
  std::uint32_t next_word = 0;  // the number of the word that comes next
  class Scratch {               // scratch memory of a model
   public:
    virtual ~Scratch() = default;
  };
  std::unique_ptr<Scratch> scratch;
  std::vector<Character> characters, other_characters;
  std::string bytes;                    // bytes of one word, or of a normalized stretch
  std::vector<std::uint32_t> byte_end;  // bytes[…byte_end[i]) are the first i + 1 characters
};

// The special tokens that the tokenizer puts around one text: both of an encoder's, or whatever a
// decoder's has.
struct TextFrame {
  std::optional<std::int32_t> begin, end;
};

// Options of a command line that override a tokenizer's files, as keyword arguments of
// AutoTokenizer.from_pretrained do.
struct TokenizerOptions {
  // Used by byte-level BPE, ignored by other models: put a space in front of every text, so that a
  // first word gets the tokens that it has inside of a text. run_ner sets it for RoBERTa.
  std::optional<bool> add_prefix_space;
  // Puts texts into lower case in front of all other steps, as do_lower_case of
  // sentence-transformers does. DataError for models other than WordPiece.
  bool lower_case = false;
};

class Tokenizer {
 public:
  // Reads tokenizer.json if there is one, else vocab.txt, vocab.json with merges.txt,
  // sentencepiece.bpe.model or spm.model, with added_tokens.json; tokenizer_config.json and
  // special_tokens_map.json apply to all, and win where they contradict tokenizer.json, as in
  // Hugging Face. Throws DataError (with the file, what was found and what was expected) for a
  // folder without a vocabulary, a tokenizer class whose rules are not known (tokenizer_class.h),
  // a setting that would change the tokens and is not implemented (tokenizer_keys.h), broken files,
  // a model other than WordPiece, byte-level BPE and Unigram, or a vocabulary without the special
  // tokens.
  static Tokenizer load(const std::filesystem::path& directory,
                        const TokenizerOptions& options = {});

  // The files of a directory that decide what tokens a text gets; config.json may name the class.
  static constexpr std::string_view kFiles[] = {"tokenizer.json",
                                                "vocab.txt",
                                                "vocab.json",
                                                "merges.txt",
                                                "added_tokens.json",
                                                "tokenizer_config.json",
                                                "sentencepiece.bpe.model",
                                                "spm.model",
                                                "special_tokens_map.json",
                                                "chat_template.jinja"};

  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // Replaces encoding.ids, offsets and word_ids by the tokens of `text`, without special tokens.
  // Thread-safe (each thread its own Encoding). Throws DataError naming the byte position if `text`
  // is not valid UTF-8, and Interrupted in the midst of a long text (core/interruption.h).
  void encode(std::string_view text, Encoding& encoding) const;
  // The same for a text that is split into words already (is_split_into_words): each word is a text
  // of its own, and offsets are code points of the word. A word may have no token, as "" has none.
  // DataError names the word, too.
  void encode_words(std::span<const std::string_view> words, Encoding& encoding) const;

  // The special tokens around one text and around a pair. Throws DataError for the tokenizer of a
  // decoder, which does not have both of them.
  const SequenceTemplate& sequence_template() const;
  // The same around one text, of any tokenizer: what a decoder's lacks is kNoToken. A padding token
  // that the files do not name is 0.
  SequenceTemplate text_template() const;
  // The same around a pair. Throws DataError for a decoder's whose files frame a pair otherwise.
  SequenceTemplate pair_template() const;
  TextFrame text_frame() const;
  // Nothing when the files name no such token, or one that has no id.
  std::optional<std::int32_t> pad_token_id() const;
  std::optional<std::int32_t> eos_token_id() const;
  // The text of that token, "" where the files name none.
  const std::string& eos_token() const;
  // The template of conversations, in Jinja, as the files have it; "" without one.
  const std::string& chat_template() const;
  std::int32_t unk_token_id() const;
  // The id of a token by its text in the vocabulary; nothing for other texts.
  std::optional<std::int32_t> token_id(std::string_view token) const;
  // Nothing when the files name no mask token, or one that has no id.
  std::optional<std::int32_t> mask_token_id() const;
  // Whether a token that continues a word has a mark ("##ing"), as WordPiece's have.
  bool marks_continuations() const;

  // Notes for a user of the files, one line each: unknown keys, and settings that versions of
  // transformers read in different ways.
  const std::vector<std::string>& notes() const;

  // Number of ids including added tokens: the least vocab_size of a model that uses this tokenizer.
  std::size_t vocab_size() const;
  // The token with this id, e.g. "##ing"; an empty string for an id that is not in use.
  std::string_view token(std::int32_t id) const;

  // Bytes that the token adds to a text: not always whole characters. "" for an id that is not in
  // use. Throws DataError unless the model is byte-level BPE.
  std::string bytes_of(std::int32_t id) const;
  // Whether the id is a special token, which a text does not show.
  bool is_special(std::int32_t id) const;

  // Longest sequence the model takes; kUnlimited when tokenizer_config.json has no limit.
  static constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();
  std::size_t model_max_length() const;

  // Writes tokenizer.json, the files of the vocabulary (sentencepiece.bpe.model only where one was
  // read), tokenizer_config.json and special_tokens_map.json into an existing directory, as Hugging
  // Face 4.46 does: settings and unknown keys of the files that were
  // read are kept, truncation and padding of tokenizer.json become null. Throws IoError.
  void save(const std::filesystem::path& directory) const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tandem::text
