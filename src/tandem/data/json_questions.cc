#include "tandem/data/json_questions.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/core/text_file.h"
#include "tandem/data/python_values.h"
#include "tandem/data/question_checks.h"
#include "tandem/text/json_text.h"
#include "tandem/text/utf8.h"

namespace tandem::data {
namespace {

namespace dom = simdjson::dom;

// The keys of all forms whose values are read.
constexpr std::array<std::string_view, 11> kNamesOfForms = {
    "id",   "title",        "context", "question",   "answers",      "text",
    "data", "answer_start", "qas",     "paragraphs", "is_impossible"};

std::string_view type_name(const dom::element& element) {
  switch (element.type()) {
    case dom::element_type::ARRAY:
      return "a list";
    case dom::element_type::OBJECT:
      return "an object";
    case dom::element_type::STRING:
      return "a string";
    case dom::element_type::BOOL:
      return "a boolean";
    case dom::element_type::NULL_VALUE:
      return "null";
    default:
      return "a number";
  }
}

std::string list_keys(const dom::object& object) {
  std::string keys;
  for (const auto& field : object)
    keys += fmt::format("{}\"{}\"", keys.empty() ? "" : ", ", field.key);
  return keys.empty() ? "nothing" : keys;
}

bool has_key(const dom::object& object, std::string_view key) {
  dom::element value;
  return !object[key].get(value);
}

bool has_key(const dom::element& element, std::string_view key) {
  dom::object object;
  return !element.get(object) && has_key(object, key);
}

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == text.npos; }

// Reads one file. The members with a trailing "at_" name the record that is being read, for error
// messages.
class QuestionReader {
 public:
  QuestionReader(std::string_view name, std::string text, const ReadOptions& options,
                 QuestionSet::Builder& builder)
      : name_(name), options_(options), text_(std::move(text)), builder_(builder) {
    text_.reserve(text_.size() + simdjson::SIMDJSON_PADDING);
  }

  void read() {
    try {
      text_.erase(0, text_.size() - without_byte_order_mark(text_).size());
    } catch (const DataError& error) {
      fail("{}", error.what());
    }
    if (is_blank(text_)) fail("the file is empty");
    replace_python_values(text_, kNamesOfForms);
    if (const std::string_view first = first_line(); is_blank(rest_after(first))) {
      read_document();
    } else if (is_row(first)) {
      read_lines();
    } else {
      read_document();
    }
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    const std::string location = where();
    raise<DataError>("question file '{}'{}{}: {}", name_, location.empty() ? "" : ", ", location,
                     fmt::format(format, std::forward<Args>(args)...));
  }

  std::string where() const {
    std::string location = where_record();
    if (!id_.empty()) location += fmt::format(" (id '{}')", id_);
    return location;
  }

  std::string where_record() const {
    if (line_at_) return fmt::format("line {}", *line_at_);
    if (article_at_) {
      std::string location = fmt::format("article {}", *article_at_ + 1);
      if (paragraph_at_) location += fmt::format(", paragraph {}", *paragraph_at_ + 1);
      if (question_at_) location += fmt::format(", question {}", *question_at_ + 1);
      return location;
    }
    return row_at_ ? fmt::format("record {}", *row_at_ + 1) : "";
  }

  // --- forms of files ---

  // The first line that is not blank.
  std::string_view first_line() const {
    const std::string_view text = text_;
    const std::size_t begin = text.find_first_not_of(" \t\r\n");
    return text.substr(begin, text.find('\n', begin) - begin);
  }

  std::string_view rest_after(std::string_view line) const {
    return std::string_view(text_).substr(
        static_cast<std::size_t>(line.data() + line.size() - text_.data()));
  }

  // Whether a line is a row of JSON lines, and not the beginning of one document or all of it.
  bool is_row(std::string_view line) {
    dom::element element;
    if (parser_.parse(line.data(), line.size(), false).get(element)) return false;
    return element.is_object() && !has_key(element, "data");
  }

  dom::element parse(std::size_t begin, std::size_t end) {
    dom::element element;
    if (const auto error = parser_.parse(text_.data() + begin, end - begin, false).get(element)) {
      const std::string problem = text::describe_json_error(text_, begin, end);
      fail("not valid JSON: {}", problem.empty() ? simdjson::error_message(error) : problem);
    }
    return element;
  }

  void read_lines() {
    std::size_t line = 0;
    for (std::size_t begin = 0; begin < text_.size();) {
      const std::size_t end = std::min(text_.find('\n', begin), text_.size());
      line_at_ = ++line;
      if (!is_blank(std::string_view(text_).substr(begin, end - begin))) {
        read_row(parse(begin, end));
      }
      begin = end + 1;
    }
    line_at_.reset();
  }

  void read_document() {
    const dom::element root = parse(0, text_.size());
    dom::array records;
    if (root.is_array()) {
      records = root.get_array();
    } else if (has_key(root, "data")) {
      const dom::element data = root["data"];
      if (data.get(records)) fail("\"data\" is {}, expected a list", type_name(data));
    } else if (has_key(root, "context") || has_key(root, "question")) {
      return read_row(root);  // JSON lines with a single line
    } else {
      dom::object object;
      fail("expected an object with \"data\", a list of records or JSON lines, found {}",
           root.get(object) ? std::string(type_name(root)) : "an object with " + list_keys(object));
    }
    std::size_t index = 0;
    for (const dom::element record : records) {
      if (has_key(record, "paragraphs")) {
        article_at_ = index++;
        read_article(record);
        article_at_.reset();
      } else {
        row_at_ = index++;
        read_row(record);
        row_at_.reset();
      }
    }
  }

  // --- raw SQuAD: titles, questions and answers are stripped as Hugging Face's loaders strip them;
  // contexts are not, or answer_start would miss the answer (datasets#2585) ---

  void read_article(const dom::object& article) {
    builder_.set_columns({"question", "context", "answers"});
    example_ = {};
    if (has_key(article, "title")) example_.title = text::strip(get_string(article, "title"));
    std::size_t index = 0;
    for (const dom::element paragraph : get_array(article, "paragraphs")) {
      paragraph_at_ = index++;
      read_paragraph(expect_object(paragraph, "a paragraph"));
    }
    paragraph_at_.reset();
  }

  void read_paragraph(const dom::object& paragraph) {
    set_context(get_string(paragraph, "context"));
    std::size_t index = 0;
    for (const dom::element question : get_array(paragraph, "qas")) {
      question_at_ = index++;
      read_question(expect_object(question, "a question"));
      id_.clear();
    }
    question_at_.reset();
  }

  void read_question(const dom::object& question) {
    read_id(question, "id");
    example_.question = text::strip(get_string(question, "question"));
    bool impossible = false;
    if (has_key(question, "is_impossible")) {
      const dom::element value = question["is_impossible"];
      if (value.get(impossible))
        fail("\"is_impossible\" is {}, expected a boolean", type_name(value));
    }
    read_answers(question, "answers", options_.require_answers && !impossible, true);
    add_example();
  }

  // --- flat rows ---

  struct Columns {
    std::string id, context, question, answers;
  };

  void read_row(const dom::element& element) {
    const dom::object row = expect_object(element, "a record");
    if (!columns_) {
      columns_ = find_columns(row);
      builder_.set_columns({columns_->question, columns_->context,
                            has_key(row, columns_->answers) ? columns_->answers : ""});
    }
    id_.clear();
    example_ = {};
    read_id(row, columns_->id);
    // A title is never needed: one that is not a text is as good as none.
    if (std::string_view title; !row["title"].get(title)) example_.title = title;
    set_context(get_string(row, columns_->context));
    example_.question = get_string(row, columns_->question);
    read_answers(row, columns_->answers, options_.require_answers, false);
    add_example();
    id_.clear();
  }

  // run_qa.py: a column by its name, else the first, second, third of the first row.
  // Answers that no stage needs are not guessed, nor is a column taken that is something else.
  Columns find_columns(const dom::object& row) const {
    constexpr std::array<std::string_view, 5> kNames = {"id", "title", "context", "question",
                                                        "answers"};
    std::vector<std::string_view> names;
    for (const auto& field : row) names.push_back(field.key);
    const auto has = [](const auto& list, std::string_view name) {
      return std::find(list.begin(), list.end(), name) != list.end();
    };
    const auto find = [&](std::string_view name, std::size_t position) {
      const bool guess =
          !has(names, name) && position < names.size() && !has(kNames, names[position]);
      return std::string(guess ? names[position] : name);
    };
    return {"id", find("context", 1), find("question", 0),
            options_.require_answers ? find("answers", 2) : "answers"};
  }

  // --- parts of a record ---

  void read_id(const dom::object& record, const std::string& key) {
    dom::element value;
    if (record[key].get(value)) {
      if (options_.require_id) {
        fail("key \"{}\" is missing, found {}; evaluation needs ids", key, list_keys(record));
      }
      id_ = std::to_string(builder_.size());
    } else if (std::string_view text; !value.get(text)) {
      id_ = text;
    } else if (std::int64_t number = 0; !value.get(number)) {
      id_ = std::to_string(number);
    } else {
      fail("\"{}\" is {}, expected a string", key, type_name(value));
    }
  }

  void set_context(std::string_view context) {
    example_.context = context;
    context_length_ = text::count_code_points(context);
  }

  void read_answers(const dom::object& record, const std::string& key, bool required, bool strip) {
    answers_.clear();
    dom::element value;
    if (record[key].get(value) || (value.is_null() && !required)) {
      if (required) {
        fail("key \"{}\" is missing, found {}", key, list_keys(record));
      }
      return;
    }
    if (dom::array list; !value.get(list)) {
      for (const dom::element answer : list) {
        const dom::object fields = expect_object(answer, "an answer");
        add_answer(get_string(fields, "text"), get_integer(fields, "answer_start"), strip);
      }
    } else {
      read_answer_columns(expect_object(value, "\"" + key + "\""), strip);
    }
  }

  // {"text": […], "answer_start": […]}
  void read_answer_columns(const dom::object& answers, bool strip) {
    const dom::array texts = get_array(answers, "text"),
                     starts = get_array(answers, "answer_start");
    const std::size_t num_texts = texts.size(), num_starts = starts.size();
    if (num_texts != num_starts) {
      fail("\"answers\" has {} texts but {} answer_starts", num_texts, num_starts);
    }
    auto start = starts.begin();
    for (const dom::element text : texts) {
      add_answer(as_string(text, "an answer's text"), as_integer(*start, "answer_start"), strip);
      ++start;
    }
  }

  void add_answer(std::string_view text, std::int64_t start, bool strip) {
    if (strip) text = text::strip(text);
    const std::string problem = answer_problem(text, start, context_length_);
    if (!problem.empty()) fail("{}", problem);
    answers_.push_back({text, start});
  }

  void add_example() {
    example_.id = id_;
    example_.answers = answers_;
    builder_.add(example_);
  }

  // --- typed access ---

  dom::object expect_object(const dom::element& element, std::string_view what) const {
    dom::object object;
    if (element.get(object)) fail("{} is {}, expected an object", what, type_name(element));
    return object;
  }

  dom::element get(const dom::object& object, std::string_view key) const {
    dom::element value;
    if (object[key].get(value)) {
      fail("key \"{}\" is missing, found {}", key, list_keys(object));
    }
    return value;
  }

  std::string_view get_string(const dom::object& object, std::string_view key) const {
    return as_string(get(object, key), fmt::format("\"{}\"", key));
  }

  std::int64_t get_integer(const dom::object& object, std::string_view key) const {
    return as_integer(get(object, key), fmt::format("\"{}\"", key));
  }

  dom::array get_array(const dom::object& object, std::string_view key) const {
    const dom::element value = get(object, key);
    dom::array array;
    if (value.get(array)) fail("\"{}\" is {}, expected a list", key, type_name(value));
    return array;
  }

  std::string_view as_string(const dom::element& value, std::string_view what) const {
    std::string_view text;
    if (value.get(text)) fail("{} is {}, expected a string", what, type_name(value));
    return text;
  }

  std::int64_t as_integer(const dom::element& value, std::string_view what) const {
    std::int64_t number = 0;
    if (value.get(number)) fail("{} is {}, expected an integer", what, type_name(value));
    return number;
  }

  const std::string_view name_;
  const ReadOptions options_;
  std::string text_;
  dom::parser parser_;
  QuestionSet::Builder& builder_;
  std::optional<Columns> columns_;
  QuestionExample example_;  // being put together
  std::string id_;
  std::vector<Answer> answers_;
  std::size_t context_length_ = 0;  // code points
  std::optional<std::size_t> line_at_, row_at_, article_at_, paragraph_at_, question_at_;
};

}  // namespace

void read_json_questions(std::string_view name, std::string text, const ReadOptions& options,
                         QuestionSet::Builder& builder) {
  QuestionReader(name, std::move(text), options, builder).read();
}

}  // namespace tandem::data
