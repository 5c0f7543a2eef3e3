#include "tandem/kernels/embedding.h"

#include <cmath>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/kernels/dropout.h"
#include "tandem/kernels/kernel_test_support.h"
#include "tandem/kernels/layer_norm.h"

namespace tandem::kernels::testing {
namespace {

struct EmbeddingCase {
  explicit EmbeddingCase(bool has_types) : with_types(has_types) {
    for (std::size_t row = 0; row < batch.rows(); ++row) {
      ids.push_back(static_cast<std::int32_t>(splitmix64(row) % kVocab));
      positions.push_back(static_cast<std::int32_t>(row % 8));
      types.push_back(static_cast<std::int32_t>(row % 2));
    }
  }
  EmbeddingIndices indices() const {
    return {.word = ids.data(),
            .position = bare ? nullptr : positions.data(),
            .type = with_types ? types.data() : nullptr,
            .vocab_size = kVocab,
            .max_positions = bare ? 0u : 8u,
            .type_vocab_size = with_types ? 2u : 0u};
  }
  static constexpr std::size_t H = 72;
  // Three blocks of scatter_add; some rows are hit twice.
  static constexpr std::size_t kVocab = 131;
  bool with_types;
  bool bare = false;  // without positions and the bias of the norm
  bool normed = true;
  Batch batch{{5, 8, 70}};
  Dropout dropout{.p = 0.2f, .seed = 3, .step = 4, .site = 5};
  std::vector<std::int32_t> ids, positions, types;
  std::vector<float> word = random_values(kVocab * H, 1), position = random_values(8 * H, 2),
                     type = random_values(2 * H, 3);
  std::vector<float> gamma = random_values(H, 4), beta = random_values(H, 5);
  std::vector<float> grad_y = random_values(batch.rows() * H, 6);
};

struct EmbeddingResults {
  std::vector<float> y, sum, mean, rstd;
  std::vector<bfloat16> y_copy;
  std::vector<float> grad_word, grad_position, grad_type, grad_gamma, grad_beta;
  std::vector<float> grad_sum;  // gradient of the rows
};

EmbeddingResults run(const Context& ctx, const EmbeddingCase& c, std::int32_t padding_idx = -1,
                     bool accumulate = false, const EmbeddingNoise& noise = {}) {
  const std::size_t rows = c.batch.rows();
  const std::size_t H = EmbeddingCase::H;
  EmbeddingResults r;
  for (auto* v : {&r.y, &r.sum}) v->resize(rows * H);
  for (auto* v : {&r.mean, &r.rstd}) v->resize(rows);
  r.y_copy.resize(rows * H);
  embedding_forward<bfloat16>(ctx, c.batch.sequences(), H, c.indices(), c.dropout,
                              {.word = c.word.data(),
                               .position = c.bare ? nullptr : c.position.data(),
                               .type = c.with_types ? c.type.data() : nullptr,
                               .gamma = c.normed ? c.gamma.data() : nullptr,
                               .beta = c.bare ? nullptr : c.beta.data(),
                               .eps = 1e-12f,
                               .y = r.y.data(),
                               .y_copy = r.y_copy.data(),
                               .sum = r.sum.data(),
                               .mean = r.mean.data(),
                               .rstd = r.rstd.data(),
                               .noise = noise});
  r.grad_word.assign(EmbeddingCase::kVocab * H, 1.0f);
  r.grad_position.assign(8 * H, 1.0f);
  r.grad_type.assign(2 * H, 1.0f);
  r.grad_gamma.assign(H, 1.0f);
  r.grad_beta.assign(H, 1.0f);
  std::vector<float> grad_y = c.grad_y;
  embedding_backward(ctx, c.batch.sequences(), H, c.indices(), c.dropout,
                     {.grad_y = grad_y.data(),
                      .sum = r.sum.data(),
                      .mean = r.mean.data(),
                      .rstd = r.rstd.data(),
                      .gamma = c.normed ? c.gamma.data() : nullptr,
                      .grad_word = r.grad_word.data(),
                      .grad_position = c.bare ? nullptr : r.grad_position.data(),
                      .grad_type = c.with_types ? r.grad_type.data() : nullptr,
                      .grad_gamma = r.grad_gamma.data(),
                      .grad_beta = c.bare ? nullptr : r.grad_beta.data(),
                      .padding_idx = padding_idx,
                      .accumulate = accumulate});
  r.grad_sum = grad_y;
  return r;
}

TEST(Embedding, ReferenceBackwardIsTheDerivativeOfForward) {
  Runtime runtime("reference");
  for (const bool with_types : {true, false}) {
    EmbeddingCase c(with_types);
    const EmbeddingResults r = run(runtime.context(), c);
    const auto loss = [&] { return weighted_sum(run(runtime.context(), c).y, c.grad_y); };
    expect_gradient(c.word, r.grad_word, loss, "word");
    expect_gradient(c.position, r.grad_position, loss, "position");
    if (with_types) expect_gradient(c.type, r.grad_type, loss, "type");
    expect_gradient(c.gamma, r.grad_gamma, loss, "gamma");
    expect_gradient(c.beta, r.grad_beta, loss, "beta");
  }
}

TEST(Embedding, OfWordsAlone) {
  Runtime reference("reference");
  EmbeddingCase c(false);
  c.bare = true;
  const EmbeddingResults want = run(reference.context(), c);
  const auto loss = [&] { return weighted_sum(run(reference.context(), c).y, c.grad_y); };
  expect_gradient(c.word, want.grad_word, loss, "word");
  expect_gradient(c.gamma, want.grad_gamma, loss, "gamma");
  // The bits of positions and a bias that are zeros.
  EmbeddingCase zeros(false);
  std::fill(zeros.position.begin(), zeros.position.end(), 0.0f);
  std::fill(zeros.beta.begin(), zeros.beta.end(), 0.0f);
  for (const std::string& name : running_implementations("layer_norm")) {
    Runtime runtime("layer_norm=" + name);
    const EmbeddingResults got = run(runtime.context(), c), same = run(runtime.context(), zeros);
    EXPECT_TRUE(same_bits(got.y, same.y) && same_bits(got.y_copy, same.y_copy)) << name;
    EXPECT_TRUE(same_bits(got.grad_word, same.grad_word)) << name;
    EXPECT_TRUE(same_bits(got.grad_gamma, same.grad_gamma)) << name;
  }
}

// Decoders: the sum of the rows itself, with dropout.
TEST(Embedding, WithoutANorm) {
  for (const bool bare : {true, false}) {
    EmbeddingCase c(false);
    c.bare = bare;
    c.normed = false;
    for (const std::string& name : running_implementations("layer_norm")) {
      Runtime runtime("layer_norm=" + name);
      const EmbeddingResults r = run(runtime.context(), c);
      const auto loss = [&] { return weighted_sum(run(runtime.context(), c).y, c.grad_y); };
      expect_gradient(c.word, r.grad_word, loss, "word");
      if (!bare) expect_gradient(c.position, r.grad_position, loss, "position");
      EXPECT_EQ(r.grad_gamma, std::vector<float>(EmbeddingCase::H, 1.0f));  // not written
      EXPECT_EQ(r.rstd, std::vector<float>(r.rstd.size()));
      EmbeddingCase kept = c;
      kept.dropout.p = 0;
      const EmbeddingResults plain = run(runtime.context(), kept);
      const auto word = static_cast<std::size_t>(c.ids[3]) * EmbeddingCase::H;
      const auto position = static_cast<std::size_t>(c.positions[3]) * EmbeddingCase::H;
      for (std::size_t i = 0; i < EmbeddingCase::H; ++i) {
        EXPECT_EQ(plain.y[3 * EmbeddingCase::H + i],
                  c.word[word + i] + (bare ? 0.0f : c.position[position + i]));
      }
    }
  }
}

TEST(Embedding, FastVersionsAgreeWithTheReference) {
  const EmbeddingCase c(true);
  Runtime reference("reference");
  const EmbeddingResults want = run(reference.context(), c);
  for (const std::string& name : fast_implementations("layer_norm")) {
    Runtime fast(fmt::format("layer_norm={0},dropout={0},reduce={0}", name));
    const EmbeddingResults got = run(fast.context(), c);
    const double bound = 64.0 * kFloatEpsilon * std::sqrt(static_cast<double>(EmbeddingCase::H));
    const auto constant = [&](double factor) {
      return [b = bound * factor](std::size_t) { return b; };
    };
    expect_near(got.y, want.y, constant(1), name + " y");
    expect_near(got.y_copy, want.y_copy, constant(1), name + " y copy");
    expect_near(got.grad_word, want.grad_word, constant(4), name + " word");
    expect_near(got.grad_position, want.grad_position, constant(4), name + " position");
    expect_near(got.grad_type, want.grad_type, constant(8), name + " type");
  }
}

TEST(Embedding, PaddingRowGetsNoGradientAndAccumulateAdds) {
  Runtime runtime;
  const EmbeddingCase c(true);
  const EmbeddingResults plain = run(runtime.context(), c);
  const std::int32_t padding = c.ids[0];
  const EmbeddingResults padded = run(runtime.context(), c, padding, true);
  const std::size_t H = EmbeddingCase::H;
  for (std::size_t i = 0; i < plain.grad_word.size(); ++i) {
    if (i / H == static_cast<std::size_t>(padding)) {
      EXPECT_EQ(padded.grad_word[i], 1.0f);
    } else {
      EXPECT_NEAR(padded.grad_word[i], plain.grad_word[i] + 1.0f, 1e-5) << i;
    }
  }
  EXPECT_NEAR(padded.grad_type[0], plain.grad_type[0] + 1.0f, 1e-4);
  EXPECT_NEAR(padded.grad_gamma[0], plain.grad_gamma[0] + 1.0f, 1e-5);
}

// Rows are added in the order of the batch, one after another: as in a plain loop, bit for bit.
// Rows that no token names are zero.
TEST(Embedding, AddsRowsInTheOrderOfTheBatch) {
  for (const auto& row : implementations("reduce", CpuFeatures::detect())) {
    if (!row.reason.empty()) continue;
    Runtime runtime("reduce=" + row.implementation);
    const EmbeddingCase c(true);
    const EmbeddingResults got = run(runtime.context(), c);
    const std::size_t H = EmbeddingCase::H;
    std::vector<float> word(EmbeddingCase::kVocab * H), type(2 * H);
    for (std::size_t i = 0; i < c.batch.rows(); ++i) {
      for (std::size_t h = 0; h < H; ++h) {
        word[static_cast<std::size_t>(c.ids[i]) * H + h] += got.grad_sum[i * H + h];
        type[static_cast<std::size_t>(c.types[i]) * H + h] += got.grad_sum[i * H + h];
      }
    }
    EXPECT_TRUE(same_bits(got.grad_word, word)) << row.implementation;
    EXPECT_TRUE(same_bits(got.grad_type, type)) << row.implementation;
  }
}

TEST(Embedding, SameBitsForAnyNumberOfThreads) {
  const EmbeddingCase c(true);
  Runtime one("", 1);
  const EmbeddingResults want = run(one.context(), c);
  for (const int num_threads : {2, 3}) {
    Runtime many("", num_threads);
    const EmbeddingResults got = run(many.context(), c);
    EXPECT_TRUE(same_bits(got.y, want.y));
    EXPECT_TRUE(same_bits(got.grad_word, want.grad_word));
    EXPECT_TRUE(same_bits(got.grad_type, want.grad_type));
    EXPECT_TRUE(same_bits(got.grad_beta, want.grad_beta));
  }
}

// Uniform in (−m, m), m = alpha/sqrt(rows of the sequence · H), in the sum that backward sees.
TEST(Embedding, NoiseIsUniformAndScaledByTheSequence) {
  Runtime runtime;
  const EmbeddingCase c(true);
  const std::size_t H = EmbeddingCase::H;
  const EmbeddingNoise noise = {.alpha = 3.0f, .seed = 7, .step = 2, .site = 3};
  const EmbeddingResults plain = run(runtime.context(), c);
  const EmbeddingResults noisy = run(runtime.context(), c, -1, false, noise);
  const Sequences sequences = c.batch.sequences();
  for (std::size_t s = 0; s < sequences.count(); ++s) {
    const std::size_t begin = sequences.row_begin[s] * H, end = sequences.row_begin[s + 1] * H;
    const double m = 3.0 / std::sqrt(static_cast<double>(end - begin));
    double sum = 0, squares = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const double difference =
          static_cast<double>(noisy.sum[i]) - static_cast<double>(plain.sum[i]);
      EXPECT_LE(std::abs(difference), m + 1e-6);
      sum += difference;
      squares += difference * difference;
    }
    const auto count = static_cast<double>(end - begin);
    // Five standard errors; the variance of a uniform number is m²/3, that of its square 4m⁴/45.
    EXPECT_NEAR(sum / count, 0, 5 * m / std::sqrt(3 * count)) << s;
    EXPECT_NEAR(squares / count, m * m / 3, 5 * m * m * std::sqrt(4.0 / 45 / count)) << s;
  }
  Runtime threads("", 3);
  EXPECT_TRUE(same_bits(run(threads.context(), c, -1, false, noise).y, noisy.y));
  EmbeddingNoise other = noise;
  other.step = 3;
  EXPECT_FALSE(same_bits(run(runtime.context(), c, -1, false, other).sum, noisy.sum));
}

TEST(Embedding, NoiseHasADerivativeToo) {
  Runtime runtime("reference");
  EmbeddingCase c(true);
  const EmbeddingNoise noise = {.alpha = 3.0f, .seed = 7, .step = 2, .site = 3};
  const EmbeddingResults r = run(runtime.context(), c, -1, false, noise);
  const auto loss = [&] {
    return weighted_sum(run(runtime.context(), c, -1, false, noise).y, c.grad_y);
  };
  expect_gradient(c.type, r.grad_type, loss, "type");
  expect_gradient(c.gamma, r.grad_gamma, loss, "gamma");
}

TEST(Embedding, IdsOutsideTheTablesAreNamed) {
  Runtime runtime;
  EmbeddingCase c(true);
  c.ids[6] = 131;
  try {
    run(runtime.context(), c);
    FAIL() << "id 131 of a table with 131 rows must be refused";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "row 6 has word id 131, but the embedding table has 131 rows");
  }
}

}  // namespace
}  // namespace tandem::kernels::testing
