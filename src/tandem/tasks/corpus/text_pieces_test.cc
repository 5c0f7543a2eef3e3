// Tests of pieces: joined and by line as the official script has them, the same for any number of
// threads, on the heap and in a file.
#include "tandem/tasks/corpus/text_pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/tasks/corpus/piece_builder.h"

namespace tandem::corpus {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<std::uint32_t>;

TextPieces make(const std::vector<fs::path>& files, const text::Tokenizer& tokenizer,
                const PieceOptions& options, int num_threads = 2, RowRange range = {}) {
  ThreadPool threads(num_threads);
  TextRows rows(files, {}, options.blocks ? LineBreaks::kKept : LineBreaks::kLeftOut);
  PieceStore store(tokenizer, options, nullptr);
  add_rows(rows, range, tokenizer, options, threads, store);
  return store.finish();
}

void expect_equal(const TextPieces& found, const TextPieces& expected) {
  ASSERT_EQ(found.size(), expected.size());
  EXPECT_EQ(found.max_seq_length(), expected.max_seq_length());
  EXPECT_EQ(found.num_tokens(), expected.num_tokens());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const TextPiece a = found.piece(i), b = expected.piece(i);
    ASSERT_EQ(a.ids, b.ids) << i;
    ASSERT_EQ(a.special, b.special) << i;
    ASSERT_EQ(a.word_begins, b.word_begins) << i;
  }
}

class TextPieceGoldens : public testing::SharedDataTest {
 protected:
  fs::path next() const { return testing::shared_data() / "golden/next"; }
  text::Tokenizer tokenizer() const { return text::Tokenizer::load(next() / "models/tiny-bert"); }
};

TEST_F(TextPieceGoldens, PiecesOfTheOfficialScript) {
  const json groups = json::parse(read_file(next() / "mlm/groups.json"));
  const text::Tokenizer tokens = tokenizer();
  for (const bool by_line : {false, true}) {
    const json& golden = groups.at(by_line ? "line_by_line" : "joined");
    const TextPieces pieces =
        make({next() / "data/text.txt"}, tokens,
             {.max_seq_length = groups.at("max_seq_length"), .line_by_line = by_line});
    ASSERT_EQ(pieces.size(), golden.at("count").get<std::size_t>());
    EXPECT_EQ(pieces.num_tokens(), golden.at("total_tokens").get<std::size_t>());
    EXPECT_EQ(pieces.counts().rows, groups.at("lines").get<std::size_t>());
    EXPECT_EQ(pieces.counts().blank_rows, by_line ? 10u : 0u);
    const auto ids = golden.at("input_ids").get<std::vector<Ids>>();  // six, and the last two
    for (std::size_t i = 0; i < ids.size(); ++i)
      EXPECT_EQ(pieces.piece(i < 6 ? i : pieces.size() + i - ids.size()).ids, ids[i]) << i;
    const auto special =
        golden.at("special_tokens_mask").get<std::vector<std::vector<std::uint8_t>>>();
    for (std::size_t i = 0; i < special.size(); ++i)
      EXPECT_EQ(pieces.piece(i).special, special[i]) << i;
  }
}

// The trajectories name every piece.
TEST_F(TextPieceGoldens, EveryPieceOfTheTrajectories) {
  const text::Tokenizer tokens = tokenizer();
  for (const bool by_line : {false, true}) {
    const json run = json::parse(read_file(
        next() / (by_line ? "mlm/trajectory_line_by_line.json" : "mlm/trajectory_joined.json")));
    const auto original = run.at("original").get<std::vector<Ids>>();
    const TextPieces pieces =
        make({next() / "data/text.txt"}, tokens, {.max_seq_length = 32, .line_by_line = by_line});
    ASSERT_EQ(pieces.size(), original.size());
    for (std::size_t i = 0; i < original.size(); ++i) EXPECT_EQ(pieces.piece(i).ids, original[i]);
  }
}

TEST_F(TextPieceGoldens, BlocksOfTheOfficialScript) {
  const fs::path path = next() / "decoders/blocks.json";
  if (!fs::exists(path)) GTEST_SKIP() << "needs goldens, which are absent: " << path;
  const json golden = json::parse(read_file(path));
  for (const auto& [name, tokens] : {std::pair("llama", "smollm2"), std::pair("qwen3", "qwen3")}) {
    const auto tokenizer = text::Tokenizer::load(next() / "tokenizers" / tokens);
    const TextPieces blocks = make({next() / "data/text.txt"}, tokenizer,
                                   {.max_seq_length = golden.at("block_size"), .blocks = true});
    EXPECT_EQ(blocks.size(), golden.at(name).at("count").get<std::size_t>()) << name;
    const auto ids = golden.at(name).at("input_ids").get<std::vector<Ids>>();
    for (std::size_t i = 0; i < ids.size(); ++i)  // four, and the last one
      EXPECT_EQ(blocks.piece(i < 4 ? i : blocks.size() - 1).ids, ids[i]) << i;
  }
}

// The trajectories name every block.
TEST_F(TextPieceGoldens, EveryBlockOfTheTrajectories) {
  for (const auto& [name, tokens] :
       {std::pair("llama", "smollm2"), std::pair("qwen3", "qwen3"), std::pair("gpt2", "smollm2")}) {
    const fs::path path = next() / "decoders" / fmt::format("trajectory_{}.json", name);
    if (!fs::exists(path)) GTEST_SKIP() << "needs goldens, which are absent: " << path;
    const json golden = json::parse(read_file(path));
    const auto ids = golden.at("blocks").get<std::vector<Ids>>();
    const TextPieces blocks =
        make({next() / "data/text.txt"}, text::Tokenizer::load(next() / "tokenizers" / tokens),
             {.max_seq_length = golden.at("block_size"), .blocks = true});
    ASSERT_LE(ids.size(), blocks.size());
    for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(blocks.piece(i).ids, ids[i]) << i;
  }
}

class TextPiecesTest : public ::testing::Test {
 protected:
  TextPiecesTest() : tokenizer_(text::Tokenizer::load(model())) {}

  static fs::path model() { return fs::path(TANDEM_SOURCE_DIR) / "examples/demo/model"; }

  fs::path file(const std::string& text, const std::string& name = "a.txt") {
    write_file(folder_ / name, text);
    return folder_ / name;
  }
  // Rows of 0 to 40 words.
  static std::string text(int rows) {
    static constexpr const char* kWords[] = {"boat", "sails", "far", "unbelievable", "x", "the"};
    std::string all;
    for (int row = 0; row < rows; ++row) {
      for (int i = 0; i < row * 13 % 41; ++i) all += std::string(kWords[(row + i * i) % 6]) + ' ';
      all += '\n';
    }
    return all;
  }

  testing::TemporaryFolder folder_;
  text::Tokenizer tokenizer_;
};

TEST_F(TextPiecesTest, TheSameForAnyNumberOfThreads) {
  const fs::path path = file(text(3500));
  for (const PieceOptions& options :
       {PieceOptions{.max_seq_length = 24}, PieceOptions{.max_seq_length = 24, .blocks = true},
        PieceOptions{.max_seq_length = 24, .line_by_line = true}}) {
    const TextPieces expected = make({path}, tokenizer_, options, 1);
    for (const int threads : {2, 3, 7})
      expect_equal(make({path}, tokenizer_, options, threads), expected);
  }
}

// Joined rows end at 1,000: what is left is dropped, and the next thousand begins a piece. Where
// files and blocks end does not matter.
TEST_F(TextPiecesTest, AThousandRowsAreJoined) {
  const std::string whole = text(2300);
  const PieceOptions options{.max_seq_length = 50, .line_by_line = false};
  const TextPieces pieces = make({file(whole)}, tokenizer_, options);
  std::size_t count = 0, dropped = 0;
  for (const RowRange range : {RowRange{0, 1000}, RowRange{1000, 2000}, RowRange{2000, 2300}}) {
    const TextPieces part = make({folder_ / "a.txt"}, tokenizer_, options, 2, range);
    EXPECT_EQ(part.counts().rows, range.end - range.begin);
    for (std::size_t i = 0; i < part.size(); ++i)
      EXPECT_EQ(part.piece(i).ids, pieces.piece(count + i).ids);
    count += part.size();
    dropped += part.counts().dropped_tokens;
  }
  EXPECT_EQ(pieces.size(), count);
  EXPECT_EQ(pieces.counts().dropped_tokens, dropped);
  EXPECT_GT(dropped, 0u);

  std::size_t cut = 0;
  for (int line = 0; line < 777; ++line) cut = whole.find('\n', cut) + 1;
  expect_equal(make({file(whole.substr(0, cut), "b.txt"), file(whole.substr(cut), "c.txt")},
                    tokenizer_, options),
               pieces);
}

// run_clm.py refuses joined rows that make no block.
TEST_F(TextPiecesTest, JoinedRowsMakeABlock) {
  const auto error_of = [&](const std::string& content, std::size_t size) {
    try {
      make({file(content)}, tokenizer_,
           {.max_seq_length = size, .blocks = true, .part = "validation"});
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  // A row is ".", with a special token on each side.
  std::string rows;
  for (int i = 0; i < 1000; ++i) rows += ".\n";
  EXPECT_EQ(error_of(rows, 3000), "");
  EXPECT_EQ(error_of(rows + ".\n", 3), "");
  EXPECT_EQ(error_of(rows + ".\n.\n", 7),
            "the validation part: found 6 tokens in its rows 1001 to 1002, which are joined, "
            "expected at least a block of --block_size 7; pass a --block_size of at most 6, or "
            "more text behind these rows");
  EXPECT_THAT(error_of(rows, 3001), HasSubstr("found 3000 tokens in its rows 1 to 1000"));
}

TEST_F(TextPiecesTest, ARowLongerThanAPiece) {
  std::string row;
  for (int i = 0; i < 1000; ++i) row += ". ";  // a token each
  const fs::path path = file(".\n" + row + "\n.\n");
  const TextPieces joined = make({path}, tokenizer_, {.max_seq_length = 7});
  EXPECT_EQ(joined.num_tokens() + joined.counts().dropped_tokens, 1000u + 2u + 3u * 2u);
  EXPECT_EQ(joined.num_tokens() % 7, 0u);
  const TextPieces by_line = make({path}, tokenizer_, {.max_seq_length = 7, .line_by_line = true});
  EXPECT_EQ(by_line.size(), 3u);
  EXPECT_EQ(by_line.piece(1).ids.size(), 7u);
  EXPECT_THAT(by_line.piece(1).special, ElementsAre(1, 0, 0, 0, 0, 0, 1));
  EXPECT_EQ(by_line.counts().cut_rows, 1u);
  EXPECT_EQ(by_line.counts().dropped_tokens, 995u);
}

// A row is blank if Python's isspace() is true; other rows without a token are rows.
TEST_F(TextPiecesTest, BlankRowsOfLineByLine) {
  const fs::path path = file("a\n\n \t\n\xc2\xa0\xe3\x80\x80\n\x1c\n\xe2\x80\x8b\nb\n");
  const TextPieces pieces = make({path}, tokenizer_, {.max_seq_length = 16, .line_by_line = true});
  EXPECT_EQ(pieces.counts().rows, 7u);
  EXPECT_EQ(pieces.counts().blank_rows, 4u);
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces.num_real_tokens(1), 2u);  // U+200B, which BERT drops
}

TEST_F(TextPiecesTest, WordsBeginAtTokensThatContinueNone) {
  const TextPieces pieces = make({file("unbelievable boat, sails\n")}, tokenizer_,
                                 {.max_seq_length = 64, .line_by_line = true});
  const TextPiece piece = pieces.piece(0);
  std::size_t words = 0;
  for (std::size_t i = 0; i < piece.ids.size(); ++i) {
    const std::string_view token = tokenizer_.token(static_cast<std::int32_t>(piece.ids[i]));
    EXPECT_EQ(piece.word_begins[i] == 0, token.starts_with("##")) << token;
    words += piece.word_begins[i];
  }
  EXPECT_EQ(words, 4u + 2u);
}

// Byte-level BPE and Unigram mark the beginnings of words instead.
TEST_F(TextPieceGoldens, WordsOfOtherTokenizers) {
  for (const char* name : {"modernbert", "mpnet"}) {
    if (!fs::exists(next() / "tokenizers" / name)) continue;
    const auto tokens = text::Tokenizer::load(next() / "tokenizers" / name);
    testing::TemporaryFolder folder;
    write_file(folder / "a.txt", "unbelievable boats sail, far away\n");
    const TextPieces pieces =
        make({folder / "a.txt"}, tokens, {.max_seq_length = 64, .line_by_line = true});
    const TextPiece piece = pieces.piece(0);
    std::size_t words = 0;
    for (std::size_t i = 1; i + 1 < piece.ids.size(); ++i) words += piece.word_begins[i];
    EXPECT_EQ(words, 6u) << name;
    EXPECT_GT(piece.ids.size(), 8u) << name;
  }
}

TEST_F(TextPiecesTest, RowsThatAreNotUtf8AreNamed) {
  const fs::path path = file("a\nb\n" + std::string(200, 'x') + "\xff\n");
  try {
    make({path}, tokenizer_, {.max_seq_length = 16});
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("a.txt', line 3: text is not UTF-8 at byte 200"));
  }
}

TEST_F(TextPiecesTest, BytesOfZeroAreText) {
  const TextPieces pieces = make({file(std::string("abc\0d\n", 6))}, tokenizer_,
                                 {.max_seq_length = 16, .line_by_line = true});
  EXPECT_EQ(pieces.size(), 1u);
}

TEST_F(TextPiecesTest, PiecesNeedRoom) {
  EXPECT_THROW(PieceStore(tokenizer_, {.max_seq_length = 0}, nullptr), ConfigError);
  EXPECT_THROW(PieceStore(tokenizer_, {.max_seq_length = 2, .line_by_line = true}, nullptr),
               ConfigError);
  EXPECT_NO_THROW(PieceStore(tokenizer_, {.max_seq_length = 1}, nullptr));
}

TEST_F(TextPiecesTest, TheFirstPieces) {
  const TextPieces pieces = make({file(text(100))}, tokenizer_, {.max_seq_length = 16});
  ASSERT_GT(pieces.size(), 5u);
  EXPECT_EQ(pieces.first(5).size(), 5u);
  EXPECT_EQ(pieces.first(5).num_tokens(), 5u * 16u);
  EXPECT_EQ(pieces.first(1'000'000).size(), pieces.size());
  EXPECT_EQ(pieces.first(0).size(), 0u);
  EXPECT_EQ(pieces.first(0).num_tokens(), 0u);
}

TEST_F(TextPiecesTest, WhatABatchGets) {
  const TextPieces pieces =
      make({file(".\n")}, tokenizer_, {.max_seq_length = 16, .line_by_line = true});
  std::vector<std::int32_t> ids{7}, types{1};
  pieces.append_tokens(0, ids, types);
  EXPECT_THAT(ids, ElementsAre(7, tokenizer_.sequence_template().cls_id, ids[2],
                               tokenizer_.sequence_template().sep_id));
  EXPECT_THAT(types, ElementsAre(1, 0, 0, 0));
  EXPECT_EQ(pieces.pad_token_id(), tokenizer_.sequence_template().pad_id);
}

}  // namespace
}  // namespace tandem::corpus
