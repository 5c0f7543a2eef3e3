#include "tandem/models/pretrained/weight_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/formats/safetensors.h"
#include "tandem/formats/torch_file.h"

namespace tandem::models {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class WeightFilesTest : public ::testing::Test {
 protected:
  // A tensor "name" of one float.
  formats::TensorView tensor(const std::string& name, float value) {
    values_.push_back(std::make_unique<float>(value));
    return {name, formats::DType::kF32, {1}, std::as_bytes(std::span(values_.back().get(), 1))};
  }
  void shard(const std::string& file, const std::vector<formats::TensorView>& tensors) {
    if (file.ends_with(".bin")) {
      formats::write_torch_state_dict(folder_ / file, tensors);
    } else {
      formats::write_safetensors(folder_ / file, tensors);
    }
  }
  void index(const std::string& name, const std::string& weight_map) {
    write_file(folder_ / name,
               R"({"metadata": {"total_size": 8.0}, "weight_map": {)" + weight_map + "}}");
  }
  void expect_refused(const std::string& message) {
    EXPECT_THAT(
        [&] { WeightFiles files(folder_.path()); },
        ThrowsMessage<DataError>(AllOf(
            HasSubstr((folder_ / "model.safetensors.index.json").string()), HasSubstr(message))));
  }
  static float value_of(const WeightFiles& files, std::string_view name) {
    float value = 0;
    formats::copy_to_float(*files.find(name), std::span(&value, 1));
    return value;
  }

  tandem::testing::TemporaryFolder folder_;
  std::vector<std::unique_ptr<float>> values_;
};

TEST_F(WeightFilesTest, ShardsOfBothFormats) {
  for (const std::string kind : {".safetensors", ".bin"}) {
    const std::string stem = kind == ".bin" ? "pytorch_model" : "model";
    shard(stem + "-00001-of-00002" + kind, {tensor("a", 1), tensor("b", 2)});
    shard(stem + "-00002-of-00002" + kind, {tensor("c", 3)});
    index(stem + kind + ".index.json",
          fmt::format(R"("a": "{0}-00001-of-00002{1}", "b": "{0}-00001-of-00002{1}",
                         "c": "{0}-00002-of-00002{1}")",
                      stem, kind));
    const WeightFiles files(folder_ / (stem + kind + ".index.json"));
    ASSERT_EQ(files.tensors().size(), 3u);
    EXPECT_EQ(value_of(files, "a"), 1);
    EXPECT_EQ(value_of(files, "c"), 3);
    EXPECT_EQ(files.file_of(2), folder_ / (stem + "-00002-of-00002" + kind));
    EXPECT_EQ(files.find("d"), nullptr);
  }
}

TEST_F(WeightFilesTest, OrderOfPreference) {
  const auto value = [&] { return value_of(WeightFiles(folder_.path()), "a"); };
  shard("pytorch_model-1.bin", {tensor("a", 4)});
  index("pytorch_model.bin.index.json", R"("a": "pytorch_model-1.bin")");
  EXPECT_EQ(value(), 4);
  shard("pytorch_model.bin", {tensor("a", 3)});
  EXPECT_EQ(value(), 3);
  shard("model-1.safetensors", {tensor("a", 2)});
  index("model.safetensors.index.json", R"("a": "model-1.safetensors")");
  EXPECT_EQ(value(), 2);
  shard("model.safetensors", {tensor("a", 1)});
  EXPECT_EQ(value(), 1);
}

TEST_F(WeightFilesTest, RefusesIndexesThatDoNotFitTheirShards) {
  const auto name = "model.safetensors.index.json";
  shard("one.safetensors", {tensor("a", 1), tensor("b", 2)});
  shard("two.safetensors", {tensor("c", 3)});
  index(name, R"("a": "one.safetensors", "b": "one.safetensors", "c": "three.safetensors")");
  expect_refused(
      "three.safetensors is missing (perhaps an interrupted download); the index names "
      "one.safetensors, three.safetensors");
  index(name, R"("a": "one.safetensors", "b": "one.safetensors", "x": "two.safetensors")");
  expect_refused("tensor 'c' is in two.safetensors; the index expects it in no file");
  index(name, R"("a": "one.safetensors", "b": "two.safetensors", "c": "two.safetensors")");
  expect_refused("tensor 'b' is in one.safetensors; the index expects it in two.safetensors");
  index(name, R"("a": "one.safetensors", "b": "one.safetensors", "d": "one.safetensors")");
  expect_refused("one.safetensors has no tensor 'd', which the index expects in it");
  shard("two.safetensors", {tensor("b", 3)});
  index(name, R"("a": "one.safetensors", "b": "two.safetensors")");
  EXPECT_THAT([&] { WeightFiles files(folder_.path()); },
              ThrowsMessage<DataError>(HasSubstr("tensor 'b' is also in")));
}

TEST_F(WeightFilesTest, RefusesNamesThatLeadElsewhere) {
  shard("one.safetensors", {tensor("a", 1)});
  for (const char* file : {"../one.safetensors", "/etc/passwd", "x/one.safetensors", "..", "",
                           ".hidden", "x\\\\one.safetensors", "one.safetensors\\u0000"}) {
    index("model.safetensors.index.json", fmt::format(R"("a": "{}")", file));
    expect_refused("expected the name of a file in the same folder");
  }
}

TEST_F(WeightFilesTest, RefusesWhatIsNoIndex) {
  const auto refused = [&](std::string_view text, const std::string& message) {
    write_file(folder_ / "model.safetensors.index.json", text);
    expect_refused(message);
  };
  refused("", "is not valid JSON");
  refused("[]", "no object 'weight_map'");
  refused("{}", "no object 'weight_map'");
  refused(R"({"weight_map": []})", "no object 'weight_map'");
  refused(R"({"weight_map": {}})", "'weight_map' is empty");
  refused(R"({"weight_map": {"a": 1}})", "the file of tensor 'a' is number");
  refused(R"({"weight_map": {"a": "x", "a": "y"}})", "has the key 'a' twice");
}

// write_torch_state_dict() writes what torch wrote, as the reader sees it. That torch reads it too
// is shown by tests/parity/hf_weight_forms.py.
TEST_F(WeightFilesTest, TorchsOwnFileWrittenAgainIsTheSame) {
  const formats::TorchFile official(fs::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/torch" /
                                    "pytorch_model.bin");
  const auto tensors = formats::state_dict_tensors(official.root());
  formats::write_torch_state_dict(folder_ / "pytorch_model.bin", tensors);
  const formats::TorchFile ours(folder_ / "pytorch_model.bin");
  const auto read_back = formats::state_dict_tensors(ours.root());
  ASSERT_EQ(read_back.size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(read_back[i].name, tensors[i].name);
    EXPECT_EQ(read_back[i].shape, tensors[i].shape);
    EXPECT_TRUE(std::ranges::equal(read_back[i].bytes, tensors[i].bytes));
  }
}

TEST_F(WeightFilesTest, WritesEveryTypeThatTorchHas) {
  const std::vector<std::uint64_t> data = {1, 2, 3};
  const auto bytes = std::as_bytes(std::span(data));
  std::vector<formats::TensorView> tensors;
  for (const formats::DType dtype :
       {formats::DType::kF32, formats::DType::kF16, formats::DType::kBF16, formats::DType::kF64,
        formats::DType::kI64, formats::DType::kI32, formats::DType::kI16, formats::DType::kI8,
        formats::DType::kU8, formats::DType::kBool}) {
    tensors.push_back({std::string(to_string(dtype)),
                       dtype,
                       {3, 1},
                       bytes.first(3 * formats::size_in_bytes(dtype))});
  }
  tensors.push_back({"empty", formats::DType::kF32, {0, 4}, {}});
  tensors.push_back({"scalar", formats::DType::kI64, {}, bytes.first(8)});
  formats::write_torch_state_dict(folder_ / "x.bin", tensors);
  const WeightFiles files(folder_ / "x.bin");
  for (const formats::TensorView& expected : tensors) {
    const formats::TensorView* found = files.find(expected.name);
    ASSERT_NE(found, nullptr) << expected.name;
    EXPECT_EQ(found->dtype, expected.dtype);
    EXPECT_EQ(found->shape, expected.shape);
    EXPECT_TRUE(std::ranges::equal(found->bytes, expected.bytes)) << expected.name;
  }
  const formats::TensorView unknown{"u", formats::DType::kU64, {1}, bytes.first(8)};
  EXPECT_THAT([&] { formats::write_torch_state_dict(folder_ / "y.bin", std::vector{unknown}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("no type for U64")));
  const formats::TensorView once{"a", formats::DType::kU8, {1}, bytes.first(1)};
  EXPECT_THAT(
      [&] {
        formats::write_torch_state_dict(folder_ / "y.bin", std::vector{once, once});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("'a' occurs twice")));
}

}  // namespace
}  // namespace tandem::models
