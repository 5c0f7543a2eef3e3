// Tests of the cache of features: what makes another key, and what happens when the folder is not
// as it should be.
#include "tandem/tasks/feature_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <set>
#include <thread>

#include "support/test_support.h"
#include "tandem/core/file.h"
#include "tandem/data/read_questions.h"
#include "tandem/tasks/question_answering/question_data.h"
#include "tandem/tasks/text_classification/text_features.h"
#include "tandem/tasks/token_classification/features.h"
#include "tandem/tasks/token_classification/test_data.h"

namespace tandem::tasks {
namespace {

namespace fs = std::filesystem;
using question_answering::FeatureOptions;
using question_answering::FeatureSet;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FeatureCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::copy(fs::path(TANDEM_SOURCE_DIR) / "examples/demo/model", model_);
    // Large enough to be cached; what is in it does not matter to the cache.
    write_file(questions_, std::string(FeatureCache::kMinDataBytes, ' '));
    const auto set =
        data::read_questions(fs::path(TANDEM_SOURCE_DIR) / "examples/demo/held_out.json");
    ThreadPool threads(1);
    features_ = question_answering::build_features(text::Tokenizer::load(model_), set.examples(),
                                                   {}, threads);
  }

  // Asks the cache; how often features were made is counted.
  std::vector<std::string> get(FeatureCache& cache) {
    const std::vector<fs::path> files = {questions_};
    const auto got = cache.get<FeatureSet>(
        size_of(files), [&] { return question_answering::features_key(files, options_); },
        [&] {
          ++made_;
          return features_;
        });
    EXPECT_EQ(got.size(), features_.size());
    EXPECT_EQ(got.bytes(), features_.bytes());
    return cache.take_notes();
  }
  std::vector<std::string> get(bool overwrite = false) {
    FeatureCache cache(folder_, model_, overwrite);
    return get(cache);
  }

  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder_))
      if (entry.path().extension() == ".features") found.push_back(entry.path());
    return found;
  }

  testing::TemporaryFolder scratch_;
  const fs::path folder_ = scratch_ / "cache/features", model_ = scratch_ / "model",
                 questions_ = scratch_ / "questions.json";
  FeatureOptions options_;
  FeatureSet features_;
  int made_ = 0;
};

TEST_F(FeatureCacheTest, TheSecondRunFindsWhatTheFirstMade) {
  EXPECT_THAT(get(), ElementsAre(HasSubstr("features are kept in ")));
  EXPECT_THAT(get(), ElementsAre(HasSubstr("features come from ")));
  EXPECT_EQ(made_, 1);
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(FeatureCacheTest, WhateverMakesOtherFeaturesMakesAnotherKey) {
  const auto expect_another = [&](std::string_view what) {
    const int before = made_;
    get();
    EXPECT_EQ(made_, before + 1) << what;
  };
  expect_another("nothing yet");
  options_.max_seq_length = 128;
  expect_another("max_seq_length");
  options_.max_positions = 256;
  expect_another("max_positions");
  options_.doc_stride = 32;
  expect_another("doc_stride");
  options_.labels = false;
  expect_another("labels");
  options_.padding = question_answering::Padding::kMaxSeqLength;
  expect_another("padding");
  options_.fix_last_token_labels = true;
  expect_another("fix_last_token_labels");
  options_.skip_unusable = true;
  expect_another("skip_unusable");
  options_.max_samples = 7;
  expect_another("max_samples");
  write_file(questions_, std::string(FeatureCache::kMinDataBytes, '\n'));
  expect_another("the questions");
  write_file(model_ / "tokenizer_config.json", R"({"do_lower_case": false})");
  expect_another("the tokenizer");
  get();
  EXPECT_EQ(made_, 11) << "and nothing else does";
}

TEST(FeatureKeys, OfTexts) {
  using text_classification::features_key;
  const std::vector<std::string_view> ab{"ab", "c"}, bc{"a", "bc"}, more{"ab", "c", ""}, none;
  const std::vector<std::string> keys{features_key(ab, none, 8),   features_key(bc, none, 8),
                                      features_key(more, none, 8), features_key(ab, bc, 8),
                                      features_key(bc, ab, 8),     features_key(ab, none, 9)};
  EXPECT_EQ(std::set<std::string>(keys.begin(), keys.end()).size(), keys.size());
  EXPECT_EQ(features_key(ab, none, 8), keys.front());
}

TEST(FeatureKeys, OfWords) {
  namespace ner = token_classification;
  const auto key = [](const std::vector<std::vector<std::string>>& rows,
                      const ner::FeatureOptions& options = {.max_positions = 16},
                      const std::vector<std::string>& names = {"O", "B-x", "I-x"}) {
    return ner::features_key(ner::testing::sentences(rows), names, options);
  };
  const std::vector<std::vector<std::string>> rows{{"ab/O", "c/B-x"}, {"d/O"}};
  const std::vector<std::string> keys{key(rows),
                                      key({{"a/O", "bc/B-x"}, {"d/O"}}),
                                      key({{"ab/O", "c/O"}, {"d/O"}}),
                                      key({{"ab/O"}, {"c/B-x", "d/O"}}),
                                      key(rows, {.max_positions = 15}),
                                      key(rows, {.max_seq_length = 16, .max_positions = 16}),
                                      key(rows, {.max_positions = 16, .label_all_tokens = true}),
                                      key(rows, {.max_positions = 16, .max_samples = 1}),
                                      key(rows, {.max_positions = 16}, {"O", "I-x", "B-x"})};
  EXPECT_EQ(std::set<std::string>(keys.begin(), keys.end()).size(), keys.size());
  EXPECT_EQ(key(rows), keys.front());
}

// The buffer of a digest is emptied now and then.
TEST(FeatureKeys, OfMuchText) {
  const auto digest = [](std::size_t texts, char last) {
    ContentDigest content;
    for (std::size_t i = 0; i < texts; ++i) content.add(std::string(1000, 'a'));
    content.add(std::string(1, last));
    return content.text();
  };
  EXPECT_EQ(digest(5000, 'b'), digest(5000, 'b'));
  EXPECT_NE(digest(5000, 'b'), digest(5000, 'c'));
  EXPECT_NE(digest(5000, 'b'), digest(5001, 'b'));
}

TEST_F(FeatureCacheTest, OverwriteMakesThemAnewOnceForAllRanks) {
  get();
  FeatureCache first_rank(folder_, model_, true), second_rank(folder_, model_, true);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the clock of files is coarse
  get(first_rank);
  EXPECT_EQ(made_, 2);
  get(second_rank);
  EXPECT_EQ(made_, 2);
}

TEST_F(FeatureCacheTest, ABrokenFileIsMadeAnewWithANote) {
  get();
  write_file(files().front(), "broken");
  EXPECT_THAT(get(), ElementsAre(HasSubstr("cut off; features are made anew"),
                                 HasSubstr("features are kept in ")));
  EXPECT_EQ(made_, 2);
  EXPECT_THAT(get(), ElementsAre(HasSubstr("features come from ")));
}

TEST_F(FeatureCacheTest, AFolderThatCannotBeWrittenEndsNoJob) {
  fs::create_directories(folder_.parent_path());
  write_file(folder_, "a file where the folder should be");
  EXPECT_THAT(get(), ElementsAre(HasSubstr("features are not kept for the next run: ")));
  EXPECT_EQ(made_, 1);
}

TEST_F(FeatureCacheTest, SmallFilesAndNoFolder) {
  FeatureCache nowhere(std::nullopt, model_, false);
  EXPECT_THAT(get(nowhere), IsEmpty());
  write_file(questions_, "small");
  EXPECT_THAT(get(), IsEmpty());
  EXPECT_FALSE(fs::exists(folder_));
  EXPECT_EQ(made_, 2);
}

TEST_F(FeatureCacheTest, WhatWasUsedLongestAgoMakesRoom) {
  fs::create_directories(folder_);
  const auto put = [&](const char* name, std::uint64_t bytes, int hours_ago) {
    write_file(folder_ / name, "");
    fs::resize_file(folder_ / name, bytes);  // with a hole: takes no disk
    fs::last_write_time(folder_ / name,
                        fs::file_time_type::clock::now() - std::chrono::hours(hours_ago));
  };
  put("oldest.features", FeatureCache::kMaxFolderBytes / 2, 50);
  put("older.features", FeatureCache::kMaxFolderBytes / 2, 40);
  put("recent.features", 1000, 1);
  put("a.features.tmp-1", 10, 30);
  put("b.features.tmp-2", 10, 1);
  put("of a person.txt", 10, 1000);
  get();
  EXPECT_FALSE(fs::exists(folder_ / "oldest.features"));
  EXPECT_TRUE(fs::exists(folder_ / "older.features"));
  EXPECT_TRUE(fs::exists(folder_ / "recent.features"));
  EXPECT_FALSE(fs::exists(folder_ / "a.features.tmp-1")) << "left by a writer that was killed";
  EXPECT_TRUE(fs::exists(folder_ / "b.features.tmp-2"));
  EXPECT_TRUE(fs::exists(folder_ / "of a person.txt"));
}

TEST_F(FeatureCacheTest, WhatKilledWritersLeftGoesAtTheNextStart) {
  get();
  const fs::path left = folder_ / "a.features.tmp-0123456789abcdef";
  write_file(left, "half of it");
  {  // A job that writes may be its writer.
    const int writer = ::open((folder_ / ".writers").c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_EQ(::flock(writer, LOCK_SH), 0);
    get();
    EXPECT_TRUE(fs::exists(left));
    ::close(writer);
  }
  EXPECT_THAT(get(), ElementsAre(HasSubstr("features come from ")));
  EXPECT_FALSE(fs::exists(left));
}

TEST(FeatureCacheFolder, IsNextToTheOtherCaches) {
  EXPECT_EQ(FeatureCache::default_folder(Environment({{"XDG_CACHE_HOME", "/x"}, {"HOME", "/h"}})),
            fs::path("/x/tandem/features"));
  EXPECT_EQ(FeatureCache::default_folder(Environment({{"HOME", std::string("/h")}})),
            fs::path("/h/.cache/tandem/features"));
  EXPECT_FALSE(FeatureCache::default_folder(Environment()).has_value());
  const auto chosen = [](const std::string& value) {
    return FeatureCache::default_folder(
        Environment({{"TANDEM_FEATURE_CACHE", value}, {"HOME", "/h"}}));
  };
  EXPECT_EQ(chosen("/mine"), fs::path("/mine"));
  EXPECT_FALSE(chosen("off").has_value());
}

}  // namespace
}  // namespace tandem::tasks
