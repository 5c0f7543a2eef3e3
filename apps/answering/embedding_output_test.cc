// Files of embeddings: bytes of .npy, and an output that is continued.
#include "apps/answering/embedding_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  append_embeddings(EmbeddingPrecision::kUbinary, values, 10, bytes);
  EXPECT_EQ(bytes, std::string("\x96\x80", 2));
  bytes.clear();
  append_embeddings(EmbeddingPrecision::kBinary, values, 10, bytes);
  EXPECT_EQ(bytes, std::string("\x16\x00", 2));
}

class NpyFileTest : public ::testing::Test {
 protected:
  std::filesystem::path path() const { return folder_.path() / "a.npy"; }
  testing::TemporaryFolder folder_;
  const std::vector<float> first_{1, 2, 3, 4}, second_{5, 6};
};

TEST_F(NpyFileTest, ContinuesAfterWholeRows) {
  {
    NpyFile file(path(), EmbeddingPrecision::kFloat32, 2, "job");
    EXPECT_EQ(file.rows(), 0u);
    file.append(first_);
  }
  EXPECT_FALSE(std::filesystem::exists(path()));
  // A kill in the midst of a row leaves half of it.
  const auto partial = path().native() + ".partial";
  std::filesystem::resize_file(partial, std::filesystem::file_size(partial) - 3);
  {
    NpyFile file(path(), EmbeddingPrecision::kFloat32, 2, "job");
    EXPECT_EQ(file.rows(), 1u);
    file.append(std::vector<float>{3, 4});
    file.append(second_);
    file.commit();
  }
  NpyFile whole(folder_.path() / "b.npy", EmbeddingPrecision::kFloat32, 2, "job");
  whole.append(first_);
  whole.append(second_);
  whole.commit();
  EXPECT_EQ(read_file(path()), read_file(folder_.path() / "b.npy"));
  EXPECT_EQ(read_file(path()).size(), kNpyHeader + 6 * sizeof(float));
  EXPECT_EQ(list_directory(folder_.path()).size(), 2u);
}

TEST_F(NpyFileTest, AnotherJobBeginsAnew) {
  { NpyFile(path(), EmbeddingPrecision::kFloat32, 2, "job").append(first_); }
  EXPECT_EQ(NpyFile(path(), EmbeddingPrecision::kFloat32, 2, "another").rows(), 0u);
  { NpyFile(path(), EmbeddingPrecision::kFloat32, 2, "another").append(first_); }
  EXPECT_EQ(NpyFile(path(), EmbeddingPrecision::kUbinary, 2, "another").rows(), 0u);
}

}  // namespace
}  // namespace tandem::apps
