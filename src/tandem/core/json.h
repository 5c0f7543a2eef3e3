// Values of nlohmann's JSON, whose code is compiled once, and parsers for texts of others. A source
// that includes this instead of nlohmann/json.hpp compiles sooner (docs/design/0017). A header that
// only names a type includes nlohmann/json_fwd.hpp.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace tandem {

// Files and messages nest a few levels. The library parses any number of them, but copies and
// writes a value by recursion, which ends the program; and what is written with indentation grows
// with the square of the depth.
inline constexpr std::size_t kMaxJsonDepth = 64;

// As json::parse, of at most kMaxJsonDepth arrays and objects inside each other. Throws
// nlohmann::json::exception.
nlohmann::json parse_json(std::string_view text);
// As parse_json(); what it does not read is a discarded value.
nlohmann::json try_parse_json(std::string_view text);

// As parse_json(), in the order of the text. ordered_json::parse looks for each name among all
// before it: an object with 120,000 names takes it 35 s. If a name comes twice, the last value
// counts, in the first position.
nlohmann::ordered_json parse_ordered_json(std::string_view text);
nlohmann::ordered_json try_parse_ordered_json(std::string_view text);

// Throws what the parsers throw when a text nests deeper than they read.
void require_shallow_json(std::string_view text);

// Events of a parser, for readers that need only some of them.
class JsonEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool start_object(std::size_t) override { return true; }
  bool end_object() override { return true; }
  bool key(string_t&) override { return true; }
};

// The type through which nlohmann's parser reads a std::string.
using JsonStringInput = decltype(nlohmann::detail::input_adapter(std::declval<std::string>()));

}  // namespace tandem

extern template class nlohmann::basic_json<>;
extern template class nlohmann::basic_json<nlohmann::ordered_map>;
extern template class nlohmann::detail::parser<nlohmann::json, tandem::JsonStringInput>;
extern template class nlohmann::detail::parser<nlohmann::ordered_json, tandem::JsonStringInput>;
extern template class nlohmann::detail::lexer<nlohmann::json, tandem::JsonStringInput>;
extern template class nlohmann::detail::lexer<nlohmann::ordered_json, tandem::JsonStringInput>;
extern template class nlohmann::detail::serializer<nlohmann::json>;
extern template class nlohmann::detail::serializer<nlohmann::ordered_json>;
