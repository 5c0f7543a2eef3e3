#include "tandem/data/read_questions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/data/json_questions.h"
#include "tandem/data/question_checks.h"
#include "tandem/data/question_table.h"
#include "tandem/formats/arrow_stream.h"
#include "tandem/formats/compressed_file.h"
#include "tandem/formats/csv_source.h"
#include "tandem/formats/parquet_file.h"

namespace tandem::data {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 5> kQuestionExtensions = {".json", ".jsonl", ".csv",
                                                                 ".arrow", ".parquet"};

// The parser reads a little past the end; with room for it the text is copied once.
constexpr std::size_t kRoomForParser = 64;

using Opener = std::unique_ptr<formats::TableSource> (*)(std::span<const std::byte>);

// How to open a file with rows; null for JSON.
Opener opener_of(const fs::path& path) {
  const std::string extension = formats::format_ending(path);
  if (extension == ".arrow") return formats::open_arrow;
  if (extension == ".parquet") return formats::open_parquet;
  if (extension == ".csv") {
    return [](std::span<const std::byte> bytes) {
      return formats::open_csv({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    };
  }
  return nullptr;
}

void add_questions(const fs::path& path, std::span<const std::byte> content,
                   const ReadOptions& options, QuestionSet::Builder& builder) {
  const std::string name = path.string();
  const Opener open = opener_of(path);
  if (open == nullptr) {
    std::string text;
    text.reserve(content.size() + kRoomForParser);
    text.append(reinterpret_cast<const char*>(content.data()), content.size());
    return read_json_questions(name, std::move(text), options, builder);
  }
  try {
    if (content.empty()) raise<DataError>("the file is empty");
    const auto source = open(content);
    read_table_questions(*source, options, builder);
  } catch (const DataError& error) {
    raise<DataError>("question file '{}': {}", name, error.what());
  }
}

MappedFile map_questions(const fs::path& path) {
  try {
    return formats::map_uncompressed(path);
  } catch (const DataError& error) {
    raise<DataError>("question file '{}': {}", path.string(), error.what());
  }
}

QuestionSet finish(QuestionSet::Builder& builder, std::string_view name,
                   const ReadOptions& options) {
  QuestionSet set = builder.finish();
  std::string problem = set.empty()          ? "the file has no question in it"
                        : options.require_id ? id_problem(set)
                                             : "";
  if (problem.empty() && options.num_questions && *options.num_questions != set.size()) {
    problem = fmt::format(
        "{} questions, but dataset_info.json counts {}: a file is not complete, or of another "
        "version; have the package datasets make it again",
        set.size(), *options.num_questions);
  }
  if (!problem.empty()) raise<DataError>("question file {}: {}", name, problem);
  return set;
}

}  // namespace

std::span<const std::string_view> question_file_extensions() { return kQuestionExtensions; }

bool is_question_file(const fs::path& path) {
  return formats::has_format(path, kQuestionExtensions);
}

QuestionSet read_questions(std::span<const fs::path> paths, const ReadOptions& options) {
  TANDEM_CHECK(!paths.empty(), "no file to read");
  QuestionSet::Builder builder;
  for (const fs::path& path : paths) {
    add_questions(path, map_questions(path).bytes(), options, builder);
  }
  std::string name = fmt::format("'{}'", paths.front().string());
  if (paths.size() > 1) name += fmt::format(" and {} more", paths.size() - 1);
  return finish(builder, name, options);
}

QuestionSet read_questions(const fs::path& path, const ReadOptions& options) {
  return read_questions(std::span(&path, 1), options);
}

QuestionSet read_questions(std::string_view name, std::span<const std::byte> content,
                           const ReadOptions& options) {
  QuestionSet::Builder builder;
  add_questions(name, content, options, builder);
  return finish(builder, fmt::format("'{}'", name), options);
}

}  // namespace tandem::data
