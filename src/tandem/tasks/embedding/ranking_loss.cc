#include "tandem/tasks/embedding/ranking_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "tandem/core/error.h"
#include "tandem/kernels/linear.h"
#include "tandem/tasks/ranking/pair_functions.h"

namespace tandem::tasks::embedding {
namespace {

constexpr std::size_t kLargestTile = 512;
constexpr std::size_t kRowsPerChunk = 16;
constexpr float kNoLogit = -std::numeric_limits<float>::infinity();  // skipped texts

// A direction: the rows of one column against the texts of other columns.
struct Block {
  std::size_t left = 0;
  std::size_t first_right = 0, end_right = 0;  // columns
  bool skips_own_row = false;
  bool has_target = false;  // the text of the same row in column 1 is the right one
  std::size_t softmax = 0;
};

// One text of a block's left column and one of its right columns.
struct TextPair {
  std::size_t left_row = 0;
  std::size_t right_row = 0;
  std::size_t right_column = 0;
  bool is_target(const Block& block) const {
    return block.has_target && right_column == 1 && left_row == right_row;
  }
  bool is_skipped(const Block& block) const { return block.skips_own_row && left_row == right_row; }
};

// The logarithm of a sum of exponentials whose terms come one after another; NaN if a term is NaN.
struct LogSum {
  float top = kNoLogit;
  double sum = 0;
  void add(std::span<const float> logits) {
    float above = top;
    for (const float logit : logits) above = logit > above ? logit : above;
    if (above == kNoLogit) {
      for (const float logit : logits) sum += std::isnan(logit) ? logit : 0;
      return;
    }
    sum *= std::exp(static_cast<double>(top) - above);
    for (const float logit : logits) sum += std::exp(logit - above);
    top = above;
  }
  double value() const { return static_cast<double>(top) + std::log(sum); }
};

// Consecutive texts of one column: of unit length if the similarity is the cosine, and zeros behind
// the last one, because products have one shape whatever the range is.
struct Tile {
  std::size_t column = 0;
  RowRange rows;
  std::vector<float> values;  // [tile, width]
  std::vector<float> guide;   // [tile, width of the guide's embeddings]; empty: no guide
};

class RankingLoss final : public EmbeddingLoss {
 public:
  explicit RankingLoss(const RankingOptions& options) : options_(options) {}

  std::size_t statistics_per_row(const EmbeddedRows&) const override { return softmaxes() + 1; }
  void row_statistics(const EmbeddedRows& group, RowRange range, std::span<float> statistics,
                      const kernels::Context& context) const override;
  double loss_and_gradient(const EmbeddedRows& group, std::span<const float> statistics,
                           RowRange range, std::span<float> gradient,
                           const kernels::Context& context) const override;

  const RankingOptions& options() const { return options_; }
  // The cosine of the guide above which a text is excluded from the negatives of the row.
  float threshold(float of_positive) const {
    const auto margin = static_cast<float>(options_.guide->margin);
    return of_positive - (options_.guide->relative ? std::abs(of_positive) * margin : margin);
  }
  std::vector<Block> blocks(std::size_t columns) const;
  float logit(const Block& block, TextPair pair, float similarity) const;

 private:
  std::size_t softmaxes() const { return options_.joint || !options_.doc_to_query ? 1 : 2; }

  RankingOptions options_;
};

// The work of one call.
class TiledPass {
 public:
  TiledPass(const EmbeddedRows& group, const RankingLoss& loss, const kernels::Context& context)
      : group_(group),
        cosine_(loss.options().cosine),
        guide_width_(loss.options().guide ? group.labels.size() / (group.rows * group.columns) : 0),
        context_(context),
        size_(std::min(kLargestTile,
                       (group.rows + kRowsPerChunk - 1) / kRowsPerChunk * kRowsPerChunk)),
        similarities_(size_ * size_),
        guided_(guide_width_ > 0 ? size_ * size_ : 0) {
    if (guide_width_ > 0) set_thresholds(loss);
  }

  std::size_t tile_size() const { return size_; }

  // Calls visit(RowRange) for the tiles of [range), in order.
  template <class Visit>
  void each_tile(RowRange range, Visit&& visit) const {
    for (std::size_t begin = range.begin; begin < range.end; begin += size_)
      visit(RowRange{begin, std::min(begin + size_, range.end)});
  }

  // Calls visit(row, thread) for the rows of a tile, in parallel.
  template <class Visit>
  void each_row(RowRange rows, Visit&& visit) const {
    context_.threads.parallel_for(
        (rows.size() + kRowsPerChunk - 1) / kRowsPerChunk, [&](std::size_t chunk, int) {
          const std::size_t begin = rows.begin + chunk * kRowsPerChunk;
          const std::size_t end = std::min(begin + kRowsPerChunk, rows.end);
          for (std::size_t row = begin; row < end; ++row) visit(row);
        });
  }

  void load(Tile& tile, std::size_t column, RowRange rows) const {
    tile.column = column;
    tile.rows = rows;
    const auto copy = [&](std::span<const float> from, bool unit, std::size_t row,
                          std::vector<float>& tile_values) {
      const auto to = std::span(tile_values).subspan((row - rows.begin) * from.size(), from.size());
      const float scale = unit ? static_cast<float>(1 / ranking::length(from)) : 1.0f;
      for (std::size_t i = 0; i < from.size(); ++i) to[i] = from[i] * scale;
    };
    tile.values.assign(size_ * group_.width, 0.0f);
    tile.guide.assign(size_ * guide_width_, 0.0f);
    each_row(rows, [&](std::size_t row) {
      copy(text(group_, column, row), cosine_, row, tile.values);
      if (guide_width_ == 0) return;
      const std::size_t at = (row * group_.columns + column) * guide_width_;
      copy(group_.labels.subspan(at, guide_width_), /*unit=*/true, row, tile.guide);
    });
  }

  // Similarities [own, others] of the texts of two tiles: row i of the result is text i of `own`.
  void compare(const Tile& own, const Tile& others) {
    kernels::linear_forward<float>(context_, size_, size_, group_.width, own.values.data(),
                                   others.values.data(), nullptr, similarities_.data());
    if (guide_width_ > 0) compare_guides(own, others);
  }
  // Whether the guide excludes text `right` of the other tile for text `left` of the own one, both
  // counted in the tiles. `left_row`: the row whose positive pair decides.
  bool is_masked(std::size_t left, std::size_t right, std::size_t left_row) const {
    return guide_width_ > 0 && guided_[left * size_ + right] > thresholds_[left_row];
  }
  std::span<float> similarities(std::size_t row_of_tile) {
    return std::span(similarities_).subspan(row_of_tile * size_, size_);
  }
  // sums [tile, width] += the similarities' matrix times the texts of `others`.
  void add_weighted(const Tile& others, std::span<float> sums) {
    kernels::linear_backward_input<float, float>(context_, size_, size_, group_.width,
                                                 similarities_.data(), others.values.data(),
                                                 sums.data(), /*accumulate=*/true);
  }

 private:
  void compare_guides(const Tile& own, const Tile& others) {
    kernels::linear_forward<float>(context_, size_, size_, guide_width_, own.guide.data(),
                                   others.guide.data(), nullptr, guided_.data());
  }
  // By the same products as all comparisons: equal texts have equal cosines.
  void set_thresholds(const RankingLoss& loss) {
    thresholds_.resize(group_.rows);
    Tile anchors, positives;
    each_tile({0, group_.rows}, [&](RowRange rows) {
      load(anchors, 0, rows);
      load(positives, 1, rows);
      compare_guides(anchors, positives);
      for (std::size_t i = 0; i < rows.size(); ++i)
        thresholds_[rows.begin + i] = loss.threshold(guided_[i * size_ + i]);
    });
  }

  const EmbeddedRows& group_;
  bool cosine_;
  std::size_t guide_width_;  // 0: no guide
  const kernels::Context& context_;
  std::size_t size_;
  std::vector<float> similarities_;
  std::vector<float> guided_;      // the same by the guide
  std::vector<float> thresholds_;  // [rows]
};

std::vector<Block> RankingLoss::blocks(std::size_t columns) const {
  std::vector<Block> blocks = {
      {.left = 0, .first_right = 1, .end_right = columns, .has_target = true}};
  const bool guided = options_.guide.has_value();  // which leaves out equal texts by itself
  if (options_.query_to_query)
    blocks.push_back({.left = 0, .first_right = 0, .end_right = 1, .skips_own_row = !guided});
  if (options_.doc_to_query)
    blocks.push_back(
        {.left = 1, .first_right = 0, .end_right = 1, .softmax = options_.joint ? 0u : 1u});
  if (options_.doc_to_doc)
    blocks.push_back(
        {.left = 1, .first_right = 1, .end_right = guided ? 2 : columns, .skips_own_row = !guided});
  return blocks;
}

float RankingLoss::logit(const Block& block, TextPair pair, float similarity) const {
  const auto scale = static_cast<float>(options_.scale);
  if (options_.hardness == Hardness::kNone || !block.has_target) return scale * similarity;
  const bool own = pair.left_row == pair.right_row;
  const bool hard = own && pair.right_column > 1;
  const bool grows = (hard && options_.hardness != Hardness::kInBatchNegatives) ||
                     (!own && options_.hardness != Hardness::kHardNegatives);
  return grows ? (scale + static_cast<float>(options_.hardness_strength)) * similarity
               : scale * similarity;
}

void RankingLoss::row_statistics(const EmbeddedRows& group, RowRange range,
                                 std::span<float> statistics,
                                 const kernels::Context& context) const {
  TiledPass pass(group, *this, context);
  Tile own, others;
  const std::size_t per_row = statistics_per_row(group);
  pass.each_tile(range, [&](RowRange rows) {
    std::vector<LogSum> sums(rows.size() * softmaxes());
    std::vector<float> targets(rows.size());
    const auto compare = [&](const Block& block, std::size_t column, RowRange right) {
      pass.load(others, column, right);
      pass.compare(own, others);
      pass.each_row(rows, [&](std::size_t row) {
        const auto logits = pass.similarities(row - rows.begin).first(right.size());
        for (std::size_t k = 0; k < logits.size(); ++k) {
          const TextPair pair{row, right.begin + k, column};
          const bool masked = pass.is_masked(row - rows.begin, k, row) && !pair.is_target(block);
          logits[k] = masked || pair.is_skipped(block) ? kNoLogit : logit(block, pair, logits[k]);
          if (pair.is_target(block)) targets[row - rows.begin] = logits[k];
        }
        sums[(row - rows.begin) * softmaxes() + block.softmax].add(logits);
      });
    };
    for (const Block& block : blocks(group.columns)) {
      pass.load(own, block.left, rows);
      for (std::size_t column = block.first_right; column < block.end_right; ++column)
        pass.each_tile({0, group.rows}, [&](RowRange right) { compare(block, column, right); });
    }
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const auto of_row = statistics.subspan((rows.begin - range.begin + row) * per_row, per_row);
      double mean = 0;
      for (std::size_t i = 0; i < softmaxes(); ++i) {
        const double value = sums[row * softmaxes() + i].value();
        of_row[i] = static_cast<float>(value);
        mean += value / static_cast<double>(softmaxes());
      }
      of_row[softmaxes()] = static_cast<float>(mean - targets[row]);
    }
  });
}

// The second pass: the gradient by the texts of some rows, tile by tile.
class GradientPass {
 public:
  GradientPass(const RankingLoss& loss, const EmbeddedRows& group,
               std::span<const float> statistics, const kernels::Context& context)
      : loss_(loss),
        group_(group),
        statistics_(statistics),
        per_row_(loss.statistics_per_row(group)),
        target_scale_(static_cast<float>(loss.options().scale / static_cast<double>(group.rows))),
        tiles_(group, loss, context),
        sums_(tiles_.tile_size() * group.width) {}

  // Overwrites `gradient` [columns, range, width].
  void run(RowRange range, std::span<float> gradient) {
    for (std::size_t column = 0; column < group_.columns; ++column)
      tiles_.each_tile(range, [&](RowRange rows) {
        tiles_.load(own_, column, rows);
        std::fill(sums_.begin(), sums_.end(), 0.0f);
        for (const Block& block : loss_.blocks(group_.columns)) add_block(block);
        const std::size_t begin = column * range.size() + rows.begin - range.begin;
        write(gradient.subspan(begin * group_.width, rows.size() * group_.width));
      });
  }

 private:
  // Gradients of the own tile's texts as left and as right ones of a block.
  void add_block(const Block& block) {
    if (block.left == own_.column)
      for (std::size_t right = block.first_right; right < block.end_right; ++right)
        tiles_.each_tile({0, group_.rows}, [&](RowRange of) { add(block, true, right, of); });
    if (block.first_right <= own_.column && own_.column < block.end_right)
      tiles_.each_tile({0, group_.rows}, [&](RowRange of) { add(block, false, block.left, of); });
  }

  void add(const Block& block, bool own_is_left, std::size_t column, RowRange rows) {
    tiles_.load(others_, column, rows);
    tiles_.compare(own_, others_);
    tiles_.each_row(own_.rows, [&](std::size_t row) {
      const auto values = tiles_.similarities(row - own_.rows.begin);
      for (std::size_t k = 0; k < rows.size(); ++k) {
        const std::size_t other = rows.begin + k;
        const TextPair pair =
            own_is_left ? TextPair{row, other, column} : TextPair{other, row, own_.column};
        const bool masked = tiles_.is_masked(row - own_.rows.begin, k, pair.left_row);
        values[k] = masked && !pair.is_target(block) ? 0.0f : slope(block, pair, values[k]);
      }
      std::fill(values.begin() + static_cast<std::ptrdiff_t>(rows.size()), values.end(), 0.0f);
    });
    tiles_.add_weighted(others_, sums_);
  }

  // The derivative of the loss by a similarity.
  float slope(const Block& block, TextPair pair, float similarity) const {
    if (pair.is_skipped(block)) return 0.0f;
    const float log_sum = statistics_[pair.left_row * per_row_ + block.softmax];
    const float share = std::exp(loss_.logit(block, pair, similarity) - log_sum);
    const float softmax_scale = target_scale_ / static_cast<float>(per_row_ - 1);
    return softmax_scale * share - (pair.is_target(block) ? target_scale_ : 0.0f);
  }

  void write(std::span<float> gradient) const {
    const std::size_t width = group_.width;
    tiles_.each_row(own_.rows, [&](std::size_t row) {
      const std::size_t at = (row - own_.rows.begin) * width;
      const auto sum = std::span(sums_).subspan(at, width);
      const auto to = gradient.subspan(at, width);
      if (loss_.options().cosine) {
        ranking::gradient_of_unit(text(group_, own_.column, row), sum, to);
      } else {
        std::copy(sum.begin(), sum.end(), to.begin());
      }
    });
  }

  const RankingLoss& loss_;
  const EmbeddedRows& group_;
  std::span<const float> statistics_;
  std::size_t per_row_;
  float target_scale_;
  TiledPass tiles_;
  Tile own_, others_;
  std::vector<float> sums_;  // [tile, width]
};

double RankingLoss::loss_and_gradient(const EmbeddedRows& group, std::span<const float> statistics,
                                      RowRange range, std::span<float> gradient,
                                      const kernels::Context& context) const {
  GradientPass(*this, group, statistics, context).run(range, gradient);
  const std::size_t per_row = statistics_per_row(group);
  double loss = 0;
  for (std::size_t row = 0; row < group.rows; ++row)
    loss += statistics[row * per_row + softmaxes()];
  return loss / static_cast<double>(group.rows);
}

}  // namespace

std::unique_ptr<EmbeddingLoss> make_ranking_loss(const RankingOptions& options) {
  return std::make_unique<RankingLoss>(options);
}

}  // namespace tandem::tasks::embedding
