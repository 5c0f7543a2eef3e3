// Cuts a template into texts and tags, and a tag into words. Internal to chat.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::text {

struct JinjaPart {
  enum class Kind { kText, kOutput, kStatement };

  Kind kind = Kind::kText;
  std::string text = {};  // inside of the tag
  std::size_t line = 0;   // that it begins in
};

// Texts without the blanks that trim_blocks, lstrip_blocks and the marks - and + take away. Throws
// DataError for a tag that does not end.
std::vector<JinjaPart> cut_jinja(std::string_view source);

struct JinjaWord {
  enum class Kind { kName, kNumber, kString, kOperator, kEnd };

  Kind kind = Kind::kEnd;
  std::string text = {};  // a string's value
  std::size_t line = 0;
};

// The words of a tag, and kEnd. Throws DataError for characters that are not Jinja's.
std::vector<JinjaWord> cut_jinja_tag(std::string_view tag, std::size_t line);

}  // namespace tandem::text
