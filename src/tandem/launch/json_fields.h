// The fields of a struct as the members of a JSON object, named once for both directions. A
// function
//   template <class Fields, class M> void each_field(Fields&& fields, M& m)
// calls fields("rank", m.rank) for each of them. Internal to launch.
#pragma once

#include "tandem/core/json.h"

namespace tandem::launch {

struct JsonWriter {
  nlohmann::json data = nlohmann::json::object();

  template <class T>
  void operator()(const char* name, const T& value) {
    data[name] = value;
  }
};

// Throws nlohmann::json::exception for a missing member or one of another type.
struct JsonReader {
  const nlohmann::json& data;

  template <class T>
  void operator()(const char* name, T& value) const {
    data.at(name).get_to(value);
  }
};

}  // namespace tandem::launch
