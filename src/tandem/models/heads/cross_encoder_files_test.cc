// The output activation of a cross-encoder in the files of sentence-transformers 2 to 6.
#include "tandem/models/heads/cross_encoder_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"

namespace tandem::models {
namespace {

using ::testing::HasSubstr;

class CrossEncoderFilesTest : public ::testing::Test {
 protected:
  void put(const std::string& name, const std::string& text) const {
    write_file(folder_.path() / name, text);
  }
  CrossEncoderFiles read(const std::string& config, std::size_t labels = 1) const {
    ModelConfig own;
    own.source = config;
    return read_cross_encoder_files(folder_.path(), own, labels);
  }
  std::string problem(const std::string& config) const {
    try {
      read(config);
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  }
  tandem::testing::TemporaryFolder folder_;
};

constexpr const char* kIdentity =
    R"({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}})";

TEST_F(CrossEncoderFilesTest, TheDefaultIsSigmoidForOneLabel) {
  EXPECT_EQ(read("{}", 1).activation, DenseActivation::kSigmoid);
  EXPECT_EQ(read("{}", 3).activation, DenseActivation::kIdentity);
  EXPECT_FALSE(read("{}").from_files);
  EXPECT_EQ(read(R"({"sentence_transformers": {"version": "4.1"}})").activation,
            DenseActivation::kSigmoid);
  EXPECT_EQ(read(R"({"sbert_ce_default_activation_function": null})").activation,
            DenseActivation::kSigmoid);
}

TEST_F(CrossEncoderFilesTest, EveryVersionsKeyIsRead) {
  EXPECT_EQ(read(kIdentity).activation, DenseActivation::kIdentity);
  EXPECT_EQ(read(R"({"sbert_ce_default_activation_function": "torch.nn.modules.activation.Tanh"})")
                .activation,
            DenseActivation::kTanh);
  put("config_sentence_transformers.json",
      R"({"activation_fn": "torch.nn.modules.activation.Sigmoid"})");
  EXPECT_EQ(read(kIdentity).activation, DenseActivation::kSigmoid);  // the newest file counts
  put("config_sentence_transformers.json", R"({"activation_fn": null})");
  EXPECT_EQ(read(kIdentity).activation, DenseActivation::kIdentity);
}

TEST_F(CrossEncoderFilesTest, OnlyClassesOfTorchAreTrusted) {
  const CrossEncoderFiles files =
      read(R"({"sentence_transformers": {"activation_fn": "my_module.Scale"}})");
  EXPECT_EQ(files.activation, DenseActivation::kSigmoid);
  ASSERT_EQ(files.warnings.size(), 1u);
  EXPECT_THAT(files.warnings[0], HasSubstr("'my_module.Scale' is not trusted"));
  EXPECT_THAT(
      problem(
          R"({"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Mish"}})"),
      HasSubstr("found 'torch.nn.modules.activation.Mish', expected Identity"));
  EXPECT_THAT(problem(R"({"sentence_transformers": {"activation_fn": 3}})"),
              HasSubstr("activation_fn: found number, expected the name of a class"));
}

TEST_F(CrossEncoderFilesTest, AWrittenKeyIsReadAgain) {
  for (const DenseActivation activation :
       {DenseActivation::kIdentity, DenseActivation::kTanh, DenseActivation::kRelu,
        DenseActivation::kGelu, DenseActivation::kSigmoid}) {
    const std::string config = with_cross_encoder_key(
        R"({"sbert_ce_default_activation_function": "torch.nn.modules.activation.Tanh"})",
        activation);
    EXPECT_EQ(read(config).activation, activation);
  }
}

}  // namespace
}  // namespace tandem::models
