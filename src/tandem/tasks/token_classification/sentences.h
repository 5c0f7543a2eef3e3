// Rows of words with a tag for each, as run_ner's files have them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/data/read_rows.h"

namespace tandem::token_classification {

// Which columns of a file are read, by run_ner.py's rules.
struct SentenceColumns {
  std::string task = "ner";               // the tags are in "<task>_tags"
  std::optional<std::string> words = {};  // given by name; else "tokens", else the first column
  std::optional<std::string> tags =
      {};  // given by name; else "<task>_tags", else the second column
};

// An ordered set of sentences with the memory of their texts. Movable; views stay valid while the
// set (or what it was moved to) lives. Reading is thread-safe.
class SentenceSet {
 public:
  SentenceSet() = default;
  // Takes the columns of these names; tags may be missing. Throws DataError that names file and
  // row: a column that is not a list, a word that is not a text, an empty tag, tags that are
  // numbers without names, more or fewer tags than words.
  SentenceSet(data::Rows rows, std::string_view words, std::optional<std::string_view> tags);

  std::size_t size() const { return rows_.size(); }
  std::span<const std::string_view> words(std::size_t sentence) const {
    return std::span(words_->children.front().texts)
        .subspan(words_->begins[sentence], length(sentence));
  }
  // Total size of all words.
  std::size_t num_bytes() const;
  bool has_tags() const { return !tags_.empty() || !names_.empty(); }
  // For each word the index of its tag's name in tag_names(); empty without tags.
  std::span<const std::uint32_t> tags(std::size_t sentence) const {
    if (!has_tags()) return {};
    return std::span(tags_).subspan(words_->begins[sentence], length(sentence));
  }
  // Those that the file's schema declares (ClassLabel); else those that occur, in the order in
  // which they first do.
  std::span<const std::string> tag_names() const { return names_; }
  bool names_are_declared() const { return declared_; }
  // The columns that were read, for users.
  std::string describe_columns() const;
  // For an error about a row: "'train.json', row 17 (line 17)".
  std::string location(std::size_t sentence) const { return rows_.location(sentence); }

 private:
  std::size_t length(std::size_t sentence) const {
    return words_->begins[sentence + 1] - words_->begins[sentence];
  }
  void require_as_many(const formats::Column& tags) const;
  void take_names(const formats::Column& tags);
  void take_numbers(const formats::Column& tags);

  data::Rows rows_;
  const formats::Column* words_ = nullptr;  // in rows_
  std::string tags_column_;                 // empty: not read
  std::vector<std::uint32_t> tags_;         // tags of all words
  std::vector<std::string> names_;
  bool declared_ = false;
};

struct SentenceOptions {
  bool require_tags = true;  // false: a file without the tags' column has words only
  std::optional<std::size_t> num_rows = {};  // as data::RowOptions
};

// The sentences of several files that are parts of one set. Throws what data::read_rows() and
// SentenceSet() throw.
SentenceSet read_sentences(std::span<const std::filesystem::path> paths,
                           const SentenceColumns& columns, const SentenceOptions& options = {});
// The sentences of a file in memory, whose name states its format.
SentenceSet read_sentences(std::string_view name, std::span<const std::byte> content,
                           const SentenceColumns& columns, const SentenceOptions& options = {});

}  // namespace tandem::token_classification
