#include "tandem/text/unigram_model.h"

#include <algorithm>
#include <span>
#include <utility>
#include <variant>

#include "tandem/core/interruption.h"
#include "tandem/text/added_tokens.h"
#include "tandem/text/character_table.h"
#include "tandem/text/charsmap.h"
#include "tandem/text/normalizer.h"
#include "tandem/text/unigram.h"
#include "tandem/text/utf8.h"

namespace tandem::text {
namespace {

using Characters = std::vector<Encoding::Character>;

void apply(const std::shared_ptr<const Charsmap>& charsmap, Characters& characters,
           Characters& other) {
  charsmap->apply(characters, other);
}

void apply(const StripStep& strip, Characters& characters, Characters&) {
  const auto is_text = [](const auto& c) { return !is_white_space(c.code_point); };
  if (strip.right) {
    characters.erase(std::find_if(characters.rbegin(), characters.rend(), is_text).base(),
                     characters.end());
  }
  if (strip.left)
    characters.erase(characters.begin(),
                     std::find_if(characters.begin(), characters.end(), is_text));
}

// Characters from `at` on that `belongs` accepts.
template <class Belongs>
std::size_t run_length(const Characters& characters, std::size_t at, Belongs belongs) {
  std::size_t end = at;
  while (end < characters.size() && belongs(characters[end].code_point)) ++end;
  return end - at;
}

std::size_t match_text(const std::u32string& text, const Characters& characters, std::size_t at) {
  if (text.size() > characters.size() - at) return 0;
  const auto equal = [](char32_t c, const auto& character) { return c == character.code_point; };
  return std::equal(text.begin(), text.end(), characters.begin() + static_cast<std::ptrdiff_t>(at),
                    equal)
             ? text.size()
             : 0;
}

// Characters from `at` on that are replaced as one.
std::size_t match(const ReplaceStep& replace, const Characters& characters, std::size_t at) {
  if (replace.pattern == ReplaceStep::Pattern::kText)
    return match_text(replace.text, characters, at);
  if (replace.pattern == ReplaceStep::Pattern::kBlanks) {
    const std::size_t count = run_length(characters, at, [](char32_t c) { return c == ' '; });
    return count >= 2 ? count : 0;
  }
  const std::size_t count = run_length(characters, at, is_white_space);
  const char32_t first = characters[at].code_point;
  const bool alone = first == '\n' || first == '\r' || first == '\t';
  return count >= 2 || alone ? count : 0;
}

// The new characters have the source position of the last character that they replace.
void apply(const ReplaceStep& replace, Characters& characters, Characters& other) {
  other.clear();
  InterruptionCheck check;
  for (std::size_t at = 0; at < characters.size();) {
    check.count();
    const std::size_t count = match(replace, characters, at);
    if (count == 0) {
      other.push_back(characters[at++]);
      continue;
    }
    at += count;
    for (const char32_t c : replace.content) other.push_back({c, characters[at - 1].source, 0, 0});
  }
  characters.swap(other);
}

void apply(const NfcStep& nfc, Characters& characters, Characters& other) {
  const auto is_plain = [](const auto& c) { return c.code_point < 0x300; };
  if (!std::all_of(characters.begin(), characters.end(), is_plain))
    normalize_nfc(*nfc.characters, characters, other);
}

void normalize(const UnigramOptions& options, std::string_view stretch, std::uint32_t index,
               Encoding& work) {
  work.characters.clear();
  InterruptionCheck check;
  for (std::size_t at = 0; at < stretch.size(); ++index) {
    check.count();
    work.characters.push_back({next_code_point(stretch, at), index, 0, 0});
  }
  for (const NormalizerStep& step : options.normalizer) {
    std::visit([&](const auto& s) { apply(s, work.characters, work.other_characters); }, step);
  }
}

// A token that is looked for in the normalized text is itself normalized first.
std::vector<AddedToken> normalized_tokens_of(const TokenizerDefinition& d) {
  std::vector<AddedToken> tokens = select_added_tokens(d.added_tokens, true);
  Encoding work;
  for (AddedToken& token : tokens) {
    normalize(d.unigram, token.content, 0, work);
    token.content.clear();
    for (const Encoding::Character& c : work.characters) append_utf8(c.code_point, token.content);
  }
  return tokens;
}

// Parts that all texts share.
struct UnigramParts {
  explicit UnigramParts(const TokenizerDefinition& d)
      : options(d.unigram),
        unigram(d.vocabulary, d.unigram.scores, d.unk_id),
        normalized_tokens(normalized_tokens_of(d)) {}

  const UnigramOptions& options;
  Unigram unigram;
  AddedTokenMatcher normalized_tokens;
};

struct UnigramScratch final : Encoding::Scratch {
  Unigram::Work work;
};

// Encodes one stretch.
class UnigramEncoder {
 public:
  UnigramEncoder(const UnigramParts& parts, UnigramScratch& scratch, Encoding& out)
      : parts_(parts), scratch_(scratch), out_(out) {}

  std::uint32_t encode(std::string_view stretch, std::uint32_t index) {
    normalize(parts_.options, stretch, index, out_);
    cut_added_tokens(
        parts_.normalized_tokens, out_.characters,
        [&](std::size_t begin, std::size_t end) { encode_part(begin, end); },
        [&](std::int32_t id, std::size_t begin, std::size_t end) {
          emit(id, out_.characters[begin].source, out_.characters[end - 1].source);
          ++out_.next_word;
        });
    return index + static_cast<std::uint32_t>(count_code_points(stretch));
  }

 private:
  // White space separates and is dropped, if the pre-tokenizer requires it; Metaspace does the
  // rest.
  void encode_part(std::size_t begin, std::size_t end) {
    if (!parts_.options.splits_white_space) {
      encode_words(begin, end);
      return;
    }
    const auto is_space = [&](std::size_t i) {
      return is_white_space(out_.characters[i].code_point);
    };
    while (begin < end) {
      while (begin < end && is_space(begin)) ++begin;
      std::size_t word_end = begin;
      while (word_end < end && !is_space(word_end)) ++word_end;
      encode_words(begin, word_end);
      begin = word_end;
    }
  }

  // Metaspace: a blank becomes "▁", one is put in front, and every "▁" begins a word.
  void encode_words(std::size_t begin, std::size_t end) {
    if (begin == end) return;
    out_.bytes.clear();
    prefixed_ = needs_prefix(begin);
    if (prefixed_) append_utf8(parts_.options.replacement, out_.bytes);
    std::size_t word_begin = 0;  // in bytes
    std::size_t first = begin;   // its first character, apart from the prefix
    for (std::size_t i = begin; i < end; ++i) {
      check_.count();
      const char32_t c = metaspaced(out_.characters[i].code_point);
      const bool begins_word = parts_.options.split && c == parts_.options.replacement;
      if (begins_word && out_.bytes.size() > word_begin) {
        encode_word(word_begin, first);
        word_begin = out_.bytes.size();
        first = i;
      }
      append_utf8(c, out_.bytes);
    }
    encode_word(word_begin, first);
  }

  bool needs_prefix(std::size_t begin) const {
    const Encoding::Character& first = out_.characters[begin];
    if (metaspaced(first.code_point) == parts_.options.replacement) return false;
    return parts_.options.prepend == PrependScheme::kAlways ||
           (parts_.options.prepend == PrependScheme::kFirst && first.source == 0);
  }

  char32_t metaspaced(char32_t c) const { return c == ' ' ? parts_.options.replacement : c; }

  // The word is out_.bytes from byte `begin` on, made of the characters from `first` on and, where
  // it is the first one, of the "▁" in front, which has the position of the character behind it.
  void encode_word(std::size_t begin, std::size_t first) {
    const std::string_view word = std::string_view(out_.bytes).substr(begin);
    parts_.unigram.encode(word, scratch_.work);
    std::size_t at = 0;
    std::size_t next = first;
    bool prefix = prefixed_ && begin == 0;
    for (const Unigram::Piece& piece : scratch_.work.pieces) {
      check_.count();
      const std::size_t piece_first = next;
      std::size_t last = next;
      while (at < piece.end) {
        next_code_point(word, at);
        last = next;
        next += !std::exchange(prefix, false);
      }
      emit(piece.id, out_.characters[piece_first].source, out_.characters[last].source);
    }
    ++out_.next_word;
  }

  // A token that covers the text from one code point to another, that included.
  void emit(std::int32_t id, std::uint32_t first, std::uint32_t last) {
    out_.ids.push_back(id);
    out_.offsets.push_back({first, last + 1});
    out_.word_ids.push_back(out_.next_word);
  }

  const UnigramParts& parts_;
  UnigramScratch& scratch_;
  Encoding& out_;
  InterruptionCheck check_;
  bool prefixed_ = false;
};

class UnigramModel final : public TokenizerModel {
 public:
  explicit UnigramModel(const TokenizerDefinition& definition) : parts_(definition) {}
  std::uint32_t encode(std::string_view stretch, std::uint32_t index,
                       Encoding& out) const override {
    return UnigramEncoder(parts_, scratch_of<UnigramScratch>(out), out).encode(stretch, index);
  }

 private:
  UnigramParts parts_;
};

}  // namespace

std::unique_ptr<TokenizerModel> make_unigram_model(const TokenizerDefinition& definition) {
  return std::make_unique<UnigramModel>(definition);
}

}  // namespace tandem::text
