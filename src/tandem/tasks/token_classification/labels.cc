#include "tandem/tasks/token_classification/labels.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tandem/core/error.h"

namespace tandem::token_classification {
namespace {

constexpr std::uint32_t kUnknown = ~std::uint32_t{0};

std::vector<std::string> sorted(std::span<const std::string> names) {
  std::vector<std::string> copy(names.begin(), names.end());
  std::sort(copy.begin(), copy.end());
  return copy;
}

// "B-" to "I-", wherever it stands.
std::string inside_name(std::string name) {
  for (std::size_t at = name.find("B-"); at != std::string::npos; at = name.find("B-", at + 2))
    name[at] = 'I';
  return name;
}

[[noreturn]] void raise_unknown(const SentenceSet& sentences, std::span<const std::uint32_t> ids,
                                std::span<const std::string> names) {
  for (std::size_t row = 0; row < sentences.size(); ++row) {
    const auto tags = sentences.tags(row);
    for (std::size_t i = 0; i < tags.size(); ++i) {
      if (ids[tags[i]] != kUnknown) continue;
      raise<DataError>(
          "{}: word {} ('{}') has the tag '{}', which the model does not have; expected one of {}",
          sentences.location(row), i, sentences.words(row)[i], sentences.tag_names()[tags[i]],
          fmt::join(names, ", "));
    }
  }
  TANDEM_CHECK(false, "a tag without a row");
  std::abort();
}

}  // namespace

std::vector<std::string> label_names(const SentenceSet& train) {
  if (!train.names_are_declared()) return sorted(train.tag_names());
  return {train.tag_names().begin(), train.tag_names().end()};
}

std::vector<std::string> in_order_of_model(std::vector<std::string> names,
                                           std::span<const std::string> of_model) {
  if (sorted(names) != sorted(of_model)) return names;
  return {of_model.begin(), of_model.end()};
}

std::vector<std::uint32_t> inside_labels(std::span<const std::string> names) {
  std::vector<std::uint32_t> inside(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    inside[i] = static_cast<std::uint32_t>(i);
    if (!names[i].starts_with("B-")) continue;
    const auto found = std::find(names.begin(), names.end(), inside_name(names[i]));
    if (found != names.end()) inside[i] = static_cast<std::uint32_t>(found - names.begin());
  }
  return inside;
}

std::vector<std::uint32_t> label_ids(const SentenceSet& sentences,
                                     std::span<const std::string> names) {
  std::vector<std::uint32_t> ids;
  bool all_known = true;
  for (const std::string& name : sentences.tag_names()) {
    const auto found = std::find(names.begin(), names.end(), name);
    const bool known = found != names.end();
    ids.push_back(known ? static_cast<std::uint32_t>(found - names.begin()) : kUnknown);
    all_known = all_known && known;
  }
  // Names that are declared and never used may be unknown.
  if (!all_known) {
    std::vector<bool> used(ids.size());
    for (std::size_t row = 0; row < sentences.size(); ++row)
      for (const std::uint32_t tag : sentences.tags(row)) used[tag] = true;
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (used[i] && ids[i] == kUnknown) raise_unknown(sentences, ids, names);
  }
  return ids;
}

}  // namespace tandem::token_classification
