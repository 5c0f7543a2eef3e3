#include <algorithm>
#include <array>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/text/chat/jinja_lexer.h"
#include "tandem/text/chat/jinja_syntax.h"
#include "tandem/text/chat/jinja_values.h"

namespace tandem::text {
namespace {

using Expression = JinjaExpression;
using Statement = JinjaStatement;
using Word = JinjaWord;

// The words of one tag.
class TagParser {
 public:
  explicit TagParser(const JinjaPart& part) : words_(cut_jinja_tag(part.text, part.line)) {}

  Expression expression() { return conditional(); }
  // An expression without "if", which a for statement has behind its list.
  Expression alternative() { return binary(0); }

  bool take(std::string_view text) {
    if (next().text != text || next().kind == Word::Kind::kString) return false;
    ++at_;
    return true;
  }
  void expect(std::string_view text) {
    if (!take(text)) fail(text);
  }
  std::string name() {
    if (next().kind != Word::Kind::kName) fail("a name");
    return words_[at_++].text;
  }
  void end() {
    if (next().kind != Word::Kind::kEnd) fail("the end of the tag");
  }
  std::size_t line() const { return next().line; }

 private:
  const Word& next() const { return words_[at_]; }
  [[noreturn]] void fail(std::string_view expected) const {
    raise<DataError>("line {}: found '{}', expected {}", line(),
                     next().kind == Word::Kind::kEnd ? "the end of the tag" : next().text,
                     expected);
  }
  Expression make(Expression::Kind kind, std::string name, std::vector<Expression> parts) const {
    return {.kind = kind, .name = std::move(name), .parts = std::move(parts), .line = line()};
  }

  Expression conditional() {
    Expression value = alternative();
    if (!take("if")) return value;
    Expression condition = alternative();
    Expression other{.kind = Expression::Kind::kLiteral,
                     .literal = std::make_shared<const JinjaValue>(undefined_value())};
    if (take("else")) other = conditional();
    return make(Expression::Kind::kConditional, "",
                {std::move(condition), std::move(value), std::move(other)});
  }

  // Operators of two sides from the weakest to the strongest; not, is and filters are between them.
  static constexpr std::size_t kComparisons = 3, kProducts = 6;
  std::string take_operator(std::size_t level) {
    static const std::array<std::vector<std::string_view>, 7> kLevels = {
        {{"or"},
         {"and"},
         {},  // not
         {"==", "!=", "<=", ">=", "<", ">", "in"},
         {"+", "-"},
         {"~"},
         {"*", "//", "/", "%"}}};
    for (const std::string_view name : kLevels[level])
      if (take(name)) return std::string(name);
    if (level == kComparisons && next().text == "not" && words_[at_ + 1].text == "in") {
      at_ += 2;
      return "not in";
    }
    return "";
  }
  Expression binary(std::size_t level) {
    if (level > kProducts) return unary();
    if (level == 2) {
      if (!take("not")) return binary(level + 1);
      return make(Expression::Kind::kUnary, "not", {binary(level)});
    }
    Expression left = binary(level + 1);
    for (std::string name = take_operator(level); !name.empty(); name = take_operator(level))
      left = make(Expression::Kind::kBinary, name, {std::move(left), binary(level + 1)});
    return left;
  }

  Expression unary() {
    if (take("-")) return make(Expression::Kind::kUnary, "-", {unary()});
    if (take("+")) return unary();
    Expression value = postfix(primary());
    while (true) {
      if (take("|")) {
        value = make(Expression::Kind::kFilter, name(), {std::move(value)});
        if (take("(")) arguments(value);
        value = postfix(std::move(value));
      } else if (take("is")) {
        const bool negated = take("not");
        value = make(Expression::Kind::kTest, name(), {std::move(value)});
        if (take("(")) {
          arguments(value);
        } else if (is_operand()) {
          value.parts.push_back(postfix(primary()));
        }
        if (negated) value = make(Expression::Kind::kUnary, "not", {std::move(value)});
      } else {
        return value;
      }
    }
  }
  bool is_operand() const {
    if (next().kind == Word::Kind::kString || next().kind == Word::Kind::kNumber) return true;
    if (next().text == "[" || next().text == "{") return true;
    constexpr std::array<std::string_view, 7> kWords = {"and", "or", "if", "else",
                                                        "is",  "in", "not"};
    return next().kind == Word::Kind::kName &&
           std::find(kWords.begin(), kWords.end(), next().text) == kWords.end();
  }

  Expression postfix(Expression value) {
    while (true) {
      if (take(".")) {
        value = make(Expression::Kind::kAttribute, name(), {std::move(value)});
      } else if (take("[")) {
        value = item(std::move(value));
      } else if (take("(")) {
        value = make(Expression::Kind::kCall, "", {std::move(value)});
        arguments(value);
      } else {
        return value;
      }
    }
  }
  Expression item(Expression of) {
    const Expression none{.kind = Expression::Kind::kLiteral};
    std::vector<Expression> bounds;
    bool slice = false;
    for (bool given = false; !take("]");) {
      if (take(":")) {
        if (!given) bounds.push_back(none);
        given = false;
        slice = true;
      } else {
        if (given) fail("]");
        bounds.push_back(expression());
        given = true;
      }
    }
    if (!slice && bounds.size() != 1) fail("an index");
    if (slice) bounds.resize(3, none);
    bounds.insert(bounds.begin(), std::move(of));
    return make(slice ? Expression::Kind::kSlice : Expression::Kind::kItem, "", std::move(bounds));
  }
  // Behind the bracket that opens them.
  void arguments(Expression& call) {
    while (!take(")")) {
      if (next().kind == Word::Kind::kName && words_[at_ + 1].text == "=") {
        call.keywords.push_back(name());
        ++at_;
      } else if (!call.keywords.empty()) {
        fail("an argument with a name");
      }
      call.parts.push_back(expression());
      if (!take(",") && next().text != ")") fail("','");
    }
  }

  Expression primary() {
    const Word word = next();
    if (word.kind == Word::Kind::kEnd) fail("an expression");
    ++at_;
    Expression value{.line = word.line};
    if (word.kind == Word::Kind::kString) {
      std::string text = word.text;
      while (next().kind == Word::Kind::kString) text += words_[at_++].text;  // are one text
      set(value, std::move(text));
    } else if (word.kind == Word::Kind::kNumber) {
      set(value, number(word));
    } else if (word.kind == Word::Kind::kName) {
      name_or_literal(word, value);
    } else if (word.text == "[" || word.text == "(") {
      bracket(word.text == "[" ? "]" : ")", value);
    } else if (word.text == "{") {
      value.kind = Expression::Kind::kDict;
      while (!take("}")) {
        value.parts.push_back(expression());
        expect(":");
        value.parts.push_back(expression());
        if (!take(",") && next().text != "}") fail("'}'");
      }
    } else {
      --at_;
      fail("an expression");
    }
    return value;
  }
  static void set(Expression& value, JinjaValue literal) {
    value.literal = std::make_shared<const JinjaValue>(std::move(literal));
  }
  static JinjaValue number(const Word& word) {
    const JinjaValue value = JinjaValue::parse(word.text, nullptr, /*allow_exceptions=*/false);
    if (!value.is_number())
      raise<DataError>("line {}: found '{}', expected a number", word.line, word.text);
    return value;
  }
  static void name_or_literal(const Word& word, Expression& value) {
    if (word.text == "true" || word.text == "True") {
      set(value, true);
    } else if (word.text == "false" || word.text == "False") {
      set(value, false);
    } else if (word.text == "none" || word.text == "None") {
      value.literal = nullptr;
    } else {
      value.kind = Expression::Kind::kName;
      value.name = word.text;
    }
  }
  // A list, a tuple, or an expression in brackets.
  void bracket(std::string_view close, Expression& value) {
    bool comma = false;
    value.kind = Expression::Kind::kList;
    while (!take(close)) {
      value.parts.push_back(expression());
      if (take(",")) {
        comma = true;
      } else if (next().text != close) {
        fail(close);
      }
    }
    if (close == ")" && !comma && value.parts.size() == 1)
      value = Expression(std::move(value.parts.front()));
  }

  std::vector<Word> words_;
  std::size_t at_ = 0;
};

class TemplateParser {
 public:
  explicit TemplateParser(std::string_view source) : parts_(cut_jinja(source)) {}

  std::vector<Statement> parse() {
    std::vector<Statement> all = body();
    if (at_ < parts_.size())
      raise<DataError>("line {}: found '{}' without its begin", parts_[at_].line, keyword());
    return all;
  }

 private:
  // The first word of the statement at at_; empty for others.
  std::string keyword() const {
    if (at_ >= parts_.size() || parts_[at_].kind != JinjaPart::Kind::kStatement) return "";
    return cut_jinja_tag(parts_[at_].text, parts_[at_].line).front().text;
  }

  // Statements up to one that ends or continues a block, or the end.
  std::vector<Statement> body() {
    constexpr std::array<std::string_view, 6> kEnds = {"endif",  "elif",   "else",
                                                       "endfor", "endset", "endgeneration"};
    std::vector<Statement> all;
    while (at_ < parts_.size()) {
      const std::string word = keyword();
      if (std::find(kEnds.begin(), kEnds.end(), word) != kEnds.end()) break;
      const JinjaPart& part = parts_[at_++];
      if (part.kind == JinjaPart::Kind::kText) {
        all.push_back({.kind = Statement::Kind::kText, .text = part.text});
      } else if (part.kind == JinjaPart::Kind::kOutput) {
        TagParser tag(part);
        all.push_back({.kind = Statement::Kind::kOutput, .expressions = {tag.expression()}});
        tag.end();
      } else {
        add_statement(word, part, all);
      }
    }
    return all;
  }

  void add_statement(const std::string& word, const JinjaPart& part, std::vector<Statement>& all) {
    TagParser tag(part);
    if (!tag.take(word) || word.empty())
      raise<DataError>("line {}: found an empty statement", part.line);
    if (word == "if") {
      all.push_back(branches(tag));
    } else if (word == "for") {
      all.push_back(loop(tag));
    } else if (word == "set") {
      all.push_back(assignment(tag));
    } else if (word == "break" || word == "continue") {
      all.push_back(
          {.kind = word == "break" ? Statement::Kind::kBreak : Statement::Kind::kContinue});
    } else if (word == "generation") {
      tag.end();
      for (Statement& inner : body()) all.push_back(std::move(inner));
      end_block("endgeneration", part.line);
    } else {
      raise<DataError>("line {}: the statement '{}' of Jinja is not supported", part.line, word);
    }
  }

  // The tag that ends a block.
  void end_block(std::string_view word, std::size_t begin) {
    if (keyword() != word)
      raise<DataError>("line {}: found no '{}' for the block that begins there", begin, word);
    ++at_;
  }

  Statement branches(TagParser& tag) {
    const std::size_t begin = tag.line();
    Statement statement{.kind = Statement::Kind::kIf};
    statement.expressions.push_back(tag.expression());
    tag.end();
    statement.bodies.push_back(body());
    while (keyword() == "elif") {
      TagParser other(parts_[at_++]);
      other.take("elif");
      statement.expressions.push_back(other.expression());
      other.end();
      statement.bodies.push_back(body());
    }
    if (keyword() == "else") {
      ++at_;
      statement.bodies.push_back(body());
    }
    end_block("endif", begin);
    return statement;
  }

  Statement loop(TagParser& tag) {
    const std::size_t begin = tag.line();
    Statement statement{.kind = Statement::Kind::kFor};
    do {
      statement.names.push_back(tag.name());
    } while (tag.take(","));
    tag.expect("in");
    statement.expressions.push_back(tag.alternative());
    if (tag.take("if")) statement.expressions.push_back(tag.alternative());
    tag.end();
    statement.bodies.push_back(body());
    if (keyword() == "else") {
      ++at_;
      statement.bodies.push_back(body());
    }
    end_block("endfor", begin);
    return statement;
  }

  Statement assignment(TagParser& tag) {
    const std::size_t begin = tag.line();
    Statement statement{.kind = Statement::Kind::kSet};
    statement.names.push_back(tag.name());
    if (tag.take(".")) statement.names.push_back(tag.name());
    if (tag.take("=")) {
      statement.expressions.push_back(tag.expression());
      tag.end();
      return statement;
    }
    tag.end();
    statement.bodies.push_back(body());
    end_block("endset", begin);
    return statement;
  }

  std::vector<JinjaPart> parts_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<JinjaStatement> parse_jinja(std::string_view source) {
  return TemplateParser(source).parse();
}

}  // namespace tandem::text
