// Tests of whole corpora: which rows become which part, what the start block lists, and corpora
// that are larger than the memory of the process.
#include "tandem/tasks/corpus/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <set>
#include <thread>

#include "support/process.h"
#include "support/sanitizers.h"
#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/tasks/feature_cache.h"

namespace tandem::corpus {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class Log final : public tasks::StartLog {
 public:
  void fact(std::string_view topic, std::string_view text) override {
    lines.push_back(fmt::format("{}: {}", topic, text));
  }
  void detail(std::string_view topic, std::string_view text) override { fact(topic, text); }
  void warning(std::string_view text) override { fact("warning", text); }
  std::vector<std::string> lines;
};

fs::path model() { return fs::path(TANDEM_SOURCE_DIR) / "examples/demo/model"; }

using Files = std::vector<fs::path>;

hub::DatasetFiles parts(Files train, Files validation = {}) {
  hub::DatasetFiles files;
  files.train = std::move(train);
  files.validation = std::move(validation);
  return files;
}

class CorpusTest : public ::testing::Test {
 protected:
  CorpusTest() : tokenizer_(text::Tokenizer::load(model())) {}

  fs::path file(const std::string& name, const std::string& text) {
    write_file(folder_ / name, text);
    return folder_ / name;
  }

  Corpus read(const hub::DatasetFiles& files, CorpusOptions options = {},
              tasks::Stages stages = {.train = true, .eval = true}) {
    if (options.max_seq_length == 0) options.max_seq_length = 16;
    return read_corpus({.stages = stages,
                        .files = files,
                        .tokenizer_directory = model(),
                        .environment = environment_,
                        .threads = threads_,
                        .log = log_},
                       options, tokenizer_);
  }

  std::string error(const hub::DatasetFiles& files, const CorpusOptions& options = {}) {
    try {
      read(files, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  static std::string numbered(int rows) {
    std::string text;
    for (int i = 0; i < rows; ++i) text += "row " + std::to_string(i) + "\n";
    return text;
  }

  testing::TemporaryFolder folder_;
  text::Tokenizer tokenizer_;
  Environment environment_{{{"TANDEM_FEATURE_CACHE", (folder_ / "cache").string()}}};
  ThreadPool threads_{2};
  Log log_;
};

TEST_F(CorpusTest, TheFirstRowsValidate) {
  const hub::DatasetFiles files = parts({file("a.txt", numbered(100))});
  const CorpusOptions by_line{.line_by_line = true};
  const Corpus corpus = read(files, by_line);
  EXPECT_EQ(corpus.train.size(), 95u);
  EXPECT_EQ(corpus.validation.size(), 5u);
  const Corpus whole = read(parts(files.train, files.train), by_line);
  EXPECT_EQ(whole.train.size(), 100u);
  for (std::size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(i < 5 ? corpus.validation.piece(i).ids : corpus.train.piece(i - 5).ids,
              whole.train.piece(i).ids);
  }
  EXPECT_THAT(log_.lines, Contains("columns: texts are the lines of the files"));
  EXPECT_THAT(log_.lines, Contains(AllOf(StartsWith("train: "), HasSubstr("a.txt: 95 rows, 95 pie"
                                                                          "ces of up to 16"))));
}

// As in the script, the rows are split off though nothing is evaluated.
TEST_F(CorpusTest, TrainingAloneIsSplitToo) {
  const hub::DatasetFiles files = parts({file("a.txt", numbered(100))});
  const CorpusOptions half{.line_by_line = true, .validation_split_percentage = 50};
  EXPECT_EQ(read(files, half, {.train = true}).train.size(), 50u);
  EXPECT_EQ(read(files, half, {.train = true}).validation.size(), 0u);
  const Corpus evaluated = read(files, half, {.eval = true});
  EXPECT_EQ(evaluated.train.size(), 0u);
  EXPECT_EQ(evaluated.validation.size(), 50u);
}

TEST_F(CorpusTest, SamplesArePieces) {
  const hub::DatasetFiles files = parts({file("a.txt", numbered(1000))});
  const Corpus corpus = read(files, {.max_train_samples = 7, .max_eval_samples = 1'000'000});
  EXPECT_EQ(corpus.train.size(), 7u);
  EXPECT_GT(corpus.validation.size(), 7u);
}

TEST_F(CorpusTest, TheColumnIsThatOfTheTrainingPart) {
  const fs::path train = file("a.csv", "words,n\nx y,1\n");
  const CorpusOptions by_line{.line_by_line = true};
  read(parts({train}, {file("b.csv", "n,words\n2,z\n")}), by_line);
  EXPECT_THAT(log_.lines, Contains("columns: texts from \"words\""));
  EXPECT_THAT(error(parts({train}, {file("c.csv", "z\n2\n")}), by_line),
              HasSubstr("c.csv': found no column \"words\""));
}

TEST_F(CorpusTest, AllRowsInOnePart) {
  const fs::path text = file("a.txt", "one row of text\nand one more of them\n");
  const auto share = [&](std::uint32_t percent) {
    return error(parts({text}), {.max_seq_length = 4, .validation_split_percentage = percent});
  };
  EXPECT_THAT(share(0), HasSubstr("the validation part: found no piece of 4 tokens in 0 rows; "
                                  "pass --validation_file, or a larger "
                                  "--validation_split_percentage (found 0)"));
  EXPECT_THAT(share(100), AllOf(HasSubstr("the train part"), HasSubstr("a smaller --validation")));
}

TEST_F(CorpusTest, BlankRowsAreNoPiecesByLine) {
  const fs::path blank = file("a.txt", "\n \n");
  EXPECT_THAT(error(parts({blank}, {blank}), {.line_by_line = true}),
              HasSubstr("found no piece of up to 16 tokens in 2 rows; every row is blank"));
}

TEST_F(CorpusTest, NoPieceIsAnError) {
  const fs::path one = file("a.txt", "row\n");
  EXPECT_THAT(error(parts({one}, {one})),
              AllOf(HasSubstr("the train part: found no piece of 16 tokens in 1 rows"),
                    HasSubstr("--line_by_line")));
  EXPECT_THAT(error(parts({file("b.txt", numbered(9))}), {.line_by_line = true}),
              AllOf(HasSubstr("the validation part"), HasSubstr("validation_split_percentage")));
}

// dataset_info.json of the cache of `datasets` counts the rows.
TEST_F(CorpusTest, RowsThatAreMissingAreAnError) {
  const fs::path path = file("a.txt", numbered(100));
  hub::DatasetFiles files = parts({path}, {path});
  files.train_rows = 101;
  EXPECT_THAT(error(files, {.line_by_line = true}), HasSubstr("found 100 rows, expected 101"));
}

TEST_F(CorpusTest, MaxSeqLength) {
  constexpr std::size_t kUnlimited = text::Tokenizer::kUnlimited;
  EXPECT_EQ(choose_max_seq_length(std::nullopt, 512, log_), 512u);
  EXPECT_EQ(choose_max_seq_length(64, 512, log_), 64u);
  EXPECT_EQ(choose_max_seq_length(4096, kUnlimited, log_), 4096u);
  EXPECT_THAT(log_.lines, IsEmpty());
  EXPECT_EQ(choose_max_seq_length(std::nullopt, kUnlimited, log_), 1024u);
  EXPECT_EQ(choose_max_seq_length(std::nullopt, 8192, log_), 1024u);
  EXPECT_EQ(choose_max_seq_length(600, 512, log_), 512u);
  EXPECT_THAT(log_.lines, ElementsAre(HasSubstr("allows any length"), HasSubstr("8192 tokens"),
                                      HasSubstr("(600) is larger than")));
}

TEST_F(CorpusTest, BlockSize) {
  constexpr std::size_t kUnlimited = text::Tokenizer::kUnlimited;
  EXPECT_EQ(choose_block_size(std::nullopt, 512, 2048, log_), 512u);
  EXPECT_EQ(choose_block_size(64, 512, 2048, log_), 64u);
  EXPECT_EQ(choose_block_size(1500, kUnlimited, 2048, log_), 1500u);
  EXPECT_THAT(log_.lines, IsEmpty());
  EXPECT_EQ(choose_block_size(std::nullopt, kUnlimited, 8192, log_), 1024u);
  EXPECT_EQ(choose_block_size(std::nullopt, 4096, 64, log_), 64u);
  EXPECT_EQ(choose_block_size(600, 512, 2048, log_), 512u);
  EXPECT_THAT(log_.lines,
              ElementsAre(HasSubstr("allows any length, and the model 8192 tokens: using "
                                    "block_size 1024"),
                          HasSubstr("using block_size 64"), HasSubstr("(600) is larger than")));
  try {
    choose_block_size(600, kUnlimited, 512, log_);
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--block_size: found 600, expected at most 512"));
  }
}

TEST_F(CorpusTest, BlocksOfText) {
  const fs::path text = file("a.txt", numbered(100));
  const Corpus corpus = read(parts({text}, {text}), {.blocks = true});
  EXPECT_GT(corpus.train.size(), 10u);
  EXPECT_THAT(log_.lines, Contains(AllOf(StartsWith("train: "), HasSubstr("100 rows, "),
                                         HasSubstr(" blocks of 16 tokens"))));
  EXPECT_THAT(error(parts({file("b.txt", "row\n")}, {text}), {.blocks = true}),
              HasSubstr("the train part: found 5 tokens in its rows 1 to 1"));
  EXPECT_THAT(error(parts({text}), {.blocks = true, .validation_split_percentage = 0}),
              HasSubstr("the validation part: found no block of 16 tokens in 0 rows"));
}

TEST_F(CorpusTest, DataThatAStageNeeds) {
  using Name = std::optional<std::string> tasks::DataSource::*;
  using Names = std::vector<std::pair<Name, const char*>>;
  const auto refused = [](const Names& names, const tasks::Stages& stages) {
    tasks::DataSource source;
    for (const auto& [name, value] : names) source.*name = value;
    try {
      check_corpus_source(source, stages, "--do_eval");
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  constexpr Name kTrain = &tasks::DataSource::train_file;
  constexpr Name kValidation = &tasks::DataSource::validation_file;
  const tasks::Stages both{.train = true, .eval = true}, eval{.eval = true};
  EXPECT_EQ(refused({{kTrain, "a.txt"}}, both), "");
  EXPECT_EQ(refused({{kTrain, "a.txt"}}, eval), "");
  EXPECT_EQ(refused({{kValidation, "a.txt"}}, eval), "");
  EXPECT_EQ(refused({{&tasks::DataSource::dataset_name, "x"}}, both), "");
  EXPECT_THAT(refused({}, both), HasSubstr("no data"));
  EXPECT_THAT(refused({{kValidation, "a.txt"}}, both), HasSubstr("--train_file"));
  EXPECT_THAT(refused({{&tasks::DataSource::test_file, "a.txt"}}, eval),
              HasSubstr("--validation_file"));
  EXPECT_THAT(refused({{kTrain, "a.docx"}}, both), HasSubstr(".txt, .csv"));
}

// --- large corpora ---

// `bytes` of lines of ordinary length.
fs::path large_text(const fs::path& path, std::size_t bytes) {
  static constexpr const char* kWords[] = {"the ",  "boat ",    "sails ", "far ",
                                           "from ", "harbour ", "and ",   "returns "};
  AtomicFile file(path);
  std::string block;
  std::uint32_t state = 1;
  for (std::size_t written = 0; written < bytes; written += block.size()) {
    block.clear();
    while (block.size() < 1 << 16) {
      state = state * 1664525 + 1013904223;
      block += kWords[state >> 29];
      if (state >> 20 == 0 || (state >> 16) % 23 == 0) block += '\n';
    }
    file.write(block);
  }
  file.commit();
  return path;
}

class LargeCorpusTest : public ::testing::Test {
 protected:
  struct Result {
    std::string pieces, digest;
    testing::ProcessResult process;
  };
  Result probe(const fs::path& text, const std::string& cache, const char* form, int data_mebibytes,
               int file_mebibytes = 0, int threads = 2) const {
    Result result;
    result.process =
        testing::run(command(text, cache, form, data_mebibytes, file_mebibytes, threads),
                     {{"TMPDIR", folder_.path().string()}}, std::chrono::seconds(300));
    const std::string& out = result.process.out;
    result.pieces = out.substr(0, out.find(' '));
    if (const std::size_t at = out.find(' '); at != out.npos)
      result.digest = out.substr(at + 1, out.find(' ', at + 1) - at - 1);
    return result;
  }
  static std::vector<std::string> command(const fs::path& text, const std::string& cache,
                                          const char* form, int data_mebibytes, int file_mebibytes,
                                          int threads) {
    return {TANDEM_CORPUS_PROBE,
            text.string(),
            model().string(),
            cache,
            std::to_string(threads),
            form,
            std::to_string(data_mebibytes),
            std::to_string(file_mebibytes)};
  }
  std::string cache() const { return (folder_ / "cache").string(); }
  std::set<std::string> names(std::string_view folder) const {
    std::set<std::string> all;
    for (const fs::path& path : list_directory(folder_ / folder))
      all.insert(path.extension().string());
    return all;
  }

  testing::TemporaryFolder folder_;
};

// The tokens of this corpus take more memory than the process may have.
TEST_F(LargeCorpusTest, IsReadInLittleMemory) {
  if (testing::kSanitized) GTEST_SKIP() << "sanitizers reserve memory of their own";
  constexpr int kMebibytes = 56;
  const fs::path text = large_text(folder_ / "a.txt", std::size_t{64} << 20);
  EXPECT_EQ(probe(text, cache(), "heap", kMebibytes).process.exit_code, 3)
      << "the limit lets everything be kept in memory";
  const Result first = probe(text, cache(), "joined", kMebibytes);
  ASSERT_EQ(first.process.exit_code, 0) << first.process.err;
  EXPECT_GT(std::stoi(first.pieces), 50'000);
  EXPECT_EQ(names("cache"), (std::set<std::string>{"", ".features"}));

  const Result again = probe(text, cache(), "joined", kMebibytes);
  EXPECT_THAT(again.process.err, HasSubstr("features come from"));
  const Result without = probe(text, "off", "joined", kMebibytes, 0, 3);
  const Result heap = probe(text, cache(), "heap", 0);
  for (const Result& other : {again, without, heap}) {
    EXPECT_EQ(other.process.exit_code, 0) << other.process.err;
    EXPECT_EQ(other.pieces, first.pieces);
    EXPECT_EQ(other.digest, first.digest);
  }
  for (const char* form : {"lines", "blocks"})
    EXPECT_EQ(probe(text, cache(), form, kMebibytes).process.exit_code, 0) << form;
}

TEST_F(LargeCorpusTest, AFullDiskIsAnError) {
  const fs::path text = large_text(folder_ / "a.txt", std::size_t{8} << 20);
  fs::create_directory(folder_ / "cache");
  for (const std::string& where : {cache(), std::string("off")}) {
    const Result full = probe(text, where, "joined", 0, 2);
    EXPECT_EQ(full.process.exit_code, 1);
    EXPECT_THAT(full.process.err, AllOf(HasSubstr("cannot write"), HasSubstr("File too large"),
                                        HasSubstr("set TANDEM_FEATURE_CACHE")));
  }
  EXPECT_THAT(names("cache"), ElementsAre(""));  // .writers
  EXPECT_THAT(names(""), ElementsAre("", ".txt"));
}

// A rank that is killed while it writes leaves nothing that another would read, and the next one
// removes what is left.
TEST_F(LargeCorpusTest, AKilledWriter) {
  const fs::path text = large_text(folder_ / "a.txt", std::size_t{24} << 20);
  {
    testing::Process killed(command(text, cache(), "joined", 0, 0, 1));
    while (killed.running() && !fs::exists(folder_ / "cache")) std::this_thread::yield();
    while (killed.running()) {
      const auto files = list_directory(folder_ / "cache");
      const bool writes = std::any_of(files.begin(), files.end(), [](const fs::path& path) {
        std::error_code error;
        return path.string().find(".tmp-") != std::string::npos && fs::file_size(path, error) > 0;
      });
      if (writes) break;
    }
    killed.signal(SIGKILL);
    killed.wait();
  }
  const Result next = probe(text, cache(), "joined", 0);
  ASSERT_EQ(next.process.exit_code, 0) << next.process.err;
  EXPECT_THAT(next.process.err, HasSubstr("features are kept in"));
  for (const fs::path& path : list_directory(folder_ / "cache"))
    EXPECT_EQ(path.string().find(".tmp-"), std::string::npos) << path;
}

// The ranks of a node: one makes the file, and all read it.
TEST_F(LargeCorpusTest, OneRankWrites) {
  const fs::path text = large_text(folder_ / "a.txt", std::size_t{12} << 20);
  std::vector<std::unique_ptr<testing::Process>> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back(std::make_unique<testing::Process>(command(text, cache(), "joined", 0, 0, 1)));
  }
  int wrote = 0;
  std::set<std::string> pieces;
  for (const auto& rank : ranks) {
    const testing::ProcessResult result = rank->wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    wrote += result.err.find("features are kept in") != std::string::npos ? 1 : 0;
    pieces.insert(result.out.substr(0, result.out.find(' ', result.out.find(' ') + 1)));
  }
  EXPECT_EQ(wrote, 1);
  EXPECT_EQ(pieces.size(), 1u);
}

}  // namespace
}  // namespace tandem::corpus
