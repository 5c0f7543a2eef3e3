// The losses of cross-encoders: functions of the scores of pairs and their labels. Names, defaults
// and values are those of sentence-transformers 5.7.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tandem::tasks::reranking {

// The arguments of the classes. Without a value: the default of the class.
struct LossOptions {
  std::string name = "BinaryCrossEntropyLoss";
  double pos_weight = 1;              // BinaryCrossEntropyLoss
  std::optional<double> scale = {};   // MultipleNegativesRankingLoss: 10
  std::string activation_fn = {};     // identity | sigmoid; of the scores, before the loss
  std::string weighting_scheme = {};  // LambdaLoss: NDCGLoss2PPScheme
  std::optional<std::size_t> k = {};  // LambdaLoss, RankNetLoss: the first k documents
  bool respect_input_order = true;    // ListMLELoss, PListMLELoss
  double alpha = 1;                   // ADRMSELoss
};

// Kind of one sample of the data.
enum class SampleKind {
  kPair,       // a query, a document and a label
  kClassPair,  // the label is a class
  kTuple,      // a query, its positive and negatives; labels: a margin for each negative, or none
  kList,       // a query, documents and a label for each
};

struct LossNeeds {
  std::string_view name;
  SampleKind sample = SampleKind::kPair;
  bool labels = true;
  bool in_batch_negatives = false;  // positives of other samples are negatives
  bool orders_labels = false;       // learns from documents of one query with unequal labels alone
  float min_label = std::numeric_limits<float>::lowest();
  float max_label = std::numeric_limits<float>::max();
};

// All losses, in the order of the help text.
std::span<const LossNeeds> losses();

// Throws ConfigError, which lists the names, if the name is unknown.
const LossNeeds& loss_needs(std::string_view name);

// The loss when none is named, for a model with `outputs` numbers for each pair.
std::string_view default_loss(std::size_t outputs);

// Throws ConfigError if the loss has no meaning for a model with `outputs` numbers for each pair.
void check_outputs(const LossNeeds& needs, std::size_t outputs);

// Throws ConfigError if samples of the kind `found`, with `labels` labels each (0: none) and
// `documents` documents in a tuple, do not fit the loss.
void check_data(const LossNeeds& needs, SampleKind found, std::size_t labels,
                std::size_t documents);

// A label that a loss cannot learn from.
struct BadLabel {
  std::size_t index = 0;
  std::string problem;  // what was found and expected, for a message that names the row
};

// The first of the labels that is outside the range of the loss, not finite, or not a class of a
// model with `outputs` classes.
std::optional<BadLabel> find_bad_label(const LossNeeds& needs, std::span<const float> labels,
                                       std::size_t outputs);

// Whether a query's labels matter to a loss that orders labels. If none of a batch does, the
// loss is 0; callers may warn when all queries of a file are so.
bool has_order(std::span<const float> labels);

// The documents of some queries, query by query. Views; the caller keeps the memory.
struct ScoredQueries {
  std::span<const float> logits;  // [documents, outputs]
  std::size_t outputs = 1;
  std::span<const std::size_t> begin;  // first document of each query, and the number of documents
  std::span<const float> labels;       // see SampleKind: one a document, or [queries, margins]
  std::size_t queries() const { return begin.size() - 1; }
};

// Immutable: threads may share one.
class RerankingLoss {
 public:
  virtual ~RerankingLoss() = default;
  // Returns the loss and overwrites `gradient`, like logits or empty, with its derivatives. Sums
  // are f64 in the order of the documents.
  virtual double loss_and_gradient(const ScoredQueries& scored,
                                   std::span<float> gradient) const = 0;
};

// Throws ConfigError for an unknown name or value.
std::unique_ptr<RerankingLoss> make_loss(const LossOptions& options);

}  // namespace tandem::tasks::reranking
