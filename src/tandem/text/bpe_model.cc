#include "tandem/text/bpe_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "tandem/core/interruption.h"
#include "tandem/text/added_tokens.h"
#include "tandem/text/blanks.h"
#include "tandem/text/bpe.h"
#include "tandem/text/byte_level_words.h"
#include "tandem/text/character_table.h"
#include "tandem/text/normalizer.h"
#include "tandem/text/utf8.h"

namespace tandem::text {
namespace {

std::vector<Blanks> blanks_of_all(const std::vector<std::string>& vocabulary) {
  std::vector<Blanks> blanks;
  for (const std::string& token : vocabulary) blanks.push_back(blanks_of(token));
  return blanks;
}

// Parts that all texts share.
struct BpeParts {
  explicit BpeParts(const TokenizerDefinition& d)
      : options(d.bpe),
        words(d.bpe.words),
        bpe(d.vocabulary, d.bpe.byte_ids, d.bpe.merges, d.bpe.ignore_merges),
        normalized_tokens(select_added_tokens(d.added_tokens, true)),
        blanks(blanks_of_all(d.vocabulary)) {
    if (options.nfc) characters.emplace();
  }

  const BpeOptions& options;
  ByteLevelWords words;
  std::optional<CharacterTable> characters;  // for NFC
  Bpe bpe;
  AddedTokenMatcher normalized_tokens;
  std::vector<Blanks> blanks;  // [id]
};

struct BpeScratch final : Encoding::Scratch {
  Bpe::Work work;
  std::string prefixed;  // a text with a space in front
};

// Encodes one stretch.
class BpeEncoder {
 public:
  BpeEncoder(const BpeParts& parts, BpeScratch& scratch, Encoding& out)
      : parts_(parts), scratch_(scratch), out_(out) {}

  std::uint32_t encode(std::string_view text, std::uint32_t index) {
    if (!parts_.characters || is_plainly_nfc(text)) return encode_normalized(text, index);
    normalize_nfc(text, index, *parts_.characters, out_);
    out_.bytes.clear();
    for (const Encoding::Character& c : out_.characters) append_utf8(c.code_point, out_.bytes);
    has_sources_ = true;
    encode_normalized(out_.bytes, 0);
    has_sources_ = false;
    return index + static_cast<std::uint32_t>(count_code_points(text));
  }

  void emit_added_token(std::int32_t id, std::string_view swallowed, Span span) {
    emit(id, span, blanks_of(swallowed));
    ++out_.next_word;
  }

 private:
  // Spans of the text become those of the original where it has sources.
  std::uint32_t encode_normalized(std::string_view text, std::uint32_t index) {
    for (std::size_t from = 0;;) {
      const AddedTokenMatcher::Match match = parts_.normalized_tokens.find(text, from);
      if (match.id < 0) return encode_text(text.substr(from), index);
      index = encode_text(text.substr(from, match.begin - from), index);
      const std::string_view swallowed = text.substr(match.begin, match.end - match.begin);
      const auto end = index + static_cast<std::uint32_t>(count_code_points(swallowed));
      emit_added_token(match.id, swallowed, {index, end});
      index = end;
      from = match.end;
    }
  }

  std::uint32_t encode_text(std::string_view text, std::uint32_t index) {
    if (!parts_.options.single_digits) return encode_stretch(text, index);
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = parts_.words.end_of_stretch(text, at);
      index = encode_stretch(text.substr(at, end - at), index);
      at = end;
    }
    return index;
  }

  std::uint32_t encode_stretch(std::string_view text, std::uint32_t index) {
    if (text.empty()) return index;
    const bool prefix = parts_.options.add_prefix_space && text[0] != ' ';
    if (prefix) {
      scratch_.prefixed.assign(1, ' ');
      scratch_.prefixed += text;
      text = scratch_.prefixed;
    }
    next_ = index;
    shares_next_ = prefix;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = parts_.words.end_of_word(text, at);
      encode_word(text.substr(at, end - at));
      check_.count(end - at);
      at = end;
    }
    return next_;
  }

  // A token covers the characters of its bytes, so pieces of one character share its place.
  void encode_word(std::string_view word) {
    parts_.bpe.encode(word, scratch_.work);
    std::size_t at = 0;
    for (const Bpe::Piece& piece : scratch_.work.pieces) {
      check_.count();
      step(word[at++]);
      const std::uint32_t begin = current_;
      while (at < piece.end) step(word[at++]);
      emit(piece.id, {begin, current_ + 1}, parts_.blanks[static_cast<std::size_t>(piece.id)]);
    }
    ++out_.next_word;
  }

  // A byte that begins a character is at the next code point; a space that was put in front shares
  // the code point of the character behind it.
  void step(char byte) {
    if ((static_cast<unsigned char>(byte) & 0xc0) == 0x80) return;
    current_ = next_;
    next_ += !std::exchange(shares_next_, false);
  }

  void emit(std::int32_t id, Span span, Blanks blanks) {
    if (has_sources_) {
      span = {out_.characters[span.begin].source, out_.characters[span.end - 1].source + 1};
    }
    if (parts_.options.trim_offsets && (blanks.leading > 0 || blanks.trailing > 0)) {
      const bool first = out_.ids.empty() || span.begin == 0;
      trim_blanks(blanks, first && parts_.options.trim_with_prefix_space, span);
    }
    out_.ids.push_back(id);
    out_.offsets.push_back(span);
    out_.word_ids.push_back(out_.next_word);
  }

  const BpeParts& parts_;
  BpeScratch& scratch_;
  Encoding& out_;
  InterruptionCheck check_;
  std::uint32_t current_ = 0, next_ = 0;  // code points: of the byte before, of the next character
  bool shares_next_ = false;
  bool has_sources_ = false;  // the text is that of out_.characters
};

class BpeModel final : public TokenizerModel {
 public:
  explicit BpeModel(const TokenizerDefinition& definition) : parts_(definition) {}

  std::uint32_t encode(std::string_view stretch, std::uint32_t index,
                       Encoding& out) const override {
    return BpeEncoder(parts_, scratch_of<BpeScratch>(out), out).encode(stretch, index);
  }

  void append_added_token(std::int32_t id, std::string_view swallowed, Span span,
                          Encoding& out) const override {
    BpeEncoder(parts_, scratch_of<BpeScratch>(out), out).emit_added_token(id, swallowed, span);
  }

 private:
  BpeParts parts_;
};

}  // namespace

std::unique_ptr<TokenizerModel> make_bpe_model(const TokenizerDefinition& definition) {
  return std::make_unique<BpeModel>(definition);
}

}  // namespace tandem::text
