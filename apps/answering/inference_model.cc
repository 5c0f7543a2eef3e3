#include "apps/answering/inference_model.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <utility>

#include "apps/command/download_progress.h"
#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/kernels/reduce.h"
#include "tandem/models/encoder/lora_config.h"
#include "tandem/models/heads/row_head.h"
#include "tandem/models/heads/sentence_files.h"
#include "tandem/models/heads/sequence_head.h"
#include "tandem/models/pretrained/adapter_files.h"
#include "tandem/models/pretrained/weight_files.h"
#include "tandem/quant/load_model.h"
#include "tandem/tasks/question_answering/span_head.h"

namespace tandem::apps {
namespace {

struct PurposeRow {
  Purpose purpose;
  std::string_view class_suffix;
  std::string_view name;
  std::string_view used_by;
  std::string_view trained_by;
};

constexpr PurposeRow kPurposes[] = {
    {Purpose::kQuestions, "ForQuestionAnswering", "question answering", "tandem ask",
     "tandem run_qa"},
    {Purpose::kTexts, "ForSequenceClassification", "text classification", "tandem predict",
     "tandem run_classification or run_glue"},
    {Purpose::kTokens, "ForTokenClassification", "token classification", "tandem predict",
     "tandem run_ner"},
    {Purpose::kEmbeddings, "", "sentence embeddings", "tandem embed", "sentence-transformers"},
    {Purpose::kGeneration, "", "text generation", "tandem generate", "tandem run_clm"}};

// PEFT's names of tasks.
constexpr std::pair<std::string_view, Purpose> kTaskTypes[] = {
    {"QUESTION_ANS", Purpose::kQuestions},
    {"SEQ_CLS", Purpose::kTexts},
    {"TOKEN_CLS", Purpose::kTokens}};

// Rows of activations, so that small batches seldom make them anew.
constexpr std::size_t kLeastRoom = 512;

const PurposeRow& row_of(Purpose purpose) { return kPurposes[static_cast<std::size_t>(purpose)]; }

models::MakeHead head_for(Purpose purpose, const models::ModelConfig& config) {
  if (purpose == Purpose::kQuestions) return question_answering::make_span_head;
  return std::bind_front(
      purpose == Purpose::kTexts ? models::make_sequence_head : models::make_token_head,
      label_names(config).size());
}

int thread_count(const Environment& environment) {
  const long asked = environment.get_int("OMP_NUM_THREADS", 0, 4096).value_or(0);
  return asked > 0 ? static_cast<int>(asked) : available_cores();
}

// The kernel clears pages when they are first touched, which takes longer than reading a model: all
// threads share it.
void touch(ThreadPool& threads, const Buffer& buffer) {
  constexpr std::size_t kPiece = std::size_t{2} << 20;
  threads.parallel_for(num_chunks(buffer.size(), kPiece), [&](std::size_t piece, int) {
    const std::size_t end = std::min(buffer.size(), (piece + 1) * kPiece);
    for (std::size_t at = piece * kPiece; at < end; at += 4096) buffer.data()[at] = {};
  });
}

// A weight that no file holds is drawn at random, and so would be the answers.
void require_trained(const models::LoadReport& report, Purpose purpose) {
  if (report.newly_initialized.empty()) return;
  raise<ConfigError>(
      "{}: found no {}, expected the weights of a model that was trained for {}; train one with {}",
      report.file.string(), report.newly_initialized.front(), name_of(purpose),
      row_of(purpose).trained_by);
}

hub::ModelLocation locate(const hub::ModelArguments& arguments, const Environment& environment,
                          bool sentence) {
  DownloadProgress downloads;
  return hub::resolve_model(arguments, environment, downloads, sentence);
}

text::TokenizerOptions tokenizer_options(const FoundModel& found, Purpose purpose) {
  const bool lower_case = purpose == Purpose::kEmbeddings &&
                          models::reads_lower_case(found.location.sentence_directory());
  return {.add_prefix_space = {}, .lower_case = lower_case};
}

}  // namespace

std::optional<Purpose> purpose_of(const FoundModel& found) {
  const std::filesystem::path& adapter = found.location.adapter;
  if (!adapter.empty() && found.location.config_directory != adapter) {
    const std::string task = models::LoraConfig::load(adapter).task_type;
    for (const auto& [name, purpose] : kTaskTypes)
      if (task == name) return purpose;
  }
  const auto json = nlohmann::json::parse(found.config.source);
  const auto classes = json.find("architectures");
  if (classes == json.end() || !classes->is_array()) return std::nullopt;
  for (const auto& name : *classes) {
    if (!name.is_string()) continue;
    for (const PurposeRow& row : kPurposes) {
      if (!row.class_suffix.empty() &&
          name.get_ref<const std::string&>().ends_with(row.class_suffix))
        return row.purpose;
    }
  }
  return std::nullopt;
}

std::string_view name_of(Purpose purpose) { return row_of(purpose).name; }

void refuse_other_purpose(const FoundModel& found, Purpose purpose) {
  raise<ConfigError>("{}: the model was trained for {}; use {}",
                     (found.location.config_directory / "config.json").string(), name_of(purpose),
                     row_of(purpose).used_by);
}

std::vector<std::string> label_names(const models::ModelConfig& config) {
  const std::vector<std::string>& labels = config.usable_labels();
  return labels.empty() ? std::vector<std::string>{"LABEL_0", "LABEL_1"} : labels;
}

FoundModel::FoundModel(const ModelOptions& options, const Environment& environment, bool sentence,
                       std::span<const models::Family* const> known)
    : location(locate(options.files, environment, sentence)),
      config(models::ModelConfig::load(location.config_directory, known)),
      precision(options.bf16 ? nn::Precision::kBfloat16 : nn::Precision::kFloat32) {}

bool FoundModel::is_decoder() const {
  return std::ranges::find(models::decoder_families(), config.family) !=
         models::decoder_families().end();
}

std::filesystem::path FoundModel::weights() const {
  return location.adapter.empty() ? models::find_weights(location.model.directory)
                                  : models::find_adapter_weights(location.adapter);
}

InferenceModel::InferenceModel(const FoundModel& found, Purpose purpose,
                               const Environment& environment)
    : InferenceModel(found, purpose, head_for(purpose, found.config), environment) {}

InferenceModel::InferenceModel(const FoundModel& found, Purpose purpose,
                               const models::MakeHead& head, const Environment& environment)
    : threads_(thread_count(environment)),
      kernels_(kernels::select_kernels(kernels::CpuFeatures::detect(),
                                       environment.get("TANDEM_KERNELS").value_or(""),
                                       found.precision)),
      scratch_(threads_.num_threads()),
      tokenizer_(text::Tokenizer::load(found.location.tokenizer_directory,
                                       tokenizer_options(found, purpose))),
      model_(found.config, head),
      weights_(model_.layout().size() * sizeof(float)),
      lanes_([this](std::size_t rows) {
        return model_.make_key_values(std::min(rows, model_.config().max_tokens()), precision());
      }) {
  if (tokenizer_.vocab_size() > model_.config().vocab_size) {
    raise<ConfigError>(
        "the tokenizer has {} tokens but the model's vocab_size is {}: they do not belong together",
        tokenizer_.vocab_size(), model_.config().vocab_size);
  }
  for (const auto* notes : {&tokenizer_.notes(), &found.config.notes})
    warnings_.insert(warnings_.end(), notes->begin(), notes->end());
  touch(threads_, weights_);
  quant::LoadedModel loaded =
      quant::ModelFiles(found.location.model.directory, model_.config())
          .load(model_.config(), model_.layout(), {threads_, kernels_, scratch_},
                weights_.as<float>(), {.adapter = found.location.adapter});
  int8_ = std::move(loaded.int8);
  require_trained(loaded.report, purpose);
  if (found.precision == nn::Precision::kBfloat16) round_weights();
  WindowScheduler::ForwardBehind behind;
  if (model_.reads_last_rows_of_decoder())
    behind = std::bind_front(&InferenceModel::forward_behind_begin, this);
  scheduler_ = std::make_unique<WindowScheduler>(
      [this](std::size_t rows, std::size_t sequences) {
        return model_.num_logits(rows, sequences);
      },
      std::bind_front(&InferenceModel::forward, this), std::move(behind));
}

std::size_t InferenceModel::max_tokens() const {
  return std::min(model_.config().max_tokens(), tokenizer_.model_max_length());
}

std::vector<float> InferenceModel::logits_of(std::shared_ptr<const tasks::TokenSequences> sequences,
                                             const std::stop_token& cancelled) {
  return scheduler_->logits_of(std::move(sequences), cancelled);
}

models::Activations& InferenceModel::activations_for(const models::BatchShape& shape) {
  const models::BatchShape room = activations_ ? activations_->capacity() : models::BatchShape{};
  if (room.rows < shape.rows || room.sequences < shape.sequences) {
    activations_.reset();
    activations_ = model_.make_activations(
        {.rows = std::max({room.rows, shape.rows, kLeastRoom}),
         .sequences = std::max({room.sequences, shape.sequences, WindowScheduler::kMaxWindows})},
        precision(), models::PassKind::kInference);
  }
  return *activations_;
}

void InferenceModel::forward(const nn::PackedBatch& batch, std::span<float> logits) {
  model_.forward(context(), weights(), batch, {},
                 activations_for({batch.rows(), batch.num_sequences()}), logits);
}

void InferenceModel::forward_behind(const nn::PackedBatch& batch,
                                    std::span<models::KeyValues* const> past,
                                    std::span<float> logits) {
  model_.forward_behind(context(), weights(), batch, past,
                        activations_for({batch.rows(), batch.num_sequences()}), logits);
}

void InferenceModel::forward_behind_begin(CommonBegin& begin, const nn::PackedBatch& batch,
                                          std::size_t longest, std::span<float> logits) {
  if (!begin.kept) {
    auto kept = std::make_shared<models::KeyValues>(
        model_.make_key_values(begin.tokens.size(), precision()));
    nn::PackedBatch rows;
    rows.append(begin.tokens, {}, 0);
    std::vector<float> unused(model_.num_logits(rows));
    forward_behind(rows, std::array{kept.get()}, unused);
    begin.kept = std::move(kept);
  }
  forward_behind(batch, lanes_.behind(begin.kept, batch.num_sequences(), longest), logits);
}

// The copy that products read; layers in int8 read none.
void InferenceModel::round_weights() {
  bf16_ = Buffer(model_.layout().bf16_size() * sizeof(bfloat16));
  const auto to = bf16_.as<bfloat16>();
  const auto round = [&](std::size_t begin, std::size_t end) {
    kernels::convert(context(), end - begin, weights_.as<const float>().data() + begin,
                     to.data() + begin);
  };
  std::map<std::size_t, std::size_t> in_int8;  // begins and ends
  for (const nn::Linear& linear : model_.layout().linears()) {
    if (int8_ && int8_->find(linear.weight) != nullptr)
      in_int8[linear.weight] = linear.weight + linear.out_features * linear.in_features;
  }
  std::size_t done = 0;
  for (const auto& [begin, end] : in_int8) {
    round(done, begin);
    done = end;
  }
  round(done, to.size());
}

nn::Weights InferenceModel::weights() {
  return {.f32 = weights_.as<const float>(),
          .bf16 = bf16_.as<const bfloat16>(),
          .int8 = int8_ ? &*int8_ : nullptr,
          .packed = &packed_};
}

void print_warnings(const InferenceModel& model) {
  for (const std::string& warning : model.warnings())
    fmt::print(stderr, "tandem: warning: {}\n", warning);
}

void add_model_flags(CLI::App& app, ModelOptions& model) {
  app.add_option("--model,--model_name_or_path", model.files.model_name_or_path,
                 "model directory, or a name in the Hugging Face cache or on the Hub")
      ->required();
  app.add_option("--model_revision", model.files.model_revision,
                 "branch, tag or commit id of the model");
  app.add_option("--tokenizer_name", model.files.tokenizer_name,
                 "the same for the tokenizer, where the model has none");
  app.add_option("--cache_dir", model.files.cache_dir, "root of the Hugging Face cache");
  app.add_flag("--bf16", model.bf16,
               "compute the encoder's products in bfloat16: faster where the CPU has it");
}

}  // namespace tandem::apps
