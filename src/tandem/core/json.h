// Values of nlohmann's JSON, whose code is compiled once, and a parser for large texts. A source
// that includes this instead of nlohmann/json.hpp compiles sooner (docs/design/0017). A header that
// only names a type includes nlohmann/json_fwd.hpp.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace tandem {

// As ordered_json::parse, which looks for each name among all before it: an object with 120,000
// names takes it 35 s. Of a name that comes twice the last value counts, in the first place. Throws
// nlohmann::json::exception.
nlohmann::ordered_json parse_ordered_json(std::string_view text);

// What nlohmann's parser reads a std::string through.
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
