// Tests of features and batches: goldens of Hugging Face, and the corner cases that real files
// lack.
#include "tandem/tasks/question_answering/features.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <numeric>

#include "support/golden_files.h"
#include "tandem/core/error.h"
#include "tandem/data/read_questions.h"
#include "tandem/tasks/question_answering/test_data.h"

namespace tandem::question_answering {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::letter_tokenizer;
using testing::make_questions;
using testing::Question;
using ::testing::SizeIs;
using Ints = std::vector<std::int32_t>;

std::uint64_t crc(const Ints& values) {  // the machine is little-endian, as the goldens are
  return crc32(0, reinterpret_cast<const Bytef*>(values.data()),
               static_cast<uInt>(values.size() * sizeof(std::int32_t)));
}

nn::PackedBatch one_batch(const FeatureSet& features, Padding padding) {
  std::vector<std::uint32_t> indices(features.size());
  std::iota(indices.begin(), indices.end(), 0u);
  nn::PackedBatch batch;
  tasks::fill_batch(features, indices, padding, 0, batch);
  return batch;
}

template <class T>
std::vector<T> rows_of(const std::vector<T>& values, const nn::PackedBatch& batch,
                       std::size_t sequence) {
  return {values.begin() + batch.row_begin[sequence],
          values.begin() + batch.row_begin[sequence + 1]};
}

// --- goldens ---

class FeaturesGolden : public tandem::testing::MiniLmTest {
 protected:
  FeatureSet build(const data::QuestionSet& set, bool labels, int threads = 2) {
    FeatureOptions options;
    options.labels = labels;
    options.padding = Padding::kMaxSeqLength;
    ThreadPool pool(threads);
    return build_features(text::Tokenizer::load(tandem::testing::minilm_dir()), set.examples(),
                          options, pool);
  }

  void expect_all(const std::string& golden, const std::string& squad, bool labels) {
    const auto rows =
        tandem::testing::read_gzip_json_lines(tandem::testing::shared_data() / "golden" / golden);
    const auto set = data::read_questions(tandem::testing::shared_data() / "squad" / squad);
    const FeatureSet features = build(set, labels);
    ASSERT_EQ(features.size(), rows.size() - 1);
    EXPECT_EQ(features.statistics().num_real_tokens, rows[0]["real_tokens"]);
    EXPECT_EQ(features.statistics().num_examples, rows[0]["examples"]);
    if (labels) {
      EXPECT_EQ(features.statistics().num_cls_labels, rows[0]["cls_labelled"]);
      EXPECT_EQ(features.statistics().num_last_token_labels, 0u);
    }
    nn::PackedBatch batch;
    for (std::uint32_t i = 0; i < features.size(); ++i) {
      const auto& row = rows[i + 1];
      tasks::fill_batch(features, std::array{i}, Padding::kMaxSeqLength, 0, batch);
      Ints mask(384, 0);
      std::fill_n(mask.begin(), batch.key_count[0], 1);
      ASSERT_EQ(features[i].example, row["example"]) << i;
      ASSERT_EQ(batch.key_count[0], row["n_real"]) << i;
      ASSERT_EQ(crc(batch.input_ids), row["ids"]) << i;
      ASSERT_EQ(crc(batch.token_type_ids), row["types"]) << i;
      ASSERT_EQ(crc(mask), row["mask"]) << i;
      if (labels) {
        ASSERT_EQ(features[i].start_position, row["start"]) << i;
        ASSERT_EQ(features[i].end_position, row["end"]) << i;
      } else {
        ASSERT_EQ(crc(flat_offsets(features, i)), row["offsets"]) << i;
      }
      if (row.contains("first_type1")) {
        ASSERT_EQ(features.first_context_token(i), row["first_type1"]) << i;
      }
    }
  }

  static Ints flat_offsets(const FeatureSet& features, std::size_t i) {
    Ints out(768, -1);
    std::size_t at = 2 * features.first_context_token(i);
    for (const text::Span& span : features.window_offsets(i)) {
      out[at++] = static_cast<std::int32_t>(span.begin);
      out[at++] = static_cast<std::int32_t>(span.end);
    }
    return out;
  }
};

TEST_F(FeaturesGolden, Train) {
  expect_all("train_features.jsonl.gz", "squad1-train-head.json", true);
}
TEST_F(FeaturesGolden, Eval) { expect_all("eval_features.jsonl.gz", "xquad.en.json", false); }

TEST_F(FeaturesGolden, Pairs) {
  const auto rows = tandem::testing::read_gzip_json_lines(tandem::testing::shared_data() /
                                                          "golden" / "pairs.jsonl.gz");
  ASSERT_EQ(rows.size(), 100u);
  const auto tokenizer = text::Tokenizer::load(tandem::testing::minilm_dir());
  ThreadPool pool(1);
  for (const auto& row : rows) {
    const auto set = make_questions({{"q", row["question"], row["context"], {}}});
    FeatureOptions options;
    options.max_seq_length = row["max_length"];
    options.doc_stride = row["stride"];
    options.labels = false;
    const FeatureSet features = build_features(tokenizer, set.examples(), options, pool);
    ASSERT_EQ(features.size(), row["windows"].size()) << row["question"];
    const nn::PackedBatch batch = one_batch(features, Padding::kNone);
    for (std::size_t w = 0; w < features.size(); ++w) {
      const auto& window = row["windows"][w];
      EXPECT_EQ(rows_of(batch.input_ids, batch, w), window["input_ids"].get<Ints>());
      EXPECT_EQ(features.first_context_token(w), window["first_type1"]);
      const auto offsets = window["offsets_real"].get<std::vector<std::array<std::uint32_t, 2>>>();
      for (std::size_t t = 0; t < features.window_offsets(w).size(); ++t) {
        const auto& expected = offsets[features.first_context_token(w) + t];
        EXPECT_EQ(features.window_offsets(w)[t], (text::Span{expected[0], expected[1]}));
      }
    }
  }
}

// Windows of other families: two separators between question and context, no token types.
class FamilyFeaturesGolden : public tandem::testing::SharedDataTest {
 protected:
  static void expect_features(const std::string& model) {
    const auto data = tandem::testing::shared_data();
    const auto folder = data / "golden" / "tasks";
    const auto rows =
        tandem::testing::read_gzip_json_lines(folder / ("features_" + model + "_qa.jsonl.gz"));
    const auto set = data::read_questions(data / "squad" / "squad1-train-head.json");
    ThreadPool pool(1);
    const FeatureSet features =
        build_features(text::Tokenizer::load(folder / "models" / ("tiny-" + model)), set.examples(),
                       {.max_seq_length = 64,
                        .doc_stride = 16,
                        .padding = Padding::kMaxSeqLength,
                        .max_samples = 64},
                       pool);
    ASSERT_EQ(features.size(), 64u);
    ASSERT_EQ(rows.size(), 65u);
    nn::PackedBatch batch;
    for (std::uint32_t i = 0; i < features.size(); ++i) {
      const auto& row = rows[i + 1];
      tasks::fill_batch(features, std::array{i}, Padding::kMaxSeqLength, 0, batch);
      EXPECT_EQ(crc(batch.input_ids), row["ids"]) << i;
      EXPECT_EQ(batch.key_count[0], row["n_real"]) << i;
      EXPECT_EQ(features[i].start_position, row["start"]) << i;
      EXPECT_EQ(features[i].end_position, row["end"]) << i;
      if (row.contains("types")) {
        EXPECT_EQ(crc(batch.token_type_ids), row["types"]) << i;
      }
    }
  }
};

TEST_F(FamilyFeaturesGolden, Roberta) { expect_features("roberta"); }
TEST_F(FamilyFeaturesGolden, XlmRoberta) { expect_features("xlmr"); }
TEST_F(FamilyFeaturesGolden, Electra) { expect_features("electra"); }

TEST_F(FeaturesGolden, SameForAnyNumberOfThreads) {
  const auto set = data::read_questions(tandem::testing::shared_data() / "squad" / "xquad.en.json");
  const FeatureSet one = build(set, true, 1), three = build(set, true, 3);
  ASSERT_EQ(one.size(), three.size());
  const nn::PackedBatch a = one_batch(one, Padding::kNone), b = one_batch(three, Padding::kNone);
  EXPECT_EQ(a.input_ids, b.input_ids);
  EXPECT_EQ(a.row_begin, b.row_begin);
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].start_position, three[i].start_position) << i;
    EXPECT_EQ(one[i].end_position, three[i].end_position) << i;
  }
}

// --- windows ---

FeatureSet letters(const std::vector<Question>& questions, const FeatureOptions& options,
                   int threads = 1) {
  ThreadPool pool(threads);
  return build_features(letter_tokenizer(), make_questions(questions).examples(), options, pool);
}

std::vector<std::pair<std::uint32_t, std::uint32_t>> windows(const FeatureSet& features) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> out;
  for (const Feature& f : features.features()) out.emplace_back(f.window_begin, f.window_size);
  return out;
}

TEST(Features, WindowsOverlapByTheStride) {
  FeatureOptions options;
  options.max_seq_length = 9;  // room for 5 tokens after a question of 1
  options.doc_stride = 2;
  options.labels = false;
  using Windows = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
  const auto cut = [&](const std::string& context) {
    return windows(letters({{"i", "q", context, {}}}, options));
  };
  EXPECT_EQ(cut("a b c d e"), (Windows{{0, 5}}));
  EXPECT_EQ(cut("a b c d e f"), (Windows{{0, 5}, {3, 3}}));
  EXPECT_EQ(cut("a b c d e f g h"), (Windows{{0, 5}, {3, 5}}));
  EXPECT_EQ(cut("a b c d e f g h i"), (Windows{{0, 5}, {3, 5}, {6, 3}}));
  EXPECT_EQ(cut(""), (Windows{{0, 0}})) << "evaluation keeps a question without context";
}

TEST(Features, MaxSamplesCountsExamplesThenFeatures) {
  FeatureOptions options;
  options.max_seq_length = 9;
  options.doc_stride = 2;
  options.labels = false;
  options.max_samples = 2;
  const FeatureSet features = letters(
      {{"1", "q", "a b c d e f g h i", {}}, {"2", "q", "a", {}}, {"3", "q", "a", {}}}, options);
  EXPECT_EQ(features.statistics().num_examples, 2u);
  ASSERT_EQ(features.size(), 2u);
  EXPECT_EQ(features[1].example, 0u) << "both features are the first example's";
}

// --- labels ---

FeatureOptions training(std::size_t max_seq_length, std::size_t stride, Padding padding) {
  FeatureOptions options;
  options.max_seq_length = max_seq_length;
  options.doc_stride = stride;
  options.padding = padding;
  return options;
}

std::pair<std::uint32_t, std::uint32_t> labels(const FeatureSet& features, std::size_t i = 0) {
  return {features[i].start_position, features[i].end_position};
}

using Labels = std::pair<std::uint32_t, std::uint32_t>;

TEST(Labels, AreTokenPositions) {
  // [CLS] q [SEP] a b c d [SEP]: the context starts at position 3
  const auto at = [](std::string_view text, std::int64_t start) {
    return labels(letters({{"i", "q", "a b c d", {{text, start}, {"a", 0}}}},
                          training(16, 2, Padding::kNone)));
  };
  EXPECT_EQ(at("a", 0), (Labels{3, 3}));
  EXPECT_EQ(at("b", 2), (Labels{4, 4}));
  EXPECT_EQ(at("a b c", 0), (Labels{3, 5}));
  EXPECT_EQ(at("b c d", 2), (Labels{4, 6}));
  EXPECT_EQ(at(" b", 1), (Labels{3, 4}))
      << "an answer that starts in a gap belongs to the token before";
  EXPECT_EQ(labels(letters({{"i", "q", "a b c d", {}}}, training(16, 2, Padding::kNone))),
            (Labels{0, 0}));
}

TEST(Labels, CodePointsNotBytes) {
  const FeatureSet features = letters({{"i", "q", "é \xf0\x9f\x98\x80 b cs.", {{"cs", 6}}}},
                                      training(16, 2, Padding::kNone));
  // [CLS] q [SEP] e [UNK] b c ##s . [SEP]
  EXPECT_EQ(labels(features), (Labels{6, 7}));
}

TEST(Labels, WindowsWithoutTheAnswerPointAtCls) {
  // room 4, step 2: windows abcd, cdef, efgh
  const FeatureSet features =
      letters({{"i", "q", "a b c d e f g h", {{"c d", 4}}}}, training(8, 2, Padding::kNone));
  ASSERT_EQ(features.size(), 3u);
  EXPECT_EQ(labels(features, 1), (Labels{3, 4}));
  EXPECT_EQ(labels(features, 2), (Labels{0, 0}));
  EXPECT_EQ(features.statistics().num_cls_labels, 1u);
}

// The answer "d" is the last token of the window: Hugging Face's start label is the end of the
// sequence.
TEST(Labels, AnswerInTheLastContextToken) {
  const std::vector<Question> questions = {{"i", "q", "a b c d", {{"d", 6}}}};
  FeatureOptions options = training(16, 2, Padding::kMaxSeqLength);
  EXPECT_EQ(labels(letters(questions, options)), (Labels{15, 6}));
  EXPECT_EQ(letters(questions, options).statistics().num_last_token_labels, 1u);
  options.padding = Padding::kNone;
  EXPECT_EQ(labels(letters(questions, options)), (Labels{7, 6})) << "the final [SEP]";
  options.padding = Padding::kLongestOfBatch;
  EXPECT_EQ(labels(letters(questions, options)), (Labels{7, 6}));
  options.fix_last_token_labels = true;
  for (const Padding padding : {Padding::kNone, Padding::kMaxSeqLength}) {
    options.padding = padding;
    EXPECT_EQ(labels(letters(questions, options)), (Labels{6, 6}));
    EXPECT_EQ(letters(questions, options).statistics().num_last_token_labels, 1u);
  }
}

// --- errors ---

std::string error_of(const std::vector<Question>& questions, const FeatureOptions& options) {
  try {
    letters(questions, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(FeatureErrors, NameTheQuestionAndTheNumbers) {
  FeatureOptions options = training(8, 2, Padding::kNone);
  const Question good = {"good", "q", "a b", {{"a", 0}}};
  EXPECT_THAT(error_of({good, {"long", "a b c d e", "a", {{"a", 0}}}}, options),
              AllOf(HasSubstr("question 'long': it has 5 tokens, which leaves no room"),
                    HasSubstr("max_seq_length 8")));
  EXPECT_THAT(error_of({{"i", "a b c", "a b c d", {{"a", 0}}}}, options),
              AllOf(HasSubstr("question 'i': doc_stride 2 is not smaller than the 2 tokens"),
                    HasSubstr("a question of 3 tokens")));
  EXPECT_THAT(error_of({{"i", "q", " \n", {{"", 1}}}}, options),
              HasSubstr("question 'i': its context is empty"));
  EXPECT_THAT(error_of({{"i", "q", "a", {{"", 0}}}}, options),
              HasSubstr("its answer is an empty text at position 0"));
  EXPECT_THAT(error_of({good, {"i", "q", "a\xff", {{"a", 0}}}}, options),
              HasSubstr("context of question 'i': text is not UTF-8 at byte 1"));
  EXPECT_THAT(error_of({good, {"i", "\xc3", "a", {{"a", 0}}}}, options),
              HasSubstr("question 'i': text is not UTF-8 at byte 0"));
  options.max_seq_length = 3;
  EXPECT_THAT(error_of({good}, options), HasSubstr("max_seq_length is 3, which leaves no room"));
}

TEST(FeatureErrors, UnusableExamplesCanBeSkipped) {
  FeatureOptions options = training(8, 2, Padding::kNone);
  options.skip_unusable = true;
  const FeatureSet features = letters({{"long", "a b c d e", "a", {{"a", 0}}},
                                       {"good", "q", "a b", {{"a", 0}}},
                                       {"empty", "q", "", {{"", 0}}}},
                                      options);
  ASSERT_THAT(features.features(), SizeIs(1));
  EXPECT_EQ(features[0].example, 1u);
  EXPECT_EQ(features.statistics().num_unusable, 2u);
}

TEST(Features, MaxSeqLengthIsClippedToTheModel) {
  ThreadPool pool(1);
  FeatureOptions options;
  options.labels = false;
  const auto set = make_questions({{"i", "q", "a b c d e f g h i j", {}}});
  options.doc_stride = 1;
  const FeatureSet features = build_features(letter_tokenizer(8), set.examples(), options, pool);
  EXPECT_EQ(features.max_seq_length(), 8u);
  EXPECT_THAT(
      features.statistics().warnings,
      ElementsAre(HasSubstr("max_seq_length (384) is larger than the longest sequence of the "
                            "model, 8 (model_max_length of the tokenizer)")));
  EXPECT_EQ(features.size(), 3u);

  options.max_positions = 7;  // the smaller of the two counts
  const FeatureSet shorter = build_features(letter_tokenizer(8), set.examples(), options, pool);
  EXPECT_EQ(shorter.max_seq_length(), 7u);
  EXPECT_THAT(shorter.statistics().warnings,
              ElementsAre(HasSubstr("7 (max_position_embeddings of its config.json): using 7")));
  for (std::size_t i = 0; i < shorter.size(); ++i) EXPECT_LE(shorter.num_real_tokens(i), 7u);
}

// --- batches ---

TEST(Batch, ThePaddingStates) {
  const FeatureSet features = letters({{"1", "  q", "a b", {{"b", 2}}}, {"2", "qs", "cs", {}}},
                                      training(8, 2, Padding::kNone));
  const nn::PackedBatch packed = one_batch(features, Padding::kNone);
  EXPECT_THAT(packed.input_ids, ElementsAre(2, 21, 3, 5, 6, 3, 2, 21, 31, 3, 7, 31, 3));
  EXPECT_THAT(packed.token_type_ids, ElementsAre(0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1));
  EXPECT_THAT(packed.row_begin, ElementsAre(0, 6, 13));
  EXPECT_THAT(packed.key_count, ElementsAre(6, 7));
  EXPECT_THAT(packed.sample, ElementsAre(0, 1));
  EXPECT_EQ(features[0].start_position, 5u);
  EXPECT_EQ(features[0].end_position, 4u);
  EXPECT_EQ(features[1].start_position, 0u);

  const nn::PackedBatch longest = one_batch(features, Padding::kLongestOfBatch);
  EXPECT_THAT(longest.row_begin, ElementsAre(0, 7, 14));
  EXPECT_THAT(rows_of(longest.input_ids, longest, 0), ElementsAre(2, 21, 3, 5, 6, 3, 0));
  EXPECT_THAT(rows_of(longest.token_type_ids, longest, 0), ElementsAre(0, 0, 0, 1, 1, 1, 0));
  EXPECT_THAT(longest.key_count, ElementsAre(6, 7));

  const nn::PackedBatch full = one_batch(features, Padding::kMaxSeqLength);
  EXPECT_THAT(full.row_begin, ElementsAre(0, 8, 16));
  EXPECT_THAT(rows_of(full.input_ids, full, 1), ElementsAre(2, 21, 31, 3, 7, 31, 3, 0));
}

TEST(Batch, OrderOfTheIndicesAndReuse) {
  const FeatureSet features =
      letters({{"1", "q", "a", {}}, {"2", "q", "b", {}}}, training(8, 2, Padding::kNone));
  nn::PackedBatch batch;
  tasks::fill_batch(features, std::array<std::uint32_t, 3>{1, 0, 1}, Padding::kNone, 0, batch);
  EXPECT_THAT(batch.input_ids, ElementsAre(2, 21, 3, 6, 3, 2, 21, 3, 5, 3, 2, 21, 3, 6, 3));
  tasks::fill_batch(features, std::array<std::uint32_t, 1>{0}, Padding::kNone, 0, batch);
  EXPECT_THAT(batch.input_ids, ElementsAre(2, 21, 3, 5, 3));
  EXPECT_THAT(batch.row_begin, ElementsAre(0, 5));
  tasks::fill_batch(features, {}, Padding::kLongestOfBatch, 0, batch);
  EXPECT_THAT(batch.input_ids, IsEmpty());
}

}  // namespace
}  // namespace tandem::question_answering
