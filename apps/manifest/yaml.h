// YAML with the place of every value, by libyaml.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/manifest/finding.h"

namespace tandem::apps::manifest {

struct Field;

// A value of a document. Immutable once read.
struct Node {
  enum class Kind { kScalar, kMap, kList };
  Kind kind = Kind::kScalar;
  int line = 0;
  std::string text;     // of a scalar
  bool quoted = false;  // or a block of text: it is text, whatever it looks like
  std::vector<Field> fields;
  std::vector<Node> items;

  // The value of a field, or of a field of a field …; null where one is missing.
  const Node* find(std::string_view name) const;
  const Node* find(std::initializer_list<std::string_view> path) const;
  // The text of such a scalar; empty where there is none.
  std::string text_of(std::initializer_list<std::string_view> path) const;
  // Its number; nothing where it is none.
  std::optional<long> int_of(std::initializer_list<std::string_view> path) const;

  bool is_null() const;
  bool is_bool() const;
  bool is_int() const;
  bool is_number() const;
};

struct Field {
  std::string name;
  int line = 0;
  Node value;
};

// The documents of a text. What is no YAML becomes a finding, and the documents before it are
// returned; a field that occurs twice in one map becomes one too. Aliases are followed. Texts are
// hostile: depth and number of values are bounded.
std::vector<Node> read_yaml(const std::string& text, Findings& findings);

}  // namespace tandem::apps::manifest
