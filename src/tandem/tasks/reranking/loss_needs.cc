#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/tasks/reranking/losses.h"

namespace tandem::tasks::reranking {
namespace {

constexpr std::array kLosses = {
    LossNeeds{.name = "BinaryCrossEntropyLoss", .min_label = 0, .max_label = 1},
    LossNeeds{"CrossEntropyLoss", SampleKind::kClassPair},
    LossNeeds{"MSELoss", SampleKind::kPair},
    LossNeeds{"MarginMSELoss", SampleKind::kTuple},
    LossNeeds{"MultipleNegativesRankingLoss", SampleKind::kTuple, /*labels=*/false, true},
    LossNeeds{"CachedMultipleNegativesRankingLoss", SampleKind::kTuple, /*labels=*/false, true},
    LossNeeds{"ListNetLoss", SampleKind::kList},
    LossNeeds{"ListMLELoss", SampleKind::kList},
    LossNeeds{"PListMLELoss", SampleKind::kList},
    LossNeeds{.name = "LambdaLoss", .sample = SampleKind::kList, .orders_labels = true},
    LossNeeds{.name = "RankNetLoss", .sample = SampleKind::kList, .orders_labels = true},
    LossNeeds{"ADRMSELoss", SampleKind::kList},
};

std::string_view text_of(SampleKind sample) {
  switch (sample) {
    case SampleKind::kPair:
      return "pairs of a query and a document with a number each";
    case SampleKind::kClassPair:
      return "pairs of a query and a document with a class each";
    case SampleKind::kTuple:
      return "a query with a positive and negatives";
    case SampleKind::kList:
      return "a query with a list of documents and a list of as many labels";
  }
  return {};
}

bool is_pair(SampleKind sample) {
  return sample == SampleKind::kPair || sample == SampleKind::kClassPair;
}

void check_margins(const LossNeeds& needs, std::size_t labels, std::size_t documents) {
  if (labels > 0 && (labels + 1 == documents || labels == documents)) return;
  throw ConfigError(fmt::format(
      "--loss {}: found {} labels for each query, expected {} differences to the positive or {} "
      "scores; name the column with --label_column or use another loss",
      needs.name, labels, documents - 1, documents));
}

std::string expected_label(const LossNeeds& needs, std::size_t outputs) {
  if (needs.sample == SampleKind::kClassPair)
    return fmt::format("a class from 0 to {}", outputs - 1);
  if (needs.max_label == std::numeric_limits<float>::max()) return "a finite number";
  return fmt::format("{} to {}", needs.min_label, needs.max_label);
}

bool is_label(const LossNeeds& needs, float label, std::size_t outputs) {
  if (needs.sample == SampleKind::kClassPair)
    return label >= 0 && label < static_cast<float>(outputs) && std::floor(label) == label;
  return label >= needs.min_label && label <= needs.max_label;
}

}  // namespace

std::span<const LossNeeds> losses() { return kLosses; }

const LossNeeds& loss_needs(std::string_view name) {
  std::vector<std::string_view> names;
  for (const LossNeeds& needs : kLosses) {
    if (needs.name == name) return needs;
    names.push_back(needs.name);
  }
  throw ConfigError(
      fmt::format("--loss: found '{}', expected one of {}", name, fmt::join(names, ", ")),
      /*usage=*/true);
}

std::string_view default_loss(std::size_t outputs) {
  return outputs > 1 ? "CrossEntropyLoss" : "BinaryCrossEntropyLoss";
}

void check_outputs(const LossNeeds& needs, std::size_t outputs) {
  const bool classes = needs.sample == SampleKind::kClassPair;
  if (classes ? outputs > 1 : outputs == 1) return;
  throw ConfigError(fmt::format(
      "--loss {}: found a model with {} label{}, expected {}; set --num_labels or use another loss",
      needs.name, outputs, outputs == 1 ? "" : "s", classes ? "at least 2" : "1"));
}

void check_data(const LossNeeds& needs, SampleKind found, std::size_t labels,
                std::size_t documents) {
  if (needs.sample != found && !(is_pair(needs.sample) && is_pair(found)))
    throw ConfigError(
        fmt::format("--loss {}: found {}, expected {}; change the columns or use "
                    "another loss",
                    needs.name, text_of(found), text_of(needs.sample)));
  if (needs.sample == SampleKind::kTuple) {
    if (needs.labels) check_margins(needs, labels, documents);
  } else if (labels == 0) {
    throw ConfigError(
        fmt::format("--loss {}: found no label, expected {}; name the column with "
                    "--label_column or use another loss",
                    needs.name, text_of(needs.sample)));
  }
}

std::optional<BadLabel> find_bad_label(const LossNeeds& needs, std::span<const float> labels,
                                       std::size_t outputs) {
  if (!needs.labels) return std::nullopt;
  const auto bad = std::find_if(labels.begin(), labels.end(),
                                [&](float label) { return !is_label(needs, label, outputs); });
  if (bad == labels.end()) return std::nullopt;
  return BadLabel{
      static_cast<std::size_t>(bad - labels.begin()),
      fmt::format("found the label {}, expected {} for {}; change the labels or use another loss",
                  *bad, expected_label(needs, outputs), needs.name)};
}

bool has_order(std::span<const float> labels) {
  return std::any_of(labels.begin(), labels.end(),
                     [&](float label) { return label != labels.front(); });
}

}  // namespace tandem::tasks::reranking
