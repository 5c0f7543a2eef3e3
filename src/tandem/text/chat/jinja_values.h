// Operations on the values of a template, as Python defines them. Internal to chat.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tandem/text/chat/jinja_syntax.h"

namespace tandem::text {

JinjaValue undefined_value();
bool is_undefined(const JinjaValue& value);

// bool(value): an undefined value is false.
bool truth(const JinjaValue& value);
// str(value), as an output has it; "" for an undefined value.
std::string output_text(const JinjaValue& value);
// json.dumps(value, ensure_ascii=False, indent=indent); below 0: on one line.
std::string python_json(const JinjaValue& value, int indent = -1);
// "a text", "a list" …, for errors.
std::string_view kind_of(const JinjaValue& value);

// len(value); throws DataError for a value without a length.
std::size_t length_of(const JinjaValue& value);
// value[begin:end:step], of a text or a list; a bound that is null is open.
JinjaValue slice_of(const JinjaValue& value, const JinjaValue& begin, const JinjaValue& end,
                    const JinjaValue& step);
// value[key]; undefined where that is missing.
JinjaValue item_of(const JinjaValue& value, const JinjaValue& key);
// left + right, and the other operators of two sides but and, or. Throws DataError for values that
// Python does not combine.
JinjaValue combine(std::string_view op, const JinjaValue& left, const JinjaValue& right);

// text.strip(characters): 'l' left, 'r' right, 'b' both sides; no characters: blanks.
std::string strip_text(std::string_view text, std::string_view characters, char side);
// text.replace(old, by, count); below 0: all of them.
std::string replace_text(std::string_view text, std::string_view old, std::string_view by,
                         std::int64_t count = -1);

}  // namespace tandem::text
