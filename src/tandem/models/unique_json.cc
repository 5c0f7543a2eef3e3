#include "tandem/models/unique_json.h"

#include <set>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/core/python_json.h"

namespace tandem::models {

nlohmann::json parse_unique_json(std::string_view text, const std::string& where) {
  using Json = nlohmann::json;
  std::vector<std::set<std::string>> keys_of_open_objects;
  const auto reject_duplicates = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) {
      keys_of_open_objects.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      keys_of_open_objects.pop_back();
    } else if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys_of_open_objects.back().insert(key).second)
        raise<DataError>("{} has the key '{}' twice; expected unique names", where, key);
    }
    return true;
  };
  try {
    return Json::parse(text, reject_duplicates);
  } catch (const Json::exception& error) {
    raise<DataError>("{} is not valid JSON: {}", where, json_reason(error.what()));
  }
}

}  // namespace tandem::models
