#include "tandem/text/tokenizer.h"

#include <array>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/text/added_tokens.h"
#include "tandem/text/character_table.h"
#include "tandem/text/json_text.h"
#include "tandem/text/normalizer.h"
#include "tandem/text/tokenizer_files.h"
#include "tandem/text/utf8.h"
#include "tandem/text/wordpiece.h"

namespace tandem::text {
namespace {

// What the fast path does with a byte.
enum class ByteKind : std::uint8_t {
  kWord,         // ASCII letter or digit
  kSpace,        // separates words and is dropped: \t \n \r and space
  kPunctuation,  // a word of its own
  kOther,        // control characters and everything beyond ASCII: the general path decides
};

std::array<ByteKind, 256> byte_kinds() {
  std::array<ByteKind, 256> kinds;
  kinds.fill(ByteKind::kOther);
  for (int c = 33; c < 127; ++c) kinds[static_cast<std::size_t>(c)] = ByteKind::kPunctuation;
  for (const auto& [first, last] : {std::pair{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}) {
    for (int c = first; c <= last; ++c) kinds[static_cast<std::size_t>(c)] = ByteKind::kWord;
  }
  for (const char c : {'\t', '\n', '\r', ' '}) {
    kinds[static_cast<std::size_t>(c)] = ByteKind::kSpace;
  }
  return kinds;
}

std::array<char, 256> byte_lowercase(bool lowercase) {
  std::array<char, 256> map;
  for (std::size_t c = 0; c < map.size(); ++c) {
    map[c] = static_cast<char>(lowercase && c >= 'A' && c <= 'Z' ? c + 32 : c);
  }
  return map;
}

std::vector<AddedToken> select(const std::vector<AddedToken>& tokens, bool normalized) {
  std::vector<AddedToken> selected;
  for (const AddedToken& token : tokens) {
    if (token.normalized == normalized) selected.push_back(token);
  }
  return selected;
}

std::string normalized_text(std::string_view text, const NormalizerOptions& options,
                            const CharacterTable& table) {
  Encoding work;
  normalize(text, 0, options, table, work);
  std::string out;
  for (const Encoding::Character& c : work.characters) append_utf8(c.code_point, out);
  return out;
}

}  // namespace

struct Tokenizer::State {
  explicit State(TokenizerDefinition d)
      : definition(std::move(d)),
        wordpiece(definition.vocabulary, definition.continuing_subword_prefix),
        raw_tokens(select(definition.added_tokens, false)),
        normalized_tokens(normalized_contents()),
        kinds(byte_kinds()),
        lowercase(byte_lowercase(definition.normalizer.lowercase)) {
    tokens = definition.vocabulary;
    for (const AddedToken& token : definition.added_tokens) {
      const auto id = static_cast<std::size_t>(token.id);
      if (id >= tokens.size()) tokens.resize(id + 1);
      tokens[id] = token.content;
    }
  }

  // A token that is looked for in the normalized text is itself normalized first.
  std::vector<AddedToken> normalized_contents() const {
    std::vector<AddedToken> selected = select(definition.added_tokens, true);
    for (AddedToken& token : selected) {
      token.content = normalized_text(token.content, definition.normalizer, table);
    }
    return selected;
  }

  TokenizerDefinition definition;
  CharacterTable table;
  WordPiece wordpiece;
  AddedTokenMatcher raw_tokens, normalized_tokens;
  std::array<ByteKind, 256> kinds;
  std::array<char, 256> lowercase;
  std::vector<std::string> tokens;  // [id]
};

namespace {

// Encodes one text. The text is cut at ASCII white space and punctuation, which neither vanish nor
// change nor interact with their neighbours in any stage. What lies between is either a plain ASCII
// word, which goes straight through the trie, or a stretch for the general path: normalize, split,
// WordPiece.
class TextEncoder {
 public:
  TextEncoder(const TokenizerDefinition& definition, const CharacterTable& table,
              const WordPiece& wordpiece, const AddedTokenMatcher& normalized_tokens,
              const std::array<ByteKind, 256>& kinds, const std::array<char, 256>& lowercase,
              Encoding& out)
      : definition_(definition),
        table_(table),
        wordpiece_(wordpiece),
        normalized_tokens_(normalized_tokens),
        kinds_(kinds),
        lowercase_(lowercase),
        out_(out) {}

  // `text` starts at code point `index` of the original; returns the code point behind it.
  std::uint32_t encode(std::string_view text, std::uint32_t index) {
    if (!normalized_tokens_.empty()) return encode_stretch(text, index);
    for (std::size_t at = 0; at < text.size();) {
      const ByteKind kind = kind_of(text[at]);
      if (kind == ByteKind::kSpace) {
        ++at;
        ++index;
        continue;
      }
      std::size_t end = at + 1;
      if (kind == ByteKind::kWord) {
        while (end < text.size() && kind_of(text[end]) == ByteKind::kWord) ++end;
      }
      if (kind == ByteKind::kOther || (kind == ByteKind::kWord && end < text.size() &&
                                       kind_of(text[end]) == ByteKind::kOther)) {
        while (end < text.size() && !is_separator(text[end])) ++end;
        index = encode_stretch(text.substr(at, end - at), index);
      } else {
        encode_ascii_word(text.substr(at, end - at), index);
        index += static_cast<std::uint32_t>(end - at);
      }
      at = end;
    }
    return index;
  }

  void emit(std::int32_t id, std::uint32_t begin, std::uint32_t end) {
    out_.ids.push_back(id);
    out_.offsets.push_back({begin, end});
  }

 private:
  ByteKind kind_of(char c) const { return kinds_[static_cast<unsigned char>(c)]; }
  bool is_separator(char c) const {
    return kind_of(c) == ByteKind::kSpace || kind_of(c) == ByteKind::kPunctuation;
  }

  void encode_ascii_word(std::string_view word, std::uint32_t index) {
    const std::size_t mark = out_.ids.size();
    const bool matched =
        word.size() <= definition_.max_input_chars_per_word &&
        wordpiece_.match(
            word.size(),
            [&](std::size_t i) { return lowercase_[static_cast<unsigned char>(word[i])]; },
            [&](std::int32_t id, std::size_t begin, std::size_t end) {
              emit(id, index + static_cast<std::uint32_t>(begin),
                   index + static_cast<std::uint32_t>(end));
            });
    if (!matched) replace_by_unk(mark, index, index + static_cast<std::uint32_t>(word.size()));
  }

  void replace_by_unk(std::size_t mark, std::uint32_t begin, std::uint32_t end) {
    out_.ids.resize(mark);
    out_.offsets.resize(mark);
    emit(definition_.unk_id, begin, end);
  }

  // The general path. Returns the code point behind the stretch.
  std::uint32_t encode_stretch(std::string_view stretch, std::uint32_t index) {
    normalize(stretch, index, definition_.normalizer, table_, out_);
    if (normalized_tokens_.empty()) {
      encode_words(0, out_.characters.size());
    } else {
      encode_between_tokens();
    }
    return index + static_cast<std::uint32_t>(count_code_points(stretch));
  }

  // Cuts added tokens out of the normalized characters; what lies between is split into words.
  void encode_between_tokens() {
    std::string normalized;
    std::vector<std::size_t> character_at;  // [byte] → character
    for (std::size_t i = 0; i < out_.characters.size(); ++i) {
      append_utf8(out_.characters[i].code_point, normalized);
      character_at.resize(normalized.size(), i);
    }
    character_at.push_back(out_.characters.size());
    std::size_t from = 0;
    for (;;) {
      const AddedTokenMatcher::Match match = normalized_tokens_.find(normalized, from);
      if (match.id < 0) break;
      encode_words(character_at[from], character_at[match.begin]);
      emit_characters(match.id, character_at[match.begin], character_at[match.end]);
      from = match.end;
    }
    encode_words(character_at[from], out_.characters.size());
  }

  // Pre-tokenizer: white space separates and is dropped, punctuation stands alone.
  void encode_words(std::size_t begin, std::size_t end) {
    for (std::size_t at = begin; at < end;) {
      const std::uint8_t flags = table_.flags(out_.characters[at].code_point);
      std::size_t word_end = at + 1;
      if (!(flags & (CharacterTable::kSpace | CharacterTable::kPunctuation))) {
        while (word_end < end && !(table_.flags(out_.characters[word_end].code_point) &
                                   (CharacterTable::kSpace | CharacterTable::kPunctuation))) {
          ++word_end;
        }
      }
      if (!(flags & CharacterTable::kSpace)) encode_word(at, word_end);
      at = word_end;
    }
  }

  void encode_word(std::size_t first, std::size_t last) {
    const std::size_t mark = out_.ids.size();
    std::string& bytes = out_.bytes;
    bytes.clear();
    out_.byte_end.clear();
    for (std::size_t i = first; i < last; ++i) {
      append_utf8(out_.characters[i].code_point, bytes);
      out_.byte_end.push_back(static_cast<std::uint32_t>(bytes.size()));
    }
    std::size_t character = first;  // the first one of the next piece
    const bool matched = last - first <= definition_.max_input_chars_per_word &&
                         wordpiece_.match(
                             bytes.size(), [&](std::size_t i) { return bytes[i]; },
                             [&](std::int32_t id, std::size_t, std::size_t end) {
                               const std::size_t piece_begin = character;
                               while (out_.byte_end[character - first] < end) ++character;
                               emit_characters(id, piece_begin, ++character);
                             });
    if (!matched) {
      replace_by_unk(mark, out_.characters[first].source, out_.characters[last - 1].source + 1);
    }
  }

  // A token that covers the normalized characters [first, last): from the source of the first to
  // that of the last.
  void emit_characters(std::int32_t id, std::size_t first, std::size_t last) {
    emit(id, out_.characters[first].source, out_.characters[last - 1].source + 1);
  }

  const TokenizerDefinition& definition_;
  const CharacterTable& table_;
  const WordPiece& wordpiece_;
  const AddedTokenMatcher& normalized_tokens_;
  const std::array<ByteKind, 256>& kinds_;
  const std::array<char, 256>& lowercase_;
  Encoding& out_;
};

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::load(const std::filesystem::path& directory) {
  return Tokenizer(std::make_unique<State>(read_tokenizer_definition(directory)));
}

void Tokenizer::encode(std::string_view text, Encoding& encoding) const {
  if (const auto invalid = find_invalid_utf8(text)) {
    raise<DataError>("text is not UTF-8 at byte {} (value 0x{:02x})", *invalid,
                     static_cast<unsigned char>(text[*invalid]));
  }
  encoding.ids.clear();
  encoding.offsets.clear();
  const State& s = *state_;
  TextEncoder encoder(s.definition, s.table, s.wordpiece, s.normalized_tokens, s.kinds, s.lowercase,
                      encoding);
  std::uint32_t index = 0;
  for (std::size_t from = 0; from < text.size();) {
    const AddedTokenMatcher::Match match = s.raw_tokens.find(text, from);
    if (match.id < 0) {
      encoder.encode(text.substr(from), index);
      break;
    }
    index = encoder.encode(text.substr(from, match.begin - from), index);
    const auto count = count_code_points(text.substr(match.begin, match.end - match.begin));
    encoder.emit(match.id, index, index + static_cast<std::uint32_t>(count));
    index += static_cast<std::uint32_t>(count);
    from = match.end;
  }
}

std::int32_t Tokenizer::cls_token_id() const { return state_->definition.cls_id; }
std::int32_t Tokenizer::sep_token_id() const { return state_->definition.sep_id; }
std::int32_t Tokenizer::pad_token_id() const { return state_->definition.pad_id; }
std::int32_t Tokenizer::unk_token_id() const { return state_->definition.unk_id; }
std::size_t Tokenizer::vocab_size() const { return state_->tokens.size(); }

std::string_view Tokenizer::token(std::int32_t id) const {
  const auto index = static_cast<std::size_t>(id);
  return id >= 0 && index < state_->tokens.size() ? std::string_view(state_->tokens[index])
                                                  : std::string_view();
}

std::size_t Tokenizer::model_max_length() const { return state_->definition.model_max_length; }

void Tokenizer::save(const std::filesystem::path& directory) const {
  write_tokenizer_definition(state_->definition, directory);
}

}  // namespace tandem::text
