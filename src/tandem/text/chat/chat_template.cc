#include "tandem/text/chat/chat_template.h"

#include <cstdint>
#include <cstdlib>
#include <map>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/text/chat/jinja_functions.h"
#include "tandem/text/chat/jinja_values.h"

namespace tandem::text {
namespace {

using Expression = JinjaExpression;
using Statement = JinjaStatement;
using Variables = std::map<std::string, JinjaValue, std::less<>>;

// Reasons why the statements of a body end early.
enum class Flow { kNone, kBreak, kContinue };

// One rendering.
class Renderer {
 public:
  explicit Renderer(Variables globals) { scopes_.push_back(std::move(globals)); }

  std::string render(const std::vector<Statement>& statements) {
    run(statements);
    return std::move(out_);
  }

 private:
  Flow run(const std::vector<Statement>& statements) {
    for (const Statement& statement : statements)
      if (const Flow flow = run(statement); flow != Flow::kNone) return flow;
    return Flow::kNone;
  }

  Flow run(const Statement& statement) {
    switch (statement.kind) {
      case Statement::Kind::kText:
        out_ += statement.text;
        return Flow::kNone;
      case Statement::Kind::kOutput:
        out_ += output_text(value(statement.expressions[0]));
        return Flow::kNone;
      case Statement::Kind::kIf:
        return branch(statement);
      case Statement::Kind::kFor:
        loop(statement);
        return Flow::kNone;
      case Statement::Kind::kSet:
        assign(statement);
        return Flow::kNone;
      case Statement::Kind::kBreak:
        return Flow::kBreak;
      case Statement::Kind::kContinue:
        return Flow::kContinue;
    }
    return Flow::kNone;
  }

  Flow branch(const Statement& statement) {
    for (std::size_t i = 0; i < statement.expressions.size(); ++i)
      if (truth(value(statement.expressions[i]))) return run(statement.bodies[i]);
    if (statement.bodies.size() > statement.expressions.size()) return run(statement.bodies.back());
    return Flow::kNone;
  }

  void bind(const std::vector<std::string>& names, const JinjaValue& item) {
    if (names.size() == 1) {
      scopes_.back()[names[0]] = item;
      return;
    }
    if (!item.is_array() || item.size() != names.size())
      raise<DataError>("a loop over {} names: found {}, expected a list of them", names.size(),
                       kind_of(item));
    for (std::size_t i = 0; i < names.size(); ++i) scopes_.back()[names[i]] = item[i];
  }

  // The items that a loop visits.
  std::vector<JinjaValue> items_of(const Statement& statement) {
    const JinjaValue all = value(statement.expressions[0]);
    if (is_undefined(all)) return {};
    if (!all.is_structured() && !all.is_string())
      raise<DataError>("a loop: found {}, expected a list", kind_of(all));
    std::vector<JinjaValue> items;
    for (const JinjaValue& item : apply_filter("list", all, {})) {
      if (statement.expressions.size() > 1) {
        scopes_.emplace_back();
        bind(statement.names, item);
        const bool wanted = truth(value(statement.expressions[1]));
        scopes_.pop_back();
        if (!wanted) continue;
      }
      items.push_back(item);
    }
    return items;
  }

  void loop(const Statement& statement) {
    const std::vector<JinjaValue> items = items_of(statement);
    if (items.empty() && statement.bodies.size() > 1) run(statement.bodies[1]);
    for (std::size_t i = 0; i < items.size(); ++i) {
      scopes_.emplace_back();
      bind(statement.names, items[i]);
      scopes_.back()["loop"] = {
          {"index", i + 1},
          {"index0", i},
          {"revindex", items.size() - i},
          {"revindex0", items.size() - i - 1},
          {"first", i == 0},
          {"last", i + 1 == items.size()},
          {"length", items.size()},
          {"previtem", i == 0 ? undefined_value() : items[i - 1]},
          {"nextitem", i + 1 == items.size() ? undefined_value() : items[i + 1]}};
      const Flow flow = run(statement.bodies[0]);
      scopes_.pop_back();
      if (flow == Flow::kBreak) return;
    }
  }

  void assign(const Statement& statement) {
    JinjaValue assigned;
    if (statement.expressions.empty()) {
      const std::string before = std::exchange(out_, {});
      run(statement.bodies[0]);
      assigned = std::exchange(out_, before);
    } else {
      assigned = value(statement.expressions[0]);
    }
    if (statement.names.size() == 1) {
      scopes_.back()[statement.names[0]] = std::move(assigned);
      return;
    }
    JinjaValue* const space = find(statement.names[0]);
    if (space == nullptr || !space->is_object())
      raise<DataError>("found no namespace '{}' to set '{}' of", statement.names[0],
                       statement.names[1]);
    (*space)[statement.names[1]] = std::move(assigned);
  }

  JinjaValue* find(const std::string& name) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
      if (const auto found = scope->find(name); found != scope->end()) return &found->second;
    return nullptr;
  }

  // --- expressions ---

  JinjaValue value(const Expression& expression) {
    try {
      return evaluate(expression);
    } catch (const DataError& error) {
      const std::string_view what = error.what();
      if (what.starts_with("line ") || raised_) throw;
      raise<DataError>("line {}: {}", expression.line, what);
    }
  }

  JinjaValue evaluate(const Expression& expression) {
    switch (expression.kind) {
      case Expression::Kind::kLiteral:
        return expression.literal == nullptr ? JinjaValue(nullptr) : *expression.literal;
      case Expression::Kind::kName: {
        const JinjaValue* const found = find(expression.name);
        return found == nullptr ? undefined_value() : *found;
      }
      case Expression::Kind::kList:
      case Expression::Kind::kDict:
        return collection(expression);
      case Expression::Kind::kAttribute:
        return item_of(value(expression.parts[0]), expression.name);
      case Expression::Kind::kItem:
        return item_of(value(expression.parts[0]), value(expression.parts[1]));
      case Expression::Kind::kSlice:
        return slice_of(value(expression.parts[0]), value(expression.parts[1]),
                        value(expression.parts[2]), value(expression.parts[3]));
      case Expression::Kind::kCall:
        return call(expression);
      case Expression::Kind::kFilter:
        return apply_filter(expression.name, value(expression.parts[0]), arguments(expression));
      case Expression::Kind::kTest:
        return apply_test(expression.name, tested(expression.parts[0]), arguments(expression));
      case Expression::Kind::kUnary:
        if (expression.name == "not") return !truth(value(expression.parts[0]));
        return combine("-", 0, value(expression.parts[0]));
      case Expression::Kind::kBinary:
        return binary(expression);
      case Expression::Kind::kConditional:
        return value(expression.parts[truth(value(expression.parts[0])) ? 1 : 2]);
    }
    return undefined_value();
  }

  JinjaValue collection(const Expression& expression) {
    const bool list = expression.kind == Expression::Kind::kList;
    JinjaValue all = list ? JinjaValue::array() : JinjaValue::object();
    for (std::size_t i = 0; i < expression.parts.size(); i += list ? 1 : 2) {
      if (list) {
        all.push_back(value(expression.parts[i]));
      } else {
        all[output_text(value(expression.parts[i]))] = value(expression.parts[i + 1]);
      }
    }
    return all;
  }

  // Functions are defined, but have no value.
  JinjaValue tested(const Expression& expression) {
    const bool function = expression.kind == Expression::Kind::kName &&
                          (expression.name == "raise_exception" || expression.name == "range" ||
                           expression.name == "namespace");
    return function ? JinjaValue(true) : value(expression);
  }

  JinjaValue binary(const Expression& expression) {
    const Expression &left = expression.parts[0], &right = expression.parts[1];
    if (expression.name == "and" || expression.name == "or") {
      JinjaValue first = value(left);
      return truth(first) == (expression.name == "and") ? value(right) : first;
    }
    return combine(expression.name, value(left), value(right));
  }

  JinjaArguments arguments(const Expression& expression) {
    JinjaArguments all{.values = {}, .keywords = expression.keywords};
    for (std::size_t i = 1; i < expression.parts.size(); ++i)
      all.values.push_back(value(expression.parts[i]));
    return all;
  }

  JinjaValue call(const Expression& expression) {
    const Expression& function = expression.parts[0];
    const JinjaArguments given = arguments(expression);
    if (function.kind == Expression::Kind::kAttribute)
      return call_method(function.name, value(function.parts[0]), given);
    if (function.kind != Expression::Kind::kName)
      raise<DataError>("found a call of a value, expected a function");
    if (function.name == "namespace" || function.name == "dict") {
      JinjaValue space = JinjaValue::object();
      for (std::size_t i = 0; i < given.keywords.size(); ++i)
        space[given.keywords[i]] = given.values[given.positional() + i];
      return space;
    }
    if (function.name == "raise_exception") {
      raised_ = true;
      raise<DataError>("the chat template refuses the messages: {}",
                       given.values.empty() ? "" : output_text(given.values[0]));
    }
    if (function.name == "range") return range_of(given);
    raise<DataError>("the function '{}' of chat templates is not supported", function.name);
  }

  static JinjaValue range_of(const JinjaArguments& given) {
    std::vector<std::int64_t> bounds;
    for (const JinjaValue& bound : given.values) {
      if (!bound.is_number_integer())
        raise<DataError>("range: found {}, expected a whole number", kind_of(bound));
      bounds.push_back(bound.get<std::int64_t>());
    }
    if (bounds.empty() || bounds.size() > 3) raise<DataError>("range takes 1 to 3 numbers");
    const std::int64_t begin = bounds.size() > 1 ? bounds[0] : 0;
    const std::int64_t end = bounds[bounds.size() > 1 ? 1 : 0];
    const std::int64_t step = bounds.size() > 2 ? bounds[2] : 1;
    constexpr std::int64_t kMost = 1 << 20;
    if (step == 0 || std::abs(end - begin) > kMost)
      raise<DataError>("range: found {} to {} by {}, expected at most {} numbers", begin, end, step,
                       kMost);
    JinjaValue all = JinjaValue::array();
    for (std::int64_t i = begin; step > 0 ? i < end : i > end; i += step) all.push_back(i);
    return all;
  }

  std::vector<Variables> scopes_;  // the innermost last
  std::string out_;
  bool raised_ = false;  // by raise_exception()
};

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source, ChatTokens tokens)
    : statements_(parse_jinja(source)), tokens_(std::move(tokens)) {}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

std::string ChatTemplate::render(const JinjaValue& messages, bool add_generation_prompt) const {
  Variables globals = {{"messages", messages},
                       {"add_generation_prompt", add_generation_prompt},
                       {"tools", nullptr},
                       {"documents", nullptr}};
  for (const auto& [name, token] :
       {std::pair("bos_token", &tokens_.bos), std::pair("eos_token", &tokens_.eos),
        std::pair("pad_token", &tokens_.pad), std::pair("unk_token", &tokens_.unk)})
    if (!token->empty()) globals.emplace(name, *token);
  return Renderer(std::move(globals)).render(statements_);
}

}  // namespace tandem::text
