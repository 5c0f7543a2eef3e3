#include "tandem/formats/unique_json.h"

#include <unordered_set>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"

namespace tandem::formats {
namespace {

using Json = nlohmann::json;

// A consumer that looks at keys only. The parser's callback would show them, too, but with one it
// goes through all members of an object again behind each that is an object.
class KeyCheck final : public JsonEvents {
 public:
  explicit KeyCheck(const std::string& where) : where_(where) {}

  bool start_object(std::size_t) override {
    open_.emplace_back();
    return true;
  }
  bool end_object() override {
    open_.pop_back();
    return true;
  }
  bool key(string_t& name) override {
    if (!open_.back().insert(name).second)
      raise<DataError>("{} has the key '{}' twice; expected unique names", where_, name);
    return true;
  }
  // The parser of the text reports what is wrong.
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  const std::string& where_;
  std::vector<std::unordered_set<std::string>> open_;  // keys of the open objects
};

}  // namespace

nlohmann::json parse_unique_json(std::string_view text, const std::string& where) {
  KeyCheck keys(where);
  Json::sax_parse(text, &keys);
  try {
    return parse_json(text);
  } catch (const Json::exception& error) {
    raise<DataError>("{} is not valid JSON: {}", where, json_reason(error.what()));
  }
}

}  // namespace tandem::formats
