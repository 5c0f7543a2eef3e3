#include "tandem/tasks/question_answering/question_answering_task.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/data/read_questions.h"
#include "tandem/models/pretrained/pretrained.h"
#include "tandem/models/test_models.h"

namespace tandem::question_answering {
namespace {

namespace fs = std::filesystem;
using tandem::testing::TemporaryFolder;

fs::path demo(const char* name) { return fs::path(TANDEM_SOURCE_DIR) / "examples" / "demo" / name; }

FeatureSet features_of(const text::Tokenizer& tokenizer, const data::QuestionSet& questions,
                       Padding padding) {
  ThreadPool threads(1);
  return build_features(
      tokenizer, questions.examples(),
      {.max_seq_length = 64, .doc_stride = 16, .labels = false, .padding = padding}, threads);
}

TEST(ByLength, LongestFirstEqualOnesInOrder) {
  const text::Tokenizer tokenizer = text::Tokenizer::load(demo("model"));
  const auto questions = data::read_questions(demo("held_out.json"), {});
  const FeatureSet features = features_of(tokenizer, questions, Padding::kNone);
  const std::vector<std::uint32_t> order = tasks::by_length(features);
  ASSERT_EQ(order.size(), features.size());
  std::size_t equal = 0;
  for (std::size_t i = 1; i < order.size(); ++i) {
    const std::size_t before = features.num_real_tokens(order[i - 1]);
    const std::size_t here = features.num_real_tokens(order[i]);
    ASSERT_GE(before, here);
    if (before != here) continue;
    ASSERT_LT(order[i - 1], order[i]);
    ++equal;
  }
  EXPECT_GT(equal, 0u);
}

// The files that an evaluation of the demo's questions writes, with batches of this size.
struct Written {
  std::string predictions, n_best;
  friend bool operator==(const Written&, const Written&) = default;
};

Written evaluate(Padding padding, std::size_t batch_size, std::size_t train_batch_size = 0) {
  const text::Tokenizer tokenizer = text::Tokenizer::load(demo("model"));
  models::testing::TestContext context;
  QuestionAnsweringTask task(models::ModelConfig::load(demo("model")), tokenizer,
                             {.padding = padding, .eval_batch_size = batch_size});
  auto questions = data::read_questions(demo("held_out.json"), {});
  FeatureSet features = features_of(tokenizer, questions, padding);
  task.set_evaluation(tasks::Split::kEval, {std::move(questions), std::move(features)});
  std::vector<float> weights(task.layout().size());
  models::load_pretrained(demo("model"), task.model().config(), task.layout(), weights);
  if (train_batch_size > 0) {
    const auto more = data::read_questions(demo("train.json"), {});
    task.set_train_features(features_of(tokenizer, more, padding));
    task.plan_training(train_batch_size);
  }

  std::vector<float> output;
  const std::size_t num_features = task.num_features(tasks::Split::kEval);
  for (std::size_t begin = 0; begin < num_features; begin += batch_size) {
    task.predict(context, {.f32 = weights, .bf16 = {}}, tasks::Split::kEval, begin,
                 std::min(begin + batch_size, num_features), output);
  }
  const TemporaryFolder folder;
  ThreadPool threads(1);
  task.evaluate(tasks::Split::kEval, output, folder.path(), "eval", threads);
  return {read_file(folder / "eval_predictions.json"),
          read_file(folder / "eval_nbest_predictions.json")};
}

// Padded batches hold what those of Hugging Face's sequential sampler hold: a batch of the next
// features of the file is as long as its longest.
TEST(QuestionAnsweringTask, PaddedBatchesAreThoseOfASequentialSampler) {
  const text::Tokenizer tokenizer = text::Tokenizer::load(demo("model"));
  for (const Padding padding : {Padding::kLongestOfBatch, Padding::kMaxSeqLength}) {
    constexpr std::size_t kBatch = 8;
    models::testing::TestContext context;
    QuestionAnsweringTask task(models::ModelConfig::load(demo("model")), tokenizer,
                               {.padding = padding, .eval_batch_size = kBatch});
    auto questions = data::read_questions(demo("held_out.json"), {});
    const FeatureSet features = features_of(tokenizer, questions, padding);
    FeatureSet same = features_of(tokenizer, questions, padding);
    task.set_evaluation(tasks::Split::kEval, {std::move(questions), std::move(same)});
    std::vector<float> weights(task.layout().size());
    for (std::size_t begin = 0; begin + kBatch <= features.size(); begin += kBatch) {
      std::vector<std::uint32_t> indices(kBatch);
      std::iota(indices.begin(), indices.end(), static_cast<std::uint32_t>(begin));
      std::vector<float> output;
      task.predict(context, {.f32 = weights, .bf16 = {}}, tasks::Split::kEval, begin,
                   begin + kBatch, output);
      ASSERT_EQ(output.size(), 2 * tasks::batch_rows(features, indices, padding))
          << "batch at " << begin;
      ASSERT_EQ(output.size(), task.output_size(tasks::Split::kEval, begin, begin + kBatch));
    }
  }
}

// Without padding features are computed by length, in batches of any size: the answers, their
// scores included, are those of the features one by one.
TEST(QuestionAnsweringTask, AnswersDoNotDependOnTheBatches) {
  for (const Padding padding : {Padding::kNone, Padding::kMaxSeqLength}) {
    const Written one_by_one = evaluate(padding, 1);
    EXPECT_GT(one_by_one.n_best.size(), 1000u);
    EXPECT_EQ(evaluate(padding, 8), one_by_one);
    EXPECT_EQ(evaluate(padding, 3), one_by_one);
  }
}

// Between two steps an evaluation takes the memory of training, and more only if it needs more.
TEST(QuestionAnsweringTask, EvaluatesInTheMemoryOfTraining) {
  const Written alone = evaluate(Padding::kNone, 8);
  EXPECT_EQ(evaluate(Padding::kNone, 8, /*train_batch_size=*/8), alone);
  EXPECT_EQ(evaluate(Padding::kNone, 8, /*train_batch_size=*/1), alone);

  const text::Tokenizer tokenizer = text::Tokenizer::load(demo("model"));
  QuestionAnsweringTask task(models::ModelConfig::load(demo("model")), tokenizer,
                             {.eval_batch_size = 32});
  auto questions = data::read_questions(demo("held_out.json"), {});
  FeatureSet features = features_of(tokenizer, questions, Padding::kNone);
  task.set_train_features(features_of(tokenizer, questions, Padding::kNone));
  task.set_evaluation(tasks::Split::kEval, {std::move(questions), std::move(features)});
  const std::size_t evaluation = task.plan_evaluation();
  EXPECT_GT(evaluation, 0u);
  EXPECT_GT(task.plan_training(32), evaluation);
  EXPECT_EQ(task.plan_evaluation(), 0u);
  const std::size_t training = task.plan_training(1);
  EXPECT_LT(training, evaluation);
  EXPECT_EQ(task.plan_evaluation(), evaluation - training);
}

// Questions that the metrics cannot score are refused with the data, not after the training.
TEST(QuestionAnsweringTask, QuestionsWithoutAnAnswerAreRefusedAtOnce) {
  const TemporaryFolder folder;
  const auto set = [&](const std::string& answers) {
    write_file(folder / "q.json",
               R"({"data": [{"id": "a", "question": "Who?", "context": "Tom sat.", "answers": )" +
                   answers + R"(}, {"id": "b", "question": "Why?", "context": "Tom sat.",
                   "answers": {"text": [], "answer_start": []}}]})");
    return data::read_questions(folder / "q.json", {});
  };
  const std::string tom = R"({"text": ["Tom"], "answer_start": [0]})";
  const std::string unanswered = R"({"text": [], "answer_start": []})";
  const auto error_of = [&](tasks::Split split, const std::string& answers, bool version_2,
                            std::size_t max_samples = FeatureOptions::kAll) -> std::string {
    const text::Tokenizer tokenizer = text::Tokenizer::load(demo("model"));
    ThreadPool threads(1);
    data::QuestionSet questions = set(answers);
    FeatureSet features = build_features(tokenizer, questions.examples(),
                                         {.labels = false, .max_samples = max_samples}, threads);
    QuestionAnsweringTask task(models::ModelConfig::load(demo("model")), tokenizer, {},
                               {.version_2_with_negative = version_2});
    try {
      task.set_evaluation(split, {std::move(questions), std::move(features)});
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  };
  constexpr tasks::Split kEval = tasks::Split::kEval, kPredict = tasks::Split::kPredict;
  const std::string error = error_of(kEval, tom, false);
  EXPECT_NE(error.find("question 'b' has no answer to compare with"), std::string::npos) << error;
  EXPECT_EQ(error_of(kPredict, tom, false), error);
  EXPECT_EQ(error_of(kPredict, unanswered, false), "") << "without answers nothing is scored";
  EXPECT_EQ(error_of(kEval, tom, true), "");
  EXPECT_EQ(error_of(kEval, tom, false, 1), "") << "question 'b' is not used";
}

// --max_eval_samples counts questions, then features: the windows of the first question take the
// second one's place, whose answer is then "", right without a look.
TEST(QuestionAnsweringTask, NotesHowACutEvaluationOfVersion2IsFlattered) {
  const auto warnings_of = [](std::size_t max_samples) {
    const TemporaryFolder folder;
    const std::string answered = R"(, "answers": {"text": ["Tom"], "answer_start": [0]}})";
    const std::string unanswered = R"(, "answers": {"text": [], "answer_start": []}})";
    std::string context = "Tom sat.";
    for (int i = 0; i < 40; ++i) context += " The sails of the Calgull are red.";
    write_file(folder / "q.json", R"({"data": [{"id": "a", "question": "Who?", "context": ")" +
                                      context + '"' + answered +
                                      R"(, {"id": "b", "question": "Why?", "context": "Tom sat.")" +
                                      unanswered + "]}");
    const text::Tokenizer tokenizer = text::Tokenizer::load(demo("model"));
    models::testing::TestContext context_of_kernels;
    ThreadPool threads(1);
    QuestionAnsweringTask task(models::ModelConfig::load(demo("model")), tokenizer, {},
                               {.version_2_with_negative = true});
    auto questions = data::read_questions(folder / "q.json", {});
    FeatureSet features = build_features(
        tokenizer, questions.examples(),
        {.max_seq_length = 64, .doc_stride = 16, .labels = false, .max_samples = max_samples},
        threads);
    task.set_evaluation(tasks::Split::kEval, {std::move(questions), std::move(features)});
    std::vector<float> weights(task.layout().size()), output;
    const std::size_t num_features = task.num_features(tasks::Split::kEval);
    for (std::size_t i = 0; i < num_features; ++i) {
      task.predict(context_of_kernels, {.f32 = weights, .bf16 = {}}, tasks::Split::kEval, i, i + 1,
                   output);
    }
    std::string text;
    for (const std::string& warning :
         task.evaluate(tasks::Split::kEval, output, {}, "eval", threads).warnings)
      text += warning + "\n";
    return text;
  };
  EXPECT_EQ(warnings_of(FeatureOptions::kAll), "");
  const std::string cut = warnings_of(2);
  EXPECT_NE(cut.find("the score is flattered: 1 of 2 questions count as right"), std::string::npos)
      << cut;
  EXPECT_NE(cut.find("which is 50.00 of exact and f1"), std::string::npos) << cut;
}

}  // namespace
}  // namespace tandem::question_answering
