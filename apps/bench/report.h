// Output of a bench: a table written row by row, or one JSON object at the end.
#pragma once

#include <ostream>
#include <string>

#include "apps/bench/measure.h"
#include "tandem/core/json.h"

namespace tandem::apps::bench {

nlohmann::ordered_json to_json(const Statistics& statistics);

class Report {
 public:
  // `machine`: what the figures depend on; the keys of the object that --json prints.
  Report(std::ostream& output, bool json, std::string_view bench, nlohmann::ordered_json machine);

  // A line of the table; nothing under --json.
  void line(const std::string& text);
  // An entry of "results".
  void add(nlohmann::ordered_json result) { object_["results"].push_back(std::move(result)); }
  // Another key of the object.
  void set(const std::string& key, nlohmann::ordered_json value) {
    object_[key] = std::move(value);
  }
  const nlohmann::ordered_json& results() const { return object_.at("results"); }
  // Prints the object under --json. Throws InvalidArgument when nothing was measured.
  void finish();

 private:
  std::ostream& output_;
  bool json_;
  std::string heading_;  // waits for the first line
  nlohmann::ordered_json object_;
};

}  // namespace tandem::apps::bench
