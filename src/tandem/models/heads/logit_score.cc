#include "tandem/models/heads/logit_score.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/core/thread_pool.h"
#include "tandem/models/heads/causal_language_head.h"
#include "tandem/models/heads/module_files.h"
#include "tandem/models/heads/pooling_head.h"

namespace tandem::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kKind = "LogitScore";
constexpr const char* kFolder = "1_LogitScore";
constexpr const char* kLogits = "causal_logits";

std::int32_t checked(std::int64_t token, const char* key, const std::string& path,
                     const ModelConfig& config) {
  if (token < 0 || static_cast<std::size_t>(token) >= config.vocab_size) {
    raise<DataError>("{}: {}: found {}, expected a token of the model, 0 to {}", path, key, token,
                     config.vocab_size - 1);
  }
  return static_cast<std::int32_t>(token);
}

LogitScore read_config(const ModuleEntry& module, const ModelConfig& config) {
  const fs::path path = module.directory / "config.json";
  const auto file = read_json(path);
  if (!file) raise<DataError>("{}: missing", path.string());
  if (value_of(*file, "module_input_name", std::string(kLogits)) != kLogits)
    raise<DataError>("{}: module_input_name: expected {}", file->path, kLogits);
  constexpr std::int64_t kNone = -1;
  LogitScore score;
  score.true_token =
      checked(value_of(*file, "true_token_id", kNone), "true_token_id", file->path, config);
  const std::int64_t other = value_of(*file, "false_token_id", kNone);
  if (other != kNone) score.false_token = checked(other, "false_token_id", file->path, config);
  return score;
}

// The settings of the chat template, of which there are two.
void read_template_settings(const JsonFile& file, PairMessages& messages) {
  const json all = value_of(file, "processing_kwargs", json::object());
  for (const auto& [key, settings] : all.items()) {
    const std::string where = fmt::format("{}: processing_kwargs: {}", file.path, key);
    if (key != "chat_template" || !settings.is_object())
      raise<DataError>("{}: found {}, expected an object chat_template alone", where,
                       settings.dump());
    for (const auto& [name, value] : settings.items()) {
      bool* const known = name == "add_generation_prompt" ? &messages.add_generation_prompt
                          : name == "restore_suffix"      ? &messages.restore_suffix
                                                          : nullptr;
      if (known == nullptr || !value.is_boolean())
        raise<DataError>(
            "{}: {}: found {}, expected add_generation_prompt or restore_suffix, true "
            "or false",
            where, name, value.dump());
      *known = value.get<bool>();
    }
  }
}

PairMessages read_messages(const fs::path& directory) {
  const fs::path path = directory / "sentence_bert_config.json";
  const auto file = read_json(path);
  const json modalities =
      file ? value_of(*file, "modality_config", json::object()) : json::object();
  const auto message = modalities.is_object() ? modalities.find("message") : modalities.end();
  if (message == modalities.end() || !message->is_object()) {
    raise<DataError>(
        "{}: found no modality_config with \"message\", expected one, as sentence-transformers 5.4 "
        "writes it: pairs are read through the chat template alone",
        path.string());
  }
  PairMessages messages;
  const auto format = value_of({*message, path.string()}, "format", std::string("flat"));
  if (format != "flat" && format != "structured")
    raise<DataError>("{}: format: found '{}', expected flat or structured", path.string(), format);
  messages.structured = format == "structured";
  read_template_settings(*file, messages);
  return messages;
}

ordered_json settings_of(const PairMessages& messages) {
  ordered_json settings = ordered_json::object();
  if (messages.add_generation_prompt) settings["add_generation_prompt"] = true;
  if (!messages.restore_suffix) settings["restore_suffix"] = false;
  return settings;
}

// The rows of the output matrix, [V, H], whose difference is the weight of a score.
class LogitScoreHead final : public Head {
 public:
  LogitScoreHead(const LogitScore& score, const ModelConfig& config, nn::ParameterLayout& layout)
      : Head({.class_suffix = std::string(config.family->causal_language_head.class_suffix),
              .unit = HeadShape::Unit::kSequence,
              .reads = HeadShape::Reads::kLast,
              .num_labels = 1,
              .memory = config.hidden_size,           // the last rows
              .training_memory = config.hidden_size,  // their gradient
              .few_products = true,
              .shares_word_embeddings = config.tie_word_embeddings}),
        score_(score),
        hidden_size_(config.hidden_size),
        vocabulary_(config.vocab_size),
        output_(output_matrix_name(config)),
        last_rows_(
            make_pooling_head({Pooling::kLastToken}, /*include_prompt=*/true, config, layout)) {
    add_output_matrix(config, layout);
  }

  void layout_complete(const nn::ParameterLayout& layout) override {
    matrix_ = layout.find(output_)->offset;
  }

  void forward(const nn::Pass& pass, std::span<const float> hidden, std::span<float> memory,
               std::span<float> logits) const override {
    const std::span<float> rows = memory.first(size(pass));
    last_rows_->forward(pass, hidden, {}, rows);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const auto row = rows.subspan(i * hidden_size_, hidden_size_);
      double sum = logit(pass, row, score_.true_token);
      if (score_.false_token) sum -= logit(pass, row, *score_.false_token);
      logits[i] = static_cast<float>(sum);
    }
  }

  void backward(const nn::Pass& pass, std::span<const float> hidden, std::span<float> memory,
                std::span<const float> grad_logits, std::span<float> grad_hidden,
                const nn::Gradients& grads) const override {
    const std::span<const float> rows = memory.first(size(pass));
    const std::span<float> grad_rows = memory.subspan(size(pass), size(pass));
    std::fill(grad_rows.begin(), grad_rows.end(), 0.0f);
    if (float* const all = grads.at(matrix_); all != nullptr && !grads.accumulate)
      clear(pass, {all, vocabulary_ * hidden_size_});
    add_gradients(pass, rows, grad_logits, 1.0f, score_.true_token, grad_rows, grads);
    if (score_.false_token)
      add_gradients(pass, rows, grad_logits, -1.0f, *score_.false_token, grad_rows, grads);
    last_rows_->backward(pass, hidden, {}, grad_rows, grad_hidden, grads);
  }

 private:
  std::size_t size(const nn::Pass& pass) const { return pass.sequences.count() * hidden_size_; }
  std::size_t offset_of_row(std::int32_t token) const {
    return matrix_ + static_cast<std::size_t>(token) * hidden_size_;
  }
  double logit(const nn::Pass& pass, std::span<const float> row, std::int32_t token) const {
    const float* const weight = pass.weights.vector(offset_of_row(token));
    double sum = 0;
    for (std::size_t c = 0; c < row.size(); ++c)
      sum += static_cast<double>(weight[c]) * static_cast<double>(row[c]);
    return sum;
  }

  static void clear(const nn::Pass& pass, std::span<float> all) {
    constexpr std::size_t kPiece = std::size_t{1} << 18;
    pass.context.threads.parallel_for(num_chunks(all.size(), kPiece), [&](std::size_t piece, int) {
      const std::size_t begin = piece * kPiece;
      std::fill_n(all.begin() + static_cast<std::ptrdiff_t>(begin),
                  std::min(kPiece, all.size() - begin), 0.0f);
    });
  }

  // The part of one token, whose logit counts `sign` times.
  void add_gradients(const nn::Pass& pass, std::span<const float> rows,
                     std::span<const float> grad_logits, float sign, std::int32_t token,
                     std::span<float> grad_rows, const nn::Gradients& grads) const {
    const float* const weight = pass.weights.vector(offset_of_row(token));
    float* const grad_weight = grads.at(offset_of_row(token));
    for (std::size_t i = 0; i < grad_logits.size(); ++i) {
      const float factor = sign * grad_logits[i];
      for (std::size_t c = 0; c < hidden_size_; ++c) {
        grad_rows[i * hidden_size_ + c] += factor * weight[c];
        if (grad_weight != nullptr) grad_weight[c] += factor * rows[i * hidden_size_ + c];
      }
    }
  }

  LogitScore score_;
  std::size_t hidden_size_, vocabulary_;
  std::string output_;  // name of the output matrix
  std::unique_ptr<Head> last_rows_;
  std::size_t matrix_ = 0;
};

}  // namespace

std::optional<LogitScoreFiles> read_logit_score(const fs::path& directory,
                                                const ModelConfig& config) {
  const auto modules = read_modules(directory);
  if (!modules) return std::nullopt;
  const auto found = std::ranges::find(*modules, kKind, &ModuleEntry::kind);
  if (found == modules->end()) return std::nullopt;
  if (modules->size() != 2) {
    raise<DataError>("{}: found {} modules, expected a Transformer and {}", found->where,
                     modules->size(), kKind);
  }
  return LogitScoreFiles{read_config(*found, config), read_messages(directory),
                         read_prompts(directory)};
}

void write_logit_score(const fs::path& directory, const LogitScoreFiles& files,
                       DenseActivation activation) {
  const LogitScore& score = files.score;
  write_json(directory / "modules.json",
             {{{"idx", 0},
               {"name", "0"},
               {"path", ""},
               {"type", "sentence_transformers.base.modules.transformer.Transformer"}},
              {{"idx", 1},
               {"name", "1"},
               {"path", kFolder},
               {"type", "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"}}});
  ordered_json tokens = {{"true_token_id", score.true_token}, {"false_token_id", nullptr}};
  if (score.false_token) tokens["false_token_id"] = *score.false_token;
  tokens["module_input_name"] = kLogits;
  write_json(directory / kFolder / "config.json", tokens);
  const ordered_json forward = {{"method", "forward"}, {"method_output_name", "logits"}};
  ordered_json message = forward;
  message["format"] = files.messages.structured ? "structured" : "flat";
  ordered_json transformer = {{"transformer_task", "text-generation"},
                              {"modality_config", {{"text", forward}, {"message", message}}},
                              {"module_output_name", kLogits}};
  if (const ordered_json settings = settings_of(files.messages); !settings.empty())
    transformer["processing_kwargs"] = {{"chat_template", settings}};
  write_json(directory / "sentence_bert_config.json", transformer);
  ordered_json config = {
      {"__version__",
       {{"pytorch", "2.6.0"}, {"sentence_transformers", "5.4.0"}, {"transformers", "4.57.6"}}},
      {"activation_fn", activation_path(activation)},
      {"default_prompt_name", nullptr},
      {"model_type", "CrossEncoder"},
      {"prompts", files.prompts.prompts}};
  if (files.prompts.default_name) config["default_prompt_name"] = *files.prompts.default_name;
  write_json(directory / "config_sentence_transformers.json", config);
}

std::unique_ptr<Head> make_logit_score_head(const LogitScore& score, const ModelConfig& config,
                                            nn::ParameterLayout& layout) {
  return std::make_unique<LogitScoreHead>(score, config, layout);
}

}  // namespace tandem::models
