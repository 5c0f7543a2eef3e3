// Tests of files of features: what was written is read, and nothing else.
#include "tandem/tasks/feature_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <zlib.h>

#include "support/sanitizers.h"
#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/data/read_questions.h"
#include "tandem/tasks/question_answering/features.h"
#include "tandem/tasks/text_classification/text_features.h"
#include "tandem/tasks/token_classification/features.h"
#include "tandem/tasks/token_classification/labels.h"
#include "tandem/tasks/token_classification/test_data.h"

namespace tandem::tasks {
namespace {

namespace fs = std::filesystem;
using question_answering::build_features;
using question_answering::FeatureOptions;
using question_answering::FeatureSet;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

fs::path demo(std::string_view name) {
  return fs::path(TANDEM_SOURCE_DIR) / "examples" / "demo" / name;
}

class FeatureFileTest : public ::testing::Test {
 protected:
  FeatureSet build(std::size_t max_samples = 200) {
    FeatureOptions options;
    options.max_seq_length = 1000;  // above model_max_length: a warning
    options.doc_stride = 16;
    options.max_samples = max_samples;
    const data::QuestionSet questions = data::read_questions(demo("train.json"));
    return build_features(text::Tokenizer::load(demo("model")), questions.examples(), options,
                          threads_);
  }

  std::string error(std::string_view key = "key") const {
    try {
      read_feature_file<FeatureSet>(path_, key);
    } catch (const DataError& error) {
      return error.what();
    }
    return "no error";
  }

  ThreadPool threads_{2};
  tandem::testing::TemporaryFolder folder_;
  const fs::path path_ = folder_ / "a.features";
};

void expect_equal(const FeatureSet& got, const FeatureSet& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].example, want[i].example);
    EXPECT_EQ(got[i].window_begin, want[i].window_begin);
    EXPECT_EQ(got[i].start_position, want[i].start_position);
    EXPECT_EQ(got[i].end_position, want[i].end_position);
    EXPECT_THAT(got.question_tokens(i), ElementsAreArray(want.question_tokens(i)));
    EXPECT_THAT(got.window_tokens(i), ElementsAreArray(want.window_tokens(i)));
    EXPECT_THAT(got.window_offsets(i), ElementsAreArray(want.window_offsets(i)));
    EXPECT_EQ(got.num_real_tokens(i), want.num_real_tokens(i));
  }
  EXPECT_EQ(got.max_seq_length(), want.max_seq_length());
  EXPECT_EQ(got.frame(), want.frame());
  EXPECT_EQ(got.bytes(), want.bytes());
  EXPECT_EQ(got.statistics().num_examples, want.statistics().num_examples);
  EXPECT_EQ(got.statistics().num_real_tokens, want.statistics().num_real_tokens);
  EXPECT_EQ(got.statistics().num_cls_labels, want.statistics().num_cls_labels);
  EXPECT_EQ(got.statistics().num_last_token_labels, want.statistics().num_last_token_labels);
  EXPECT_EQ(got.statistics().warnings, want.statistics().warnings);
}

TEST_F(FeatureFileTest, HoldsASet) {
  const FeatureSet features = build();
  ASSERT_EQ(features.statistics().warnings.size(), 1u);
  EXPECT_FALSE(read_feature_file<FeatureSet>(path_, "key").has_value());
  write_feature_file(path_, "key", features);
  std::optional<FeatureSet> read = read_feature_file<FeatureSet>(path_, "key");
  ASSERT_TRUE(read.has_value());
  expect_equal(*read, features);
  const FeatureSet copy = *read;
  read.reset();
  fs::remove(path_);
  expect_equal(copy, features);  // the mapping stays
}

// The tokens that a set gives to a batch.
std::vector<std::vector<std::int32_t>> tokens_of(const TokenSequences& features) {
  std::vector<std::vector<std::int32_t>> all(2 * features.size());
  for (std::size_t i = 0; i < features.size(); ++i)
    features.append_tokens(i, all[2 * i], all[2 * i + 1]);
  return all;
}

TEST_F(FeatureFileTest, HoldsTexts) {
  using text_classification::TextFeatures;
  const std::vector<std::string_view> first(100, "a boat sails"), second(100, "far and wide");
  for (const bool pairs : {false, true}) {
    const TextFeatures features = text_classification::build_text_features(
        text::Tokenizer::load(demo("model")), first,
        pairs ? std::span(second) : std::span<const std::string_view>(), 6, threads_,
        [](std::size_t) { return ""; });
    const fs::path path = folder_ / (pairs ? "pairs.features" : "texts.features");
    write_feature_file(path, "key", features);
    const auto read = read_feature_file<TextFeatures>(path, "key");
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(tokens_of(*read), tokens_of(features));
    EXPECT_EQ(read->num_truncated(), 100u);
    EXPECT_EQ(read->num_tokens(), features.num_tokens());
    EXPECT_EQ(read->max_seq_length(), 6u);
  }
}

TEST_F(FeatureFileTest, HoldsWords) {
  namespace ner = token_classification;
  const ner::SentenceSet sentences =
      ner::testing::sentences({{"a/B-x", "bs/I-x", "c/O"}, {"d/O"}, {}});
  const ner::FeatureSet features =
      ner::build_features(ner::testing::letter_tokenizer(), sentences, ner::label_names(sentences),
                          {.max_seq_length = 5, .max_positions = 8}, threads_);
  ASSERT_EQ(features.statistics().warnings.size(), 1u);
  write_feature_file(path_, "key", features);
  const auto read = read_feature_file<ner::FeatureSet>(path_, "key");
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(tokens_of(*read), tokens_of(features));
  EXPECT_THAT(read->position_begins(), ElementsAreArray(features.position_begins()));
  for (std::size_t i = 0; i < features.size(); ++i) {
    for (std::size_t k = 0; k < features.positions(i).size(); ++k)
      EXPECT_EQ(read->positions(i)[k].label, features.positions(i)[k].label);
  }
  EXPECT_EQ(read->statistics().warnings, features.statistics().warnings);
  EXPECT_EQ(read->statistics().num_cut_words, features.statistics().num_cut_words);
}

// A key that two kinds of features share is a bug; it is found before anything is read as what it
// is not.
TEST_F(FeatureFileTest, AnotherKindOfFeaturesIsRefused) {
  write_feature_file(path_, "key", build(20));
  EXPECT_THROW(read_feature_file<token_classification::FeatureSet>(path_, "key"), DataError);
}

TEST_F(FeatureFileTest, AnEmptySet) {
  write_feature_file(path_, "", build(0));
  EXPECT_EQ(read_feature_file<FeatureSet>(path_, "")->size(), 0u);
}

TEST_F(FeatureFileTest, AnythingElseIsRefused) {
  write_feature_file(path_, "key", build(20));
  const std::string whole = read_file(path_);
  EXPECT_THAT(error("another key"), HasSubstr("features of another key"));
  write_file(path_, "");
  EXPECT_THAT(error(), HasSubstr("a.features': cut off"));
  write_file(path_, whole.substr(0, whole.size() - 1));
  EXPECT_THAT(error(),
              HasSubstr(fmt::format("cut off or changed, found {} bytes", whole.size() - 1)));
  write_file(path_, "x" + whole.substr(1));
  EXPECT_THAT(error(), HasSubstr("another format"));
  constexpr std::size_t kBehindFields = 40;  // key_bytes, num_fields and more
  for (std::size_t at = 8; at < whole.size() - kBehindFields; at += 997) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 4);
    write_file(path_, changed);
    EXPECT_THAT(error(), HasSubstr("its checksum is wrong")) << at;
  }
}

// An attacker with write access to a file can also make its checksum right.
TEST_F(FeatureFileTest, SizesThatLieAreRefusedThoughTheChecksumIsRight) {
  write_feature_file(path_, "key", build(20));
  const std::string whole = read_file(path_);
  const std::size_t checksum_at = whole.size() - 8;
  const std::size_t num_fields_at = whole.size() - 16;
  const std::size_t key_bytes_at = whole.size() - 24;
  const std::size_t last_field_at = whole.size() - 40 - std::string_view("key").size() - 8;
  for (const std::size_t at : {key_bytes_at, num_fields_at, last_field_at}) {
    for (const std::uint64_t size :
         {std::uint64_t{1} << 20, std::uint64_t{1} << 61, ~std::uint64_t{0}}) {
      std::string changed = whole;
      std::memcpy(changed.data() + at, &size, sizeof(size));
      const std::uint64_t sum =
          crc32(0, reinterpret_cast<const Bytef*>(changed.data()), static_cast<uInt>(checksum_at));
      std::memcpy(changed.data() + checksum_at, &sum, sizeof(sum));
      write_file(path_, changed);
      EXPECT_THAT(error(), HasSubstr("a size in it is wrong")) << at << " " << size;
    }
  }
}

// Fields of a file that refer to each other are trusted.
TEST_F(FeatureFileTest, AFileThatOthersMayWriteIsNotTrusted) {
  write_feature_file(path_, "key", build(20));
  fs::permissions(path_, fs::perms::others_write, fs::perm_options::add);
  EXPECT_THROW(read_feature_file<FeatureSet>(path_, "key"), IoError);
}

TEST_F(FeatureFileTest, AFolderThatCannotBeWrittenIsAnIoError) {
  EXPECT_THROW(write_feature_file(folder_ / "absent" / "a.features", "key", build(1)), IoError);
}

// 88,524 features must take less than 400 MB: 4,500 bytes each. They take a tenth of that, because
// contexts are tokenized once and nothing is padded.
TEST_F(FeatureFileTest, MemoryPerFeature) {
  const auto heap = [] {
    const struct mallinfo2 info = ::mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  build(FeatureOptions::kAll);  // what is allocated once, and what allocators keep of it
  const std::size_t before = heap();
  const FeatureSet features = build(FeatureOptions::kAll);
  const std::size_t used = heap() - before;
  ASSERT_GT(features.size(), 5000u);
  EXPECT_LE(features.bytes(), 450 * features.size());
  if (tandem::testing::kSanitized) return;  // their allocators do not report it
  EXPECT_LE(used, features.bytes() + features.bytes() / 20 + (64 << 10));
}

}  // namespace
}  // namespace tandem::tasks
