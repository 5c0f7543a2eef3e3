// Embeddings in .npy files: what numpy writes, truncation, int8, broken files, and the memory of a
// search over them.
#include "tandem/tasks/ranking/embedding_file.h"

#include <gmock/gmock.h>

#include <random>

#include "support/process.h"
#include "support/sanitizers.h"
#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"

namespace tandem::tasks::ranking {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// As numpy.save writes it, version `major`.0.
std::string npy(const std::string& descr, const std::string& shape, std::string_view data,
                int major = 1, const std::string& order = "False") {
  std::string header =
      "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': (" + shape + "), }";
  const std::size_t before = major == 1 ? 10 : 12;
  header.resize((before + header.size() + 1 + 63) / 64 * 64 - before - 1, ' ');
  header += '\n';
  std::string text = "\x93NUMPY";
  text += static_cast<char>(major);
  text += '\0';
  for (std::size_t i = 0; i < (major == 1 ? 2u : 4u); ++i)
    text += static_cast<char>(header.size() >> 8 * i & 0xffu);
  return text + header + std::string(data);
}

std::string bytes_of(std::span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

class EmbeddingFileTest : public ::testing::Test {
 protected:
  std::filesystem::path file(const std::string& content) const {
    const std::filesystem::path path = folder_ / "vectors.npy";
    write_file(path, content);
    return path;
  }
  std::string error_of(const std::string& content) const {
    try {
      EmbeddingFile(file(content));
    } catch (const DataError& error) {
      return error.what();
    }
    return "no error";
  }
  static std::vector<float> rows(const EmbeddingFile& file, std::size_t first, std::size_t count,
                                 std::size_t width) {
    std::vector<float> values(count * width);
    file.read(first, width, values);
    return values;
  }

  testing::TemporaryFolder folder_;
};

TEST_F(EmbeddingFileTest, ReadsRowsAndTheirFirstValues) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  for (const int version : {1, 2, 3}) {
    const EmbeddingFile floats(file(npy("<f4", "2, 3", bytes_of(values), version)));
    EXPECT_EQ(floats.texts(), 2u);
    EXPECT_EQ(floats.width(), 3u);
    EXPECT_THAT(rows(floats, 1, 1, 3), ElementsAre(4, 5, 6));
    EXPECT_THAT(rows(floats, 0, 2, 2), ElementsAre(1, 2, 4, 5));
  }
  const EmbeddingFile bytes(file(npy("|i1", "2, 3", std::string("\x80\xff\0\1\2\x7f", 6))));
  EXPECT_EQ(bytes.value_bytes(), 1u);
  EXPECT_THAT(rows(bytes, 0, 2, 3), ElementsAre(-128, -1, 0, 1, 2, 127));
  EXPECT_THAT(rows(bytes, 1, 1, 2), ElementsAre(1, 2));
}

TEST_F(EmbeddingFileTest, RefusesWhatItCannotRead) {
  const std::string data(24, '\0');
  EXPECT_THAT(error_of("{\"text\": 1}"), HasSubstr("is not a NumPy array; expected a .npy file"));
  EXPECT_THAT(error_of(""), HasSubstr("is not a NumPy array"));
  EXPECT_THAT(error_of(npy("<f8", "1, 3", data)), HasSubstr("expected float32 or int8"));
  EXPECT_THAT(error_of(npy("<f4", "6,", data)), HasSubstr("expected float32 or int8 of [texts"));
  EXPECT_THAT(error_of(npy("<f4", "2, 3", data, 1, "True")), HasSubstr("'fortran_order': True"));
  EXPECT_THAT(error_of(npy("<f4", "3, 3", data)), HasSubstr("expected 3 rows of 12"));
  EXPECT_THAT(error_of(npy("<f4", "2, 0", data)), HasSubstr("rows without a value"));
  EXPECT_THAT(error_of(npy("<f4", "2, 3", data).substr(0, 40)), HasSubstr("ends behind the file"));
  EXPECT_THROW(EmbeddingFile(folder_ / "missing.npy"), IoError);
}

// Random embeddings of 384 values as MiniLM's.
std::vector<float> random_embeddings(std::size_t texts) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> values(texts * 384);
  for (float& value : values) value = normal(random);
  return values;
}

TEST_F(EmbeddingFileTest, ASearchOverAFileFindsWhatASearchInMemoryFinds) {
  constexpr std::size_t kTexts = 5000, kWidth = 384, kTruncated = 64;
  const std::vector<float> values = random_embeddings(kTexts);
  const EmbeddingFile corpus(file(npy("<f4", "5000, 384", bytes_of(values))));
  ThreadPool threads(2);
  kernels::Scratch scratch(2);
  const kernels::KernelSet set = kernels::select_kernels(kernels::CpuFeatures::detect());
  for (const std::size_t width : {kWidth, kTruncated}) {
    std::vector<float> cut;
    for (std::size_t text = 0; text < kTexts; ++text)
      cut.insert(cut.end(), values.begin() + static_cast<std::ptrdiff_t>(text * kWidth),
                 values.begin() + static_cast<std::ptrdiff_t>(text * kWidth + width));
    const Embeddings queries{std::span(cut).first(3 * width), width};
    const auto smaller = [](std::size_t a, std::size_t b) { return a < b; };
    const SimilarityFunction& cosine = similarity_function(Similarity::kCosine);
    Search in_memory(cosine, queries, 20, smaller), over_file(cosine, queries, 20, smaller);
    in_memory.add({cut, width}, {threads, set, scratch});
    std::size_t seen = 0;
    search_file(corpus, width, over_file, {threads, set, scratch},
                [&](std::size_t texts) { seen = texts; });
    EXPECT_EQ(seen, kTexts);
    const auto expected = in_memory.take_hits(), found = over_file.take_hits();
    for (std::size_t query = 0; query < 3; ++query) {
      EXPECT_EQ(found[query][0].document, query);
      for (std::size_t k = 0; k < 20; ++k) {
        EXPECT_EQ(found[query][k].document, expected[query][k].document);
        EXPECT_EQ(found[query][k].score, expected[query][k].score);
      }
    }
  }
}

// A corpus of any size is searched in the memory of one piece: 4,096 texts of 384 values are 6 MiB.
TEST_F(EmbeddingFileTest, MemoryDoesNotGrowWithTheCorpus) {
  const std::vector<float> values = random_embeddings(20000);
  const auto mebibytes = [](const std::filesystem::path& path, const char* repeats) {
    const auto result =
        testing::run({TANDEM_SEARCH_PROBE, path.native(), repeats, "64", "100", "384", "2"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return std::stoi(result.out.substr(result.out.rfind(' ')));
  };
  const int small =
      mebibytes(file(npy("<f4", "5000, 384", bytes_of(std::span(values).first(5000 * 384)))), "1");
  const std::filesystem::path path = file(npy("<f4", "20000, 384", bytes_of(values)));
  const int large = mebibytes(path, "6");
  if (!testing::kSanitized) {
    EXPECT_LE(large, small + 4) << "24 times the corpus; its file has 29 MiB";
  }
  const EmbeddingFile corpus(path);
  EXPECT_EQ(search_file_bytes(corpus, 384), 4096u * 384 * 4 + (1 << 16));
  EXPECT_LT(search_file_bytes(corpus, 384), 20000u * 384 * 4 / 4);
}

}  // namespace
}  // namespace tandem::tasks::ranking
