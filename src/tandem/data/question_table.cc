#include "tandem/data/question_table.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/data/column_contents.h"
#include "tandem/data/question_checks.h"
#include "tandem/text/json_text.h"
#include "tandem/text/utf8.h"

namespace tandem::data {
namespace {

namespace dom = simdjson::dom;

// The columns of a question, in the order in which they are read from the source.
enum Role : std::size_t { kQuestion, kContext, kAnswers, kId, kTitle, kNumRoles };
constexpr std::array<std::string_view, kNumRoles> kNames = {"question", "context", "answers", "id",
                                                            "title"};
// run_qa.py: these are the first, second and third column when no column has their name.
constexpr std::size_t kNumPositional = 3;

class RowReader {
 public:
  RowReader(formats::TableSource& source, const ReadOptions& options, QuestionSet::Builder& builder)
      : source_(source), options_(options), builder_(builder) {
    find_columns();
  }

  void read() {
    formats::Table table;
    while (source_.next(columns_, table)) {
      counted_ = {};
      for (row_ = 0; row_ < table.num_rows; ++row_) read_row(table);
    }
  }

 private:
  void find_columns() {
    const auto names = source_.column_names();
    const auto find = [&](Role role) -> std::optional<std::size_t> {
      const auto found = std::find(names.begin(), names.end(), kNames[role]);
      if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
      // Answers that no stage needs are not guessed, nor is a column taken that is something else.
      const bool needed = role != kAnswers || options_.require_answers;
      if (!needed || role >= std::min(kNumPositional, names.size())) return std::nullopt;
      const bool is_other = is_nameless(names[role]) ||
                            std::find(kNames.begin(), kNames.end(), names[role]) != kNames.end();
      return is_other ? std::nullopt : std::optional<std::size_t>(role);
    };
    const auto missing = [&](Role role, std::string_view why) {
      raise<DataError>("there is no column \"{}\"{}, found \"{}\"", kNames[role], why,
                       fmt::join(names, "\", \""));
    };
    for (std::size_t role = 0; role < kNumRoles; ++role) {
      const auto column = find(static_cast<Role>(role));
      if (column) {
        column_index_[role] = columns_.size();
        columns_.push_back(*column);
        continue;
      }
      if (role == kQuestion || role == kContext) missing(static_cast<Role>(role), "");
      if (role == kAnswers && options_.require_answers) missing(kAnswers, "");
      if (role == kId && options_.require_id) missing(kId, " (evaluation needs ids)");
    }
    const auto name = [&](Role role) {
      return column_index_[role] ? names[columns_[*column_index_[role]]] : std::string();
    };
    builder_.set_columns({name(kQuestion), name(kContext), name(kAnswers)});
  }

  const formats::Column* column(const formats::Table& table, Role role) const {
    return column_index_[role] ? &table.columns[*column_index_[role]] : nullptr;
  }

  void read_row(const formats::Table& table) {
    id_.clear();
    id_ = read_id(table);
    example_ = {};
    example_.id = id_;
    if (const formats::Column* title = column(table, kTitle);
        title != nullptr && title->kind == formats::Column::Kind::kText && !title->is_null(row_)) {
      example_.title = title->texts[row_];
    }
    example_.question = get_text(*column(table, kQuestion));
    example_.context = get_text(*column(table, kContext));
    count_context();
    answers_.clear();
    if (const formats::Column* answers = column(table, kAnswers)) read_answers(*answers);
    example_.answers = answers_;
    builder_.add(example_);
  }

  // The questions of a context follow each other, and a dictionary holds it once: a small file may
  // name it often.
  void count_context() {
    const std::string_view context = example_.context;
    if (context.data() == counted_.data() && context.size() == counted_.size()) return;
    context_length_ = text::count_code_points(context);
    counted_ = context;
  }

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    raise<DataError>("{}{}: {}", source_.location(row_),
                     id_.empty() ? "" : fmt::format(" (id '{}')", id_),
                     fmt::format(format, std::forward<Args>(args)...));
  }

  [[noreturn]] void wrong_type(const formats::Column& column, std::string_view expected) const {
    fail("column \"{}\" has the type {}, expected {}", column.name, column.type, expected);
  }

  std::string read_id(const formats::Table& table) const {
    const formats::Column* id = column(table, kId);
    if (id == nullptr) return std::to_string(builder_.size());
    if (id->is_null(row_)) fail("column \"id\" is null");
    switch (id->kind) {
      case formats::Column::Kind::kText:
        return std::string(id->texts[row_]);
      case formats::Column::Kind::kInteger:
        return std::to_string(id->integers[row_]);
      default:
        wrong_type(*id, "text");
    }
  }

  std::string_view get_text(const formats::Column& column) const {
    if (column.kind != formats::Column::Kind::kText) wrong_type(column, "text");
    if (column.is_null(row_)) fail("column \"{}\" is null", column.name);
    return column.texts[row_];
  }

  void add_answer(std::string_view text, std::int64_t start) {
    const std::string problem = answer_problem(text, start, context_length_);
    if (!problem.empty()) fail("{}", problem);
    answers_.push_back({text, start});
  }

  void read_answers(const formats::Column& answers) {
    if (answers.is_null(row_)) {
      if (options_.require_answers) fail("column \"{}\" is null", answers.name);
      return;
    }
    switch (answers.kind) {
      case formats::Column::Kind::kStruct:
        return read_answer_lists(answers);
      case formats::Column::Kind::kList:
        return read_answer_structs(answers);
      case formats::Column::Kind::kText:
        return read_answer_json(answers, answers.texts[row_]);
      default:
        wrong_type(answers, kAnswersType);
    }
  }

  static constexpr std::string_view kAnswersType =
      "struct<text: list<string>, answer_start: list<int>>, a list of such structs, or JSON text";

  // struct<text: list<string>, answer_start: list<int32>>
  void read_answer_lists(const formats::Column& answers) {
    const auto list = [&](std::string_view name,
                          formats::Column::Kind kind) -> const formats::Column& {
      const formats::Column* field = answers.field(name);
      if (field == nullptr || field->kind != formats::Column::Kind::kList ||
          (field->children.front().kind != kind && field->children.front().size != 0)) {
        wrong_type(answers, kAnswersType);
      }
      return *field;
    };
    const formats::Column& texts = list("text", formats::Column::Kind::kText);
    const formats::Column& starts = list("answer_start", formats::Column::Kind::kInteger);
    const std::size_t count = length(texts), num_starts = length(starts);
    if (count != num_starts) {
      fail("column \"{}\" has {} texts but {} answer_starts", answers.name, count, num_starts);
    }
    for (std::size_t i = 0; i < count; ++i) {
      add_answer_of(texts.children.front(), texts.begins[row_] + i, starts.children.front(),
                    starts.begins[row_] + i);
    }
  }

  // list<struct<text: string, answer_start: int32>>
  void read_answer_structs(const formats::Column& answers) {
    const formats::Column& elements = answers.children.front();
    const formats::Column* texts = elements.field("text");
    const formats::Column* starts = elements.field("answer_start");
    if (elements.kind != formats::Column::Kind::kStruct || texts == nullptr || starts == nullptr ||
        texts->kind != formats::Column::Kind::kText ||
        starts->kind != formats::Column::Kind::kInteger) {
      wrong_type(answers, kAnswersType);
    }
    for (std::size_t i = answers.begins[row_]; i < answers.begins[row_ + 1]; ++i) {
      if (elements.is_null(i)) fail("column \"{}\" has a null in it", answers.name);
      add_answer_of(*texts, i, *starts, i);
    }
  }

  std::size_t length(const formats::Column& list) const {
    return list.is_null(row_) ? 0 : list.begins[row_ + 1] - list.begins[row_];
  }

  void add_answer_of(const formats::Column& texts, std::size_t text, const formats::Column& starts,
                     std::size_t start) {
    if (texts.is_null(text)) fail("an answer's text is null");
    if (starts.is_null(start)) fail("an answer's answer_start is null");
    add_answer(texts.texts[text], starts.integers[start]);
  }

  [[noreturn]] void not_json(const formats::Column& answers, std::string_view json,
                             const std::string& problem) const {
    fail(
        "column \"{}\" is not JSON: {}; expected {{\"text\": [\"…\"], \"answer_start\": [17]}} (in "
        "Python: json.dumps), found {}",
        answers.name, problem, text::slice_code_points(json, 0, 80));
  }

  // {"text": ["…"], "answer_start": [17]} or [{"text": "…", "answer_start": 17}]
  void read_answer_json(const formats::Column& answers, std::string_view json) {
    if (json.empty() && !options_.require_answers) return;
    dom::element element;
    if (const auto error = parser_.parse(json.data(), json.size()).get(element)) {
      const std::string problem = text::describe_json_error(json);
      not_json(answers, json, problem.empty() ? simdjson::error_message(error) : problem);
    }
    const auto add = [&](const dom::element& text, const dom::element& start) {
      std::string_view value;
      std::int64_t position = 0;
      if (text.get(value)) not_json(answers, json, "an answer's text is not a string");
      if (start.get(position)) not_json(answers, json, "an answer_start is not an integer");
      add_answer(value, position);
    };
    dom::array pairs;
    dom::object lists;
    if (!element.get(pairs)) {
      for (const dom::element answer : pairs) {
        dom::element text, start;
        if (answer["text"].get(text) || answer["answer_start"].get(start))
          not_json(answers, json, "an answer lacks \"text\" or \"answer_start\"");
        add(text, start);
      }
    } else if (!element.get(lists)) {
      read_answer_lists(answers, json, lists, add);
    } else {
      not_json(answers, json, kNoLists);
    }
  }

  template <class Add>
  void read_answer_lists(const formats::Column& answers, std::string_view json,
                         const dom::object& lists, const Add& add) {
    dom::array texts, starts;
    if (lists["text"].get(texts) || lists["answer_start"].get(starts))
      not_json(answers, json, kNoLists);
    if (texts.size() != starts.size()) {
      fail("column \"{}\" has {} texts but {} answer_starts", answers.name, texts.size(),
           starts.size());
    }
    auto start = starts.begin();
    for (const dom::element text : texts) {
      add(text, *start);
      ++start;
    }
  }

  static constexpr const char* kNoLists =
      "it is not an object with the lists \"text\" and \"answer_start\"";

  formats::TableSource& source_;
  const ReadOptions options_;
  QuestionSet::Builder& builder_;
  std::vector<std::size_t> columns_;                                // to read, of the source
  std::array<std::optional<std::size_t>, kNumRoles> column_index_;  // by role, in columns_
  dom::parser parser_;
  std::size_t row_ = 0;  // being read, in the table
  std::string id_;
  QuestionExample example_;
  std::vector<Answer> answers_;
  std::size_t context_length_ = 0;  // code points
  std::string_view counted_;        // the context that has it, of this table
};

}  // namespace

void read_table_questions(formats::TableSource& source, const ReadOptions& options,
                          QuestionSet::Builder& builder) {
  RowReader(source, options, builder).read();
}

}  // namespace tandem::data
