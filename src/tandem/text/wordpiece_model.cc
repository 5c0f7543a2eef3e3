#include "tandem/text/wordpiece_model.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "tandem/core/interruption.h"
#include "tandem/text/added_tokens.h"
#include "tandem/text/blanks.h"
#include "tandem/text/character_table.h"
#include "tandem/text/normalizer.h"
#include "tandem/text/utf8.h"
#include "tandem/text/wordpiece.h"

namespace tandem::text {
namespace {

// Action of the fast path for a byte.
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

std::string normalized_text(std::string_view text, const NormalizerOptions& options,
                            const CharacterTable& table) {
  Encoding work;
  normalize(text, 0, options, table, work);
  std::string out;
  for (const Encoding::Character& c : work.characters) append_utf8(c.code_point, out);
  return out;
}

// A token that is looked for in the normalized text is itself normalized first.
std::vector<AddedToken> normalized_tokens_of(const TokenizerDefinition& definition,
                                             const CharacterTable& table) {
  std::vector<AddedToken> tokens = select_added_tokens(definition.added_tokens, true);
  for (AddedToken& token : tokens) {
    token.content = normalized_text(token.content, definition.wordpiece.normalizer, table);
  }
  return tokens;
}

// Parts that all texts share.
struct WordPieceParts {
  explicit WordPieceParts(const TokenizerDefinition& d)
      : definition(d),
        wordpiece(d.vocabulary, d.wordpiece.continuing_subword_prefix),
        normalized_tokens(normalized_tokens_of(d, table)),
        kinds(byte_kinds()),
        lowercase(byte_lowercase(d.wordpiece.normalizer.lowercase)) {}

  const TokenizerDefinition& definition;
  CharacterTable table;
  WordPiece wordpiece;
  AddedTokenMatcher normalized_tokens;
  std::array<ByteKind, 256> kinds;
  std::array<char, 256> lowercase;
};

// Encodes one text. The text is cut at ASCII white space and punctuation, which neither vanish nor
// change nor interact with their neighbours in any stage. The text between them is either a plain
// ASCII word, which goes straight through the trie, or a stretch for the general path: normalize,
// split, WordPiece.
class TextEncoder {
 public:
  TextEncoder(const WordPieceParts& parts, Encoding& out) : parts_(parts), out_(out) {}

  // `text` starts at code point `index` of the original; returns the code point behind it.
  std::uint32_t encode(std::string_view text, std::uint32_t index) {
    if (!parts_.normalized_tokens.empty()) return encode_stretch(text, index);
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
      check_.count(end - at);
      at = end;
    }
    return index;
  }

  void emit(std::int32_t id, std::uint32_t begin, std::uint32_t end) {
    out_.ids.push_back(id);
    out_.offsets.push_back({begin, end});
    out_.word_ids.push_back(out_.next_word);
  }

  // A token that was cut out of a text with the white space that it takes.
  void emit_added_token(std::int32_t id, std::string_view swallowed, Span span) {
    if (const auto prefix_space = parts_.definition.wordpiece.trims_with_prefix_space) {
      const bool first = out_.ids.empty() || span.begin == 0;
      trim_blanks(blanks_of(swallowed), first && *prefix_space, span);
    }
    emit(id, span.begin, span.end);
    ++out_.next_word;
  }

 private:
  ByteKind kind_of(char c) const { return parts_.kinds[static_cast<unsigned char>(c)]; }
  bool is_separator(char c) const {
    return kind_of(c) == ByteKind::kSpace || kind_of(c) == ByteKind::kPunctuation;
  }

  void encode_ascii_word(std::string_view word, std::uint32_t index) {
    const std::size_t mark = out_.ids.size();
    const bool matched =
        word.size() <= parts_.definition.wordpiece.max_input_chars_per_word &&
        parts_.wordpiece.match(
            word.size(),
            [&](std::size_t i) { return parts_.lowercase[static_cast<unsigned char>(word[i])]; },
            [&](std::int32_t id, std::size_t begin, std::size_t end) {
              emit(id, index + static_cast<std::uint32_t>(begin),
                   index + static_cast<std::uint32_t>(end));
            });
    if (!matched) replace_by_unk(mark, index, index + static_cast<std::uint32_t>(word.size()));
    ++out_.next_word;
  }

  void replace_by_unk(std::size_t mark, std::uint32_t begin, std::uint32_t end) {
    out_.ids.resize(mark);
    out_.offsets.resize(mark);
    out_.word_ids.resize(mark);
    emit(parts_.definition.unk_id, begin, end);
  }

  // The general path. Returns the code point behind the stretch.
  std::uint32_t encode_stretch(std::string_view stretch, std::uint32_t index) {
    normalize(stretch, index, parts_.definition.wordpiece.normalizer, parts_.table, out_);
    cut_added_tokens(
        parts_.normalized_tokens, out_.characters,
        [&](std::size_t begin, std::size_t end) { encode_words(begin, end); },
        [&](std::int32_t id, std::size_t begin, std::size_t end) {
          out_.bytes.clear();
          for (std::size_t i = begin; i < end; ++i)
            append_utf8(out_.characters[i].code_point, out_.bytes);
          emit_added_token(id, out_.bytes,
                           {out_.characters[begin].source, out_.characters[end - 1].source + 1});
        });
    return index + static_cast<std::uint32_t>(count_code_points(stretch));
  }

  // Pre-tokenizer: white space separates and is dropped, punctuation stands alone.
  void encode_words(std::size_t begin, std::size_t end) {
    for (std::size_t at = begin; at < end;) {
      const std::uint8_t flags = parts_.table.flags(out_.characters[at].code_point);
      std::size_t word_end = at + 1;
      if (!(flags & (CharacterTable::kSpace | CharacterTable::kPunctuation))) {
        while (word_end < end && !(parts_.table.flags(out_.characters[word_end].code_point) &
                                   (CharacterTable::kSpace | CharacterTable::kPunctuation))) {
          ++word_end;
        }
      }
      if (!(flags & CharacterTable::kSpace)) encode_word(at, word_end);
      check_.count(word_end - at);
      at = word_end;
    }
  }

  void encode_word(std::size_t first, std::size_t last) {
    const std::size_t mark = out_.ids.size();
    std::string& bytes = out_.bytes;
    bytes.clear();
    out_.byte_end.clear();
    for (std::size_t i = first; i < last; ++i) {
      check_.count();
      append_utf8(out_.characters[i].code_point, bytes);
      out_.byte_end.push_back(static_cast<std::uint32_t>(bytes.size()));
    }
    std::size_t character = first;  // the first one of the next piece
    const bool matched = last - first <= parts_.definition.wordpiece.max_input_chars_per_word &&
                         parts_.wordpiece.match(
                             bytes.size(), [&](std::size_t i) { return bytes[i]; },
                             [&](std::int32_t id, std::size_t, std::size_t end) {
                               const std::size_t piece_begin = character;
                               while (out_.byte_end[character - first] < end) ++character;
                               emit_characters(id, piece_begin, ++character);
                             });
    if (!matched) {
      replace_by_unk(mark, out_.characters[first].source, out_.characters[last - 1].source + 1);
    }
    ++out_.next_word;
  }

  // A token that covers the normalized characters [first, last): from the source of the first to
  // that of the last.
  void emit_characters(std::int32_t id, std::size_t first, std::size_t last) {
    emit(id, out_.characters[first].source, out_.characters[last - 1].source + 1);
  }

  const WordPieceParts& parts_;
  Encoding& out_;
  InterruptionCheck check_;
};

class WordPieceModel final : public TokenizerModel {
 public:
  explicit WordPieceModel(const TokenizerDefinition& definition) : parts_(definition) {}
  std::uint32_t encode(std::string_view stretch, std::uint32_t index,
                       Encoding& out) const override {
    return TextEncoder(parts_, out).encode(stretch, index);
  }

  void append_added_token(std::int32_t id, std::string_view swallowed, Span span,
                          Encoding& out) const override {
    TextEncoder(parts_, out).emit_added_token(id, swallowed, span);
  }

 private:
  WordPieceParts parts_;
};

}  // namespace

std::unique_ptr<TokenizerModel> make_wordpiece_model(const TokenizerDefinition& definition) {
  return std::make_unique<WordPieceModel>(definition);
}

}  // namespace tandem::text
