// Files of embeddings: bytes of .npy, and an output that is continued.
#include "apps/answering/embedding_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/answering/embedding_spool.h"
#include "support/test_support.h"
#include "tandem/core/file.h"

namespace tandem::apps {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(NpyHeader, HasTheFormOfNumpy) {
  const std::string header = npy_header(EmbeddingPrecision::kFloat32, 3, 384);
  EXPECT_EQ(header.size(), kNpyHeader);
  EXPECT_EQ(header.substr(0, 10), std::string("\x93NUMPY\x01\x00\x76\x00", 10));
  EXPECT_THAT(header.substr(10),
              StartsWith("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 384), }"));
  EXPECT_EQ(header.back(), '\n');
  EXPECT_THAT(npy_header(EmbeddingPrecision::kUbinary, 3, 20), HasSubstr("'|u1'"));
  EXPECT_THAT(npy_header(EmbeddingPrecision::kUbinary, 3, 20), HasSubstr("(3, 3)"));
}

// numpy.packbits(values > 0), and that minus 128 as int8.
TEST(AppendEmbeddings, BitsAreThoseOfPackbits) {
  const float values[] = {1, -1, 0, 2, -3, 4, 5, -6, 7, -8};
  std::string bytes;
  append_embeddings({EmbeddingPrecision::kUbinary, 10}, values, bytes);
  EXPECT_EQ(bytes, std::string("\x96\x80", 2));
  bytes.clear();
  append_embeddings({EmbeddingPrecision::kBinary, 10}, values, bytes);
  EXPECT_EQ(bytes, std::string("\x16\x00", 2));
}

// By sentence_transformers 5.7.0's quantize_embeddings, with and without calibration_embeddings.
const float kRows[] = {0.1f,   -0.3f, 0.25f, 7,    0.7f,  0.2f,    0.25f, -7,
                       -0.35f, 0.05f, 0.25f, 1.3f, 0.33f, -0.111f, 0.25f, 6.999f};
const float kCalibration[] = {0, -0.25f, 0.1f, -1, 0.5f, 0.25f, 0.2f, 1, 0.25f, 0, 0.1f, 0};
const std::vector<int> kOwnUint8 = {109, 0,   0, 255, 255, 254, 0, 0,
                                    0,   178, 0, 151, 165, 96,  0, 254};
const std::vector<int> kCalibratedUint8 = {50, 0,   255, 255, 255, 229, 255, 0,
                                           0,  153, 255, 255, 168, 70,  255, 255};

std::vector<int> quantized(EmbeddingPrecision precision, std::span<const float> calibration) {
  EmbeddingFormat format{precision, 4};
  format.ranges.add(calibration, 4);
  std::string bytes;
  append_embeddings(format, kRows, bytes);
  std::vector<int> values;
  for (const char byte : bytes)
    values.push_back(is_signed(precision) ? static_cast<signed char>(byte) + 128
                                          : static_cast<unsigned char>(byte));
  return values;
}

TEST(AppendEmbeddings, BytesAreThoseOfQuantizeEmbeddings) {
  EXPECT_EQ(quantized(EmbeddingPrecision::kUint8, kRows), kOwnUint8);
  EXPECT_EQ(quantized(EmbeddingPrecision::kInt8, kRows), kOwnUint8);
  EXPECT_EQ(quantized(EmbeddingPrecision::kUint8, kCalibration), kCalibratedUint8);
  EXPECT_EQ(quantized(EmbeddingPrecision::kInt8, kCalibration), kCalibratedUint8);
  // A range of one embedding: every value is its component's least one.
  EXPECT_EQ(quantized(EmbeddingPrecision::kUint8, std::span(kRows).last(4)),
            (std::vector<int>{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(EmbeddingSpool, GivesBackWhatItGot) {
  EmbeddingSpool spool(2);
  const std::vector<std::string> texts = {"", "a\nb", std::string("\0c", 2)};
  spool.append(texts, std::vector<float>{1, 2, 3, 4, 5, 6});
  spool.append(std::vector<std::string>{"d"}, std::vector<float>{7, 8});
  std::vector<std::string> all;
  std::vector<float> values;
  spool.replay([&](std::span<const std::string> some, std::span<const float> embeddings) {
    all.insert(all.end(), some.begin(), some.end());
    values.insert(values.end(), embeddings.begin(), embeddings.end());
  });
  EXPECT_EQ(all, (std::vector<std::string>{texts[0], texts[1], texts[2], "d"}));
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}));
}

class NpyFileTest : public ::testing::Test {
 protected:
  std::filesystem::path path() const { return folder_.path() / "a.npy"; }
  testing::TemporaryFolder folder_;
  const std::vector<float> first_{1, 2, 3, 4}, second_{5, 6};
};

TEST_F(NpyFileTest, ContinuesAfterWholeRows) {
  {
    NpyFile file(path(), {EmbeddingPrecision::kFloat32, 2}, "job");
    EXPECT_EQ(file.rows(), 0u);
    file.append(first_);
  }
  EXPECT_FALSE(std::filesystem::exists(path()));
  // A kill in the midst of a row leaves half of it.
  const auto partial = path().native() + ".partial";
  std::filesystem::resize_file(partial, std::filesystem::file_size(partial) - 3);
  {
    NpyFile file(path(), {EmbeddingPrecision::kFloat32, 2}, "job");
    EXPECT_EQ(file.rows(), 1u);
    file.append(std::vector<float>{3, 4});
    file.append(second_);
    file.commit();
  }
  NpyFile whole(folder_.path() / "b.npy", {EmbeddingPrecision::kFloat32, 2}, "job");
  whole.append(first_);
  whole.append(second_);
  whole.commit();
  EXPECT_EQ(read_file(path()), read_file(folder_.path() / "b.npy"));
  EXPECT_EQ(read_file(path()).size(), kNpyHeader + 6 * sizeof(float));
  EXPECT_EQ(list_directory(folder_.path()).size(), 2u);
}

// Without ranges the rows wait as float32, also for the next process.
TEST_F(NpyFileTest, RowsWaitForTheirRanges) {
  const EmbeddingFormat format{EmbeddingPrecision::kUint8, 4};
  { NpyFile(path(), format, "job").append(std::span(kRows).first(8)); }
  {
    NpyFile file(path(), format, "job");
    EXPECT_EQ(file.rows(), 2u);
    file.append(std::span(kRows).last(8));
    file.commit();
  }
  std::string bytes = npy_header(EmbeddingPrecision::kUint8, 4, 4);
  for (const int value : kOwnUint8) bytes += static_cast<char>(value);
  EXPECT_EQ(read_file(path()), bytes);
  EXPECT_EQ(list_directory(folder_.path()).size(), 1u);
}

TEST_F(NpyFileTest, AnotherJobBeginsAnew) {
  { NpyFile(path(), {EmbeddingPrecision::kFloat32, 2}, "job").append(first_); }
  EXPECT_EQ(NpyFile(path(), {EmbeddingPrecision::kFloat32, 2}, "another").rows(), 0u);
  { NpyFile(path(), {EmbeddingPrecision::kFloat32, 2}, "another").append(first_); }
  EXPECT_EQ(NpyFile(path(), {EmbeddingPrecision::kUbinary, 2}, "another").rows(), 0u);
}

}  // namespace
}  // namespace tandem::apps
