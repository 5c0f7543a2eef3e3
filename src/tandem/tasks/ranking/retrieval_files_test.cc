// Files of a retrieval test: the forms of BEIR, what is left out, and what is refused.
#include "tandem/tasks/ranking/retrieval_files.h"

#include <gmock/gmock.h>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/tasks/ranking/corpus_reader.h"
#include "tandem/tasks/ranking/nano_beir.h"

namespace tandem::tasks::ranking {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kCorpus =
    "{\"_id\": \"d1\", \"title\": \"A\", \"text\": \"one\", \"metadata\": {}}\n"
    "{\"_id\": \"d2\", \"title\": \"\", \"text\": \"two\", \"metadata\": {}}\n"
    "{\"_id\": \"d10\", \"title\": \"\", \"text\": \"ten\", \"metadata\": {\"url\": \"x\"}}\n";
constexpr const char* kQueries =
    "{\"_id\": \"q1\", \"text\": \"first\"}\n{\"_id\": \"q2\", \"text\": \"second\"}\n";

class RetrievalFilesTest : public ::testing::Test {
 protected:
  std::filesystem::path file(const std::string& name, const std::string& text) const {
    write_file(folder_ / name, text);
    return folder_ / name;
  }
  RetrievalSet read(const std::string& qrels, const std::string& name = "test.tsv",
                    const std::string& corpus = kCorpus) const {
    return read_retrieval_set(
        {file("corpus.jsonl", corpus), file("queries.jsonl", kQueries), file(name, qrels)});
  }
  std::string error_of(const std::string& qrels, const std::string& name = "test.tsv",
                       const std::string& corpus = kCorpus) const {
    try {
      read(qrels, name, corpus);
    } catch (const DataError& error) {
      return error.what();
    }
    return "no error";
  }

  testing::TemporaryFolder folder_;
};

TEST_F(RetrievalFilesTest, TheFormsOfBeirAreOneSet) {
  const char* tsv = "query-id\tcorpus-id\tscore\nq1\td2\t1\nq1\td1\t2\nq2\td10\t1\nq2\td1\t0\n";
  const char* lines =
      "{\"query-id\": \"q1\", \"corpus-id\": \"d2\"}\n{\"query-id\": \"q2\", \"corpus-id\": "
      "\"d10\"}\n{\"query-id\": \"q1\", \"corpus-id\": \"d1\"}\n";
  const char* lists =
      "{\"query-id\": \"q1\", \"corpus-id\": [\"d2\", \"d1\"]}\n"
      "{\"query-id\": \"q2\", \"corpus-id\": [\"d10\", \"d10\"]}\n";
  for (const auto& set : {read(tsv), read(lines, "qrels.jsonl"), read(lists, "qrels.jsonl")}) {
    EXPECT_THAT(set.corpus.ids, ElementsAre("d1", "d2", "d10"));
    EXPECT_THAT(set.corpus.texts, ElementsAre("one", "two", "ten"));
    EXPECT_THAT(set.queries.texts, ElementsAre("first", "second"));
    ASSERT_EQ(set.relevant.size(), 2u);
    EXPECT_THAT(set.relevant[0].documents, ElementsAre(0, 1));
    EXPECT_THAT(set.relevant[1].documents, ElementsAre(2)) << "a score of 0 is not relevant";
    EXPECT_THAT(set.notes, IsEmpty());
  }
}

TEST_F(RetrievalFilesTest, IdsMayBeNumbers) {
  const RetrievalSet set = read_retrieval_set(
      {file("corpus.tsv", "_id\ttext\n7\tseven\n8\teight\n9\t\n"),
       file("queries.jsonl", "{\"_id\": 1, \"text\": \"which?\"}\n"),
       file("qrels.jsonl", "{\"query-id\": 1, \"corpus-id\": 8, \"score\": 1.0}\n")});
  EXPECT_THAT(set.corpus.ids, ElementsAre("7", "8"));
  EXPECT_THAT(set.relevant[0].documents, ElementsAre(1));
  ASSERT_EQ(set.notes.size(), 1u);
  EXPECT_THAT(set.notes[0], HasSubstr("1 rows with an empty text are left out"));
}

// As sentence-transformers: an unknown document stays in the denominator of recall.
TEST_F(RetrievalFilesTest, WhatIsLeftOutIsNoted) {
  const RetrievalSet set =
      read("query-id\tcorpus-id\tscore\nq2\td2\t1\nq2\tgone\t1\nq2\tgone\t1\nq9\td1\t1\n");
  EXPECT_THAT(set.queries.ids, ElementsAre("q2"));
  EXPECT_EQ(set.relevant[0].unknown, 1u);
  ASSERT_EQ(set.notes.size(), 3u);
  EXPECT_THAT(set.notes[0],
              AllOf(HasSubstr("1 judgements name a query that has no text and are left out"),
                    HasSubstr("the first is query 'q9' in "), HasSubstr("row 4 (line 5)")));
  EXPECT_THAT(set.notes[1],
              AllOf(HasSubstr("2 judgements name a document that the corpus lacks"),
                    HasSubstr("the first is document 'gone' in "), HasSubstr("row 2 (line 3)")));
  EXPECT_THAT(set.notes[2], HasSubstr("1 of 2 queries have no relevant document"));
  const std::vector<std::vector<Hit>> hits = {{{0.9f, 0}, {0.5f, 1}}};
  const auto judged = judged_hits(set, hits);
  EXPECT_EQ(judged[0].relevant_documents, 2u);
  EXPECT_THAT(judged[0].is_relevant, ElementsAre(false, true));
  EXPECT_EQ(retrieval_scores({}, judged).recall[1], 0.5);
}

TEST_F(RetrievalFilesTest, TiesGoToTheGreaterId) {
  const RetrievalSet set = read("query-id\tcorpus-id\nq1\td1\n");
  const BreakTie before = greater_id_first(set.corpus);
  EXPECT_TRUE(before(1, 2)) << "d2 before d10, as texts";
  EXPECT_FALSE(before(0, 1));
}

TEST_F(RetrievalFilesTest, ErrorsNameFileAndRow) {
  const std::string good = "query-id\tcorpus-id\nq1\td1\n";
  EXPECT_THAT(error_of("q1\t0\td1\t1\n"),
              AllOf(HasSubstr("test.tsv"), HasSubstr("expected query-id and corpus-id")))
      << "TREC's form without a header";
  EXPECT_THAT(error_of("query-id\tcorpus-id\nq1\t\n"), HasSubstr("'corpus-id' is null"));
  EXPECT_THAT(error_of("query-id\tcorpus-id\nq7\td1\n"), HasSubstr("no query of '"));
  EXPECT_THAT(error_of(good, "test.tsv", "{\"id\": \"d1\", \"text\": \"one\"}\n"),
              HasSubstr("found the columns id, text; expected _id and text"));
  EXPECT_THAT(
      error_of(good, "test.tsv", std::string(kCorpus) + "{\"_id\": \"d1\", \"text\": \"other\"}\n"),
      AllOf(HasSubstr("row 4"), HasSubstr("'d1' stands for another text than in"),
            HasSubstr("row 1")));
  EXPECT_THAT(
      error_of(good, "test.tsv", std::string(kCorpus) + "{\"_id\": \"d4\", \"text\": null}\n"),
      AllOf(HasSubstr("row 4"), HasSubstr("the text is null")));
  EXPECT_THAT(error_of(good, "test.tsv", "{\"_id\": 1.5, \"text\": \"one\"}\n"),
              HasSubstr("expected text or an integer"));
  EXPECT_THAT(
      read(good, "test.tsv", std::string(kCorpus) + "{\"_id\": \"d1\", \"text\": \"one\"}\n")
          .notes[0],
      HasSubstr("1 repeated rows are left out"));
}

TEST(NanoBeirFilesTest, SearchesComeInTheOrderOfThePackage) {
  const testing::TemporaryFolder folder;
  for (const char* part : {"corpus", "queries", "qrels"}) {
    std::filesystem::create_directories(folder / part);
    for (const char* name : {"NanoArguAna.tsv", "NanoNQ-00000-of-00001.parquet", "Ours.jsonl"})
      write_file(folder / part / name, "");
  }
  const auto names = [&](std::vector<std::string> asked) {
    std::vector<std::string> found;
    for (const NanoBeirFiles& one : find_nano_beir(folder.path(), asked)) found.push_back(one.name);
    return found;
  };
  EXPECT_THAT(names({}), ElementsAre("NanoNQ", "NanoArguAna", "Ours"));
  EXPECT_THAT(names({"arguana", "ours", "NanoNQ"}), ElementsAre("NanoArguAna", "Ours", "NanoNQ"));
  EXPECT_THROW(names({"msmarco"}), ConfigError);
  std::filesystem::remove(folder / "qrels" / "Ours.jsonl");
  EXPECT_THROW(names({}), DataError);
}

// Between ids and texts are columns of every kind that has no use as a text.
TEST(CorpusReader, StepsOverColumnsOfEveryKind) {
  const std::string path =
      TANDEM_SOURCE_DIR "/tests/parity/golden/datasets/arrow/other-columns.arrow";
  for (const std::size_t most : {2u, 7u, 100u}) {
    CorpusReader reader(path);
    std::vector<std::string> found;
    for (auto some = reader.next(most); !some.empty(); some = reader.next(most))
      for (const Document& one : some) found.push_back(one.id + ": " + one.text);
    EXPECT_THAT(found, ElementsAre("d0: text 0", "d1: text 1", "d2: text 2", "d3: text 3",
                                   "d4: text 4", "d5: text 5", "d6: text 6"));
    EXPECT_THAT(reader.next(most), IsEmpty());
  }
}

}  // namespace
}  // namespace tandem::tasks::ranking
