#include "tandem/tasks/embedding/matryoshka_loss.h"

#include <algorithm>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/tasks/ranking/pair_functions.h"

namespace tandem::tasks::embedding {
namespace {

// A group whose embeddings are the first components of another one's, of unit length.
struct CutGroup {
  EmbeddedRows group;
  std::vector<float> values;

  CutGroup(const EmbeddedRows& whole, std::size_t components, ThreadPool& threads)
      : group(whole), values(whole.columns * whole.rows * components) {
    TANDEM_CHECK(components <= whole.width);
    threads.parallel_for(whole.columns * whole.rows, [&](std::size_t at, int) {
      const auto from = whole.values.subspan(at * whole.width, components);
      const double along = ranking::length(from);
      for (std::size_t i = 0; i < components; ++i)
        values[at * components + i] = static_cast<float>(from[i] / along);
    });
    group.width = components;
    group.values = values;
  }
};

class MatryoshkaLoss final : public EmbeddingLoss {
 public:
  MatryoshkaLoss(std::unique_ptr<EmbeddingLoss> inner, std::vector<MatryoshkaSize> sizes)
      : inner_(std::move(inner)), sizes_(std::move(sizes)) {}

  std::size_t statistics_per_row(const EmbeddedRows& group) const override {
    return sizes_.size() * inner_->statistics_per_row(group);
  }

  void row_statistics(const EmbeddedRows& group, RowRange range, std::span<float> statistics,
                      const kernels::Context& context) const override {
    const std::size_t of_size = inner_->statistics_per_row(group);
    if (of_size == 0) return;
    std::vector<float> part(range.size() * of_size);
    for (std::size_t k = 0; k < sizes_.size(); ++k) {
      const CutGroup cut(group, sizes_[k].components, context.threads);
      inner_->row_statistics(cut.group, range, part, context);
      for (std::size_t row = 0; row < range.size(); ++row)
        std::copy_n(&part[row * of_size], of_size,
                    &statistics[(row * sizes_.size() + k) * of_size]);
    }
  }

  double loss_and_gradient(const EmbeddedRows& group, std::span<const float> statistics,
                           RowRange range, std::span<float> gradient,
                           const kernels::Context& context) const override {
    std::fill(gradient.begin(), gradient.end(), 0.0f);
    double loss = 0;
    for (std::size_t k = 0; k < sizes_.size(); ++k) {
      const CutGroup cut(group, sizes_[k].components, context.threads);
      std::vector<float> part(group.columns * range.size() * cut.group.width);
      loss += sizes_[k].weight * inner_->loss_and_gradient(cut.group,
                                                           statistics_of(group, statistics, k),
                                                           range, part, context);
      add(group, range, sizes_[k], part, gradient, context.threads);
    }
    return loss;
  }

 private:
  std::vector<float> statistics_of(const EmbeddedRows& group, std::span<const float> statistics,
                                   std::size_t k) const {
    const std::size_t of_size = inner_->statistics_per_row(group);
    std::vector<float> part(of_size == 0 ? 0 : group.rows * of_size);
    for (std::size_t row = 0; row < group.rows && of_size > 0; ++row)
      std::copy_n(&statistics[(row * sizes_.size() + k) * of_size], of_size, &part[row * of_size]);
    return part;
  }

  static void add(const EmbeddedRows& group, RowRange range, const MatryoshkaSize& size,
                  std::span<const float> part, std::span<float> gradient, ThreadPool& threads) {
    threads.parallel_for(group.columns * range.size(), [&](std::size_t at, int) {
      const std::size_t column = at / range.size(), row = range.begin + at % range.size();
      std::vector<float> by_cut(size.components);
      ranking::gradient_of_unit(text(group, column, row).first(size.components),
                                part.subspan(at * size.components, size.components), by_cut);
      for (std::size_t i = 0; i < size.components; ++i)
        gradient[at * group.width + i] += static_cast<float>(size.weight * by_cut[i]);
    });
  }

  std::unique_ptr<EmbeddingLoss> inner_;
  std::vector<MatryoshkaSize> sizes_;
};

}  // namespace

std::unique_ptr<EmbeddingLoss> make_matryoshka_loss(std::unique_ptr<EmbeddingLoss> inner,
                                                    std::vector<MatryoshkaSize> sizes) {
  std::stable_sort(sizes.begin(), sizes.end(),
                   [](const auto& a, const auto& b) { return a.components > b.components; });
  return std::make_unique<MatryoshkaLoss>(std::move(inner), std::move(sizes));
}

}  // namespace tandem::tasks::embedding
