// Cards of data sets and layouts without one, as `datasets` 5 resolves them.
#include "tandem/hub/dataset_card.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/hub/dataset_files.h"

namespace tandem::hub {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using Names = std::vector<std::string>;

constexpr std::string_view kCardExtensions[] = {".json", ".jsonl", ".csv", ".parquet"};

std::string card(const std::string& configs) { return "---\n" + configs + "\n---\n# x\n"; }

FilesOfSplits files_of(const std::string& configs, const Names& names,
                       const std::optional<std::string>& wanted = {}) {
  const auto all = read_card(card(configs), false, "README.md");
  std::vector<std::string> missing;
  return files_of_patterns(names, choose_configuration(all, wanted, "README.md"), missing);
}

std::string problem(const std::string& text, const std::optional<std::string>& wanted = {}) {
  try {
    const auto all = read_card(text, false, "README.md");
    if (!all.empty()) choose_configuration(all, wanted, "README.md");
  } catch (const DataError& error) {
    return error.what();
  }
  return "nothing is wrong";
}

const Names kNames = {"README.md",          "data/a.csv", "data/b.csv",      "data/.hidden.csv",
                      "data/old/train.csv", "new/a.csv",  "__cache__/a.csv", "data/config.json"};

TEST(DatasetCard, EveryFormOfDataFiles) {
  const std::pair<const char*, FilesOfSplits> cases[] = {
      {"configs:\n- data_files: data/a.csv", {{"train", {"data/a.csv"}}}},
      {"configs:\n- data_files: [data/b.csv, data/a.csv]",
       {{"train", {"data/b.csv", "data/a.csv"}}}},
      {"configs:\n- data_files: data/*.csv", {{"train", {"data/a.csv", "data/b.csv"}}}},
      {"configs:\n- data_files: 'data/[ab].csv'", {{"train", {"data/a.csv", "data/b.csv"}}}},
      {"configs:\n- data_files: data/?.csv", {{"train", {"data/a.csv", "data/b.csv"}}}},
      {"configs:\n- data_files: '**/a.csv'", {{"train", {"data/a.csv", "new/a.csv"}}}},
      {"configs:\n- data_files: data/**",
       {{"train", {"data/a.csv", "data/b.csv", "data/old/train.csv"}}}},
      {"configs:\n- data_files:\n  - split: test\n    path: [data/a.csv]\n  - split: dev\n    "
       "path: data/b.csv",
       {{"dev", {"data/b.csv"}}, {"test", {"data/a.csv"}}}},
      {"configs:\n- data_files:\n    validation: data/b.csv\n    train: data/a.csv",
       {{"train", {"data/a.csv"}}, {"validation", {"data/b.csv"}}}},
      {"configs:\n- data_dir: data/\n  data_files: '*.csv'",
       {{"train", {"data/a.csv", "data/b.csv"}}}},
      {"configs:\n- data_dir: ./new\n  data_files: a.csv", {{"train", {"new/a.csv"}}}},
      {"configs:\n- data_files: data/.hidden.csv", {{"train", {"data/.hidden.csv"}}}},
      // Braces have no meaning, and `**` inside a name is `*`.
      {"configs:\n- data_files: 'data/{a,b}.csv'", {}},
      {"configs:\n- data_files: absent.csv", {}},
  };
  for (const auto& [configs, expected] : cases)
    EXPECT_EQ(files_of(configs, kNames), expected) << configs;
}

TEST(DatasetCard, TheConfigurationIsNamedOrTheDefault) {
  const std::string two = "configs:\n- config_name: en\n  data_files: e\n- config_name: de\n  ";
  EXPECT_THAT(problem(card(two + "data_files: d")),
              HasSubstr("has the configurations en, de; choose one with --dataset_config_name"));
  EXPECT_THAT(problem(card(two + "data_files: d"), "fr"), HasSubstr("'fr' is not among them"));
  const auto marked = read_card(card(two + "default: true\n  data_files: d"), false, "");
  EXPECT_EQ(choose_configuration(marked, std::nullopt, "").name, "de");
  EXPECT_EQ(choose_configuration(marked, "en", "").name, "en");
  const auto named = read_card(
      card("configs:\n- config_name: a\n- config_name: default\n  data_files: d"), false, "");
  EXPECT_EQ(choose_configuration(named, std::nullopt, "").name, "default");
  const auto both =
      read_card(card(two + "default: True\n  data_files: d\n- default: yes"), false, "");
  EXPECT_THROW(choose_configuration(both, std::nullopt, ""), DataError);
}

TEST(DatasetCard, TextsWithoutConfigurations) {
  for (const char* text : {"", "# A title\n", "---\nlicense: mit\n---\n", "---\nconfigs:\n---\n",
                           "---\nno end", "----\nconfigs:\n- data_files: a\n---\n"})
    EXPECT_THAT(read_card(text, false, ""), IsEmpty()) << text;
  EXPECT_EQ(read_card("configs:\n- data_files: a", true, "").size(), 1u);
}

TEST(DatasetCard, WhatIsWrongIsNamedWithItsLine) {
  EXPECT_THAT(problem(card("configs:\n- config_name: a\n  sep: ';'")),
              HasSubstr("README.md, line 4: the configuration sets 'sep', which tandem does not"));
  EXPECT_THAT(problem(card("configs: all")),
              HasSubstr("README.md, line 2: configs: expected a list"));
  EXPECT_THAT(problem(card("configs:\n- data_files:\n  - split: train")),
              HasSubstr("expected entries with split and path"));
  EXPECT_THAT(problem(card("configs: [")), HasSubstr("README.md, line "));
}

TEST(DatasetLayout, WithoutACardNamesDecide) {
  const std::pair<Names, FilesOfSplits> cases[] = {
      {{"data/train-00000-of-00001.parquet", "train.csv"},
       {{"train", {"data/train-00000-of-00001.parquet"}}}},
      {{"data/de-00000-of-00001-abc.parquet"}, {{"de", {"data/de-00000-of-00001-abc.parquet"}}}},
      {{"train/x.csv", "my_dev_set/y.csv", "train/z.csv"},
       {{"train", {"train/x.csv", "train/z.csv"}}, {"validation", {"my_dev_set/y.csv"}}}},
      {{"my-training-2.csv", "evaluation.csv"},
       {{"test", {"evaluation.csv"}}, {"train", {"my-training-2.csv"}}}},
      {{"b.csv", "a.csv", "retrained.csv"}, {{"train", {"a.csv", "b.csv", "retrained.csv"}}}},
      {{"README.md", ".git/train.csv", "__pycache__/test.csv", "dataset_info.json"}, {}},
  };
  for (const auto& [names, expected] : cases) EXPECT_EQ(files_by_name(names, ""), expected);
  EXPECT_EQ(files_by_name({"en/train.csv", "de/train.csv"}, "en"),
            (FilesOfSplits{{"train", {"en/train.csv"}}}));
}

// --- directories ---

class DatasetCardTest : public ::testing::Test {
 protected:
  void put(const std::string& name, const std::string& text = "{}\n") const {
    fs::create_directories((folder_.path() / name).parent_path());
    write_file(folder_.path() / name, text);
  }
  DatasetFiles resolve(const std::optional<std::string>& config = {},
                       const SplitNames& splits = {}) const {
    DownloadObserver silent;
    return resolve_dataset({folder_.path().native(), config, {}, kCardExtensions, {}, splits},
                           Environment(), silent);
  }
  fs::path at(const char* name) const { return folder_.path() / name; }
  testing::TemporaryFolder folder_;
};

TEST_F(DatasetCardTest, TheCardWinsOverNames) {
  put("train.jsonl");
  put("x/new.jsonl");
  put("x/held.jsonl");
  put("README.md", card("configs:\n- data_files:\n    train: x/new.jsonl\n    dev: x/held.jsonl"));
  EXPECT_THAT(resolve().train, ElementsAre(at("x/new.jsonl")));
  EXPECT_THAT(resolve().validation, IsEmpty());
  EXPECT_THAT(resolve({}, {.validation = "dev"}).validation, ElementsAre(at("x/held.jsonl")));
  // .huggingface.yaml comes before README.md.
  put(".huggingface.yaml", "configs:\n- data_files: train.jsonl\n");
  EXPECT_THAT(resolve().train, ElementsAre(at("train.jsonl")));
}

TEST_F(DatasetCardTest, FilesThatAreMissingOrUnreadableAreNamed) {
  // A path that is missing is an error even if others are there; a pattern may match nothing.
  put("here.jsonl");
  put("README.md", card("configs:\n- data_files: [here.jsonl, gone.jsonl]"));
  try {
    resolve();
    FAIL() << "a missing file is passed over";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("names gone.jsonl, which is missing"));
  }
  put("README.md", card("configs:\n- data_files: [here.jsonl, 'x*.jsonl']"));
  EXPECT_THAT(resolve().train, ElementsAre(at("here.jsonl")));
  put("gone.zip");
  put("README.md", card("configs:\n- data_files: gone.zip"));
  try {
    resolve();
    FAIL() << "a ZIP file is accepted";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("has the file gone.zip; expected names that end in .json"));
  }
}

TEST_F(DatasetCardTest, FoldersAndSingleFilesWithoutACard) {
  put("training/part1.csv");
  put("training/part2.csv");
  put("test/part1.csv");
  EXPECT_THAT(resolve().train, ElementsAre(at("training/part1.csv"), at("training/part2.csv")));
  EXPECT_THAT(resolve().test, ElementsAre(at("test/part1.csv")));
}

// Expected, also of the next: datasets 5.2.0, load_dataset(directory).
TEST_F(DatasetCardTest, ShardsInDataPrecedeFilesWithoutACard) {
  put("train.csv");
  put("validation.csv");
  put("notes/train.json");
  put("data/train-00000-of-00002.csv");
  put("data/train-00001-of-00002.csv");
  EXPECT_THAT(resolve().train, ElementsAre(at("data/train-00000-of-00002.csv"),
                                           at("data/train-00001-of-00002.csv")));
  EXPECT_THAT(resolve().validation, ElementsAre());
}

TEST_F(DatasetCardTest, FoldersOfSplitsPrecedeFilesWithoutACard) {
  put("train.csv");
  put("my_train/train.csv");
  put("dev/train.csv");
  EXPECT_THAT(resolve().train, ElementsAre(at("my_train/train.csv")));
  EXPECT_THAT(resolve().validation, ElementsAre(at("dev/train.csv")));
  put("dev/deeper/part.csv");
  EXPECT_THAT(resolve().validation, ElementsAre(at("dev/deeper/part.csv"), at("dev/train.csv")));
}

TEST_F(DatasetCardTest, AShardThatIsMissingWithoutACardIsNamed) {
  put("data/train-00000-of-00002.csv");
  put("data/test-00000-of-00001.csv");
  try {
    resolve();
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("shard 1 of 2 is not among them"));
  }
}

TEST_F(DatasetCardTest, WithoutAnyWordAllFilesAreForTraining) {
  put("a.csv");
  put("b.csv");
  put("notes.json");
  EXPECT_THAT(resolve().train, ElementsAre(at("a.csv"), at("b.csv")));
}

// The data sets of the report, which tandem read by the names of their files.
class ReportedCards : public testing::SharedDataTest {};

TEST_F(ReportedCards, ConfigsDecide) {
  const fs::path reported = testing::shared_data() / "reported" / "F13_dataset_card_configs";
  for (const char* name : {"data_set", "data_set_plain"}) {
    const fs::path directory = reported / name;
    DownloadObserver silent;
    const DatasetFiles files =
        resolve_dataset({directory.native(), {}, {}, kCardExtensions}, Environment(), silent);
    EXPECT_THAT(files.train, ElementsAre(directory / "data/part-a.jsonl")) << name;
    EXPECT_THAT(files.validation, ElementsAre(directory / "data/part-b.jsonl")) << name;
  }
}

}  // namespace
}  // namespace tandem::hub
