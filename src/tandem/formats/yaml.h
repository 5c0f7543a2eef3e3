// YAML with the line of every value, by libyaml.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::formats {

// A fault in a document.
struct Finding {
  int line = 0;         // line of the file, from 1
  std::string field;    // "spec.elasticPolicy.minReplicas"; empty: the whole file
  std::string problem;  // what was found, and what was expected
  std::string fix;
};

using Findings = std::vector<Finding>;

struct Field;

// A value of a document. Immutable once read.
struct YamlNode {
  enum class Kind { kScalar, kMap, kList };
  Kind kind = Kind::kScalar;
  int line = 0;
  std::string text;     // text of a scalar
  bool quoted = false;  // or a block of text: it is text, whatever it looks like
  std::vector<Field> fields;
  std::vector<YamlNode> items;

  // The value of a field, or of a field of a field …; null where one is missing.
  const YamlNode* find(std::string_view name) const;
  const YamlNode* find(std::initializer_list<std::string_view> path) const;
  // The text of such a scalar; empty if it is missing.
  std::string text_of(std::initializer_list<std::string_view> path) const;
  // The number of such a scalar; nothing if it is missing or not a number.
  std::optional<long> int_of(std::initializer_list<std::string_view> path) const;

  bool is_null() const;
  bool is_bool() const;
  bool is_int() const;
  bool is_number() const;
};

struct Field {
  std::string name;
  int line = 0;
  YamlNode value;
};

// The documents of a text. Text that is not YAML becomes a finding, and the documents before it are
// returned. A field that occurs twice in one map becomes a finding too. Aliases are followed. Texts
// are hostile: depth and number of values are bounded.
std::vector<YamlNode> read_yaml(const std::string& text, Findings& findings);

}  // namespace tandem::formats
