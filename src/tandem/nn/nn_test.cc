#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tandem/core/error.h"
#include "tandem/nn/layer_norm.h"
#include "tandem/nn/linear.h"
#include "tandem/nn/packed_batch.h"
#include "tandem/nn/parameter_layout.h"
#include "tandem/nn/pass.h"

namespace tandem::nn {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(ParameterLayout, AlignsParametersAndKeepsNeighboursTogether) {
  ParameterLayout layout;
  EXPECT_EQ(layout.size(), 0u);
  EXPECT_EQ(layout.add("head.weight", {2, 9}, ParameterKind::kWeight), 0u);
  EXPECT_EQ(layout.add("head.bias", {2}, ParameterKind::kBias), 32u);
  EXPECT_EQ(layout.add("query", {4, 8}, ParameterKind::kWeight), 48u);
  EXPECT_EQ(layout.add_adjacent("key", {4, 8}, ParameterKind::kWeight), 80u);
  EXPECT_EQ(layout.add("norm", {3}, ParameterKind::kLayerNormWeight), 112u);
  EXPECT_EQ(layout.size(), 128u);
  EXPECT_EQ(layout.bf16_size(), 112u);  // to the end of "key"
  layout.add("table", {5, 16}, ParameterKind::kEmbedding);
  EXPECT_EQ(layout.bf16_size(), 112u);
  EXPECT_EQ(layout.num_parameters(), 18u + 2 + 32 + 32 + 3 + 80);
  ASSERT_NE(layout.find("key"), nullptr);
  EXPECT_EQ(layout.find("key")->offset, 80u);
  EXPECT_EQ(layout.find("keys"), nullptr);
}

TEST(ParameterLayout, BiasesAndLayerNormDoNotDecay) {
  ParameterLayout layout;
  layout.add("w", {16}, ParameterKind::kWeight);
  layout.add("b", {3}, ParameterKind::kBias);
  layout.add("n", {16}, ParameterKind::kLayerNormWeight);
  layout.add("e", {16}, ParameterKind::kEmbedding);
  layout.add("fixed", {16}, ParameterKind::kEmbedding, /*trainable=*/false);
  layout.add("e2", {5}, ParameterKind::kEmbedding);
  EXPECT_THAT(layout.trainable_ranges(),
              ElementsAre(ElementRange{0, 16, true}, ElementRange{16, 48, false},
                          ElementRange{48, 64, true}, ElementRange{80, 96, true}));
  EXPECT_EQ(layout.num_parameters(), 72u);
  EXPECT_EQ(layout.num_trainable_parameters(), 56u);
}

// Every implementation, with and without a f32 copy that is wanted, on rows that dropout and
// residual made.
template <class T>
void expect_recomputed_layer_norm_has_the_same_bits(const kernels::KernelSet& kernels) {
  constexpr std::size_t kRows = 70;  // three chunks
  constexpr std::size_t H = 37;      // no multiple of a vector
  ThreadPool threads(2);
  kernels::Scratch scratch(2);
  const std::vector<std::uint32_t> row_begin = {0, kRows};
  const std::vector<std::uint32_t> key_count = {kRows};
  const std::vector<std::uint64_t> sample = {5};
  std::vector<float> weights(2 * H);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = 0.1f * static_cast<float>(i) - 2.3f;
  const Pass pass{{threads, kernels, scratch},
                  {weights, {}},
                  {row_begin, key_count, sample},
                  {.enabled = true, .seed = 1}};
  std::vector<T> x(kRows * H);
  std::vector<float> residual(kRows * H);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = to_storage<T>(static_cast<float>(i * 7 % 113) - 51.3f);
    residual[i] = static_cast<float>(i * 5 % 89) / 7 - 3;
  }
  const LayerNormParameters parameters{.weight = 0, .bias = H};
  Arena arena(std::size_t{1} << 20);
  const LayerNormActivations saved = LayerNormActivations::allocate(arena, kRows, H);
  const auto make_hidden = [&] {
    return Hidden<T>::allocate(arena, kRows, H, Hidden<T>::allocate_stream(arena, kRows, H));
  };
  const Hidden<T> y = make_hidden();
  dropout_add_layer_norm_forward<T>(pass, parameters, 1e-12,
                                    pass.dropout.at(1, DropoutSite::kAttentionOutput, 0.1),
                                    std::span<const T>(x), residual, saved, y);
  const std::vector<float> sum(saved.sum.begin(), saved.sum.end());
  for (const bool with_residual : {false, true}) {
    const Hidden<T> recomputed = make_hidden();
    std::fill(recomputed.residual.begin(), recomputed.residual.end(), 99.0f);
    layer_norm_recompute<T>(pass, parameters, saved, with_residual, recomputed);
    EXPECT_EQ(std::memcmp(recomputed.operand.data(), y.operand.data(), y.operand.size_bytes()), 0);
    if (with_residual || y.copy() == nullptr) {
      EXPECT_EQ(std::memcmp(recomputed.residual.data(), y.residual.data(), y.residual.size_bytes()),
                0);
    } else {
      EXPECT_THAT(recomputed.residual, Each(99.0f));  // not written
    }
  }
  EXPECT_EQ(std::memcmp(sum.data(), saved.sum.data(), saved.sum.size_bytes()), 0);
}

// Two layers of one arena; the second is used less often.
template <class T>
void expect_packed_after_some_passes() {
  constexpr std::size_t kRows = 5, kOut = 40, kIn = 24, kSize = kOut * kIn;
  constexpr int kUnpacked = PackedLinears::kPassesUnpacked;
  ThreadPool threads(2);
  const kernels::KernelSet kernels = kernels::select_kernels(kernels::CpuFeatures::detect());
  kernels::Scratch scratch(2);
  const kernels::Context context{threads, kernels, scratch};
  std::vector<T> matrices(2 * kSize), x(kRows * kIn);
  for (std::size_t i = 0; i < matrices.size(); ++i)
    matrices[i] = to_storage<T>(static_cast<float>(i * 7 % 113) / 50 - 1);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = to_storage<T>(static_cast<float>(i * 5 % 89) / 40 - 1);
  const std::vector<float> biases(kOut, 0.5f);
  const auto layer = [&](std::size_t weight) {
    return Linear{
        .weight = weight, .bias = 0, .out_features = kOut, .in_features = kIn, .name = "layer"};
  };
  PackedLinears packed;
  for (int pass = 0; pass < kUnpacked; ++pass)
    EXPECT_EQ(packed.use(context, layer(0), matrices.data()), nullptr) << pass;
  const kernels::PackedWeight<T>* first = packed.use(context, layer(0), matrices.data());
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(packed.use(context, layer(0), matrices.data()), first);
  for (int pass = 0; pass < kUnpacked; ++pass)
    EXPECT_EQ(packed.use(context, layer(kSize), matrices.data() + kSize), nullptr) << pass;
  const auto* second = packed.use(context, layer(kSize), matrices.data() + kSize);
  ASSERT_NE(second, nullptr);

  std::vector<T> want(kRows * kOut), got(kRows * kOut);
  kernels::linear_forward<T>(context, kRows, kOut, kIn, x.data(), matrices.data() + kSize,
                             biases.data(), want.data());
  kernels::linear_forward<T>(context, kRows, *second, x.data(), biases.data(), got.data());
  EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(T)), 0);
}

// A layer that runs once is not packed for nothing. A layer that runs often gives the same bits
// sooner.
TEST(PackedLinears, LayersArePackedAfterSomePasses) {
  expect_packed_after_some_passes<float>();
  expect_packed_after_some_passes<bfloat16>();
}

// A layer of a model does the same.
TEST(PackedLinears, ALayerSwitchesOverWithTheSameBits) {
  constexpr std::size_t kRows = 3, kOut = 32, kIn = 48;
  ThreadPool threads(2);
  const kernels::KernelSet kernels = kernels::select_kernels(kernels::CpuFeatures::detect());
  kernels::Scratch scratch(2);
  const kernels::Context context{threads, kernels, scratch};
  std::vector<float> weights(kOut * kIn + kOut), x(kRows * kIn);
  for (std::size_t i = 0; i < weights.size(); ++i)
    weights[i] = static_cast<float>(i * 7 % 113) / 50 - 1;
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 5 % 89) / 40 - 1;
  const Linear linear{
      .weight = 0, .bias = kOut * kIn, .out_features = kOut, .in_features = kIn, .name = "layer"};
  PackedLinears packed;
  Weights read{weights, {}};
  read.packed = &packed;
  std::vector<std::vector<float>> outputs;
  for (int pass = 0; pass < PackedLinears::kPassesUnpacked + 2; ++pass) {
    outputs.emplace_back(kRows * kOut);
    linear_forward<float>({context, read, {}, {}}, linear, x, outputs.back());
    EXPECT_EQ(outputs.back(), outputs.front()) << pass;
  }
  const auto* panels = packed.use(context, linear, weights.data());
  ASSERT_NE(panels, nullptr);
  if (panels->panels() == nullptr) return;  // kernels that read weights as they are
  std::fill(weights.begin(), weights.begin() + kOut * kIn, 7.0f);
  linear_forward<float>({context, read, {}, {}}, linear, x, outputs.back());
  EXPECT_EQ(outputs.back(), outputs.front()) << "the panels are read, not the weights";
}

TEST(LayerNorm, RecomputeGivesTheSameBits) {
  const auto cpu = kernels::CpuFeatures::detect();
  for (const auto& row : kernels::implementations("layer_norm", cpu)) {
    if (!row.reason.empty()) continue;
    SCOPED_TRACE(row.implementation);
    const kernels::KernelSet kernels = kernels::select_kernels(cpu, row.implementation);
    expect_recomputed_layer_norm_has_the_same_bits<float>(kernels);
    expect_recomputed_layer_norm_has_the_same_bits<bfloat16>(kernels);
  }
}

TEST(PackedBatch, PacksAndPads) {
  PackedBatch batch;
  batch.append(std::vector<std::int32_t>{5, 6, 7}, std::vector<std::int32_t>{0, 1, 1}, 9);
  batch.append(std::vector<std::int32_t>{8, 9}, {}, 4, /*padded_rows=*/4, /*pad_id=*/1);
  EXPECT_THAT(batch.input_ids, ElementsAre(5, 6, 7, 8, 9, 1, 1));
  EXPECT_THAT(batch.token_type_ids, ElementsAre(0, 1, 1, 0, 0, 0, 0));
  EXPECT_THAT(batch.row_begin, ElementsAre(0, 3, 7));
  EXPECT_THAT(batch.key_count, ElementsAre(3, 2));
  EXPECT_THAT(batch.sample, ElementsAre(9, 4));
  EXPECT_EQ(batch.sequences().rows(), 7u);
  EXPECT_EQ(batch.sequences().count(), 2u);
  batch.clear();
  EXPECT_EQ(batch.rows(), 0u);
  EXPECT_EQ(batch.sequences().rows(), 0u);
}

TEST(PackedBatch, RefusesSequencesThatDoNotFit) {
  PackedBatch batch;
  const std::vector<std::int32_t> ids = {1, 2, 3};
  EXPECT_THAT([&] { batch.append({}, {}, 0); },
              ThrowsMessage<InvalidArgument>(HasSubstr("sequence 0 of the batch has 0 tokens")));
  EXPECT_THAT([&] { batch.append(ids, {}, 0, 2); },
              ThrowsMessage<InvalidArgument>(HasSubstr("has 3 tokens; expected 1 to 2")));
  EXPECT_THAT([&] { batch.append(ids, std::vector<std::int32_t>{0}, 0); },
              ThrowsMessage<InvalidArgument>(HasSubstr("3 tokens but 1 token types")));
}

// Two places of a model never share a mask.
TEST(DropoutStream, NumbersItsSites) {
  const DropoutStream stream{.enabled = true, .seed = 1, .step = 2};
  EXPECT_EQ(stream.at(0, DropoutSite::kInput, 0.1).site, 0u);
  EXPECT_EQ(stream.at(3, DropoutSite::kFeedForwardOutput, 0.1).site, 3u * 1024 + 2);
  EXPECT_EQ(stream.at(3, DropoutSite::kAttentionProbabilities, 0.1).site, 3u * 1024 + 16);
  EXPECT_EQ(stream.at(3, DropoutSite::kAttentionOutput, 0.25).p, 0.25f);
  EXPECT_EQ(DropoutStream{}.at(3, DropoutSite::kAttentionOutput, 0.25).p, 0.0f);
}

}  // namespace
}  // namespace tandem::nn
