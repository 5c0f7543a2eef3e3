// The syntax of the part of Jinja that templates of conversations use: its trees, and the parser.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::text {

// A value of a template; nlohmann's discarded stands for Jinja's undefined.
using JinjaValue = nlohmann::ordered_json;

struct JinjaExpression {
  enum class Kind {
    kLiteral,      // `literal`
    kName,         // the variable `name`
    kList,         // `parts`
    kDict,         // `parts`: key, value, key, value …
    kAttribute,    // parts[0].name
    kItem,         // parts[0][parts[1]]
    kSlice,        // parts[0][parts[1]:parts[2]:parts[3]]; without a bound the literal none
    kCall,         // parts[0](parts[1] …); the last ones have `keywords`
    kFilter,       // parts[0]|name(parts[1] …), with `keywords`
    kTest,         // parts[0] is name parts[1] …
    kUnary,        // name is "not" or "-"
    kBinary,       // parts[0] name parts[1]
    kConditional,  // parts[1] if parts[0] else parts[2]
  };

  Kind kind = Kind::kLiteral;
  std::string name = {};
  std::shared_ptr<const JinjaValue> literal = {};  // null: none
  std::vector<JinjaExpression> parts = {};
  std::vector<std::string> keywords = {};
  std::size_t line = 0;
};

struct JinjaStatement {
  enum class Kind {
    kText,      // `text`
    kOutput,    // {{ expressions[0] }}
    kIf,        // bodies[i] if expressions[i]; one body more: else
    kFor,       // `names` of expressions[0], with expressions[1] as the condition: bodies[0]; else
                // bodies[1]
    kSet,       // names[0] = expressions[0], or names[0].names[1]; without expressions bodies[0]
    kBreak,     // of the loop
    kContinue,  // with the next round of the loop
  };

  Kind kind = Kind::kText;
  std::string text = {};
  std::vector<std::string> names = {};
  std::vector<JinjaExpression> expressions = {};
  std::vector<std::vector<JinjaStatement>> bodies = {};
};

// As transformers reads chat templates: trim_blocks, lstrip_blocks, `generation` blocks, whose
// marks are left out, break and continue. Throws DataError that names the line: a syntax error, and
// statements that are not supported (macros, inheritance).
std::vector<JinjaStatement> parse_jinja(std::string_view source);

}  // namespace tandem::text
