// State shared by all layers of one forward or backward pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tandem/kernels/context.h"
#include "tandem/kernels/dropout.h"
#include "tandem/kernels/sequences.h"
#include "tandem/nn/weights.h"

namespace tandem::nn {

// Which dropout mask belongs to which place. Masks are functions of (seed, step, global sample,
// site, element), so backward recomputes them and they do not depend on threads, ranks or padding.
// A site is kernels::dropout_site(layer, place); place kInput of layer l is the input of layer l:
// the embeddings' output for l = 0, the head's input for l = L, where kHeadHidden is that of its
// last layer.
enum class DropoutSite : std::uint32_t {
  kInput = 0,
  kAttentionOutput = 1,
  kFeedForwardOutput = 2,
  kEmbeddingNoise = 3,  // drops nothing: the noise that is added to the embeddings of layer 0
  kHeadHidden = 4,
  kAdapter = 5,    // the input of an adapter; the layer's number is that of the linear layer
  kPositions = 6,  // the positions that a layer projects (kernels/disentangled_attention.h)
  kAttentionProbabilities = kernels::kAttentionSite  // head 0; head h has the place h further
};

// The dropout of one pass. enabled = false is the deterministic model, as in evaluation.
struct DropoutStream {
  bool enabled = false;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;      // unique per micro-batch within the run
  double embedding_noise = 0;  // alpha of NEFTune; 0: none

  kernels::Dropout at(std::size_t layer, DropoutSite site, double p) const {
    return {.p = enabled ? static_cast<float>(p) : 0.0f,
            .seed = seed,
            .step = step,
            .site = kernels::dropout_site(static_cast<std::uint32_t>(layer),
                                          static_cast<std::uint32_t>(site))};
  }
};

struct Pass {
  const kernels::Context& context;
  Weights weights;
  kernels::Sequences sequences;
  DropoutStream dropout;
  // Memory of one product's low-rank update (low_rank_bytes()); empty in models without adapters.
  std::span<std::byte> low_rank_memory = {};
  // Generation: rows of each sequence that earlier passes have computed, whose keys and values are
  // kept. Else empty.
  std::span<const std::uint32_t> past_rows = {};
  // The first tokens of each sequence that a pooling leaves out; empty: none.
  std::span<const std::uint32_t> unpooled = {};

  std::size_t rows() const { return sequences.rows(); }
  std::size_t past_rows_of(std::size_t sequence) const {
    return past_rows.empty() ? 0 : past_rows[sequence];
  }
  std::size_t unpooled_of(std::size_t sequence) const {
    return unpooled.empty() ? 0 : unpooled[sequence];
  }
};

}  // namespace tandem::nn
