#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/hub/dataset_files.h"
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
  Environment environment() const { return Environment({{"HF_HOME", folder_.path().string()}}); }
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
  const auto root = [&](RepositoryType type, std::optional<std::string> cache_dir = std::nullopt) {
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
              HasSubstr("holds no config.json (an interrupted download?)"));
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

TEST_F(HubTest, NotFoundSaysWhatIsWrongInsideARepository) {
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
  const ModelLocation location = resolve_model(arguments, environment());
  EXPECT_EQ(location.config_directory, folder_ / "model");
  EXPECT_EQ(location.tokenizer_directory, hub() / "models--org--tokens" / "snapshots" / kCommit);
  fs::remove(folder_ / "model" / "config.json");
  EXPECT_THAT(error_of([&] { resolve_model(arguments, environment()); }),
              HasSubstr("no config.json"));
}

TEST_F(HubTest, DatasetDirectory) {
  put(folder_ / "squad" / "train-v1.1.json");
  put(folder_ / "squad" / "dev-v1.1.json");
  put(folder_ / "squad" / "README.md");
  const DatasetFiles files =
      resolve_dataset((folder_ / "squad").string(), std::nullopt, std::nullopt, environment());
  EXPECT_EQ(files.train, folder_ / "squad" / "train-v1.1.json");
  EXPECT_EQ(files.validation, folder_ / "squad" / "dev-v1.1.json");
  EXPECT_EQ(files.test, std::nullopt);
}

TEST_F(HubTest, DatasetInTheHubCacheByNameAndConfiguration) {
  put_repository(hub() / "datasets--rajpurkar--squad", kCommit,
                 {"plain_text/train.jsonl", "plain_text/validation.jsonl"});
  put(hub() / "datasets--rajpurkar--squad" / "snapshots" / kCommit / "plain_text" / "train.jsonl");
  put(hub() / "datasets--rajpurkar--squad" / "snapshots" / kCommit / "plain_text" /
      "test-00000.json");
  const DatasetFiles files = resolve_dataset("squad", "plain_text", std::nullopt, environment());
  EXPECT_EQ(files.train->filename(), "train.jsonl");
  EXPECT_EQ(files.test->filename(), "test-00000.json");
}

TEST_F(HubTest, DatasetProblems) {
  put(folder_ / "two" / "train-a.json");
  put(folder_ / "two" / "train-b.json");
  EXPECT_THAT(error_of([&] { resolve_dataset((folder_ / "two").string(), {}, {}, environment()); }),
              AllOf(HasSubstr("train-a.json and train-b.json"), HasSubstr("--train_file")));
  put(folder_ / "parquet" / "data" / "train-00000-of-00001.parquet");
  EXPECT_THAT(
      error_of([&] { resolve_dataset((folder_ / "parquet").string(), {}, {}, environment()); }),
      AllOf(HasSubstr("(but train-00000-of-00001.parquet)"), HasSubstr("cannot be read yet")));
  EXPECT_THAT(error_of([&] { resolve_dataset("squad", {}, {}, environment()); }),
              AllOf(HasSubstr("the data set 'squad' was not found"),
                    HasSubstr("datasets--rajpurkar--squad"),
                    HasSubstr("give --train_file and --validation_file")));
  // A word counts only between separators.
  put(folder_ / "words" / "constraint.json");
  put(folder_ / "words" / "developers.json");
  EXPECT_THAT(
      error_of([&] { resolve_dataset((folder_ / "words").string(), {}, {}, environment()); }),
      HasSubstr("no file such as"));
}

}  // namespace
}  // namespace tandem::hub
