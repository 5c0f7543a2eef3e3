// A training step allocates nothing once it has run: no malloc, no operator new, no mmap. This
// program replaces the allocator's entry points by counting ones, so it holds no other test.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>

#include "tandem/data/epoch_order.h"
#include "tandem/data/read_questions.h"
#include "tandem/models/pretrained/pretrained.h"
#include "tandem/tasks/question_answering/question_answering_task.h"
#include "tandem/trainer/train_step.h"

namespace {

// Allocations of the whole program while `counting`, including the step's worker threads.
std::atomic<bool> counting{false};
std::atomic<std::size_t> allocations{0};

void count() {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1);
}

}  // namespace

// operator new of libstdc++ calls malloc.
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* pointer, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);

void* malloc(std::size_t size) {
  count();
  return __libc_malloc(size);
}
void* calloc(std::size_t number, std::size_t size) {
  count();
  return __libc_calloc(number, size);
}
void* realloc(void* pointer, std::size_t size) {
  count();
  return __libc_realloc(pointer, size);
}
void* memalign(std::size_t alignment, std::size_t size) {
  count();
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) { return memalign(alignment, size); }
int posix_memalign(void** pointer, std::size_t alignment, std::size_t size) {
  *pointer = memalign(alignment, size);
  return *pointer == nullptr ? ENOMEM : 0;
}
void* mmap(void* address, std::size_t size, int protection, int flags, int file, off_t offset) {
  count();
  return reinterpret_cast<void*>(
      ::syscall(SYS_mmap, address, size, protection, flags, file, offset));
}
}

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;
using question_answering::Padding;
using question_answering::QuestionAnsweringTask;

struct Case {
  const char* name;
  bool bf16;
  Padding padding;
  bool gradient_checkpointing;
  int logical_shards;
  const char* kernels;
  optim::OptimizerName optimizer = optim::OptimizerName::kAdamwTorch;
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

class StepAllocations : public ::testing::TestWithParam<Case> {};

// Steps of the demo's job, called as the trainer calls them, with evaluations in between. The first
// two warm up; later ones have longer batches than these, shorter ones, and the incomplete one of
// the epoch's end.
TEST_P(StepAllocations, AreNone) {
  const Case& param = GetParam();
  const fs::path demo = fs::path(TANDEM_SOURCE_DIR) / "examples" / "demo";
  ThreadPool threads(2);
  const auto kernels = kernels::select_kernels(kernels::CpuFeatures::detect(), param.kernels);
  kernels::Scratch scratch(2);
  const kernels::Context context{threads, kernels, scratch};
  const text::Tokenizer tokenizer = text::Tokenizer::load(demo / "model");
  const data::QuestionSet questions = data::read_questions(demo / "train.json", {});
  QuestionAnsweringTask task(
      models::ModelConfig::load(demo / "model"), tokenizer,
      {.padding = param.padding,
       .precision = param.bf16 ? nn::Precision::kBfloat16 : nn::Precision::kFloat32,
       .gradient_checkpointing = param.gradient_checkpointing});
  task.set_train_features(question_answering::build_features(
      tokenizer, questions.examples(),
      {.max_seq_length = 128, .doc_stride = 32, .padding = param.padding, .max_samples = 79},
      threads));
  const auto optimizer = optim::make_optimizer({.name = param.optimizer}, task.layout());
  dist::ModelState model(state_options(task.layout(), param.bf16 ? task.layout().bf16_size() : 0,
                                       *optimizer, param.logical_shards, context));
  const auto communicator = comm::Communicator::create(rendezvous::Identity{}, {});
  dist::GradientEngine gradients(*communicator, context, model,
                                 {.logical_shards = param.logical_shards});
  models::load_pretrained(demo / "model", task.model().config(), task.layout(), model.weights(),
                          {});
  data::QuestionSet held_out = data::read_questions(demo / "held_out.json", {});
  auto evaluated = question_answering::build_features(tokenizer, held_out.examples(),
                                                      {.max_seq_length = 128,
                                                       .doc_stride = 32,
                                                       .labels = false,
                                                       .padding = param.padding,
                                                       .max_samples = 16},
                                                      threads);
  task.set_evaluation(tasks::Split::kEval, {std::move(held_out), std::move(evaluated)});
  constexpr std::size_t kBatch = 4;
  task.plan_training(kBatch);
  TrainingPlan plan;
  plan.logical_shards = param.logical_shards;
  plan.per_device_batch_size = kBatch;
  const StepContext step_context{.kernels = context,
                                 .task = task,
                                 .model = model,
                                 .gradients = gradients,
                                 .optimizer = *optimizer,
                                 .plan = plan};
  const data::EpochBatches order(data::epoch_permutation(task.num_train_features(), 42, 0), kBatch,
                                 static_cast<std::size_t>(param.logical_shards));
  constexpr std::size_t kAccumulated = 2;
  constexpr std::size_t kWarmUp = 2;
  const std::size_t steps = order.size() / kAccumulated;
  ASSERT_GE(steps, 5u);

  StepResult result;
  const std::size_t scratch_bytes = scratch.bytes();
  for (std::size_t step = 0; step < steps; ++step) {
    allocations = 0;
    counting = step >= kWarmUp;
    result = train_step(step_context, order, step * kAccumulated, kAccumulated,
                        static_cast<std::int64_t>(step), 1e-4, std::move(result));
    counting = false;
    EXPECT_EQ(allocations, 0u) << "step " << step;
    EXPECT_GT(result.grad_norm, 0) << "step " << step;
    std::vector<float> logits;
    task.predict(context, {model.weights(), model.bf16_weights()}, tasks::Split::kEval, 0, 8,
                 logits);
  }
  EXPECT_EQ(scratch.bytes(), scratch_bytes);
}

INSTANTIATE_TEST_SUITE_P(
    Steps, StepAllocations,
    ::testing::Values(
        Case{"f32", false, Padding::kNone, false, 1, ""},
        Case{"sgd", false, Padding::kNone, false, 1, "", optim::OptimizerName::kSgd},
        Case{"adagrad", true, Padding::kNone, false, 1, "", optim::OptimizerName::kAdagrad},
        Case{"adafactor", true, Padding::kNone, false, 1, "", optim::OptimizerName::kAdafactor},
        Case{"bf16", true, Padding::kNone, false, 1, ""},
        Case{"f32_padded", false, Padding::kMaxSeqLength, false, 1, ""},
        Case{"bf16_longest", true, Padding::kLongestOfBatch, false, 1, ""},
        Case{"f32_checkpointed", false, Padding::kNone, true, 1, ""},
        Case{"bf16_checkpointed", true, Padding::kNone, true, 1, ""},
        Case{"bf16_two_shards", true, Padding::kNone, false, 2, ""},
        Case{"reference", true, Padding::kNone, false, 1, "reference"}),
    [](const auto& test) { return std::string(test.param.name); });

// The counters count.
TEST(StepAllocationsTest, CountersSeeEveryKind) {
  counting = true;
  allocations = 0;
  const auto one = std::make_unique<std::vector<int>>(1000);
  EXPECT_EQ(allocations, 2u);
  const Buffer mapped(1 << 20);
  EXPECT_EQ(allocations, 3u);
  counting = false;
}

}  // namespace
}  // namespace tandem::trainer
