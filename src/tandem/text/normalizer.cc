#include "tandem/text/normalizer.h"

#include <algorithm>
#include <vector>

#include "tandem/core/interruption.h"
#include "tandem/text/utf8.h"

namespace tandem::text {
namespace {

using Characters = std::vector<Encoding::Character>;

void decode(std::string_view stretch, std::uint32_t index, Characters& out) {
  out.clear();
  InterruptionCheck check;
  for (std::size_t at = 0; at < stretch.size(); ++index) {
    check.count();
    out.push_back({next_code_point(stretch, at), index, 0, 0});
  }
}

void clean(const CharacterTable& table, Characters& characters) {
  std::size_t kept = 0;
  InterruptionCheck check;
  for (Encoding::Character c : characters) {
    check.count();
    const std::uint8_t flags = table.flags(c.code_point);
    if (flags & CharacterTable::kRemoved) continue;
    if (flags & CharacterTable::kSpace) c.code_point = ' ';
    characters[kept++] = c;
  }
  characters.resize(kept);
}

void separate_ideographs(const CharacterTable& table, const Characters& in, Characters& out) {
  out.clear();
  InterruptionCheck check;
  for (const Encoding::Character& c : in) {
    check.count();
    if (table.flags(c.code_point) & CharacterTable::kIdeograph) {
      out.push_back({' ', c.source, 0, 0});
      out.push_back(c);
      out.push_back({' ', c.source, 0, 0});
    } else {
      out.push_back(c);
    }
  }
}

// NFD with the crate's bookkeeping of sources. Decomposition gives every character a mark: the
// first part of an original character is not inserted, the other parts are. Then each run of
// characters with combining class ≠ 0 is sorted, marks and all. Last, sources are dealt out from
// left to right: a character that is not inserted takes the next original character's, an inserted
// one that of the character before. (So two marks that swap places do not swap sources.)
void decompose(const CharacterTable& table, const Characters& in, Characters& out) {
  out.clear();
  std::u32string parts;
  InterruptionCheck check;
  for (const Encoding::Character& c : in) {
    check.count();
    if (table.flags(c.code_point) & CharacterTable::kDecomposes) {
      CharacterTable::decompose(c.code_point, parts);
    } else {
      parts.assign(1, c.code_point);
    }
    std::uint8_t inserted = 0;
    for (const char32_t part : parts) {
      const bool reorders = table.flags(part) & CharacterTable::kReorders;
      out.push_back({part, c.source,
                     reorders ? CharacterTable::combining_class(part) : std::uint8_t{0}, inserted});
      inserted = 1;
    }
  }
  const auto is_starter = [&](const Encoding::Character& c) {
    check.count();
    return c.combining_class == 0;
  };
  for (auto run = out.begin(); run != out.end();) {
    run = std::find_if_not(run, out.end(), is_starter);
    const auto end = std::find_if(run, out.end(), is_starter);
    std::stable_sort(run, end, [&](const auto& a, const auto& b) {
      check.count();
      return a.combining_class < b.combining_class;
    });
    run = end;
  }
  std::size_t next = 0;
  for (Encoding::Character& c : out) {
    check.count();
    if (!c.inserted) ++next;
    c.source = in[std::max<std::size_t>(next, 1) - 1].source;
  }
}

// The crate counts how many original characters a character of the result stands for, less one:
// −n where it took n further ones, 1 where it was inserted. `source` holds that number here, until
// deal_out_sources().
std::uint32_t as_source(std::int64_t change) { return static_cast<std::uint32_t>(change); }
std::int32_t change_of(const Encoding::Character& c) { return static_cast<std::int32_t>(c.source); }

// The composition of NFC (Unicode, section 3.11) of decomposed characters, in place.
void compose(Characters& characters) {
  InterruptionCheck check;
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t kept = 0;
  std::size_t starter = kNone;  // among those kept, to which marks may be added
  std::uint8_t last_class = 0;  // class of the last mark behind it that was not; 0: no such mark
  for (const Encoding::Character c : characters) {
    check.count();
    const bool blocked = last_class != 0 && last_class >= c.combining_class;
    if (starter != kNone && !blocked) {
      Encoding::Character& first = characters[starter];
      if (const char32_t both = CharacterTable::compose(first.code_point, c.code_point)) {
        first.code_point = both;
        first.source = as_source(std::int64_t{change_of(first)} + c.inserted - 1);
        continue;
      }
    }
    if (c.combining_class == 0) starter = kept;
    last_class = c.combining_class;
    characters[kept] = c;
    characters[kept++].source = as_source(c.inserted);
  }
  characters.resize(kept);
}

// `original`: the characters before decomposition.
void deal_out_sources(const Characters& original, Characters& characters) {
  std::size_t next = 0;
  InterruptionCheck check;
  for (Encoding::Character& c : characters) {
    check.count();
    const std::int32_t change = change_of(c);
    c.source = original[change > 0 && next > 0 ? next - 1 : next].source;
    next += static_cast<std::size_t>(1 - change);
  }
}

void drop_marks(const CharacterTable& table, Characters& characters) {
  InterruptionCheck check;
  std::erase_if(characters, [&](const Encoding::Character& c) {
    check.count();
    return (table.flags(c.code_point) & CharacterTable::kNonspacingMark) != 0;
  });
}

void lowercase(const CharacterTable& table, const Characters& in, Characters& out) {
  out.clear();
  InterruptionCheck check;
  for (Encoding::Character c : in) {
    check.count();
    const bool capital_i_with_dot = c.code_point == 0x130;
    if (table.flags(c.code_point) & CharacterTable::kHasLowercase) {
      c.code_point = CharacterTable::to_lower(c.code_point);
    }
    out.push_back(c);
    // The one character whose full lower case is two: "i" and a combining dot above.
    if (capital_i_with_dot) out.push_back({0x307, c.source, 0, 0});
  }
}

}  // namespace

bool is_plainly_nfc(std::string_view text) {
  constexpr unsigned char kFirstByte = 0xcc;  // first byte of U+0300
  return std::all_of(text.begin(), text.end(),
                     [](char byte) { return static_cast<unsigned char>(byte) < kFirstByte; });
}

void normalize_nfc(const CharacterTable& table, Characters& characters, Characters& other) {
  decompose(table, characters, other);
  compose(other);
  deal_out_sources(characters, other);
  characters.swap(other);
}

void normalize_nfc(std::string_view stretch, std::uint32_t first_index, const CharacterTable& table,
                   Encoding& work) {
  decode(stretch, first_index, work.characters);
  normalize_nfc(table, work.characters, work.other_characters);
}

void normalize(std::string_view stretch, std::uint32_t first_index,
               const NormalizerOptions& options, const CharacterTable& table, Encoding& work) {
  Characters& characters = work.characters;
  Characters& other = work.other_characters;
  decode(stretch, first_index, characters);
  std::uint8_t any = 0;  // most stretches need few of the steps
  for (const Encoding::Character& c : characters) any |= table.flags(c.code_point);
  if (options.clean_text) clean(table, characters);
  if (options.handle_chinese_chars && any & CharacterTable::kIdeograph) {
    separate_ideographs(table, characters, other);
    characters.swap(other);
  }
  if (options.strips_accents()) {
    if (any & (CharacterTable::kDecomposes | CharacterTable::kReorders)) {
      decompose(table, characters, other);
      characters.swap(other);
    }
    drop_marks(table, characters);
  }
  if (options.lowercase) {
    lowercase(table, characters, other);
    characters.swap(other);
  }
}

}  // namespace tandem::text
