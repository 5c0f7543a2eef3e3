// `tandem inspect tokens|features|weights|embedding`: what the model sees and is, as JSON lines.
#include "tandem/tasks/question_answering/inspect.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <memory>
#include <sstream>

#include "apps/command/command_line.h"
#include "apps/command/commands.h"
#include "apps/command/download_progress.h"
#include "apps/command/line_output.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"
#include "tandem/core/thread_pool.h"
#include "tandem/data/read_questions.h"
#include "tandem/hub/file_hash.h"
#include "tandem/hub/model_files.h"
#include "tandem/models/encoder/family.h"
#include "tandem/models/encoder/model_config.h"
#include "tandem/models/heads/sentence_files.h"
#include "tandem/models/pretrained/weight_files.h"
#include "tandem/tasks/text_classification/inspect.h"
#include "tandem/tasks/token_classification/inspect.h"
#include "tandem/text/tokenizer.h"

namespace tandem::apps {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// The options that all of them share.
struct InspectFlags {
  std::string model;
  std::string revision = "main";
  std::string cache_dir;

  void add_to(CLI::App& app) {
    app.add_option("--model,--model_name_or_path,--tokenizer_name", model,
                   "model directory, or a name in the Hugging Face cache or on the Hub")
        ->required();
    app.add_option("--model_revision", revision, "branch, tag or commit id of the model");
    app.add_option("--cache_dir", cache_dir, "root of the Hugging Face cache");
  }

  fs::path resolve(const Environment& environment, const hub::ModelParts& parts) const {
    hub::Query query;
    query.name = model;
    query.revision = revision;
    if (!cache_dir.empty()) query.cache_dir = cache_dir;
    DownloadProgress downloads;
    return hub::locate_model(query, parts, environment, downloads).directory;
  }

  text::Tokenizer load_tokenizer(const Environment& environment,
                                 const text::TokenizerOptions& options = {}) const {
    text::Tokenizer tokenizer =
        text::Tokenizer::load(resolve(environment, {.tokenizer = true}), options);
    for (const std::string& note : tokenizer.notes())
      fmt::print(stderr, "tandem: warning: {}\n", note);
    return tokenizer;
  }
};

// --- tokens ---

struct TokensOptions {
  InspectFlags model;
  std::optional<std::string> text, file;
  bool json = false;
  bool add_prefix_space = false;
};

void note_text_of_file(const std::string& text) {
  std::error_code ignored;
  if (!fs::is_regular_file(text, ignored)) return;
  fmt::print(stderr, "tandem: note: '{0}' is taken as a text; --file {0} reads the file\n", text);
}

void inspect_tokens(const TokensOptions& options, const Environment& environment,
                    std::ostream& output) {
  text::TokenizerOptions tokenizer_options;
  if (options.add_prefix_space) tokenizer_options.add_prefix_space = true;
  const text::Tokenizer tokenizer = options.model.load_tokenizer(environment, tokenizer_options);
  const auto inspect = [&](std::istream& input, bool json) {
    question_answering::inspect_tokens(tokenizer, json, input, output);
  };
  if (options.text && *options.text != "-") {
    note_text_of_file(*options.text);
    // As JSON, since it may have line breaks.
    std::istringstream line(options.json ? *options.text : python_json_string(*options.text));
    return inspect(line, true);
  }
  const std::string file = options.file.value_or("-");
  if (file == "-") return inspect(std::cin, options.json);
  std::ifstream input(file, std::ios::binary);
  if (!input || fs::is_directory(file))
    throw io_error("cannot open", file, errno != 0 ? errno : EISDIR);
  inspect(input, options.json);
}

// --- features ---

struct FeaturesOptions {
  InspectFlags model;
  std::string file;
  std::string task = "run_qa";
  std::optional<std::size_t> max_seq_length;  // unset: the task's default
  std::optional<std::string> task_name, text_columns, label_column;
  bool label_all_tokens = false;
  std::string set = "train";
  std::size_t doc_stride = 128;
  std::optional<bool> pad_to_max_length;
  std::optional<std::size_t> max_samples;
  bool fix_last_token_labels = false;
  bool full = false;

  question_answering::Padding padding() const {
    using question_answering::Padding;
    if (!pad_to_max_length) return Padding::kNone;
    return *pad_to_max_length ? Padding::kMaxSeqLength : Padding::kLongestOfBatch;
  }
};

void inspect_questions(const FeaturesOptions& options, const text::Tokenizer& tokenizer,
                       ThreadPool& threads, std::ostream& output) {
  const bool train = options.set == "train";
  const data::QuestionSet questions =
      data::read_questions(options.file, {.require_id = !train, .require_answers = train});
  question_answering::FeatureOptions feature_options;
  if (options.max_seq_length) feature_options.max_seq_length = *options.max_seq_length;
  feature_options.doc_stride = options.doc_stride;
  feature_options.labels = train;
  feature_options.padding = options.padding();
  feature_options.fix_last_token_labels = options.fix_last_token_labels;
  if (options.max_samples) feature_options.max_samples = *options.max_samples;
  const auto features =
      question_answering::build_features(tokenizer, questions.examples(), feature_options, threads);
  for (const std::string& warning : features.statistics().warnings)
    fmt::print(stderr, "tandem: {}\n", warning);
  question_answering::inspect_features(features, questions.examples(), feature_options,
                                       options.full, output);
}

void inspect_texts(const FeaturesOptions& options, const text::Tokenizer& tokenizer,
                   ThreadPool& threads, std::ostream& output) {
  using text_classification::Script;
  text_classification::ClassificationArguments arguments;
  arguments.script = options.task == "run_glue" ? Script::kGlue : Script::kClassification;
  if (options.max_seq_length) arguments.max_seq_length = static_cast<int>(*options.max_seq_length);
  if (options.max_samples)
    arguments.max_train_samples = static_cast<std::int64_t>(*options.max_samples);
  if (arguments.script == Script::kGlue) arguments.task_name = options.task_name;
  arguments.text_column_names = options.text_columns;
  arguments.label_column_name = options.label_column;
  text_classification::inspect_features(options.file, arguments, tokenizer, threads, output);
}

void inspect_words(const FeaturesOptions& options, const text::Tokenizer& tokenizer,
                   ThreadPool& threads, std::ostream& output) {
  const std::size_t longest = options.max_seq_length.value_or(tokenizer.model_max_length());
  token_classification::inspect_features(options.file,
                                         {.task = options.task_name.value_or("ner"),
                                          .words = options.text_columns,
                                          .tags = options.label_column},
                                         {.max_seq_length = longest,
                                          .max_positions = longest,
                                          .label_all_tokens = options.label_all_tokens,
                                          .max_samples = options.max_samples},
                                         tokenizer, threads, output);
}

// The tasks by the names of their commands.
struct TaskFeatures {
  std::string_view command;
  text::TokenizerOptions tokenizer;  // as the task loads it
  void (*inspect)(const FeaturesOptions& options, const text::Tokenizer& tokenizer,
                  ThreadPool& threads, std::ostream& output);
};

const TaskFeatures kTaskFeatures[] = {{"run_qa", {}, inspect_questions},
                                      {"run_glue", {}, inspect_texts},
                                      {"run_classification", {}, inspect_texts},
                                      {"run_ner", {.add_prefix_space = true}, inspect_words}};

// As the task loads it for the type of the model, if there is a config.json that names one.
text::TokenizerOptions tokenizer_of(const TaskFeatures& task, const FeaturesOptions& options,
                                    const Environment& environment) {
  const fs::path config = options.model.resolve(environment, {.tokenizer = true}) / "config.json";
  if (!task.tokenizer.add_prefix_space || !fs::exists(config)) return task.tokenizer;
  const nlohmann::json json = nlohmann::json::parse(read_file(config), nullptr,
                                                    /*allow_exceptions=*/false);
  const auto type = json.is_object() ? json.find("model_type") : json.end();
  const bool named = type != json.end() && type->is_string();
  const models::Family* const family =
      named ? models::find_family(type->get_ref<const std::string&>()) : nullptr;
  return family != nullptr && !family->spaces_words ? text::TokenizerOptions{} : task.tokenizer;
}

void inspect_features(const FeaturesOptions& options, const Environment& environment,
                      std::ostream& output) {
  const TaskFeatures& task = *std::find_if(
      std::begin(kTaskFeatures), std::end(kTaskFeatures),
      [&](const TaskFeatures& candidate) { return candidate.command == options.task; });
  const text::Tokenizer tokenizer =
      options.model.load_tokenizer(environment, tokenizer_of(task, options, environment));
  ThreadPool threads(available_cores());
  task.inspect(options, tokenizer, threads, output);
}

// --- weights ---

struct Sums {
  double sum = 0;
  double squares = 0;
};

// In double, in the order of the elements.
Sums sums_of(const formats::TensorView& tensor) {
  std::vector<float> values(tensor.size());
  formats::copy_to_float(tensor, values);
  Sums sums;
  for (const float value : values) {
    sums.sum += value;
    sums.squares += static_cast<double>(value) * value;
  }
  return sums;
}

// A number JSON can hold: NaN and infinities as text.
ordered_json json_number(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json(fmt::format("{}", value));
}

ordered_json describe_tensor(const formats::TensorView& tensor) {
  ordered_json line;
  line["name"] = tensor.name;
  line["dtype"] = std::string(formats::to_string(tensor.dtype));
  line["shape"] = tensor.shape;
  if (formats::is_float(tensor.dtype)) {
    const Sums sums = sums_of(tensor);
    line["sum"] = json_number(sums.sum);
    line["norm"] = json_number(std::sqrt(sums.squares));
  } else {
    line["sum"] = nullptr;
    line["norm"] = nullptr;
  }
  line["sha256"] = hub::sha256(tensor.bytes);
  return line;
}

void inspect_weights(const InspectFlags& options, const Environment& environment,
                     std::ostream& output) {
  const fs::path named = options.model;
  const models::WeightFiles tensors(
      fs::is_regular_file(named) ? named : options.resolve(environment, {.weights = true}));
  for (const formats::TensorView& tensor : tensors.tensors()) {
    output << python_json(describe_tensor(tensor)) << '\n';
  }
}

// --- embedding ---

ordered_json describe_module(const models::EmbeddingModule& module) {
  const auto* dense = std::get_if<models::DenseModule>(&module);
  if (dense == nullptr) return {{"type", "Normalize"}};
  return {{"type", "Dense"},
          {"in_features", dense->in_features},
          {"out_features", dense->out_features},
          {"bias", !dense->bias.empty()},
          {"activation_function", models::activation_path(dense->activation)}};
}

void inspect_embedding(const InspectFlags& options, const Environment& environment,
                       std::ostream& output) {
  const fs::path directory = options.resolve(environment, {.config = true, .sentence = true});
  const auto config = models::ModelConfig::load(directory, models::all_families());
  const models::SentenceFiles files = models::read_sentence_files(directory, config);
  ordered_json line;
  line["modules_json"] = files.from_modules_json;
  for (const models::Pooling pooling : files.poolings) {
    for (const models::PoolingName& known : models::pooling_names())
      if (known.pooling == pooling) line["pooling"].push_back(known.name);
  }
  line["include_prompt"] = files.include_prompt;
  line["modules"] = ordered_json::array();
  for (const models::EmbeddingModule& module : files.modules)
    line["modules"].push_back(describe_module(module));
  line["dimension"] = models::embedding_size(files, config.hidden_size);
  line["prompts"] = files.prompts;
  line["default_prompt_name"] =
      files.default_prompt_name ? ordered_json(*files.default_prompt_name) : ordered_json();
  line["similarity"] = files.similarity;
  line["max_seq_length"] =
      files.max_seq_length ? ordered_json(*files.max_seq_length) : ordered_json();
  output << python_json(line) << '\n';
}

CLI::App& add_embedding(CLI::App& app, InspectFlags& embedding) {
  CLI::App& command = *app.add_subcommand(
      "embedding", "pooling, modules, prompts, similarity and length of a bi-encoder");
  embedding.add_to(command);
  return command;
}

CLI::App& add_tokens(CLI::App& app, TokensOptions& tokens) {
  CLI::App& command = *app.add_subcommand(
      "tokens", "ids, tokens, offsets (in code points) and words of a text, or of each line");
  tokens.model.add_to(command);
  CLI::Option* text =
      command.add_option("text", tokens.text, "a text; - or nothing: the lines of standard input");
  command.add_option("--file", tokens.file, "the lines of this file; -: of standard input")
      ->excludes(text);
  command.add_flag("--json", tokens.json,
                   "each text is a JSON string, or an array of words in JSON");
  command.add_flag("--add_prefix_space", tokens.add_prefix_space,
                   "byte-level BPE: a space in front of every text, as run_ner sets it");
  return command;
}

void add_label_options(CLI::App& command, FeaturesOptions& features) {
  command.add_option("--task_name", features.task_name,
                     "as in run_glue (sst2) and run_ner (pos: the tags are in pos_tags)");
  command.add_option("--text_column_name,--text_column_names", features.text_columns,
                     "as in run_ner and run_classification");
  command.add_option("--label_column_name", features.label_column,
                     "as in run_ner and run_classification");
  command.add_flag("--label_all_tokens", features.label_all_tokens, "as in run_ner");
}

CLI::App& add_features(CLI::App& app, FeaturesOptions& features) {
  CLI::App& command =
      *app.add_subcommand("features", "the features of a data file under a task's flags");
  features.model.add_to(command);
  command
      .add_option("file", features.file,
                  "questions, texts or words with labels, as the task's train_file")
      ->required();
  std::vector<std::string> tasks;
  for (const TaskFeatures& task : kTaskFeatures) tasks.emplace_back(task.command);
  command.add_option("--task", features.task, "the command that trains on the file (run_qa)")
      ->check(CLI::IsMember(tasks));
  command
      .add_option("--max_seq_length", features.max_seq_length,
                  "tokens of a feature; unset: the task's default")
      ->check(whole_number_in(4, 1 << 20));
  command.add_option("--max_samples", features.max_samples,
                     "only the first n rows; of run_qa the first n features, too");
  add_label_options(command, features);
  command.add_option("--set", features.set, "run_qa; train: with labels; eval: with offsets")
      ->check(CLI::IsMember({"train", "eval"}));
  command.add_option("--doc_stride", features.doc_stride,
                     "run_qa: tokens that neighbouring windows share");
  command.add_option("--pad_to_max_length", features.pad_to_max_length,
                     "as in run_qa: unset, true or false; changes labels only");
  command.add_flag("--fix_last_token_labels", features.fix_last_token_labels, "as in run_qa");
  command.add_flag("--full", features.full,
                   "run_qa: offsets with --set train too, and where the context begins");
  return command;
}

CLI::App& add_weights(CLI::App& app, InspectFlags& weights) {
  CLI::App& command =
      *app.add_subcommand("weights", "name, type, shape, sum, norm and sha256 of every tensor");
  command
      .add_option("--model,--model_name_or_path,model", weights.model,
                  "model directory, file of weights (.safetensors, .bin, .index.json), or a name "
                  "in the cache")
      ->required();
  command.add_option("--model_revision", weights.revision, "branch, tag or commit id of the model");
  command.add_option("--cache_dir", weights.cache_dir, "root of the Hugging Face cache");
  return command;
}

}  // namespace

int inspect(const Invocation& invocation) {
  CLI::App app("Shows what the model sees and is, as JSON lines.", "tandem inspect");
  app.require_subcommand(1);
  TokensOptions tokens;
  FeaturesOptions features;
  InspectFlags weights, embedding;
  const CLI::App& tokens_app = add_tokens(app, tokens);
  const CLI::App& features_app = add_features(app, features);
  const CLI::App& weights_app = add_weights(app, weights);
  const CLI::App& embedding_app = add_embedding(app, embedding);

  if (!parse_command(app, invocation.words)) return 0;
  std::signal(SIGPIPE, SIG_IGN);  // write() reports a closed pipe, see LineOutput
  LineOutput output(STDOUT_FILENO);
  if (tokens_app.parsed()) inspect_tokens(tokens, invocation.environment, output);
  if (features_app.parsed()) inspect_features(features, invocation.environment, output);
  if (weights_app.parsed()) inspect_weights(weights, invocation.environment, output);
  if (embedding_app.parsed()) inspect_embedding(embedding, invocation.environment, output);
  output.flush();
  return 0;
}

}  // namespace tandem::apps
