#include "apps/manifest/rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <regex>
#include <sstream>

#include "manifest_rules.h"
#include "tandem/core/error.h"
#include "tandem/flags/suggest.h"

namespace tandem::apps::manifest {
namespace {

std::vector<std::string> split(std::string_view text, char by) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(by, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// "enum(A|B)" -> "A|B", "[T]" -> "T".
std::string_view inside(std::string_view type, std::size_t front) {
  return type.substr(front, type.size() - front - 1);
}

std::string kind_of(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::kMap) return "a map";
  if (node.kind == YamlNode::Kind::kList) return "a list";
  if (node.quoted) return fmt::format("the text \"{}\"", node.text);
  if (node.is_bool()) return fmt::format("the truth value {}", node.text);
  if (node.is_number()) return fmt::format("the number {}", node.text);
  return fmt::format("'{}'", node.text);
}

void wrong_type(const YamlNode& node, const std::string& path, const std::string& expected,
                const std::string& fix, Findings& findings) {
  findings.push_back(
      {node.line, path, fmt::format("{} where {} is expected", kind_of(node), expected), fix});
}

bool is_quantity(const YamlNode& node) {
  static const std::regex kQuantity(
      R"([-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+|[KMGTPE]i|[numkMGTPE])?)");
  return node.kind == YamlNode::Kind::kScalar && node.text.size() < 64 &&
         std::regex_match(node.text, kQuantity);
}

bool is_text(const YamlNode& node) {
  return node.kind == YamlNode::Kind::kScalar && !node.is_bool() && !node.is_number();
}

// Scalars by the names of their types. True where `type` is one of them.
bool check_scalar(const YamlNode& node, std::string_view type, const std::string& path,
                  Findings& findings) {
  const bool scalar = node.kind == YamlNode::Kind::kScalar;
  if (type == "string") {
    if (!is_text(node))
      wrong_type(node, path, "text",
                 scalar ? fmt::format("put it into quotes: \"{}\"", node.text) : "write one text",
                 findings);
  } else if (type == "int") {
    if (!node.is_int())
      wrong_type(node, path, "a whole number", "write digits, without quotes", findings);
  } else if (type == "number") {
    if (!node.is_number()) wrong_type(node, path, "a number", "write digits", findings);
  } else if (type == "bool") {
    if (!node.is_bool())
      wrong_type(node, path, "true or false", "write true or false, without quotes", findings);
  } else if (type == "int-or-string") {
    if (!scalar) wrong_type(node, path, "a number or text", "write one of them", findings);
  } else if (type == "quantity") {
    if (!is_quantity(node))
      wrong_type(node, path, "an amount", "write it as 8, 500m, 128Gi or 128G", findings);
  } else {
    return false;
  }
  return true;
}

void check_choice(const YamlNode& node, std::string_view choices, const std::string& path,
                  Findings& findings) {
  const auto words = split(choices, '|');
  if (node.kind == YamlNode::Kind::kScalar &&
      std::find(words.begin(), words.end(), node.text) != words.end())
    return;
  const auto near = flags::nearest(node.text, words);
  findings.push_back(
      {node.line, path,
       fmt::format("found {}, expected one of {}", kind_of(node), fmt::join(words, ", ")),
       fmt::format("write {}", near ? *near : words.front())});
}

}  // namespace

const Rules& Rules::builtin() {
  static const Rules rules(k_rules_txt);
  return rules;
}

Rules::Rules(std::string_view text) {
  TypeRules* type = nullptr;
  for (const std::string& line : split(text, '\n')) {
    if (line.empty() || line[0] == '#') continue;
    if (line[0] != ' ') {
      type = &types_[line];
      continue;
    }
    const std::size_t blank = line.find(' ', 2);
    TANDEM_CHECK(type != nullptr && blank != std::string::npos, "rules.txt: '{}'", line);
    FieldRule rule{line.substr(blank + 1), line.back() == '!'};
    if (rule.required) rule.type.pop_back();
    type->emplace(line.substr(2, blank - 2), std::move(rule));
  }
}

std::vector<std::string> Rules::objects() const {
  std::vector<std::string> names;
  for (const auto& [name, type] : types_) {
    if (name.find(' ') != std::string::npos) names.push_back(name);
  }
  return names;
}

bool Rules::check(const YamlNode& object, Findings& findings) const {
  const std::string name =
      fmt::format("{} {}", object.text_of({"apiVersion"}), object.text_of({"kind"}));
  const auto found = types_.find(name);
  if (found != types_.end() && name.find(' ') != std::string::npos) {
    check_map(object, found->second, "", findings);
    return true;
  }
  const auto near = flags::nearest(name, objects());
  findings.push_back(
      {object.line, "kind",
       fmt::format("apiVersion and kind are '{}', which is no object that is known here", name),
       near ? fmt::format("write '{}'", *near)
            : fmt::format("known are {}", fmt::join(objects(), ", "))});
  return false;
}

void Rules::check_value(const YamlNode& node, std::string_view type, const std::string& path,
                        Findings& findings) const {
  if (type == "any" || node.is_null()) return;  // null: as if the field were not there
  if (check_scalar(node, type, path, findings)) return;
  if (type.starts_with("enum(")) return check_choice(node, inside(type, 5), path, findings);
  if (type.front() == '[') {
    if (node.kind != YamlNode::Kind::kList)
      return wrong_type(node, path, "a list", "begin each entry with '- '", findings);
    for (std::size_t i = 0; i < node.items.size(); ++i)
      check_value(node.items[i], inside(type, 1), fmt::format("{}[{}]", path, i), findings);
    return;
  }
  if (node.kind != YamlNode::Kind::kMap)
    return wrong_type(node, path, "a map", "write its fields as 'name: value' below it", findings);
  if (type.front() == '{') {
    for (const Field& field : node.fields)
      check_value(field.value, inside(type, 1), fmt::format("{}.{}", path, field.name), findings);
    return;
  }
  const auto found = types_.find(type);
  TANDEM_CHECK(found != types_.end(), "rules.txt has no type '{}'", type);
  check_map(node, found->second, path, findings);
}

void Rules::check_map(const YamlNode& node, const TypeRules& rules, const std::string& path,
                      Findings& findings) const {
  const std::string before = path.empty() ? "" : path + ".";
  for (const Field& field : node.fields) {
    const auto rule = rules.find(field.name);
    if (rule != rules.end()) {
      check_value(field.value, rule->second.type, before + field.name, findings);
      continue;
    }
    std::vector<std::string> names;
    for (const auto& [name, of_name] : rules) names.push_back(name);
    const auto near = flags::nearest(field.name, names);
    findings.push_back({field.line, before + field.name, "there is no such field here",
                        near ? fmt::format("write '{}'", *near)
                             : "remove it, or see whether it is indented as it should be"});
  }
  for (const auto& [name, rule] : rules) {
    const YamlNode* value = node.find(name);
    if (rule.required && (value == nullptr || value->is_null()))
      findings.push_back({node.line, before + name, "the field is missing", "add it"});
  }
}

}  // namespace tandem::apps::manifest
