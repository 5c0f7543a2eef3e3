#include "tandem/tasks/embedding/losses.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/tasks/embedding/batch_triplet_loss.h"
#include "tandem/tasks/embedding/matryoshka_loss.h"
#include "tandem/tasks/embedding/ranking_loss.h"
#include "tandem/tasks/embedding/score_losses.h"
#include "tandem/tasks/embedding/softmax_loss.h"

namespace tandem::tasks::embedding {
namespace {

constexpr std::array kLosses = {
    LossNeeds{"MultipleNegativesRankingLoss", 2, 0, LabelKind::kNone, true},
    LossNeeds{"CachedMultipleNegativesRankingLoss", 2, 0, LabelKind::kNone, true},
    LossNeeds{"MultipleNegativesSymmetricRankingLoss", 2, 0, LabelKind::kNone, true},
    LossNeeds{"CachedMultipleNegativesSymmetricRankingLoss", 2, 0, LabelKind::kNone, true},
    LossNeeds{
        .name = "GISTEmbedLoss", .max_columns = 3, .in_batch_negatives = true, .guided = true},
    LossNeeds{.name = "CachedGISTEmbedLoss",
              .max_columns = 3,
              .in_batch_negatives = true,
              .guided = true},
    LossNeeds{.name = "CoSENTLoss", .labels = LabelKind::kScore, .compares_rows = true},
    LossNeeds{.name = "AnglELoss", .labels = LabelKind::kScore, .compares_rows = true},
    LossNeeds{.name = "CosineSimilarityLoss",
              .labels = LabelKind::kScore,
              .min_label = -1,
              .max_label = 1},
    LossNeeds{"TripletLoss", 3, 3, LabelKind::kNone},
    LossNeeds{"ContrastiveLoss", 2, 2, LabelKind::kBinary},
    LossNeeds{.name = "OnlineContrastiveLoss", .labels = LabelKind::kBinary, .compares_rows = true},
    LossNeeds{"MarginMSELoss", 3, 0, LabelKind::kMargins},
    LossNeeds{"MSELoss", 1, 0, LabelKind::kEmbedding},
    LossNeeds{
        .name = "SoftmaxLoss", .labels = LabelKind::kClass, .has_parameters = true, .min_label = 0},
    LossNeeds{"BatchAllTripletLoss", 1, 1, LabelKind::kClass, false, true},
    LossNeeds{"BatchHardTripletLoss", 1, 1, LabelKind::kClass, false, true},
    LossNeeds{"BatchSemiHardTripletLoss", 1, 1, LabelKind::kClass, false, true},
    LossNeeds{"BatchHardSoftMarginTripletLoss", 1, 1, LabelKind::kClass, false, true},
};

template <class Value>
struct Choice {
  std::string_view name;
  Value value;
};

// The value of the option's name; without one, that of the first choice.
template <class Value, std::size_t N>
Value chosen(std::string_view flag, std::string_view name,
             const std::array<Choice<Value>, N>& from) {
  if (name.empty()) return from.front().value;
  for (const Choice<Value>& choice : from)
    if (choice.name == name) return choice.value;
  std::vector<std::string_view> names;
  for (const Choice<Value>& choice : from)
    if (!choice.name.empty()) names.push_back(choice.name);
  throw ConfigError(
      fmt::format("{}: found '{}', expected one of {}", flag, name, fmt::join(names, ", ")),
      /*usage=*/true);
}

constexpr std::array<Choice<bool>, 2> kSimilarities = {{{"cos_sim", true}, {"dot_score", false}}};
constexpr std::array<Choice<bool>, 2> kPartitions = {{{"joint", true}, {"per_direction", false}}};
constexpr std::array<Choice<Hardness>, 4> kHardness = {
    {{"", Hardness::kNone},
     {"in_batch_negatives", Hardness::kInBatchNegatives},
     {"hard_negatives", Hardness::kHardNegatives},
     {"all_negatives", Hardness::kAllNegatives}}};

// Sets the direction; query_to_doc is always there.
void add_direction(RankingOptions& options, std::string_view name) {
  static constexpr std::array<Choice<bool RankingOptions::*>, 4> kDirections = {
      {{"query_to_doc", nullptr},
       {"query_to_query", &RankingOptions::query_to_query},
       {"doc_to_query", &RankingOptions::doc_to_query},
       {"doc_to_doc", &RankingOptions::doc_to_doc}}};
  if (const auto member = chosen("--directions", name, kDirections)) options.*member = true;
}

void check_directions(const LossOptions& options, const RankingOptions& ranking) {
  const auto& names = options.directions;
  if (!names.empty() && std::find(names.begin(), names.end(), "query_to_doc") == names.end())
    throw ConfigError("--directions: query_to_doc is missing; it holds the positive pair",
                      /*usage=*/true);
  if (!ranking.joint && (ranking.query_to_query || ranking.doc_to_doc))
    throw ConfigError(
        "--partition_mode per_direction: found the direction query_to_query or doc_to_doc, which "
        "holds no positive pair; use --partition_mode joint",
        /*usage=*/true);
}

RankingOptions ranking_options(const LossOptions& options) {
  RankingOptions ranking;
  ranking.cosine = chosen("--similarity_fct", options.similarity_fct, kSimilarities);
  ranking.scale = options.scale.value_or(20);
  if (!(ranking.scale > 0))
    throw ConfigError(fmt::format("--scale: found {}, expected a positive number", ranking.scale),
                      /*usage=*/true);
  for (const std::string& name : options.directions) add_direction(ranking, name);
  ranking.joint = chosen("--partition_mode", options.partition_mode, kPartitions);
  check_directions(options, ranking);
  ranking.hardness = chosen("--hardness_mode", options.hardness_mode, kHardness);
  ranking.hardness_strength = options.hardness_strength;
  if (!(ranking.hardness_strength >= 0))
    throw ConfigError(fmt::format("--hardness_strength: found {}, expected a number of at least 0",
                                  ranking.hardness_strength),
                      /*usage=*/true);
  return ranking;
}

RankingOptions symmetric_options(const LossOptions& options) {
  RankingOptions ranking = ranking_options(options);
  ranking.doc_to_query = true;
  ranking.joint = false;
  return ranking;
}

constexpr std::array<Choice<bool>, 2> kMarginStrategies = {
    {{"absolute", false}, {"relative", true}}};

RankingOptions guided_options(const LossOptions& options) {
  constexpr double kScale = 100;  // the temperature 0.01
  RankingOptions ranking = ranking_options(options);
  ranking.scale = options.scale.value_or(kScale);
  ranking.guide = GuideOptions{
      .margin = options.margin.value_or(0),
      .relative = chosen("--margin_strategy", options.margin_strategy, kMarginStrategies)};
  ranking.query_to_query = options.contrast_anchors;
  ranking.doc_to_doc = options.contrast_positives;
  return ranking;
}

using Distance = const ranking::PairFunction*;

std::unique_ptr<EmbeddingLoss> make_triplet(const LossOptions& options) {
  static constexpr std::array<Choice<Distance>, 3> kDistances = {
      {{"euclidean", &ranking::kEuclideanPair},
       {"cosine", &ranking::kCosineDistancePair},
       {"manhattan", &ranking::kManhattanPair}}};
  return make_score_loss(*chosen("--distance_metric", options.distance_metric, kDistances), triplet,
                         options.margin.value_or(5));
}

std::unique_ptr<EmbeddingLoss> make_batch_triplet(const LossOptions& options,
                                                  TripletChoice choice) {
  static constexpr std::array<Choice<Distance>, 2> kDistances = {
      {{"euclidean", &ranking::kEuclideanPair}, {"cosine", &ranking::kCosineDistancePair}}};
  return make_batch_triplet_loss(*chosen("--distance_metric", options.distance_metric, kDistances),
                                 choice, options.margin.value_or(5));
}

std::unique_ptr<EmbeddingLoss> make_contrastive(const LossOptions& options, ScoreLoss loss) {
  static constexpr std::array<Choice<Distance>, 3> kDistances = {
      {{"cosine", &ranking::kCosineDistancePair},
       {"euclidean", &ranking::kTorchEuclideanPair},
       {"manhattan", &ranking::kTorchManhattanPair}}};
  return make_score_loss(*chosen("--distance_metric", options.distance_metric, kDistances), loss,
                         options.margin.value_or(0.5));
}

std::unique_ptr<EmbeddingLoss> make_softmax(const LossOptions& options) {
  const SoftmaxOptions softmax{.classes = options.num_labels,
                               .texts = options.concatenation_sent_rep,
                               .difference = options.concatenation_sent_difference,
                               .product = options.concatenation_sent_multiplication};
  if (!softmax.texts && !softmax.difference && !softmax.product)
    throw ConfigError(
        "--loss SoftmaxLoss: found none of --concatenation_sent_rep, "
        "--concatenation_sent_difference and --concatenation_sent_multiplication, expected at "
        "least one",
        /*usage=*/true);
  return make_softmax_loss(softmax);
}

std::unique_ptr<EmbeddingLoss> make_whole_loss(const LossOptions& options) {
  const std::string_view name = loss_needs(options.name).name;
  const double scale = options.scale.value_or(20);
  if (loss_needs(name).guided) return make_ranking_loss(guided_options(options));
  if (name.find("Symmetric") != name.npos) return make_ranking_loss(symmetric_options(options));
  if (name.find("NegativesRanking") != name.npos)
    return make_ranking_loss(ranking_options(options));
  if (name == "CoSENTLoss") return make_score_loss(ranking::kCosinePair, cosent, scale);
  if (name == "AnglELoss") return make_score_loss(ranking::kAnglePair, cosent, scale);
  if (name == "CosineSimilarityLoss")
    return make_score_loss(ranking::kCosinePair, squared_error, 0);
  if (name == "TripletLoss") return make_triplet(options);
  if (name == "ContrastiveLoss") return make_contrastive(options, contrastive);
  if (name == "OnlineContrastiveLoss") return make_contrastive(options, online_contrastive);
  if (name == "MarginMSELoss") return make_score_loss(ranking::kDotPair, margin_mse, 0);
  if (name == "MSELoss") return make_teacher_loss();
  if (name == "SoftmaxLoss") return make_softmax(options);
  static constexpr std::array<Choice<TripletChoice>, 4> kTriplets = {
      {{"BatchAllTripletLoss", TripletChoice::kAll},
       {"BatchHardTripletLoss", TripletChoice::kHardest},
       {"BatchSemiHardTripletLoss", TripletChoice::kSemiHard},
       {"BatchHardSoftMarginTripletLoss", TripletChoice::kHardestSoftMargin}}};
  return make_batch_triplet(options, chosen("--loss", name, kTriplets));
}

std::string expected_columns(const LossNeeds& needs) {
  const std::string most = needs.max_columns == 0 ? " or more"
                           : needs.max_columns == needs.min_columns
                               ? ""
                               : fmt::format(" to {}", needs.max_columns);
  return fmt::format("{}{} text columns", needs.min_columns, most);
}

std::string expected_labels(const LossNeeds& needs, std::size_t columns) {
  switch (needs.labels) {
    case LabelKind::kNone:
      return "no label";
    case LabelKind::kScore:
      return "a column with one score a row";
    case LabelKind::kBinary:
      return "a column with one label a row, 0 or 1";
    case LabelKind::kClass:
      return "a column with one class a row, a whole number";
    case LabelKind::kMargins:
      return fmt::format("{} margins or {} scores a row", columns - 2, columns - 1);
    case LabelKind::kEmbedding:
      return "a column with the embedding of a teacher";
  }
  return {};
}

bool labels_fit(const LossNeeds& needs, std::size_t columns, std::size_t labels) {
  switch (needs.labels) {
    case LabelKind::kNone:
      return true;
    case LabelKind::kScore:
    case LabelKind::kBinary:
    case LabelKind::kClass:
      return labels == 1;
    case LabelKind::kMargins:
      return labels + 2 == columns || labels + 1 == columns;
    case LabelKind::kEmbedding:
      return labels > 0;
  }
  return false;
}

}  // namespace

std::span<const LossNeeds> losses() { return kLosses; }

const LossNeeds& loss_needs(std::string_view name) {
  for (const LossNeeds& needs : kLosses)
    if (needs.name == name) return needs;
  std::vector<std::string_view> names;
  for (const LossNeeds& needs : kLosses) names.push_back(needs.name);
  throw ConfigError(
      fmt::format("--loss: found '{}', expected one of {}", name, fmt::join(names, ", ")),
      /*usage=*/true);
}

void check_data(const LossNeeds& needs, std::size_t columns, std::size_t labels) {
  if (columns < needs.min_columns || (needs.max_columns != 0 && columns > needs.max_columns))
    throw ConfigError(
        fmt::format("--loss {}: found {} text column{}, expected {}; name the columns "
                    "with --train_columns or use another loss",
                    needs.name, columns, columns == 1 ? "" : "s", expected_columns(needs)));
  if (!labels_fit(needs, columns, labels))
    throw ConfigError(
        fmt::format("--loss {}: found {} labels a row, expected {}; name the column "
                    "with --label_column or use another loss",
                    needs.name, labels, expected_labels(needs, columns)));
}

namespace {

bool is_good_label(const LossNeeds& needs, float label) {
  if (needs.labels == LabelKind::kBinary) return label == 0 || label == 1;
  if (needs.labels == LabelKind::kClass && std::nearbyint(label) != label) return false;
  return label >= needs.min_label && label <= needs.max_label;
}

std::string expected_label(const LossNeeds& needs) {
  if (needs.labels == LabelKind::kBinary) return "0 or 1";
  if (needs.labels == LabelKind::kClass)
    return needs.min_label == 0 ? "a class from 0 on" : "a whole number";
  if (needs.max_label == std::numeric_limits<float>::max()) return "a finite number";
  return fmt::format("{} to {}", needs.min_label, needs.max_label);
}

}  // namespace

std::optional<BadLabel> find_bad_label(const LossNeeds& needs, std::span<const float> labels,
                                       std::size_t labels_per_row) {
  if (needs.labels == LabelKind::kNone) return std::nullopt;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (is_good_label(needs, labels[i])) continue;
    return BadLabel{i / labels_per_row,
                    fmt::format("found the label {}, expected {} for {}; change the labels or use "
                                "another loss",
                                labels[i], expected_label(needs), needs.name)};
  }
  return std::nullopt;
}

void check_group(const LossNeeds& needs, std::size_t rows, std::size_t columns) {
  if (rows > 1) return;
  if (needs.in_batch_negatives && columns == 2)
    throw ConfigError(
        fmt::format("--loss {}: found a batch of one row, expected at least 2, because the other "
                    "rows are the negatives; raise --per_device_train_batch_size or add a column "
                    "of negatives",
                    needs.name));
  if (needs.compares_rows)
    throw ConfigError(
        fmt::format("--loss {}: found a batch of one row, expected at least 2, because the loss "
                    "compares rows; raise --per_device_train_batch_size",
                    needs.name));
}

void check_width(const LossOptions& options, std::size_t width) {
  for (const std::size_t size : options.matryoshka_dims)
    if (size == 0 || size > width)
      throw ConfigError(
          fmt::format("--matryoshka_dims: found {}, expected 1 to {}, the size of an embedding",
                      size, width),
          /*usage=*/true);
  if (options.name != "AnglELoss") return;
  std::vector<std::size_t> sizes = options.matryoshka_dims;
  if (sizes.empty()) sizes.push_back(width);
  for (const std::size_t size : sizes)
    if (size % 2 != 0)
      throw ConfigError(
          fmt::format("--loss AnglELoss: found embeddings of {} numbers, expected an even number, "
                      "because their halves are real and imaginary parts; use CoSENTLoss",
                      size));
}

void check_teacher(std::size_t columns, std::size_t width, std::size_t labels) {
  if (labels == width || labels == columns * width) return;
  throw ConfigError(
      fmt::format("--loss MSELoss: found labels of {} numbers, expected {}, the size of an "
                  "embedding of the model{}; use a teacher of this size or add --dense_features",
                  labels, width, columns > 1 ? ", or as many for each column" : ""));
}

std::string_view default_loss(LabelKind labels) {
  if (labels == LabelKind::kScore) return "CoSENTLoss";
  if (labels == LabelKind::kBinary) return "ContrastiveLoss";
  if (labels == LabelKind::kMargins) return "MarginMSELoss";
  return "MultipleNegativesRankingLoss";
}

std::unique_ptr<EmbeddingLoss> make_loss(const LossOptions& options) {
  std::unique_ptr<EmbeddingLoss> whole = make_whole_loss(options);
  if (options.matryoshka_dims.empty()) return whole;
  if (options.name == "MSELoss" || options.name == "SoftmaxLoss")
    throw ConfigError(
        fmt::format("--matryoshka_dims: found --loss {}, whose {} whole embeddings, expected a "
                    "loss of similarities; leave the flag out or use another loss",
                    options.name, options.name == "MSELoss" ? "labels are" : "classifier reads"),
        /*usage=*/true);
  const auto& weights = options.matryoshka_weights;
  if (!weights.empty() && weights.size() != options.matryoshka_dims.size())
    throw ConfigError(
        fmt::format("--matryoshka_weights: found {} weights, expected {}, one for each dimension",
                    weights.size(), options.matryoshka_dims.size()),
        /*usage=*/true);
  std::vector<MatryoshkaSize> sizes;
  for (std::size_t i = 0; i < options.matryoshka_dims.size(); ++i)
    sizes.push_back({options.matryoshka_dims[i], weights.empty() ? 1 : weights[i]});
  return make_matryoshka_loss(std::move(whole), std::move(sizes));
}

}  // namespace tandem::tasks::embedding
