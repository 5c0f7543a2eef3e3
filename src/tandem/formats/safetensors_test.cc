#include "tandem/formats/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "support/linear.h"
#include "support/test_support.h"
#include "tandem/core/bfloat16.h"
#include "tandem/core/error.h"

namespace tandem::formats {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// The bytes of a file with this header text and this much data.
std::string file_bytes(std::string_view header, std::size_t data_bytes) {
  const std::uint64_t size = header.size();
  std::string bytes(sizeof(size), '\0');
  std::memcpy(bytes.data(), &size, sizeof(size));
  return bytes.append(header).append(data_bytes, 'x');
}

class SafetensorsTest : public ::testing::Test {
 protected:
  std::filesystem::path write(std::string_view bytes) {
    const std::filesystem::path path = folder_ / "model.safetensors";
    write_file(path, bytes);
    return path;
  }
  // Opening a file of these bytes fails; the message names the file and contains `message`.
  void expect_refused(std::string_view bytes, const std::string& message) {
    const std::filesystem::path path = write(bytes);
    EXPECT_THAT([&] { SafetensorsFile file(path); },
                ThrowsMessage<DataError>(AllOf(HasSubstr(path.string()), HasSubstr(message))));
  }
  tandem::testing::TemporaryFolder folder_;
};

TEST_F(SafetensorsTest, ManyTensorsTakeTimeInProportion) {
  EXPECT_TRUE(tandem::testing::takes_linear_time(
      [](std::size_t count) {
        std::string header = "{";
        for (std::size_t i = 0; i < count; ++i) {
          header += fmt::format(
              R"({}"layer.{}": {{"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}})",
              i > 0 ? "," : "", i);
        }
        const std::string bytes = file_bytes(header + "}", 0);
        const SafetensorsContent content(std::as_bytes(std::span(bytes)), "many");
        EXPECT_EQ(content.tensors().size(), count);
      },
      2500));
}

TEST_F(SafetensorsTest, RoundTrip) {
  const std::vector<float> matrix = {1, 2, 3, 4, 5, 6};
  const std::vector<std::uint16_t> rounded = {0x3f80, 0x4000};
  const std::vector<std::int64_t> ids = {-1};
  const std::vector<TensorView> tensors = {
      {"b.weight", DType::kF32, {2, 3}, std::as_bytes(std::span(matrix))},
      {"a \"quoted\" name", DType::kBF16, {2}, std::as_bytes(std::span(rounded))},
      {"scalar", DType::kI64, {}, std::as_bytes(std::span(ids))},
      {"empty", DType::kF32, {0, 4}, {}}};
  const std::filesystem::path path = folder_ / "x.safetensors";
  write_safetensors(path, tensors, {{"format", "pt"}, {"epoch", "2"}});

  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata(),
            (std::map<std::string, std::string>{{"format", "pt"}, {"epoch", "2"}}));
  ASSERT_EQ(file.tensors().size(), 4u);
  for (const TensorView& expected : tensors) {
    const TensorView* found = file.find(expected.name);
    ASSERT_NE(found, nullptr) << expected.name;
    EXPECT_EQ(found->dtype, expected.dtype);
    EXPECT_EQ(found->shape, expected.shape);
    EXPECT_TRUE(std::ranges::equal(found->bytes, expected.bytes)) << expected.name;
  }
  EXPECT_EQ(file.find("absent"), nullptr);
}

// The very bytes of the official library: safetensors.torch.save_file({"b": f32 [1], "a": f32 [2],
// "c": i64 [1]}, metadata={"format": "pt"}).
TEST_F(SafetensorsTest, WritesTheBytesOfTheOfficialLibrary) {
  const std::vector<float> one = {1};
  const std::vector<float> two = {2, 3};
  const std::vector<std::int64_t> three = {4};
  write_safetensors(folder_ / "x", std::vector<TensorView>{
                                       {"b", DType::kF32, {1}, std::as_bytes(std::span(one))},
                                       {"a", DType::kF32, {2}, std::as_bytes(std::span(two))},
                                       {"c", DType::kI64, {1}, std::as_bytes(std::span(three))}});
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"c":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
      R"("a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]},"b":{"dtype":"F32","shape":[1],"data_offsets":[16,20]}})";
  const std::string bytes = read_file(folder_ / "x");
  std::uint64_t header_size = 0;
  std::memcpy(&header_size, bytes.data(), sizeof(header_size));
  EXPECT_EQ(header_size % 8, 0u);
  ASSERT_EQ(bytes.size(), 8 + header_size + 20);
  EXPECT_EQ(bytes.substr(8, header.size()), header);
  EXPECT_EQ(bytes.substr(8 + header.size(), header_size - header.size()),
            std::string(header_size - header.size(), ' '));
}

TEST_F(SafetensorsTest, WriterRefusesWhatDoesNotFit) {
  const std::vector<float> two = {2, 3};
  const TensorView good = {"a", DType::kF32, {2}, std::as_bytes(std::span(two))};
  TensorView wrong_shape = good;
  wrong_shape.shape = {3};
  EXPECT_THAT([&] { write_safetensors(folder_ / "x", std::vector{wrong_shape}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("8 bytes do not fit F32 of shape [3]")));
  EXPECT_THAT(
      [&] {
        write_safetensors(folder_ / "x", std::vector{good, good});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("'a' occurs twice")));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "x"));
}

TEST_F(SafetensorsTest, WidensHalfPrecision) {
  const std::vector<std::uint16_t> half = {0x3c00, 0xc000, 0x0001, 0x7bff, 0x7c00};
  std::vector<float> out(5);
  copy_to_float({"h", DType::kF16, {5}, std::as_bytes(std::span(half))}, out);
  EXPECT_THAT(out,
              ElementsAre(1.0f, -2.0f, 0x1p-24f, 65504.0f, std::numeric_limits<float>::infinity()));
  const std::vector<bfloat16> brain = {to_bfloat16(1.5f), to_bfloat16(-3.0f)};
  out.resize(2);
  copy_to_float({"b", DType::kBF16, {2}, std::as_bytes(std::span(brain))}, out);
  EXPECT_THAT(out, ElementsAre(1.5f, -3.0f));
  EXPECT_THROW(copy_to_float({"b", DType::kI16, {2}, std::as_bytes(std::span(brain))}, out),
               InvalidArgument);
  out.resize(3);
  EXPECT_THROW(copy_to_float({"b", DType::kBF16, {2}, std::as_bytes(std::span(brain))}, out),
               InvalidArgument);
}

// More than the function converts at a time, and no multiple of it.
TEST_F(SafetensorsTest, RoundsToBf16) {
  std::vector<float> stored(40001);
  for (std::size_t i = 0; i < stored.size(); ++i)
    stored[i] = std::sin(static_cast<float>(i)) * std::exp2(static_cast<float>(i % 60) - 30);
  std::vector<bfloat16> rounded(stored.size()), expected;
  for (const float value : stored) expected.push_back(to_bfloat16(value));
  copy_to_bfloat16({"f", DType::kF32, {stored.size()}, std::as_bytes(std::span(stored))}, rounded);
  EXPECT_TRUE(rounded == expected);
  std::vector<bfloat16> again(rounded.size());
  copy_to_bfloat16({"b", DType::kBF16, {rounded.size()}, std::as_bytes(std::span(rounded))}, again);
  EXPECT_TRUE(again == rounded);
  again.resize(3);
  EXPECT_THROW(
      copy_to_bfloat16({"b", DType::kBF16, {2}, std::as_bytes(std::span(again).first(2))}, again),
      InvalidArgument);
}

constexpr std::string_view kEntry = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

// The bits of torch's Tensor.to(torch.float32): to nearest, ties to even, infinite beyond the
// range.
TEST_F(SafetensorsTest, RoundsDoublePrecision) {
  const std::vector<double> stored = {1 + 0x1p-24, 1 + 3 * 0x1p-24, 1 + 0x1p-24 + 0x1p-40,
                                      0.1,         -0x1p-149,       0x1p-150,
                                      -0.0,        1e300,           NAN};
  const std::vector<std::uint32_t> expected = {0x3f800000, 0x3f800002, 0x3f800001,
                                               0x3dcccccd, 0x80000001, 0x00000000,
                                               0x80000000, 0x7f800000, 0x7fc00000};
  std::vector<float> values(stored.size());
  copy_to_float({"t", DType::kF64, {stored.size()}, std::as_bytes(std::span(stored))}, values);
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(std::bit_cast<std::uint32_t>(values[i]), expected[i]) << stored[i];
}

TEST_F(SafetensorsTest, AcceptsTrailingSpacesInTheHeader) {
  EXPECT_EQ(SafetensorsFile(write(file_bytes(std::string(kEntry) + "   ", 8))).tensors().size(),
            1u);
}

TEST_F(SafetensorsTest, RefusesBrokenFraming) {
  EXPECT_THROW(SafetensorsFile(folder_ / "absent"), IoError);
  expect_refused("", "the file has 0 bytes");
  expect_refused("1234567", "the file has 7 bytes");
  expect_refused(file_bytes(kEntry, 8).substr(0, 30),
                 "the file ends inside its header: header size is 54 bytes, but only 22 follow");
  expect_refused(std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8) + "{}",
                 "header size is 18446744073709551615 bytes; expected at most 100000000");
  expect_refused(file_bytes("", 0), "the header starts with nothing; expected '{'");
  expect_refused(file_bytes("[]", 0), "the header starts with byte 0x5b; expected '{'");
  expect_refused(file_bytes(R"({"a":{"dtype")", 0), "the header is not valid JSON");
  expect_refused(file_bytes("{} {}", 0), "the header is not valid JSON");
  expect_refused(file_bytes("{\"\xff\":{}}", 0), "the header is not valid JSON");
}

TEST_F(SafetensorsTest, RefusesTruncatedAndOverlongData) {
  expect_refused(
      file_bytes(kEntry, 7),
      "the file has 7 bytes of tensor data; its header expects 8 (perhaps a truncated download)");
  expect_refused(file_bytes(kEntry, 9),
                 "the file has 9 bytes of tensor data; its header expects 8");
}

TEST_F(SafetensorsTest, RefusesBadEntries) {
  const auto with = [](const char* dtype, const char* shape, const char* offsets) {
    return file_bytes(fmt::format(R"({{"a":{{"dtype":{},"shape":{},"data_offsets":{}}}}})", dtype,
                                  shape, offsets),
                      8);
  };
  expect_refused(with(R"("F33")", "[2]", "[0,8]"), "tensor 'a': dtype is F33; expected one of F32");
  expect_refused(with("7", "[2]", "[0,8]"), "tensor 'a': dtype is missing or not a string");
  expect_refused(with(R"("F32")", "[-2]", "[0,8]"),
                 "tensor 'a': shape is [-2]; expected a list of non-negative integers");
  expect_refused(with(R"("F32")", "[2.0]", "[0,8]"), "tensor 'a': shape is [2.0]");
  expect_refused(with(R"("F32")", "2", "[0,8]"), "tensor 'a': shape is 2");
  expect_refused(with(R"("F32")", "[2]", "[8,0]"),
                 "tensor 'a': data_offsets is [8, 0]; expected [begin, end]");
  expect_refused(with(R"("F32")", "[2]", "[0,4,8]"), "tensor 'a': data_offsets is [0, 4, 8]");
  expect_refused(with(R"("F32")", "[3]", "[0,8]"),
                 "tensor 'a': F32 of shape [3] takes 12 bytes, but data_offsets [0, 8] hold 8");
  expect_refused(with(R"("F32")", "[4294967296,4294967296]", "[0,0]"),
                 "takes more than 2^64 bytes");
  expect_refused(with(R"("F32")", "[99999999999999999999999]", "[0,8]"),
                 "expected a list of non-negative integers");
  expect_refused(file_bytes(R"({"a":{"shape":[2],"data_offsets":[0,8]}})", 8),
                 "tensor 'a': dtype is missing");
  expect_refused(file_bytes(R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", 8),
                 "tensor 'a': shape is missing");
  expect_refused(file_bytes(R"({"a":{"dtype":"F32","shape":[2]}})", 8),
                 "tensor 'a': data_offsets is missing");
  expect_refused(file_bytes(R"({"a":[]})", 0),
                 "tensor 'a': header entry is array; expected an object");
}

TEST_F(SafetensorsTest, RefusesHolesOverlapsAndDuplicates) {
  const auto two = [](const char* first, const char* second, const char* second_name) {
    return file_bytes(
        fmt::format(
            R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":{}}},"{}":{{"dtype":"U8","shape":[4],"data_offsets":{}}}}})",
            first, second_name, second),
        8);
  };
  EXPECT_EQ(SafetensorsFile(write(two("[4,8]", "[0,4]", "b"))).tensors().front().name, "b");
  expect_refused(
      two("[0,4]", "[2,6]", "b"),
      "tensor 'b' begins at data offset 2; expected 4 (it overlaps the tensor before it)");
  expect_refused(two("[0,4]", "[5,9]", "b"),
                 "tensor 'b' begins at data offset 5; expected 4 (there is a hole behind the "
                 "tensor before it)");
  expect_refused(two("[1,5]", "[5,9]", "b"), "tensor 'a' begins at data offset 1; expected 0");
  expect_refused(two("[0,4]", "[4,8]", "a"), "the header has the key 'a' twice");
  expect_refused(
      file_bytes(R"({"a":{"dtype":"U8","dtype":"I8","shape":[0],"data_offsets":[0,0]}})", 0),
      "the key 'dtype' twice");
}

TEST_F(SafetensorsTest, RefusesMetadataThatIsNoText) {
  expect_refused(file_bytes(R"({"__metadata__":{"epoch":2}})", 0),
                 "__metadata__ 'epoch' is number; expected a string");
  expect_refused(file_bytes(R"({"__metadata__":"pt"})", 0),
                 "__metadata__ is string; expected an object of strings");
}

}  // namespace
}  // namespace tandem::formats
