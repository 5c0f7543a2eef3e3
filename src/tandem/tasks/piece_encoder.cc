#include "tandem/tasks/piece_encoder.h"

#include <algorithm>

#include "tandem/core/error.h"

namespace tandem::tasks {

std::size_t PieceEncoder::plan(const PieceCapacity& capacity) {
  passes_.clear();
  live_ = false;
  const std::size_t most =
      std::min(std::max(kPieceTokens, capacity.longest), kPieceTexts * capacity.longest);
  const models::BatchShape shape{.rows = std::min(most, capacity.tokens),
                                 .sequences = std::min(kPieceTexts, capacity.texts)};
  // A piece that is not the last one has no room for another text, or has kPieceTexts.
  const std::size_t least = kPieceTokens - std::min(capacity.longest, kPieceTokens) + 1;
  const std::size_t pieces = capacity.tokens / least + capacity.texts / kPieceTexts + 1;
  const std::size_t count = capacity.keep ? pieces : 1;
  for (std::size_t i = 0; i < count; ++i) {
    passes_.push_back(
        std::make_unique<Pass>(model_.make_activations(shape, capacity.precision, capacity.kind)));
    passes_.back()->batch.reserve(shape.rows, shape.sequences);
  }
  indices_.reserve(capacity.texts);
  samples_.reserve(capacity.texts);
  pieces_.reserve(pieces);
  recomputed_.resize(shape.sequences * width());
  // The memory of a pass is used as far as its piece has tokens.
  const double bytes = static_cast<double>(passes_.front()->activations.bytes());
  const double full = static_cast<double>(capacity.keep ? capacity.tokens : shape.rows) /
                      static_cast<double>(std::max<std::size_t>(shape.rows, 1));
  return static_cast<std::size_t>(bytes * full);
}

BatchSize PieceEncoder::load(const TokenSequences& sequences,
                             std::span<const std::uint32_t> indices,
                             std::span<const std::uint64_t> samples) {
  if (live_ && sequences_ == &sequences &&
      std::equal(indices.begin(), indices.end(), indices_.begin(), indices_.end()) &&
      std::equal(samples.begin(), samples.end(), samples_.begin(), samples_.end()))
    return size();
  live_ = false;
  sequences_ = &sequences;
  indices_.assign(indices.begin(), indices.end());
  samples_.assign(samples.begin(), samples.end());
  pieces_.clear();
  std::size_t tokens = 0;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const std::size_t own = sequences.num_real_tokens(indices[i]);
    if (pieces_.empty() || tokens + own > kPieceTokens || i - pieces_.back().begin == kPieceTexts) {
      pieces_.push_back({i, i});
      tokens = 0;
    }
    pieces_.back().end = i + 1;
    tokens += own;
  }
  return size();
}

BatchSize PieceEncoder::size() const {
  BatchSize size;
  for (const Piece& piece : pieces_) {
    std::size_t longest = 0;
    for (std::size_t i = piece.begin; i < piece.end; ++i) {
      const std::size_t rows = sequences_->num_real_tokens(indices_[i]);
      longest = std::max(longest, rows);
      size.real_tokens += rows;
      size.flops += model_.training_flops(rows, rows);
    }
    size.flops += model_.shared_training_flops(longest);
  }
  size.computed_tokens = size.real_tokens;
  return size;
}

void PieceEncoder::fill(const Piece& piece, Pass& pass) const {
  const std::size_t count = piece.end - piece.begin;
  fill_batch(*sequences_, std::span(indices_).subspan(piece.begin, count), Padding::kNone, 0,
             pass.batch);
  std::copy_n(samples_.begin() + static_cast<std::ptrdiff_t>(piece.begin), count,
              pass.batch.sample.begin());
}

void PieceEncoder::embed(const kernels::Context& context, const nn::Weights& weights,
                         const nn::DropoutStream& dropout, std::span<float> embeddings) {
  TANDEM_CHECK(planned(), "plan() comes first");
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const Piece& piece = pieces_[i];
    Pass& pass = pass_of(i);
    fill(piece, pass);
    model_.forward(context, weights, pass.batch, dropout, pass.activations,
                   embeddings.subspan(piece.begin * width(), (piece.end - piece.begin) * width()));
  }
  live_ = kept();
}

void PieceEncoder::backward(const kernels::Context& context, const nn::Weights& weights,
                            const nn::DropoutStream& dropout, std::span<const float> gradient,
                            std::span<float> grads, bool accumulate,
                            FunctionRef<void(std::size_t end)> gradient_ready) {
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const Piece& piece = pieces_[i];
    const std::size_t size = (piece.end - piece.begin) * width();
    Pass& pass = pass_of(i);
    if (!live_) {
      fill(piece, pass);
      model_.forward(context, weights, pass.batch, dropout, pass.activations,
                     std::span(recomputed_).first(size));
    }
    const bool last = i + 1 == pieces_.size();
    model_.backward(context, weights, pass.batch, dropout,
                    gradient.subspan(piece.begin * width(), size), pass.activations, grads,
                    accumulate || i > 0, [&](std::size_t end) {
                      if (last) gradient_ready(end);
                    });
  }
  live_ = false;
}

}  // namespace tandem::tasks
