#include "tandem/formats/yaml.h"

#include <fmt/format.h>
#include <yaml.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <regex>
#include <sstream>

namespace tandem::formats {
namespace {

constexpr int kDeepest = 64;
constexpr std::size_t kMostValues = 200'000;

bool one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

// Thrown out of the reader; becomes a finding.
struct SyntaxProblem {
  int line;
  std::string what;
};

// One libyaml event, freed when it goes.
class Event {
 public:
  explicit Event(yaml_parser_t& parser) {
    if (yaml_parser_parse(&parser, &event_) == 0) {
      const auto line = static_cast<int>(parser.problem_mark.line) + 1;
      throw SyntaxProblem{
          line, fmt::format("{}{}{}", parser.problem, parser.context != nullptr ? " " : "",
                            parser.context != nullptr ? parser.context : "")};
    }
  }
  ~Event() { yaml_event_delete(&event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  const yaml_event_t& get() const { return event_; }
  int line() const { return static_cast<int>(event_.start_mark.line) + 1; }

 private:
  yaml_event_t event_{};
};

std::string anchor_of(const yaml_char_t* name) {
  return name == nullptr ? "" : reinterpret_cast<const char*>(name);
}

class YamlReader {
 public:
  YamlReader(const std::string& text, Findings& findings) : findings_(findings) {
    if (yaml_parser_initialize(&parser_) == 0) throw SyntaxProblem{0, "no memory"};
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()),
                                 text.size());
  }
  ~YamlReader() { yaml_parser_delete(&parser_); }
  YamlReader(const YamlReader&) = delete;
  YamlReader& operator=(const YamlReader&) = delete;

  // Appends to `documents` as they come, so that those before a mistake are there.
  void read(std::vector<YamlNode>& documents) {
    for (;;) {
      const Event event(parser_);
      if (event.get().type == YAML_STREAM_END_EVENT) return;
      if (event.get().type != YAML_DOCUMENT_START_EVENT) continue;
      anchors_.clear();
      const Event first(parser_);
      YamlNode node = value(first, 0);
      if (!node.is_null()) documents.push_back(std::move(node));
    }
  }

 private:
  YamlNode value(const Event& event, int depth) {
    if (depth > kDeepest) throw SyntaxProblem{event.line(), "too deeply nested"};
    if (++values_ > kMostValues) throw SyntaxProblem{event.line(), "too many values"};
    YamlNode node;
    node.line = event.line();
    const yaml_event_t& raw = event.get();
    switch (raw.type) {
      case YAML_ALIAS_EVENT:
        return anchored(anchor_of(raw.data.alias.anchor), event.line());
      case YAML_SCALAR_EVENT:
        node.text.assign(reinterpret_cast<const char*>(raw.data.scalar.value),
                         raw.data.scalar.length);
        node.quoted = raw.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
        return keep(anchor_of(raw.data.scalar.anchor), std::move(node));
      case YAML_SEQUENCE_START_EVENT:
        read_list(node, depth);
        return keep(anchor_of(raw.data.sequence_start.anchor), std::move(node));
      case YAML_MAPPING_START_EVENT:
        read_map(node, depth);
        return keep(anchor_of(raw.data.mapping_start.anchor), std::move(node));
      default:
        throw SyntaxProblem{event.line(), "a value was expected"};
    }
  }

  void read_list(YamlNode& node, int depth) {
    node.kind = YamlNode::Kind::kList;
    for (;;) {
      const Event event(parser_);
      if (event.get().type == YAML_SEQUENCE_END_EVENT) return;
      node.items.push_back(value(event, depth + 1));
    }
  }

  void read_map(YamlNode& node, int depth) {
    node.kind = YamlNode::Kind::kMap;
    std::map<std::string, int> seen;
    std::vector<YamlNode> merged;
    for (;;) {
      const Event event(parser_);
      if (event.get().type == YAML_MAPPING_END_EVENT) return merge(merged, seen, node);
      const YamlNode key = value(event, depth + 1);
      if (key.kind != YamlNode::Kind::kScalar) throw SyntaxProblem{key.line, "a name was expected"};
      const auto [first, fresh] = seen.emplace(key.text, key.line);
      if (!fresh) {
        findings_.push_back({key.line, key.text,
                             fmt::format("the field is in line {} already", first->second),
                             "remove one of the two"});
      }
      const Event of_value(parser_);
      YamlNode of_key = value(of_value, depth + 1);
      if (key.text == "<<" && !key.quoted) {
        add_merged(std::move(of_key), key.line, merged);
      } else {
        node.fields.push_back({key.text, key.line, std::move(of_key)});
      }
    }
  }

  // The value of a merge key: a map, or a list of maps (YAML 1.1, yaml.org/type/merge.html).
  static void add_merged(YamlNode value, int line, std::vector<YamlNode>& merged) {
    const bool is_list = value.kind == YamlNode::Kind::kList;
    std::vector<YamlNode> maps =
        is_list ? std::move(value.items) : std::vector<YamlNode>{std::move(value)};
    for (YamlNode& map : maps) {
      if (map.kind != YamlNode::Kind::kMap)
        throw SyntaxProblem{line, "behind << a map or a list of maps was expected"};
      merged.push_back(std::move(map));
    }
  }

  // A field of the map itself wins over a merged one, and an earlier map over a later one. `names`
  // are those that the map has.
  static void merge(const std::vector<YamlNode>& merged, std::map<std::string, int>& names,
                    YamlNode& node) {
    for (const YamlNode& map : merged) {
      for (const Field& field : map.fields) {
        if (names.emplace(field.name, field.line).second) node.fields.push_back(field);
      }
    }
  }

  YamlNode keep(const std::string& anchor, YamlNode node) {
    if (!anchor.empty()) anchors_[anchor] = node;
    return node;
  }

  YamlNode anchored(const std::string& name, int line) {
    const auto found = anchors_.find(name);
    if (found == anchors_.end()) throw SyntaxProblem{line, fmt::format("no &{} before it", name)};
    // Repeated values count too, so that a few nested aliases cannot fill the memory.
    values_ += size(found->second);
    if (values_ > kMostValues) throw SyntaxProblem{line, "too many values"};
    return found->second;
  }
  static std::size_t size(const YamlNode& node) {
    std::size_t count = 1;
    for (const YamlNode& item : node.items) count += size(item);
    for (const Field& field : node.fields) count += 1 + size(field.value);
    return count;
  }

  yaml_parser_t parser_{};
  Findings& findings_;
  std::map<std::string, YamlNode> anchors_;
  std::size_t values_ = 0;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// A '-' at the start of a line that is else indented, as in the guide of transformers 4.35:
// "-                value: "56"". The place of such a line near `line`.
std::optional<std::size_t> stray_dash(const std::vector<std::string>& lines, int line) {
  static const std::regex kDash(R"(^-\s{2,}[\w.]+:.*)");
  const auto at = static_cast<std::size_t>(std::max(line - 1, 0));
  for (std::size_t back = 0; back < 4 && back <= at; ++back) {
    if (at - back < lines.size() && std::regex_match(lines[at - back], kDash)) return at - back;
  }
  return std::nullopt;
}

Finding explain(const std::vector<std::string>& lines, const SyntaxProblem& problem) {
  const auto at = static_cast<std::size_t>(std::max(problem.line - 1, 0));
  const std::string line = at < lines.size() ? lines[at] : "";
  if (line.find('\t') != std::string::npos && line.find_first_not_of(" \t") > line.find('\t'))
    return {problem.line, "", "a tab in the indentation, where YAML has blanks only",
            "replace each tab by blanks"};
  return {problem.line, "", fmt::format("this is not YAML: {}", problem.what),
          "see this line and the one before it: indentation, quotes, a blank behind ':' and '-'"};
}

}  // namespace

std::vector<YamlNode> read_yaml(const std::string& text, Findings& findings) {
  std::vector<YamlNode> documents;
  Findings twice;
  try {
    YamlReader(text, twice).read(documents);
  } catch (const SyntaxProblem& problem) {
    std::vector<std::string> lines = lines_of(text);
    if (const auto at = stray_dash(lines, problem.line)) {
      std::string& line = lines[*at];
      line.erase(0, 1);
      findings.push_back({static_cast<int>(*at) + 1, "",
                          "this is not YAML: the '-' at the start of the line begins a list that "
                          "does not belong here",
                          fmt::format("remove the '-': {}", line)});
      return read_yaml(fmt::format("{}\n", fmt::join(lines, "\n")), findings);
    }
    twice.push_back(explain(lines, problem));
  }
  findings.insert(findings.end(), twice.begin(), twice.end());
  return documents;
}

const YamlNode* YamlNode::find(std::string_view name) const {
  for (const Field& field : fields) {
    if (field.name == name) return &field.value;
  }
  return nullptr;
}

const YamlNode* YamlNode::find(std::initializer_list<std::string_view> path) const {
  const YamlNode* node = this;
  for (const std::string_view name : path) {
    if (node != nullptr) node = node->find(name);
  }
  return node;
}

std::string YamlNode::text_of(std::initializer_list<std::string_view> path) const {
  const YamlNode* node = find(path);
  return node != nullptr && node->kind == Kind::kScalar ? node->text : "";
}

std::optional<long> YamlNode::int_of(std::initializer_list<std::string_view> path) const {
  const YamlNode* node = find(path);
  long value = 0;
  if (node == nullptr || !node->is_int()) return std::nullopt;
  std::from_chars(node->text.data(), node->text.data() + node->text.size(), value);
  return value;
}

bool YamlNode::is_null() const {
  return kind == Kind::kScalar && !quoted && one_of(text, {"", "~", "null", "Null", "NULL"});
}

bool YamlNode::is_bool() const {
  return kind == Kind::kScalar && !quoted &&
         one_of(text, {"true", "True", "TRUE", "false", "False", "FALSE", "yes", "Yes", "YES", "no",
                       "No", "NO", "on", "On", "ON", "off", "Off", "OFF"});
}

bool YamlNode::is_int() const {
  if (kind != Kind::kScalar || quoted) return false;
  const std::size_t begin = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  return text.size() > begin && text.size() < 19 &&
         text.find_first_not_of("0123456789", begin) == std::string::npos;
}

bool YamlNode::is_number() const {
  static const std::regex kNumber(R"([-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?)");
  return kind == Kind::kScalar && !quoted && text.size() < 64 && std::regex_match(text, kNumber);
}

}  // namespace tandem::formats
