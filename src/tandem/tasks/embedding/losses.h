// The losses of bi-encoders by the class names of sentence-transformers, with what each needs of
// the data. Values and defaults are those of sentence-transformers 5.7.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/tasks/embedding/loss.h"

namespace tandem::tasks::embedding {

// The arguments of the classes. Without a value: the default of the class.
struct LossOptions {
  std::string name = "MultipleNegativesRankingLoss";
  std::optional<double> scale = {};
  std::string similarity_fct = {};  // cos_sim | dot_score
  std::vector<std::string> directions = {};
  std::string partition_mode = "joint";  // joint | per_direction
  std::string hardness_mode = {};        // "" | in_batch_negatives | hard_negatives | all_negatives
  double hardness_strength = 0;
  std::optional<double> margin = {};
  std::string distance_metric = {};          // TripletLoss, ContrastiveLoss, OnlineContrastiveLoss
  std::string margin_strategy = "absolute";  // absolute | relative, of GISTEmbedLoss
  bool contrast_anchors = true, contrast_positives = true;  // GISTEmbedLoss
  std::size_t num_labels = 0;                               // classes of SoftmaxLoss
  bool concatenation_sent_rep = true, concatenation_sent_difference = true;  // SoftmaxLoss
  bool concatenation_sent_multiplication = false;
  std::vector<std::size_t> matryoshka_dims = {};  // empty: the loss of whole embeddings
  std::vector<double> matryoshka_weights = {};    // empty: 1 for each
};

enum class LabelKind {
  kNone,
  kScore,      // one number a row
  kBinary,     // 0 or 1
  kClass,      // the number of a class
  kMargins,    // a difference of scores for each negative, or the scores of positive and negatives
  kEmbedding,  // the embedding of a teacher
};

// Requirements of a loss on the data.
struct LossNeeds {
  std::string_view name;
  std::size_t min_columns = 2;
  std::size_t max_columns = 2;  // 0: any number
  LabelKind labels = LabelKind::kNone;
  bool in_batch_negatives = false;  // the other rows of the group are negatives
  bool compares_rows = false;       // a pair of texts is compared with the pairs of other rows
  bool has_parameters = false;      // trains parameters of its own
  bool guided = false;              // labels are the embeddings of a guide
  float min_label = std::numeric_limits<float>::lowest();
  float max_label = std::numeric_limits<float>::max();
};

// All losses, in the order of the help text.
std::span<const LossNeeds> losses();

// Throws ConfigError, which lists the names, if the name is unknown.
const LossNeeds& loss_needs(std::string_view name);

// Throws ConfigError with what was found and expected if data with `columns` text columns and
// `labels` labels per row (0: none) does not fit the loss.
void check_data(const LossNeeds& needs, std::size_t columns, std::size_t labels);

// A label that a loss cannot learn from.
struct BadLabel {
  std::size_t row = 0;
  std::string problem;  // what was found and expected, for a message that names the row
};

// The first one of `labels` [rows, labels_per_row]: outside the range of the loss, or not finite.
std::optional<BadLabel> find_bad_label(const LossNeeds& needs, std::span<const float> labels,
                                       std::size_t labels_per_row);

// Throws ConfigError if a group of `rows` is too small: its loss would be 0 for any embeddings.
void check_group(const LossNeeds& needs, std::size_t rows, std::size_t columns);

// The loss for data of this shape when none is named: CoSENTLoss for scores, ContrastiveLoss for
// labels that are 0 or 1, MarginMSELoss for several labels a row, else
// MultipleNegativesRankingLoss.
std::string_view default_loss(LabelKind labels);

// Throws ConfigError if the loss is undefined for embeddings of `width` components.
void check_width(const LossOptions& options, std::size_t width);

// Throws ConfigError if a row's `labels` numbers are neither the embedding of a teacher for all
// columns nor one for each (MSELoss).
void check_teacher(std::size_t columns, std::size_t width, std::size_t labels);

// Throws ConfigError for an unknown name or value.
std::unique_ptr<EmbeddingLoss> make_loss(const LossOptions& options);

}  // namespace tandem::tasks::embedding
