#include "tandem/text/charsmap.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/interruption.h"
#include "tandem/text/utf8.h"

namespace tandem::text {
namespace {

// Clusters of fewer bytes are looked up as a whole.
constexpr std::size_t kLongCluster = 6;

std::uint32_t read_u32(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i)
    value |= std::uint32_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return value;
}

// A unit of Darts' trie: where its children are, the byte that leads to it, whether a key ends.
std::uint32_t offset_of(std::uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); }
std::uint32_t label_of(std::uint32_t unit) { return unit & 0x800000ffu; }
bool has_leaf(std::uint32_t unit) { return (unit & 0x100) != 0; }
std::uint32_t value_of(std::uint32_t unit) { return unit & 0x7fffffffu; }

UGraphemeClusterBreak break_kind(char32_t c) {
  return static_cast<UGraphemeClusterBreak>(
      u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_GRAPHEME_CLUSTER_BREAK));
}

bool is_control(UGraphemeClusterBreak kind) {
  return kind == U_GCB_CONTROL || kind == U_GCB_CR || kind == U_GCB_LF;
}

// Rules GB6 to GB8: the parts of a Hangul syllable.
bool joins_hangul(UGraphemeClusterBreak before, UGraphemeClusterBreak after) {
  switch (before) {
    case U_GCB_L:
      return after == U_GCB_L || after == U_GCB_V || after == U_GCB_LV || after == U_GCB_LVT;
    case U_GCB_LV:
    case U_GCB_V:
      return after == U_GCB_V || after == U_GCB_T;
    case U_GCB_LVT:
    case U_GCB_T:
      return after == U_GCB_T;
    default:
      return false;
  }
}

bool is_pictograph(char32_t c) {
  return u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_EXTENDED_PICTOGRAPHIC);
}

}  // namespace

std::size_t grapheme_end(const std::vector<Encoding::Character>& characters, std::size_t at) {
  UGraphemeClusterBreak before = break_kind(characters[at].code_point);
  bool pictograph = is_pictograph(characters[at].code_point);  // and nothing but Extend behind it
  bool joins_pictograph = false;                               // a ZWJ behind such a pictograph
  bool odd_indicator = before == U_GCB_REGIONAL_INDICATOR;
  InterruptionCheck check;  // a cluster may be a whole text
  for (++at; at < characters.size(); ++at) {
    check.count();
    const char32_t c = characters[at].code_point;
    const UGraphemeClusterBreak kind = break_kind(c);
    if (before == U_GCB_CR && kind == U_GCB_LF) return at + 1;
    if (is_control(before) || is_control(kind)) return at;
    const bool extends = kind == U_GCB_EXTEND || kind == U_GCB_ZWJ;
    const bool joins = extends || kind == U_GCB_SPACING_MARK || before == U_GCB_PREPEND ||
                       joins_hangul(before, kind) || (joins_pictograph && is_pictograph(c)) ||
                       (odd_indicator && kind == U_GCB_REGIONAL_INDICATOR);
    if (!joins) return at;
    joins_pictograph = pictograph && kind == U_GCB_ZWJ;
    pictograph = (pictograph && kind == U_GCB_EXTEND) || is_pictograph(c);
    odd_indicator = kind == U_GCB_REGIONAL_INDICATOR && !odd_indicator;
    before = kind;
  }
  return at;
}

Charsmap::Charsmap(std::string_view bytes, const std::string& path) {
  const std::size_t size = bytes.size() < 4 ? 0 : read_u32(bytes, 0);
  if (size == 0 || size % 4 != 0 || size > bytes.size() - 4) {
    raise<DataError>(
        "'{}': the precompiled charsmap has {} bytes and a trie of {} bytes, expected "
        "a multiple of 4 below that",
        path, bytes.size(), size);
  }
  for (std::size_t at = 4; at < 4 + size; at += 4) units_.push_back(read_u32(bytes, at));
  replacements_ = bytes.substr(4 + size);
  if (const auto invalid = find_invalid_utf8(replacements_)) {
    raise<DataError>("'{}': the precompiled charsmap's replacements are not UTF-8 at byte {}", path,
                     *invalid);
  }
  for (char32_t c = 0; c < plain_.size(); ++c) {
    const char text = static_cast<char>(c);
    plain_[c] = c != '\r' && !find({&text, 1}).has_value();
  }
}

std::optional<std::string_view> Charsmap::find(std::string_view text) const {
  std::uint32_t at = offset_of(units_[0]);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    at ^= byte;
    if (byte == 0 || at >= units_.size() || label_of(units_[at]) != byte) return std::nullopt;
    const bool leaf = has_leaf(units_[at]);
    at ^= offset_of(units_[at]);
    if (!leaf) continue;
    if (at >= units_.size()) return std::nullopt;
    const std::size_t begin = value_of(units_[at]);
    if (begin >= replacements_.size() ||
        (static_cast<unsigned char>(replacements_[begin]) & 0xc0) == 0x80)
      return std::nullopt;
    const std::string_view rest = std::string_view(replacements_).substr(begin);
    return rest.substr(0, rest.find('\0'));
  }
  return std::nullopt;
}

// Appends the replacement of `text`, which is old_count characters; false without one.
bool Charsmap::replace(std::string_view text, std::int64_t old_count,
                       std::vector<Change>& changes) const {
  const auto replacement = find(text);
  if (!replacement) return false;
  std::int64_t new_count = 0;
  for (std::size_t at = 0; at < replacement->size(); ++new_count) {
    const char32_t c = next_code_point(*replacement, at);
    changes.push_back({c, new_count < old_count ? 0 : 1});
  }
  // A shorter replacement removes the missing characters behind the last character. At the
  // beginning no character precedes: then the crate moves nothing up, and all later positions are
  // early.
  if (new_count < old_count && !changes.empty()) changes.back().change += new_count - old_count;
  return true;
}

// The characters [begin, end), a cluster: as a whole where it is short, else one by one. Returns
// whether anything was replaced.
bool Charsmap::replace_cluster(const std::vector<Encoding::Character>& characters,
                               std::size_t begin, std::size_t end, std::string& scratch,
                               std::vector<Change>& changes) const {
  scratch.clear();
  for (std::size_t i = begin; i < end && scratch.size() < kLongCluster; ++i)
    append_utf8(characters[i].code_point, scratch);
  if (scratch.size() < kLongCluster &&
      replace(scratch, static_cast<std::int64_t>(end - begin), changes))
    return true;
  bool replaced = false;
  InterruptionCheck check;
  for (std::size_t i = begin; i < end; ++i) {
    check.count();
    scratch.clear();
    append_utf8(characters[i].code_point, scratch);
    if (replace(scratch, 1, changes)) {
      replaced = true;
    } else {
      changes.push_back({characters[i].code_point, 0});
    }
  }
  return replaced;
}

void Charsmap::apply(std::vector<Encoding::Character>& characters,
                     std::vector<Encoding::Character>& other) const {
  const auto stays = [&](const auto& c) { return is_plain(c.code_point); };
  if (std::all_of(characters.begin(), characters.end(), stays)) return;
  std::vector<Change> changes;
  changes.reserve(characters.size());
  std::string scratch;
  bool replaced = false;
  InterruptionCheck check;
  for (std::size_t begin = 0; begin < characters.size();) {
    check.count();
    // ASCII before ASCII is a cluster of its own.
    if (stays(characters[begin]) &&
        (begin + 1 == characters.size() || characters[begin + 1].code_point < 0x80)) {
      changes.push_back({characters[begin++].code_point, 0});
      continue;
    }
    const std::size_t end = grapheme_end(characters, begin);
    replaced |= replace_cluster(characters, begin, end, scratch, changes);
    begin = end;
  }
  if (!replaced) return;
  deal_out(characters, changes, other);
  characters.swap(other);
}

// An inserted character has the source position of the one before it.
void Charsmap::deal_out(const std::vector<Encoding::Character>& characters,
                        const std::vector<Change>& changes, std::vector<Encoding::Character>& out) {
  out.clear();
  std::size_t at = 0;  // position in the old characters
  InterruptionCheck check;
  for (const Change& c : changes) {
    check.count();
    const bool inserted = c.change > 0;
    const std::size_t from = inserted && at > 0 ? at - 1 : at;
    const std::uint32_t source = characters[std::min(from, characters.size() - 1)].source;
    out.push_back({c.code_point, source, 0, 0});
    if (!inserted) at += static_cast<std::size_t>(1 - c.change);
  }
}

}  // namespace tandem::text
