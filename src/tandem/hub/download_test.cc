// Downloads from a server that behaves like the Hub (tests/support/fake_hub.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <chrono>

#include "support/fake_hub.h"
#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/hub/dataset_files.h"
#include "tandem/hub/file_hash.h"
#include "tandem/hub/model_files.h"
#include "tandem/hub/snapshot_download.h"

namespace tandem::hub {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::string kDownloadCommit(40, 'c');

std::string bytes_of_length(std::size_t size) {
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 7 + i / 251);
  return bytes;
}

std::string hash_of(std::string_view text) { return sha256(std::as_bytes(std::span(text))); }

void put_text(const fs::path& file, std::string_view text) {
  fs::create_directories(file.parent_path());
  write_file(file, text);
}

class Watcher final : public DownloadObserver {
 public:
  void file_begin(std::string_view name, std::optional<std::uint64_t> size,
                  std::uint64_t resumed_from) override {
    events.push_back(fmt::format("begin {} {} {}", name, size.value_or(0), resumed_from));
  }
  void file_progress(std::uint64_t bytes, std::optional<std::uint64_t>) override { last = bytes; }
  void waiting(std::string_view, std::string_view) override { ++waits; }
  void note(std::string_view text) override { notes.emplace_back(text); }

  std::vector<std::string> events, notes;
  std::uint64_t last = 0;
  int waits = 0;
};

class DownloadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string python = testing::find_program("python3");
    if (python.empty()) GTEST_SKIP() << "needs python3 for the server";
    server_ = std::make_unique<testing::FakeHub>(python, root());
    endpoint_ = server_->endpoint();
    put_model("org/tiny");
  }

  fs::path root() const { return folder_.path(); }
  fs::path hub() const { return folder_ / "home/hub"; }
  fs::path repository(const std::string& name = "models--org--tiny") const { return hub() / name; }

  void put_model(const std::string& name) {
    const fs::path model = root() / "models" / name;
    put_text(model / "config.json", R"({"model_type": "bert"})");
    put_text(model / "tokenizer.json", "{}");
    put_text(model / "tokenizer_config.json", "{\"a\": 1}");
    put_text(model / "vocab.txt", "[PAD]\n");
    put_text(model / "model.safetensors", bytes_of_length(300'000));
  }
  void put_faults(const json& faults) { put_text(root() / "faults.json", faults.dump()); }

  Environment environment(std::map<std::string, std::string, std::less<>> more = {}) const {
    more.emplace("HF_HOME", (folder_ / "home").string());
    more.emplace("HF_ENDPOINT", endpoint_);
    return Environment(std::move(more));
  }
  // Settings with which retries take no time.
  HubSettings quick() const {
    HubSettings settings = hub_settings(environment(), std::nullopt, RepositoryType::kModel);
    settings.first_backoff = milliseconds(1);
    settings.retries = 2;
    settings.http.stall_timeout = std::chrono::seconds(1);
    settings.metadata_timeout = milliseconds(2000);
    return settings;
  }
  ModelLocation resolve(const std::string& name, const Environment& variables,
                        const std::string& revision = "main") {
    ModelArguments arguments;
    arguments.model_name_or_path = name;
    arguments.model_revision = revision;
    return resolve_model(arguments, variables, watcher_);
  }
  bool fetch(const std::string& file, const HubSettings& settings) {
    SnapshotDownload download(hub(), {"org/tiny"}, "main", std::nullopt, settings, watcher_);
    return download.fetch(file);
  }
  std::string fetched(const std::string& file) const {
    return read_file(repository() / "snapshots" / kDownloadCommit / file);
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
  std::vector<json> requests(const std::string& method = "") const {
    return server_->requests(method);
  }

  testing::TemporaryFolder folder_;
  std::unique_ptr<testing::FakeHub> server_;
  std::string endpoint_;
  Watcher watcher_;
};

TEST_F(DownloadTest, AModelLandsInTheCacheOfHuggingFace) {
  const auto variables = environment({{"HF_TOKEN", "secret"}});
  const ModelLocation location = resolve("org/tiny", variables);
  const fs::path snapshot = repository() / "snapshots" / kDownloadCommit;
  EXPECT_EQ(location.model.directory, snapshot);
  EXPECT_EQ(location.model.commit, kDownloadCommit);
  EXPECT_EQ(read_file(repository() / "refs/main"), kDownloadCommit);
  for (const char* file : {"config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt",
                           "model.safetensors"}) {
    EXPECT_TRUE(fs::is_symlink(snapshot / file)) << file;
    EXPECT_TRUE(read_file(snapshot / file) == read_file(root() / "models/org/tiny" / file)) << file;
  }
  // The name of a blob is its hash: SHA-256 for large files, git's for small ones.
  EXPECT_EQ(fs::read_symlink(snapshot / "model.safetensors"),
            "../../blobs/" + hash_of(bytes_of_length(300'000)));
  EXPECT_EQ(fs::read_symlink(snapshot / "tokenizer.json"),
            "../../blobs/9e26dfeeb6e641a33dae4961196235bdb965b21b");  // git hash-object of "{}"
  EXPECT_TRUE(fs::exists(repository() / ".no_exist" / kDownloadCommit / "added_tokens.json"));
  for (const auto& entry : fs::directory_iterator(repository() / "blobs"))
    EXPECT_NE(entry.path().extension(), ".incomplete");

  const auto rows = requests();
  int to_the_store = 0;
  for (const json& row : rows) {
    const bool store = row.at("host") == "localhost";
    to_the_store += store ? 1 : 0;
    EXPECT_EQ(row.at("authorization"), store ? json() : json("Bearer secret")) << row;
  }
  EXPECT_EQ(to_the_store, 1);
  EXPECT_THAT(watcher_.events, Contains("begin model.safetensors 300000 0"));

  EXPECT_EQ(resolve("org/tiny", variables).model.directory, snapshot);  // now from the cache
  EXPECT_EQ(requests().size(), rows.size());
}

TEST_F(DownloadTest, ARevisionAndACommit) {
  EXPECT_EQ(resolve("org/tiny", environment(), "v2").model.commit, kDownloadCommit);
  EXPECT_EQ(read_file(repository() / "refs/v2"), kDownloadCommit);
  fs::remove_all(hub());
  EXPECT_EQ(resolve("org/tiny", environment(), kDownloadCommit).model.commit, kDownloadCommit);
  EXPECT_FALSE(fs::exists(repository() / "refs"));
}

TEST_F(DownloadTest, ARenamedRepositoryIsFollowed) {
  put_model("google-bert/bert-new-name");
  EXPECT_EQ(resolve("bert-old-name", environment({{"HF_TOKEN", "t"}})).model.directory,
            repository("models--bert-old-name") / "snapshots" / kDownloadCommit);
}

// A mirror that has a repository under its old or its new name only, and never redirects.
TEST_F(DownloadTest, TheOtherCanonicalNameIsAskedForWhenThereIsNone) {
  static constexpr std::array<std::string_view, 1> kExtensions = {".json"};
  put_model("google-bert/bert-tiny");
  EXPECT_EQ(resolve("bert-tiny", environment()).model.directory,
            repository("models--google-bert--bert-tiny") / "snapshots" / kDownloadCommit);
  put_model("distilbert-tiny");
  EXPECT_EQ(resolve("distilbert/distilbert-tiny", environment()).model.directory,
            repository("models--distilbert-tiny") / "snapshots" / kDownloadCommit);
  put_text(root() / "datasets/rajpurkar/squad/train.json", "[]");
  const auto squad = [&](const char* name) {
    return resolve_dataset({name, {}, {}, kExtensions}, environment(), watcher_);
  };
  EXPECT_EQ(squad("squad").directory,
            repository("datasets--rajpurkar--squad") / "snapshots" / kDownloadCommit);
  const std::size_t asked = requests().size();
  squad("squad");  // from the cache
  EXPECT_EQ(requests().size(), asked);
  // A server that has no error codes.
  put_model("bert-small");
  put_faults({{{"path", "/google-bert/bert-small"}, {"status", 404}}});
  EXPECT_EQ(resolve("google-bert/bert-small", environment()).model.directory,
            repository("models--bert-small") / "snapshots" / kDownloadCommit);
  EXPECT_THAT(error_of([&] { squad("squad_v2"); }),
              AllOf(HasSubstr("has no data set 'squad_v2'"),
                    HasSubstr("there is no 'rajpurkar/squad_v2' either")));
}

TEST_F(DownloadTest, ShardsAndOnlyWhatIsMissing) {
  const fs::path model = root() / "models/org/tiny";
  fs::remove(model / "model.safetensors");
  put_text(model / "model-1.safetensors", "one");
  put_text(model / "model-2.safetensors", "two");
  put_text(model / "model.safetensors.index.json",
           R"({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})");
  resolve("org/tiny", environment());
  EXPECT_EQ(fetched("model-2.safetensors"), "two");
  const std::size_t before = requests("GET").size();
  fs::remove(repository() / "snapshots" / kDownloadCommit / "model-1.safetensors");
  fs::remove(repository() / "blobs" / hash_of("one"));
  resolve("org/tiny", environment());
  EXPECT_EQ(fetched("model-1.safetensors"), "one");
  EXPECT_EQ(requests("GET").size(), before + 1);

  put_text(model / "model.safetensors.index.json",
           R"({"weight_map": {"a": "../../../x.safetensors"}})");
  fs::remove_all(hub());
  EXPECT_THAT(error_of([&] { resolve("org/tiny", environment()); }),
              HasSubstr("'\"../../../x.safetensors\"'; expected a path in the repository"));
}

TEST_F(DownloadTest, WeightsForTorchWhenThereIsNothingElse) {
  fs::rename(root() / "models/org/tiny/model.safetensors",
             root() / "models/org/tiny/pytorch_model.bin");
  resolve("org/tiny", environment());
  EXPECT_TRUE(fetched("pytorch_model.bin") == bytes_of_length(300'000));
}

TEST_F(DownloadTest, ADataSetComesWithTheFilesOfItsConfiguration) {
  static constexpr std::array<std::string_view, 2> kExtensions = {".json", ".parquet"};
  const fs::path remote = root() / "datasets/rajpurkar/squad";
  put_text(remote / "README.md", "squad");
  put_text(remote / "plain_text/train-00000-of-00002.parquet", "train 0");
  put_text(remote / "plain_text/train-00001-of-00002.parquet", "train 1");
  put_text(remote / "plain_text/validation-00000-of-00001.parquet", "validation");
  const auto resolve_squad = [&](const std::optional<std::string>& config) {
    return resolve_dataset({"rajpurkar/squad", config, {}, kExtensions}, environment(), watcher_);
  };
  // One file that cannot be had: nothing looks like a data set afterwards.
  put_faults({{{"path", "validation"}, {"status", 403}}});
  EXPECT_THAT(error_of([&] { resolve_squad({}); }), AllOf(HasSubstr("forbids 'rajpurkar/squad'"),
                                                          HasSubstr("nor is it in the cache of")));
  EXPECT_FALSE(fs::exists(repository("datasets--rajpurkar--squad") / "snapshots" / kDownloadCommit /
                          "plain_text"));
  put_faults(json::array());
  EXPECT_THAT(error_of([&] { resolve_squad("other"); }),
              HasSubstr("has the configurations plain_text; choose one"));

  const DatasetFiles files = resolve_squad({});
  ASSERT_EQ(files.train.size(), 2u);
  EXPECT_EQ(read_file(files.train[1]), "train 1");
  EXPECT_EQ(read_file(files.validation.at(0)), "validation");
  EXPECT_EQ(files.directory, repository("datasets--rajpurkar--squad") / "snapshots" /
                                 kDownloadCommit / "plain_text");
  // The card, which may name files.
  EXPECT_EQ(read_file(files.directory.parent_path() / "README.md"), "squad");
  const std::size_t asked = requests().size();
  EXPECT_EQ(resolve_squad("plain_text").train, files.train);
  EXPECT_EQ(requests().size(), asked);
}

TEST_F(DownloadTest, TheCardOfADataSetNamesItsFiles) {
  static constexpr std::array<std::string_view, 2> kExtensions = {".json", ".parquet"};
  const fs::path remote = root() / "datasets/ada/notes";
  put_text(remote / "README.md",
           "---\nconfigs:\n- config_name: new\n  data_files:\n    train: x/*.json\n    validation: "
           "held.json\n---\n");
  put_text(remote / "x/b.json", "b");
  put_text(remote / "x/a.json", "a");
  put_text(remote / "held.json", "held");
  put_text(remote / "train.json", "of an older version");
  const auto resolve_notes = [&] {
    return resolve_dataset({"ada/notes", {}, {}, kExtensions}, environment(), watcher_);
  };
  const DatasetFiles files = resolve_notes();
  ASSERT_EQ(files.train.size(), 2u);
  EXPECT_EQ(read_file(files.train[0]), "a");
  EXPECT_EQ(read_file(files.validation.at(0)), "held");
  const std::size_t asked = requests().size();
  EXPECT_EQ(resolve_notes().train, files.train);  // from the cache
  EXPECT_EQ(requests().size(), asked);
}

TEST_F(DownloadTest, ADroppedConnectionIsContinued) {
  put_faults({{{"path", "/lfs/"}, {"drop", 100'000}, {"times", 2}}});
  EXPECT_TRUE(fetch("model.safetensors", quick()));
  EXPECT_TRUE(fetched("model.safetensors") == bytes_of_length(300'000));
  std::vector<json> ranges;
  for (const json& row : requests("GET")) ranges.push_back(row.at("range"));
  EXPECT_THAT(ranges, ::testing::ElementsAre(json(), json("bytes=100000-"), json("bytes=200000-")));
  EXPECT_EQ(watcher_.notes.size(), 2u);
  EXPECT_EQ(watcher_.last, 300'000u);
}

TEST_F(DownloadTest, WhatAnEarlierRunLeftIsContinued) {
  const std::string bytes = bytes_of_length(300'000);
  const std::string etag = hash_of(bytes);
  put_text(repository() / "blobs" / (etag + ".incomplete"), bytes.substr(0, 123'456));
  EXPECT_TRUE(fetch("model.safetensors", quick()));
  EXPECT_TRUE(fetched("model.safetensors") == bytes);
  EXPECT_EQ(requests("GET").at(0).at("range"), "bytes=123456-");
  EXPECT_THAT(watcher_.events, Contains("begin model.safetensors 300000 123456"));
}

TEST_F(DownloadTest, AServerWithoutRangesBeginsAnew) {
  put_faults({{{"path", "/lfs/"}, {"drop", 100'000}, {"times", 1}},
              {{"path", "/lfs/"}, {"no_range", true}}});
  EXPECT_TRUE(fetch("model.safetensors", quick()));
  EXPECT_TRUE(fetched("model.safetensors") == bytes_of_length(300'000));
}

TEST_F(DownloadTest, WrongBytesAreNeverKept) {
  put_faults({{{"path", "/lfs/"}, {"corrupt", true}, {"times", 1}}});
  EXPECT_TRUE(fetch("model.safetensors", quick()));  // the second time they are right
  EXPECT_TRUE(fetched("model.safetensors") == bytes_of_length(300'000));
  fs::remove_all(hub());
  put_faults({{{"corrupt", true}, {"method", "GET"}}});
  for (const char* file : {"model.safetensors", "config.json"}) {
    EXPECT_THAT(error_of([&] { fetch(file, quick()); }),
                AllOf(HasSubstr("the bytes that came have the hash"), HasSubstr("expected")));
    EXPECT_FALSE(fs::exists(repository() / "snapshots" / kDownloadCommit / file));
  }
  EXPECT_TRUE(fs::is_empty(repository() / "blobs"));
}

// The earlier part is wrong: the hash shows it, and the file is downloaded again.
TEST_F(DownloadTest, AWrongBeginningIsThrownAway) {
  const std::string bytes = bytes_of_length(300'000);
  const std::string etag = hash_of(bytes);
  put_text(repository() / "blobs" / (etag + ".incomplete"), std::string(1000, 'x'));
  EXPECT_TRUE(fetch("model.safetensors", quick()));
  EXPECT_TRUE(fetched("model.safetensors") == bytes);
}

// With and without the size of a file from the Hub.
TEST_F(DownloadTest, NoMoreThanMayBeKept) {
  HubSettings settings = quick();
  settings.max_download_bytes = 250'000;
  EXPECT_THAT(error_of([&] { fetch("model.safetensors", settings); }),
              HasSubstr("takes 300000 bytes, but of org/tiny only 250000 more may be downloaded"));
  EXPECT_TRUE(requests("GET").empty());
  put_faults({{{"no_size", true}}});
  EXPECT_THAT(error_of([&] { fetch("model.safetensors", settings); }),
              HasSubstr("it is larger than the 250000 bytes that may be kept"));
  EXPECT_TRUE(fs::is_empty(repository() / "blobs"));
  settings.max_download_bytes = 300'000;
  EXPECT_TRUE(fetch("model.safetensors", settings));
}

TEST_F(DownloadTest, MoreOrLessThanPromised) {
  put_faults({{{"path", "/lfs/"}, {"excess", true}}});
  EXPECT_THAT(error_of([&] { fetch("model.safetensors", quick()); }),
              HasSubstr("it sent more than the 300000 bytes it had promised"));
  EXPECT_TRUE(fs::is_empty(repository() / "blobs"));
  put_faults({{{"path", "/lfs/"}, {"drop", 1000}}});
  EXPECT_THAT(
      error_of([&] { fetch("model.safetensors", quick()); }),
      AllOf(HasSubstr("of 300000 bytes are kept and will be continued"), HasSubstr("try again")));
}

TEST_F(DownloadTest, NamesThatDoNotExist) {
  EXPECT_THAT(error_of([&] { resolve("org/tini", environment()); }),
              AllOf(HasSubstr("has no model 'org/tini'"), HasSubstr("check the spelling"),
                    HasSubstr("set HF_TOKEN or pass --token")));
  EXPECT_THAT(error_of([&] {
                resolve("org/tini", environment({{"HF_TOKEN", "t"}}));
              }),
              AllOf(HasSubstr("has no model 'org/tini'"), HasSubstr("your token may read it")));
  EXPECT_THAT(error_of([&] { resolve("org/tiny", environment(), "v9"); }),
              HasSubstr("'org/tiny' has no revision 'v9'; it has main, v2"));
  fs::remove(root() / "models/org/tiny/model.safetensors");
  EXPECT_THAT(
      error_of([&] { resolve("org/tiny", environment()); }),
      AllOf(HasSubstr("has no weights that tandem reads"),
            HasSubstr("/org/tiny/resolve/" + kDownloadCommit + "/model.safetensors does not exist"),
            HasSubstr("it holds config.json, tokenizer.json")));
  fs::remove(root() / "models/org/tiny/config.json");
  fs::remove_all(hub());
  EXPECT_THAT(error_of([&] { resolve("org/tiny", environment()); }), HasSubstr("no config.json"));
}

TEST_F(DownloadTest, GatedForbiddenAndWrongTokens) {
  put_text(root() / "models/org/tiny/.gated", "");
  EXPECT_THAT(error_of([&] { resolve("org/tiny", environment()); }),
              AllOf(HasSubstr("is gated: accept its conditions at " + endpoint_ + "/org/tiny"),
                    HasSubstr("set HF_TOKEN")));
  EXPECT_THAT(error_of([&] {
                resolve("org/tiny", environment({{"HF_TOKEN", "bad-token"}}));
              }),
              AllOf(HasSubstr("is gated"), HasSubstr("a token of that account"),
                    Not(HasSubstr("bad-token"))));
  resolve("org/tiny", environment({{"HF_TOKEN", "good"}}));
  fs::remove_all(hub());
  put_faults({{{"status", 401}}});
  EXPECT_THAT(error_of([&] {
                resolve("org/tiny", environment({{"HF_TOKEN", "good"}}));
              }),
              HasSubstr("does not accept the token"));
  put_faults({{{"status", 403}}});
  EXPECT_THAT(error_of([&] { resolve("org/tiny", environment()); }),
              HasSubstr("forbids 'org/tiny' (HTTP status 403)"));
}

TEST_F(DownloadTest, RetryAfterIsHonoured) {
  put_faults({{{"path", "config.json"},
               {"status", 429},
               {"headers", {{"Retry-After", "1"}}},
               {"times", 1}},
              {{"path", "config.json"}, {"status", 503}, {"times", 1}}});
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(fetch("config.json", quick()));
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(1000));
  ASSERT_EQ(watcher_.notes.size(), 2u);
  EXPECT_THAT(watcher_.notes[0], AllOf(HasSubstr("HTTP status 429"), HasSubstr("in 1 s")));
  put_faults({{{"status", 429}, {"headers", {{"Retry-After", "4000"}}}}});
  EXPECT_THAT(error_of([&] { fetch("vocab.txt", quick()); }), HasSubstr("asks to wait 4000 s"));
  put_faults({{{"status", 500}}});
  EXPECT_THAT(error_of([&] { fetch("vocab.txt", quick()); }),
              HasSubstr("HTTP status 500, after 3 attempts"));
}

TEST_F(DownloadTest, ASlowDripIsGivenUp) {
  put_faults({{{"path", "/lfs/"}, {"drip", 0.2}}});
  HubSettings settings = quick();
  settings.retries = 1;
  EXPECT_THAT(error_of([&] { fetch("model.safetensors", settings); }),
              AllOf(HasSubstr("1024 bytes/sec"), HasSubstr("are kept and will be continued")));
  put_faults(json::array());
  EXPECT_TRUE(fetch("model.safetensors", settings));
  EXPECT_TRUE(fetched("model.safetensors") == bytes_of_length(300'000));
}

// The server stands in for a proxy: it gets requests for hosts that do not exist.
TEST_F(DownloadTest, ProxiesAndHostsWithoutProxy) {
  const std::map<std::string, std::string, std::less<>> variables = {
      {"HF_ENDPOINT", "http://hub.invalid"}, {"http_proxy", endpoint_}, {"HF_TOKEN", "t"}};
  resolve("org/tiny", environment(variables));
  int of_the_hub = 0;
  for (const json& row : requests()) {
    const bool hub = row.at("host") == "hub.invalid";
    of_the_hub += hub ? 1 : 0;
    EXPECT_EQ(row.at("authorization"), hub ? json("Bearer t") : json()) << row;
    EXPECT_THAT(row.at("path").get<std::string>(), ::testing::StartsWith("http://"));
  }
  EXPECT_GT(of_the_hub, 5);
  fs::remove_all(hub());
  HubSettings direct = quick();
  direct.http.proxy_for_http = endpoint_;
  direct.http.no_proxy = "127.0.0.1,localhost";
  EXPECT_TRUE(fetch("config.json", direct));
  EXPECT_THAT(requests().back().at("path").get<std::string>(), ::testing::StartsWith("/"));
}

TEST_F(DownloadTest, NoServer) {
  server_->stop();
  EXPECT_THAT(error_of([&] { fetch("config.json", quick()); }),
              AllOf(HasSubstr(endpoint_ + "/org/tiny/resolve/main/config.json"),
                    HasSubstr("after 3 attempts"), HasSubstr("pass a directory")));
}

TEST_F(DownloadTest, WrongCertificatesAreNotRetried) {
  HubSettings settings = quick();
  settings.endpoint = "https" + endpoint_.substr(endpoint_.find(':'));
  settings.http.ca_bundle = (folder_ / "missing.pem").string();
  settings.first_backoff = std::chrono::minutes(1);  // a retry would time the test out
  EXPECT_THAT(error_of([&] { fetch("config.json", settings); }),
              AllOf(HasSubstr(settings.http.ca_bundle), HasSubstr("SSL_CERT_FILE"),
                    HasSubstr("pass a directory")));
}

TEST_F(DownloadTest, AServerThatIsNoHub) {
  put_faults({{{"no_commit", true}}});
  EXPECT_THAT(error_of([&] { fetch("config.json", quick()); }),
              AllOf(HasSubstr("answered with no commit"), HasSubstr("HF_ENDPOINT")));
  put_faults({{{"no_etag", true}}});
  EXPECT_THAT(error_of([&] { fetch("config.json", quick()); }), HasSubstr("no ETag"));
}

TEST_F(DownloadTest, OfflineNothingIsAsked) {
  for (const char* name : {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}) {
    EXPECT_THAT(error_of([&] {
                  resolve("org/tiny", environment({{name, "1"}}));
                }),
                AllOf(HasSubstr(std::string(name) + " is set: nothing was asked of " + endpoint_),
                      HasSubstr("the model 'org/tiny' was not found"),
                      HasSubstr(repository().string() + ": no such folder")));
  }
  EXPECT_THAT(requests(), IsEmpty());
  resolve("org/tiny", environment());
  const std::size_t asked = requests().size();
  EXPECT_EQ(resolve("org/tiny", environment({{"HF_HUB_OFFLINE", "1"}})).model.commit,
            kDownloadCommit);
  EXPECT_EQ(requests().size(), asked);
}

// Ranks of a node: all get the same files, and each file comes once.
TEST_F(DownloadTest, ProcessesAtOnceDownloadOnce) {
  put_faults({{{"path", "config.json"}, {"drip", 0.005}}});  // long enough that all are there
  const auto variables = environment();
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      bool same = false;
      try {
        same = resolve("org/tiny", variables).model.commit == kDownloadCommit &&
               fetched("model.safetensors") == bytes_of_length(300'000);
      } catch (const std::exception&) {
      }
      ::_exit(same ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  std::map<std::string, int> times;
  for (const json& row : requests())
    ++times[row.at("method").get<std::string>() + " " + row.at("path").get<std::string>()];
  for (const auto& [request, count] : times) EXPECT_EQ(count, 1) << request;
}

// Another program, such as huggingface_hub, holds the lock of a blob and shows no life.
TEST_F(DownloadTest, AHolderWithoutProgressIsNamed) {
  const std::string etag = hash_of(bytes_of_length(300'000));
  const FileLock held(hub() / ".locks/models--org--tiny" / (etag + ".lock"), {});
  HubSettings settings = quick();
  settings.lock_timeout = milliseconds(300);
  EXPECT_THAT(error_of([&] { fetch("model.safetensors", settings); }),
              AllOf(HasSubstr(etag + ".lock"), HasSubstr(fmt::format("process {}", ::getpid()))));
  EXPECT_EQ(watcher_.waits, 1);
}

}  // namespace
}  // namespace tandem::hub
