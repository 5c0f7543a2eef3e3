#include "tandem/kernels/int8.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tandem/core/error.h"
#include "tandem/kernels/kernel_tables.h"
#include "tandem/kernels/large_results.h"

namespace tandem::kernels {
namespace {

// A tile of y is one chunk of work. Its panels are read from the cache for every block of rows, its
// rows for every block of panels. So it is large, but many tiles keep many cores busy with one
// sequence.
struct TileShape {
  std::size_t rows = 128, panels = 12;

  template <class X>
  TileShape(const X& x, const Int8Weight& weight, std::size_t threads) {
    constexpr std::size_t kChunksOfThread = 4;
    const std::size_t most = x.kernels.chunk_bytes;
    const auto grows = [&](std::size_t next_rows, std::size_t next_panels) {
      const std::size_t chunks = num_chunks(x.count, next_rows) *
                                 num_chunks(weight.out_features(), next_panels * kInt8Panel);
      return next_rows * x.row_bytes <= most && next_panels * weight.panel_bytes() <= most &&
             chunks >= kChunksOfThread * threads;
    };
    while (grows(2 * rows, panels)) rows *= 2;
    while (grows(rows, 2 * panels)) panels *= 2;
  }
};
// Rows that are quantized in one chunk.
constexpr std::size_t kQuantizedRows = 16;

void check_sizes(std::size_t out_features, std::size_t in_features, std::size_t weights,
                 std::size_t scales) {
  if (out_features == 0 || in_features == 0 || in_features > Int8Weight::kMaxInFeatures) {
    raise<InvalidArgument>(
        "an int8 weight of {} x {}; expected at least 1 output feature and 1 to {} input features",
        out_features, in_features, Int8Weight::kMaxInFeatures);
  }
  if (weights != out_features * in_features || scales != out_features) {
    raise<InvalidArgument>(
        "an int8 weight of {} x {} comes with {} elements and {} scales; expected {} and {}",
        out_features, in_features, weights, scales, out_features * in_features, out_features);
  }
}

bool is_scale(float scale) { return std::isfinite(scale) && scale > 0; }

// The quantized rows of a call, in shared scratch.   T: the type of x and y.
template <class T>
struct QuantizedRows {
  QuantizedRows(const Context& ctx, std::size_t rows, std::size_t in_features)
      : kernels(*ctx.kernels.int8),
        count(rows),
        elements(in_features),
        // One line more than the elements need: rows a multiple of 4 KB apart would share a few
        // sets of the cache.
        row_bytes(
            align_up(align_up(in_features, kInt8Group) * kernels.element_bytes, kTensorAlignment) +
            kTensorAlignment) {
    const std::size_t ranges = align_up(rows * sizeof(Int8Row), kTensorAlignment);
    const std::size_t padded = align_up(rows, kernels.row_block);
    std::byte* memory = ctx.scratch.shared<std::byte>(ranges + padded * row_bytes).data();
    row = reinterpret_cast<Int8Row*>(memory);
    x = memory + ranges;
    std::memset(x + rows * row_bytes, 0, (padded - rows) * row_bytes);
  }

  void quantize(std::size_t r, const T* from, const Int8Range* static_range) const {
    Int8Range range;
    bool is_nan = false;
    if (static_range != nullptr) {
      range = *static_range;
    } else {
      is_nan = !dynamic_range(from, range);
    }
    std::byte* to = x + r * row_bytes;
    is_nan = of<T>(kernels).quantize(elements, from, range, to) || is_nan;
    std::memset(to + elements * kernels.element_bytes, 0,
                (align_up(elements, kInt8Group) - elements) * kernels.element_bytes);
    row[r] = {is_nan ? std::numeric_limits<float>::quiet_NaN() : range.scale, range.zero_point};
  }

  const Int8Kernels& kernels;
  std::size_t count, elements;
  std::size_t row_bytes;
  Int8Row* row;
  std::byte* x;

 private:
  // False when the row has no range: it is not finite.
  bool dynamic_range(const T* from, Int8Range& range) const {
    float min = 0;
    float max = 0;
    of<T>(kernels).min_max(elements, from, &min, &max);
    if (!std::isfinite(max - min)) return false;
    range = int8_range(min, max);
    return true;
  }
};

template <class T>
void multiply_tile(const QuantizedRows<T>& x, const Int8Weight& weight, const TileShape& tile,
                   std::size_t first_row, std::size_t first_panel, const float* bias, T* y) {
  const std::size_t column = first_panel * kInt8Panel;
  const std::size_t out_features = weight.out_features();
  of<T>(x.kernels).multiply({.rows = std::min(tile.rows, x.count - first_row),
                             .columns = std::min(tile.panels * kInt8Panel, out_features - column),
                             .groups = num_chunks(weight.in_features(), kInt8Group),
                             .x = x.x + first_row * x.row_bytes,
                             .row_bytes = x.row_bytes,
                             .row = x.row + first_row,
                             .panels = weight.panels() + first_panel * weight.panel_bytes(),
                             .panel_bytes = weight.panel_bytes(),
                             .scale = weight.panel_scale() + column,
                             .row_sums = weight.row_sums() + column,
                             .bias = bias == nullptr ? nullptr : bias + column,
                             .y = y + first_row * out_features + column,
                             .ld = out_features,
                             .streamed = passes_caches(x.count, out_features, y)});
}

// range: null where each row has its own.
template <class T>
void forward(const Context& ctx, std::size_t rows, const Int8Weight& weight, const Int8Range* range,
             const T* x, const float* bias, T* y) {
  if (weight.out_features() == 0) raise<InvalidArgument>("the int8 weight is empty; pack() one");
  if (rows == 0) return;
  const QuantizedRows<T> quantized(ctx, rows, weight.in_features());
  ctx.threads.parallel_for(num_chunks(rows, kQuantizedRows), [&](std::size_t chunk, int) {
    const std::size_t end = std::min(rows, (chunk + 1) * kQuantizedRows);
    for (std::size_t r = chunk * kQuantizedRows; r < end; ++r) {
      quantized.quantize(r, x + r * weight.in_features(), range);
    }
  });
  const TileShape shape(quantized, weight, static_cast<std::size_t>(ctx.threads.num_threads()));
  const std::size_t row_tiles = num_chunks(rows, shape.rows);
  const std::size_t column_tiles = num_chunks(weight.out_features(), shape.panels * kInt8Panel);
  // Tiles of one band of columns follow one another, so that its panels stay in the cache.
  ctx.threads.parallel_for(row_tiles * column_tiles, [&](std::size_t tile, int) {
    multiply_tile(quantized, weight, shape, tile % row_tiles * shape.rows,
                  tile / row_tiles * shape.panels, bias, y);
  });
}

}  // namespace

Int8Range int8_range(float min, float max) {
  const float low = std::min(min, 0.0f);
  const float high = std::max(max, 0.0f);
  // A NaN passes min() or max() unseen.
  if (std::isnan(min) || std::isnan(max) || !std::isfinite(high - low)) {
    raise<InvalidArgument>("a range of {} to {} for int8; expected finite limits", min, max);
  }
  const float scale = (high - low) / 255.0f;
  if (scale == 0) return {};  // all zeros, or too small to distinguish from them
  const float zero_point = std::nearbyint(-low / scale);
  return {scale, static_cast<std::uint8_t>(std::min(zero_point, 255.0f))};
}

Int8Weight Int8Weight::pack(const Context& ctx, std::size_t out_features, std::size_t in_features,
                            std::span<const std::int8_t> weight, std::span<const float> scale) {
  check_sizes(out_features, in_features, weight.size(), scale.size());
  const auto wrong = std::find_if_not(scale.begin(), scale.end(), is_scale);
  if (wrong != scale.end()) {
    raise<InvalidArgument>("the int8 scale of output feature {} is {}; expected a positive number",
                           wrong - scale.begin(), *wrong);
  }
  Int8Weight packed;
  packed.out_features_ = out_features;
  packed.in_features_ = in_features;
  packed.panel_bytes_ = num_chunks(in_features, kInt8Group) * kInt8GroupBytes;
  const std::size_t panels = num_chunks(out_features, kInt8Panel);
  packed.panels_ = Buffer(panels * packed.panel_bytes_);  // zeros
  packed.scale_.assign(panels * kInt8Panel, 0);
  std::copy(scale.begin(), scale.end(), packed.scale_.begin());
  packed.row_sums_.assign(panels * kInt8Panel, 0);
  ctx.threads.parallel_for(panels, [&](std::size_t panel, int) {
    std::int8_t* to = packed.panels_.as<std::int8_t>().data() + panel * packed.panel_bytes_;
    const std::size_t end = std::min(out_features, (panel + 1) * kInt8Panel);
    for (std::size_t n = panel * kInt8Panel; n < end; ++n) {
      const std::int8_t* row = weight.data() + n * in_features;
      for (std::size_t k = 0; k < in_features; ++k) {
        to[k / kInt8Group * kInt8GroupBytes + n % kInt8Panel * kInt8Group + k % kInt8Group] =
            row[k];
        packed.row_sums_[n] += row[k];
      }
    }
  });
  return packed;
}

std::vector<std::int8_t> Int8Weight::unpack() const {
  std::vector<std::int8_t> weight(out_features_ * in_features_);
  for (std::size_t n = 0; n < out_features_; ++n) {
    const std::int8_t* from =
        panels() + n / kInt8Panel * panel_bytes_ + n % kInt8Panel * kInt8Group;
    for (std::size_t k = 0; k < in_features_; ++k) {
      weight[n * in_features_ + k] = from[k / kInt8Group * kInt8GroupBytes + k % kInt8Group];
    }
  }
  return weight;
}

std::size_t Int8Weight::bytes() const {
  return panels_.size() + scale_.size() * sizeof(float) + row_sums_.size() * sizeof(std::int32_t);
}

template <class T>
void int8_linear_forward(const Context& ctx, std::size_t rows, const Int8Weight& weight,
                         const Int8Range& range, const T* x, const float* bias, T* y) {
  if (!is_scale(range.scale)) {
    raise<InvalidArgument>("an int8 range with the scale {}; expected a positive number",
                           range.scale);
  }
  forward(ctx, rows, weight, &range, x, bias, y);
}

template <class T>
void int8_linear_forward_dynamic(const Context& ctx, std::size_t rows, const Int8Weight& weight,
                                 const T* x, const float* bias, T* y) {
  forward<T>(ctx, rows, weight, nullptr, x, bias, y);
}

template void int8_linear_forward(const Context&, std::size_t, const Int8Weight&, const Int8Range&,
                                  const float*, const float*, float*);
template void int8_linear_forward(const Context&, std::size_t, const Int8Weight&, const Int8Range&,
                                  const bfloat16*, const float*, bfloat16*);
template void int8_linear_forward_dynamic(const Context&, std::size_t, const Int8Weight&,
                                          const float*, const float*, float*);
template void int8_linear_forward_dynamic(const Context&, std::size_t, const Int8Weight&,
                                          const bfloat16*, const float*, bfloat16*);

}  // namespace tandem::kernels
