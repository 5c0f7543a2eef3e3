#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/hub/dataset_files.h"
#include "tandem/hub/datasets_cache.h"
#include "tandem/hub/hub_cache.h"
#include "tandem/hub/model_files.h"

namespace tandem::hub {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kCommit(40, 'a');
const std::string kOtherCommit(40, 'b');

void put(const fs::path& file, std::string_view text = "{}") {
  fs::create_directories(file.parent_path());
  write_file(file, text);
}

// A repository in a cache as huggingface_hub writes it: the snapshot's files are relative links
// into blobs.
void put_repository(const fs::path& folder, const std::string& commit,
                    const std::vector<std::string>& files, const std::string& reference = "main") {
  if (!reference.empty()) put(folder / "refs" / reference, commit);
  for (const std::string& name : files) {
    put(folder / "blobs" / (commit.substr(0, 4) + name));
    const fs::path link = folder / "snapshots" / commit / name;
    fs::create_directories(link.parent_path());
    fs::create_symlink(fs::path("../../blobs") / (commit.substr(0, 4) + name), link);
  }
}

template <class F>
std::string error_of(F&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class HubTest : public ::testing::Test {
 protected:
  Environment environment() const {
    return Environment({{"HF_HOME", folder_.path().string()}, {"HF_HUB_OFFLINE", "1"}});
  }
  fs::path hub() const { return folder_ / "hub"; }
  Query model(const std::string& name, const std::string& revision = "main") const {
    Query query;
    query.name = name;
    query.revision = revision;
    query.needs = {{"config.json"}};
    return query;
  }

  testing::TemporaryFolder folder_;
};

TEST(CacheRoot, FirstVariableThatIsSetWins) {
  // In the order of precedence; each entry's root is used once those before it are gone.
  std::vector<std::pair<std::string, std::string>> variables = {
      {"TRANSFORMERS_CACHE", "/1"},
      {"PYTORCH_TRANSFORMERS_CACHE", "/2"},
      {"PYTORCH_PRETRAINED_BERT_CACHE", "/3"},
      {"HF_HUB_CACHE", "/4"},
      {"HUGGINGFACE_HUB_CACHE", "/5"},
      {"HF_HOME", "/6"},
      {"XDG_CACHE_HOME", "/7"},
      {"HOME", "/8"}};
  const std::vector<std::string> roots = {
      "/1", "/2", "/3", "/4", "/5", "/6/hub", "/7/huggingface/hub", "/8/.cache/huggingface/hub"};
  const auto root = [&](RepositoryType type,
                        const std::optional<std::string>& cache_dir = std::nullopt) {
    return cache_root(type, cache_dir,
                      Environment(std::map<std::string, std::string, std::less<>>(
                          variables.begin(), variables.end())));
  };
  EXPECT_EQ(root(RepositoryType::kModel, "/given"), "/given");
  EXPECT_EQ(root(RepositoryType::kModel, "~/given"), "/8/given");
  EXPECT_EQ(root(RepositoryType::kDataset), "/4");
  for (const std::string& expected : roots) {
    EXPECT_EQ(root(RepositoryType::kModel), expected);
    variables.erase(variables.begin());
  }
  EXPECT_THAT(error_of([&] { root(RepositoryType::kModel); }),
              HasSubstr("set HOME, HF_HOME or --cache_dir"));
}

TEST(Aliases, BothDirections) {
  EXPECT_THAT(aliases("bert-large-uncased", RepositoryType::kModel),
              ElementsAre("bert-large-uncased", "google-bert/bert-large-uncased"));
  EXPECT_THAT(aliases("google-bert/bert-base-cased", RepositoryType::kModel),
              ElementsAre("google-bert/bert-base-cased", "bert-base-cased"));
  EXPECT_THAT(aliases("distilbert-base-uncased", RepositoryType::kModel),
              ElementsAre("distilbert-base-uncased", "distilbert/distilbert-base-uncased"));
  EXPECT_THAT(aliases("distilbert/distilbert-base-uncased", RepositoryType::kModel),
              ElementsAre("distilbert/distilbert-base-uncased", "distilbert-base-uncased"));
  EXPECT_THAT(aliases("someone/bert-tiny", RepositoryType::kModel),
              ElementsAre("someone/bert-tiny"));
  EXPECT_THAT(aliases("squad", RepositoryType::kDataset), ElementsAre("squad", "rajpurkar/squad"));
  EXPECT_THAT(aliases("rajpurkar/squad_v2", RepositoryType::kDataset),
              ElementsAre("rajpurkar/squad_v2", "squad_v2"));
  EXPECT_THAT(aliases("squad_it", RepositoryType::kDataset), ElementsAre("squad_it"));
}

TEST_F(HubTest, AnExistingDirectoryIsTakenAsItIs) {
  put(folder_ / "my model" / "config.json");
  const Resolved resolved = resolve(model((folder_ / "my model").string()), environment());
  EXPECT_EQ(resolved.directory, folder_ / "my model");
  EXPECT_EQ(resolved.commit, std::nullopt);
  EXPECT_FALSE(known_absent(resolved, "x"));
}

TEST_F(HubTest, NameRevisionTagAndCommit) {
  const fs::path repository = hub() / "models--org--tiny";
  put_repository(repository, kCommit, {"config.json", "model.safetensors"});
  put_repository(repository, kOtherCommit, {"config.json"}, "v1.0");
  EXPECT_EQ(resolve(model("org/tiny"), environment()).directory,
            repository / "snapshots" / kCommit);
  EXPECT_EQ(resolve(model("org/tiny", "v1.0"), environment()).directory,
            repository / "snapshots" / kOtherCommit);
  const Resolved by_commit = resolve(model("org/tiny", kOtherCommit), environment());
  EXPECT_EQ(by_commit.directory, repository / "snapshots" / kOtherCommit);
  EXPECT_EQ(by_commit.commit, kOtherCommit);
  EXPECT_TRUE(fs::exists(by_commit.directory / "config.json"));
}

TEST_F(HubTest, ReferencesMayHaveSlashesAndATrailingNewline) {
  const fs::path repository = hub() / "models--tiny";
  put_repository(repository, kCommit, {"config.json"}, "refs/pr/7");
  put(repository / "refs" / "refs" / "pr" / "8", kCommit + "\n");
  EXPECT_EQ(resolve(model("tiny", "refs/pr/7"), environment()).commit, kCommit);
  EXPECT_EQ(resolve(model("tiny", "refs/pr/8"), environment()).commit, kCommit);
}

TEST_F(HubTest, CanonicalAliasesInBothDirections) {
  put_repository(hub() / "models--google-bert--bert-large-uncased", kCommit, {"config.json"});
  put_repository(hub() / "models--distilbert-base-uncased", kCommit, {"config.json"});
  EXPECT_EQ(resolve(model("bert-large-uncased"), environment()).commit, kCommit);
  EXPECT_EQ(resolve(model("distilbert/distilbert-base-uncased"), environment()).commit, kCommit);
}

TEST_F(HubTest, AFolderWithoutTheFilesDoesNotHideItsAlias) {
  put_repository(hub() / "models--bert-base-cased", kCommit, {"tokenizer_config.json"});
  put_repository(hub() / "models--google-bert--bert-base-cased", kOtherCommit, {"config.json"});
  EXPECT_EQ(resolve(model("bert-base-cased"), environment()).commit, kOtherCommit);
}

TEST_F(HubTest, ADanglingLinkIsNoFile) {
  put_repository(hub() / "models--org--tiny", kCommit, {"config.json"});
  fs::remove_all(hub() / "models--org--tiny" / "blobs");
  EXPECT_THAT(error_of([&] { resolve(model("org/tiny"), environment()); }),
              HasSubstr("holds no config.json (perhaps an interrupted download)"));
}

TEST_F(HubTest, CacheDirWinsOverTheEnvironment) {
  put_repository(folder_ / "elsewhere" / "models--org--tiny", kCommit, {"config.json"});
  Query query = model("org/tiny");
  query.cache_dir = (folder_ / "elsewhere").string();
  EXPECT_EQ(resolve(query, environment()).commit, kCommit);
}

TEST_F(HubTest, KnownAbsence) {
  const fs::path repository = hub() / "models--org--tiny";
  put_repository(repository, kCommit, {"config.json"});
  put(repository / ".no_exist" / kCommit / "model.safetensors", "");
  const Resolved resolved = resolve(model("org/tiny"), environment());
  EXPECT_TRUE(known_absent(resolved, "model.safetensors"));
  EXPECT_FALSE(known_absent(resolved, "config.json"));
}

TEST_F(HubTest, NotFoundNamesEveryPlaceTheLayoutAndTheFix) {
  const std::string message =
      error_of([&] { resolve(model("bert-large-uncased"), environment()); });
  EXPECT_THAT(message,
              AllOf(HasSubstr("the model 'bert-large-uncased' was not found"),
                    HasSubstr("bert-large-uncased: no such directory"),
                    HasSubstr((hub() / "models--bert-large-uncased").string() + ": no such folder"),
                    HasSubstr((hub() / "models--google-bert--bert-large-uncased").string()),
                    HasSubstr("<root>/models--bert-large-uncased/refs/main"),
                    HasSubstr("set HF_HOME or --cache_dir")));
}

TEST_F(HubTest, NotFoundNamesTheFaultInsideARepository) {
  put_repository(hub() / "models--org--tiny", kCommit, {"config.json"});
  EXPECT_THAT(error_of([&] { resolve(model("org/tiny", "v9"), environment()); }),
              HasSubstr("refs/v9: no such revision"));
  EXPECT_THAT(error_of([&] { resolve(model("org/tiny", kOtherCommit), environment()); }),
              HasSubstr("no snapshot of this commit"));
  put(hub() / "models--org--tiny" / "refs" / "old", kOtherCommit);
  EXPECT_THAT(error_of([&] { resolve(model("org/tiny", "old"), environment()); }),
              HasSubstr("absent, although refs/old names it"));
}

TEST_F(HubTest, PathsAreNotLookedUpInTheCache) {
  const std::string message = error_of([&] { resolve(model("./models/tiny"), environment()); });
  EXPECT_THAT(message,
              AllOf(HasSubstr("./models/tiny: no such directory"), Not(HasSubstr("<root>"))));
  put(folder_ / "file");
  EXPECT_THAT(error_of([&] { resolve(model((folder_ / "file").string()), environment()); }),
              HasSubstr("a file, expected a directory"));
  EXPECT_THAT(error_of([&] { resolve(model("org/tiny", "../../x"), environment()); }),
              HasSubstr("neither a branch"));
}

TEST_F(HubTest, ModelsPartsMayComeFromDifferentPlaces) {
  put(folder_ / "model" / "config.json");
  put_repository(hub() / "models--org--tokens", kCommit, {"vocab.txt"});
  ModelArguments arguments;
  arguments.model_name_or_path = (folder_ / "model").string();
  arguments.tokenizer_name = "org/tokens";
  DownloadObserver silent;
  const ModelLocation location = resolve_model(arguments, environment(), silent);
  EXPECT_EQ(location.config_directory, folder_ / "model");
  EXPECT_EQ(location.tokenizer_directory, hub() / "models--org--tokens" / "snapshots" / kCommit);
  fs::remove(folder_ / "model" / "config.json");
  EXPECT_THAT(error_of([&] { resolve_model(arguments, environment(), silent); }),
              HasSubstr("no config.json"));
}

class DatasetTest : public HubTest {
 protected:
  DatasetFiles resolve(const fs::path& name, const std::optional<std::string>& config = {},
                       const std::optional<std::string>& cache_dir = {}) const {
    static constexpr std::array<std::string_view, 4> kExtensions = {".json", ".jsonl", ".arrow",
                                                                    ".parquet"};
    DownloadObserver silent;
    return resolve_dataset({name.string(), config, cache_dir, kExtensions}, environment(), silent);
  }
  std::string error(const fs::path& name, const std::optional<std::string>& config = {}) const {
    return error_of([&] { resolve(name, config); });
  }
  // An entry of the cache of `datasets`, and when it was made.
  fs::path put_entry(const std::string& path, const std::vector<std::string>& files, int second) {
    fs::path entry = folder_ / ("datasets/" + path);
    for (const std::string& file : files) put(entry / file);
    put(entry / "dataset_info.json");
    fs::last_write_time(entry / "dataset_info.json",
                        fs::file_time_type() + std::chrono::seconds(second));
    return entry;
  }
};

TEST_F(DatasetTest, Directory) {
  put(folder_ / "squad" / "train-v1.1.json");
  put(folder_ / "squad" / "dev-v1.1.json");
  put(folder_ / "squad" / "README.md");
  const DatasetFiles files = resolve(folder_ / "squad");
  EXPECT_THAT(files.train, ElementsAre(folder_ / "squad" / "train-v1.1.json"));
  EXPECT_THAT(files.validation, ElementsAre(folder_ / "squad" / "dev-v1.1.json"));
  EXPECT_THAT(files.test, ElementsAre());
}

TEST_F(DatasetTest, WhichFilesOfARepositoryAreTheDataSet) {
  static constexpr std::array<std::string_view, 3> kExtensions = {".json", ".csv", ".parquet"};
  const auto choose = [](const std::vector<std::string>& names,
                         const std::optional<std::string>& config = {}) {
    return choose_dataset_files(names, {"org/qa", config, {}, kExtensions});
  };
  // One folder, and of two formats Parquet; other files stay where they are.
  EXPECT_THAT(choose({"README.md", "dataset_infos.json", "qa/train.csv", "qa/train.parquet",
                      "qa/test.parquet", "a/b/train.parquet"}),
              ElementsAre("qa/train.parquet", "qa/test.parquet"));
  EXPECT_THAT(choose({"train.json", "dev.json", "qa/train.json"}),
              ElementsAre("train.json", "dev.json"));
  EXPECT_THAT(choose({"train.json", "qa/train.json"}, "qa"), ElementsAre("qa/train.json"));
  EXPECT_THAT(choose({"data/train.json"}, "anything"), ElementsAre("data/train.json"));
  EXPECT_THAT(error_of([&] {
                choose({"en/train.json", "fr/train.json"});
              }),
              HasSubstr("org/qa has the configurations en, fr; choose one"));
  EXPECT_THAT(error_of([&] { choose({"en/train.json"}, "de"); }),
              HasSubstr("'de' is not among them"));
  EXPECT_THAT(error_of([&] {
                choose({"qa.py", "README.md", "train.zip"});
              }),
              HasSubstr("made by a script, which tandem does not run"));
}

// The data sets of BEIR on the Hub have corpus.jsonl.gz.
TEST_F(DatasetTest, CompressedFilesAreOfTheirFormat) {
  for (const char* name : {"train-00000-of-00002.jsonl.gz", "train-00001-of-00002.jsonl.gz",
                           "test.jsonl.zst", "train.jsonl.bz2"})
    put(folder_ / "set" / name);
  const DatasetFiles files = resolve(folder_ / "set");
  EXPECT_THAT(files.train, ElementsAre(folder_ / "set" / "train-00000-of-00002.jsonl.gz",
                                       folder_ / "set" / "train-00001-of-00002.jsonl.gz"));
  EXPECT_THAT(files.test, ElementsAre(folder_ / "set" / "test.jsonl.zst"));
  static constexpr std::array<std::string_view, 1> kExtensions = {".jsonl"};
  EXPECT_THAT(choose_dataset_files({"README.md", "corpus.jsonl.gz", "queries.jsonl.gz", "a.bz2"},
                                   {"BeIR/scifact", {}, {}, kExtensions}),
              ElementsAre("corpus.jsonl.gz", "queries.jsonl.gz"));
}

// run_classification's --train_split_name and its relatives, whatever form the data set has.
TEST_F(DatasetTest, SplitsOfOtherNames) {
  static constexpr std::array<std::string_view, 2> kExtensions = {".json", ".arrow"};
  const auto resolve = [&](const std::string& name) {
    DatasetQuery query{name, {}, {}, kExtensions};
    query.splits = {.train = "small", .validation = "test", .removed = {"extra"}};
    DownloadObserver silent;
    return resolve_dataset(query, environment(), silent);
  };
  const auto expect_parts = [](const DatasetFiles& files, const fs::path& train,
                               const fs::path& validation) {
    EXPECT_THAT(files.train, ElementsAre(train));
    EXPECT_THAT(files.validation, ElementsAre(validation));
    EXPECT_THAT(files.test, ElementsAre());
  };
  const fs::path plain = folder_ / "plain";
  for (const char* split : {"train", "small", "validation", "test", "train-extra"})
    put(plain / fmt::format("{}.json", split));
  expect_parts(resolve(plain), plain / "small.json", plain / "test.json");

  const fs::path saved = folder_ / "saved";
  put(saved / "dataset_dict.json", "{}");
  for (const char* split : {"train", "small", "validation", "test"})
    put(saved / split / "state.json", R"({"_data_files": [{"filename": "data.arrow"}]})");
  expect_parts(resolve(saved), saved / "small" / "data.arrow", saved / "test" / "data.arrow");

  const fs::path entry = put_entry("org___set/default/0.0.0/hash",
                                   {"set-train.arrow", "set-small.arrow", "set-test.arrow"}, 1);
  expect_parts(resolve("org/set"), entry / "set-small.arrow", entry / "set-test.arrow");
}

TEST_F(DatasetTest, HubCacheByNameAndConfiguration) {
  const fs::path repository = hub() / "datasets--rajpurkar--squad";
  put_repository(
      repository, kCommit,
      {"README.md", "plain_text/train-00000-of-00002.parquet",
       "plain_text/train-00001-of-00002.parquet", "plain_text/validation-00000-of-00001.parquet"});
  const fs::path folder = repository / "snapshots" / kCommit / "plain_text";
  for (const std::optional<std::string>& config :
       {std::optional<std::string>(), std::optional<std::string>("plain_text")}) {
    const DatasetFiles files = resolve("squad", config);
    EXPECT_THAT(files.train, ElementsAre(folder / "train-00000-of-00002.parquet",
                                         folder / "train-00001-of-00002.parquet"));
    EXPECT_THAT(files.validation, ElementsAre(folder / "validation-00000-of-00001.parquet"));
  }
  EXPECT_THAT(error("squad", "other"),
              HasSubstr("has the configurations plain_text; choose one with --dataset_config_name, "
                        "'other' is not among them"));
  put(repository / "snapshots" / kCommit / "v2" / "train.parquet");
  EXPECT_THAT(error("squad"), HasSubstr("has the configurations plain_text, v2; choose one"));
  EXPECT_EQ(resolve("squad", "v2").train.size(), 1u);
}

TEST_F(DatasetTest, CacheOfDatasetsTakesTheNewestCompleteEntry) {
  put_entry("rajpurkar___squad/plain_text/0.0.0/old", {"squad-train.arrow"}, 1);
  const fs::path entry =
      put_entry("rajpurkar___squad/plain_text/0.0.0/new",
                {"squad-train-00000-of-00002.arrow", "squad-train-00001-of-00002.arrow",
                 "squad-validation.arrow", "cache-0123-train.arrow"},
                3);
  put_entry("rajpurkar___squad/plain_text/0.0.0/newest.incomplete", {"squad-train.arrow"}, 9);
  put(folder_ / "datasets" / "rajpurkar___squad" / "plain_text" / "0.0.0" / "new_builder.lock");
  put_repository(hub() / "datasets--squad", kCommit, {"train.json"});  // comes second
  for (const char* name : {"squad", "rajpurkar/squad"}) {
    const DatasetFiles files = resolve(name);
    EXPECT_EQ(files.directory, entry);
    EXPECT_THAT(files.train, ElementsAre(entry / "squad-train-00000-of-00002.arrow",
                                         entry / "squad-train-00001-of-00002.arrow"));
    EXPECT_THAT(files.validation, ElementsAre(entry / "squad-validation.arrow"));
    EXPECT_THAT(files.test, ElementsAre());
  }
  fs::remove(entry / "squad-train-00000-of-00002.arrow");
  EXPECT_THAT(error("squad"),
              HasSubstr("the train part has 1 files, but shard 0 of 2 is not among them"));
}

TEST_F(DatasetTest, CacheOfDatasetsWithSeveralConfigurations) {
  put_entry("org___qa/en/1.0.0/a", {"qa-train.arrow"}, 1);
  put_entry("org___qa/fr-0123456789abcdef/1.0.0/b", {"qa-train.arrow"}, 2);
  put_entry("org___qa/fr-fedcba9876543210/1.0.0/c", {"qa-test.arrow"}, 3);
  EXPECT_THAT(error("org/qa"), HasSubstr("has the configurations en, fr; choose one"));
  EXPECT_THAT(error("org/qa", "de"), HasSubstr("'de' is not among them"));
  EXPECT_EQ(resolve("org/qa", "en").directory.filename(), "a");
  EXPECT_EQ(resolve("org/qa", "fr").directory.filename(), "c");
}

// datasets 2.13 and older, data sets without a script.
TEST_F(DatasetTest, OldCacheOfDatasets) {
  const fs::path golden = fs::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/datasets/cache-2.13";
  const DatasetFiles files = resolve("ada/questions", {}, golden.string());
  ASSERT_EQ(files.train.size(), 1u);
  EXPECT_EQ(files.train.front().filename(), "parquet-train.arrow");
  EXPECT_EQ(files.validation.front().filename(), "parquet-validation.arrow");
  EXPECT_EQ(files.train_rows, 60u);
  EXPECT_EQ(files.validation_rows, 20u);
  EXPECT_EQ(files.test_rows, std::nullopt);
  EXPECT_EQ(resolve("ada/questions", "default", golden.string()).train, files.train);
  // Another data set of the same organization lies in the same folder.
  EXPECT_THAT(error_of([&] { resolve("ada/question", {}, golden.string()); }),
              HasSubstr("was not found"));
  // With a configuration from the card only the addresses of the downloads show it.
  const fs::path entry =
      put_entry("ada___json/plain-0123456789abcdef/0.0.0/x", {"json-train.arrow"}, 1);
  EXPECT_THAT(error("ada/other"), HasSubstr("was not found"));
  write_file(entry / "dataset_info.json",
             R"({"download_checksums": {"https://hub/datasets/ada/other/resolve/0/a.json": {}}})");
  EXPECT_EQ(resolve("ada/other").directory, entry);
  EXPECT_EQ(resolve("ada/other", "plain").directory, entry);
  EXPECT_THAT(error("ada/other", "wrong"), HasSubstr("was not found"));
  // Without an organization.
  put_entry("parquet/questions-0123456789abcdef/0.0.0/y", {"parquet-train.arrow"}, 1);
  EXPECT_EQ(resolve("questions").directory.filename(), "y");
}

TEST_F(DatasetTest, CacheDirAndVariablesOfTheCacheOfDatasets) {
  const DatasetQuery query{"squad", {}, "/given", {}};
  const auto roots = [&](std::map<std::string, std::string, std::less<>> variables) {
    return datasets_cache_roots(query, Environment(std::move(variables)));
  };
  EXPECT_THAT(roots({{"HF_DATASETS_CACHE", "/a"}, {"HF_HOME", "/b"}}), ElementsAre("/given", "/a"));
  EXPECT_THAT(roots({{"HF_HOME", "/b"}, {"HOME", "/d"}}), ElementsAre("/given", "/b/datasets"));
  EXPECT_THAT(roots({{"XDG_CACHE_HOME", "/c"}, {"HOME", "/d"}}),
              ElementsAre("/given", "/c/huggingface/datasets"));
  EXPECT_THAT(roots({{"HOME", "/d"}}), ElementsAre("/given", "/d/.cache/huggingface/datasets"));
  put(folder_ / "mine" / "squad" / "plain_text" / "1.0.0" / "x" / "squad-train.arrow");
  EXPECT_EQ(resolve("squad", {}, (folder_ / "mine").string()).train.size(), 1u);
}

// Folders that the packages wrote (tests/parity/make_dataset_files.py).
TEST_F(DatasetTest, FoldersThatDatasetsWrote) {
  const fs::path golden = fs::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/datasets";
  const DatasetFiles saved = resolve(golden / "saved");
  EXPECT_EQ(saved.train.size(), 3u);
  EXPECT_THAT(saved.validation, ElementsAre(golden / "saved/validation/data-00000-of-00001.arrow"));
  EXPECT_EQ(resolve(golden / "saved" / "train").train, saved.train);
  const DatasetFiles hub_files = resolve(golden / "hub");
  EXPECT_EQ(hub_files.train.size(), 2u);
  const DatasetFiles cached = resolve("squad", "plain_text", (golden / "cache").string());
  EXPECT_EQ(cached.train.front().filename(), "squad-train.arrow");
  EXPECT_EQ(cached.validation.front().filename(), "squad-validation.arrow");
}

TEST_F(DatasetTest, ASavedDatasetWithoutASplitOrFiles) {
  put(folder_ / "mine" / "state.json",
      R"({"_data_files": [{"filename": "a.arrow"}], "_split": null})");
  EXPECT_THAT(error(folder_ / "mine"), HasSubstr("a saved Dataset of the split 'mine'"));
  put(folder_ / "mine" / "state.json", R"({"_data_files": [{}], "_split": "test"})");
  EXPECT_THAT(error(folder_ / "mine"), HasSubstr("no list of file names"));
  put(folder_ / "mine" / "state.json",
      R"({"_data_files": [{"filename": "../a.arrow"}], "_split": "test"})");
  EXPECT_THAT(resolve(folder_ / "mine").test, ElementsAre(folder_ / "mine" / "a.arrow"));
}

TEST_F(DatasetTest, Problems) {
  put(folder_ / "two" / "train-a.json");
  put(folder_ / "two" / "train-b.json");
  EXPECT_THAT(error(folder_ / "two"),
              AllOf(HasSubstr("train-a.json and train-b.json"), HasSubstr("--train_file")));
  put(folder_ / "other" / "train.feather");
  EXPECT_THAT(error(folder_ / "other"),
              AllOf(HasSubstr("no file such as"), HasSubstr("(found train.feather)"),
                    HasSubstr(".json, .jsonl, .arrow, .parquet")));
  EXPECT_THAT(error("squad"),
              AllOf(HasSubstr("the data set 'squad' was not found"),
                    HasSubstr("datasets--rajpurkar--squad"),
                    HasSubstr("give --train_file and --validation_file"),
                    HasSubstr("nor is it in the cache of the package datasets:\n  " +
                              (folder_ / "datasets").string() + "/squad: no such folder")));
  // A word counts only between separators; without a word all files are for training.
  put(folder_ / "words" / "constraint.json");
  put(folder_ / "words" / "developers.json");
  EXPECT_THAT(resolve(folder_ / "words").train, ElementsAre(folder_ / "words" / "constraint.json",
                                                            folder_ / "words" / "developers.json"));
  EXPECT_TRUE(resolve(folder_ / "words").validation.empty());
}

}  // namespace
}  // namespace tandem::hub
