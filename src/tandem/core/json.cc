#include "tandem/core/json.h"

#include <fmt/format.h>

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

// Builds the value from the parser's events. A container does not grow while one inside of it is
// open, so pointers to the open ones stay valid.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& value) override { return add(std::move(value)); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    Open& object = open_.back();
    auto& members = object.value->get_ref<Json::object_t&>();
    const auto [found, is_new] = object.indices.try_emplace(name, members.size());
    object.member = static_cast<std::ptrdiff_t>(found->second);
    // Json::object_t has no other way in that does not search.
    if (is_new) members.push_back({std::move(name), nullptr});
    return true;
  }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // Thrown as what it is, not as its base.
    if (const auto* parse = dynamic_cast<const Json::parse_error*>(&error)) throw *parse;
    if (const auto* range = dynamic_cast<const Json::out_of_range*>(&error)) throw *range;
    throw error;
  }

 private:
  struct Open {
    Json* value;
    std::unordered_map<std::string, std::size_t> indices = {};  // indices of an object's members
    std::ptrdiff_t member = 0;                                  // whose value comes next
  };

  Json* insert(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& container = *open_.back().value;
    if (container.is_array()) {
      container.push_back(std::move(value));
      return &container.back();
    }
    Json& member = (container.get_ref<Json::object_t&>().begin() + open_.back().member)->second;
    member = std::move(value);
    return &member;
  }
  bool add(Json value) {
    insert(std::move(value));
    return true;
  }
  bool open(Json value) {
    open_.push_back({.value = insert(std::move(value))});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Open> open_;
};

}  // namespace

void require_shallow_json(std::string_view text) {
  std::size_t depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) {
        throw Json::out_of_range::create(
            408,
            fmt::format("values inside of more than {} others (byte {})", kMaxJsonDepth, i + 1),
            nullptr);
      }
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
}

nlohmann::json parse_json(std::string_view text) {
  require_shallow_json(text);
  return nlohmann::json::parse(text);
}

nlohmann::json try_parse_json(std::string_view text) {
  try {
    require_shallow_json(text);
  } catch (const nlohmann::json::exception&) {
    return nlohmann::json::value_t::discarded;
  }
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

Json parse_ordered_json(std::string_view text) {
  require_shallow_json(text);
  Builder builder;
  Json::sax_parse(text, &builder);
  return builder.take();
}

Json try_parse_ordered_json(std::string_view text) {
  try {
    return parse_ordered_json(text);
  } catch (const Json::exception&) {
    return Json::value_t::discarded;
  }
}

}  // namespace tandem

template class nlohmann::basic_json<>;
template class nlohmann::basic_json<nlohmann::ordered_map>;
template class nlohmann::detail::parser<nlohmann::json, tandem::JsonStringInput>;
template class nlohmann::detail::parser<nlohmann::ordered_json, tandem::JsonStringInput>;
template class nlohmann::detail::lexer<nlohmann::json, tandem::JsonStringInput>;
template class nlohmann::detail::lexer<nlohmann::ordered_json, tandem::JsonStringInput>;
template class nlohmann::detail::serializer<nlohmann::json>;
template class nlohmann::detail::serializer<nlohmann::ordered_json>;
