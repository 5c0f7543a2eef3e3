#include "tandem/tasks/masked_language/batch_masks.h"

#include <algorithm>
#include <numeric>

#include "tandem/core/error.h"

namespace tandem::masked_language {

BatchMasks::BatchMasks(const MaskingOptions& options, std::uint64_t seed, bool torch_masks)
    : options_(options), seed_(seed) {
  check_masking(options);
  if (torch_masks) stream_ = std::make_unique<Stream>(seed, options);
}

void BatchMasks::begin_epoch(std::uint64_t epoch, const data::EpochBatches& batches,
                             std::size_t first_batch) {
  epoch_ = epoch;
  if (stream_ == nullptr) return;
  const std::uint64_t expected = stream_->batches ? stream_->epoch + 1 : 0;
  if (epoch != expected || first_batch != 0) {
    raise<ConfigError>(
        "--torch_masks: the run resumes in epoch {} behind {} batches, and the script's masks "
        "depend on all earlier ones; train without resuming",
        epoch, first_batch);
  }
  stream_->epoch = epoch;
  stream_->batches = batches;
  stream_->next = 0;
  stream_->masks.begin_iterator();
}

std::span<const MaskedPiece> BatchMasks::by_counter(const corpus::TextPieces& pieces,
                                                    std::span<const std::uint32_t> indices,
                                                    MaskUse use) {
  pieces_.resize(std::max<std::size_t>(pieces_.size(), 1));
  if (masked_.size() < indices.size()) masked_.resize(indices.size());
  for (std::size_t i = 0; i < indices.size(); ++i) {
    pieces.read(indices[i], pieces_.front());
    mask_piece(pieces_.front(), options_,
               {.seed = seed_,
                .epoch = use == MaskUse::kTraining ? epoch_ : 0,
                .sample = indices[i],
                .use = use},
               masked_[i]);
  }
  return std::span(masked_).first(indices.size());
}

bool BatchMasks::evaluates(const corpus::TextPieces& pieces) {
  const auto is_chosen = [](std::int32_t label) { return label != kNoLabel; };
  if (stream_ != nullptr) return true;
  for (std::uint32_t i = 0; i < pieces.size(); ++i) {
    const MaskedPiece& piece = by_counter(pieces, std::span(&i, 1), MaskUse::kEvaluation).front();
    if (std::any_of(piece.labels.begin(), piece.labels.end(), is_chosen)) return true;
  }
  return false;
}

// The next batch of the stream.
void BatchMasks::draw(const corpus::TextPieces& pieces, std::span<const std::uint32_t> indices,
                      std::span<MaskedPiece> out) {
  if (pieces_.size() < indices.size()) pieces_.resize(indices.size());
  std::size_t columns = 0;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    pieces.read(indices[i], pieces_[i]);
    columns = std::max(columns, pieces_[i].ids.size());
  }
  stream_->masks.mask_batch(std::span(pieces_).first(indices.size()), columns, out);
}

std::span<const MaskedPiece> BatchMasks::of_training(const corpus::TextPieces& pieces,
                                                     std::span<const std::uint32_t> indices) {
  train_ = &pieces;
  if (stream_ == nullptr) return by_counter(pieces, indices, MaskUse::kTraining);
  Stream& stream = *stream_;
  if (!stream.ahead) {
    stream.drawn.resize(indices.size());
    draw(pieces, indices, stream.drawn);
  }
  stream.ahead = false;
  ++stream.next;
  return stream.drawn;
}

// The loader of the script fetches a batch ahead of the one that it trains on.
void BatchMasks::draw_evaluation(const corpus::TextPieces& pieces, std::size_t batch_size) {
  Stream& stream = *stream_;
  if (stream.batches && !stream.ahead && stream.next < stream.batches->size()) {
    const std::span<const std::uint32_t> next = stream.batches->batch(stream.next, 0);
    stream.drawn.resize(next.size());
    draw(*train_, next, stream.drawn);
    stream.ahead = true;
  }
  stream.masks.begin_iterator();
  stream.evaluated.resize(pieces.size());
  std::vector<std::uint32_t> indices(pieces.size());
  std::iota(indices.begin(), indices.end(), 0u);
  for (std::size_t begin = 0; begin < indices.size(); begin += batch_size) {
    const std::size_t count = std::min(batch_size, indices.size() - begin);
    draw(pieces, std::span(indices).subspan(begin, count),
         std::span(stream.evaluated).subspan(begin, count));
  }
}

std::span<const MaskedPiece> BatchMasks::of_evaluation(const corpus::TextPieces& pieces,
                                                       std::span<const std::uint32_t> indices,
                                                       bool begin, std::size_t batch_size) {
  if (stream_ == nullptr) return by_counter(pieces, indices, MaskUse::kEvaluation);
  if (begin) draw_evaluation(pieces, batch_size);
  masked_.resize(std::max(masked_.size(), indices.size()));
  for (std::size_t i = 0; i < indices.size(); ++i) masked_[i] = stream_->evaluated[indices[i]];
  return std::span(masked_).first(indices.size());
}

}  // namespace tandem::masked_language
