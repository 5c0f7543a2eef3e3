// What Kubernetes takes: the types of rules.txt, and values held against them.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "apps/manifest/finding.h"

namespace tandem::apps::manifest {

struct FieldRule {
  std::string type;  // as rules.txt writes it, without the !
  bool required = false;
};

using TypeRules = std::map<std::string, FieldRule, std::less<>>;

class Rules {
 public:
  // Those that the program carries. Immutable, thread-safe.
  static const Rules& builtin();
  explicit Rules(std::string_view text);

  // "batch/v1 Job" and its like.
  std::vector<std::string> objects() const;
  // Adds what is wrong with the types of an object: fields that do not exist, wrong types, missing
  // fields. False: apiVersion and kind name no object of the rules, which is a finding, too.
  bool check(const YamlNode& object, Findings& findings) const;

 private:
  void check_value(const YamlNode& node, std::string_view type, const std::string& path,
                   Findings& findings) const;
  void check_map(const YamlNode& node, const TypeRules& rules, const std::string& path,
                 Findings& findings) const;

  std::map<std::string, TypeRules, std::less<>> types_;
};

}  // namespace tandem::apps::manifest
