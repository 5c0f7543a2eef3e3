// `tandem generate --model DIR|NAME --prompt TEXT`: continues a text, a conversation, or those of a
// file, with a decoder.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <exception>
#include <iostream>
#include <iterator>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "apps/answering/chat_messages.h"
#include "apps/answering/generation.h"
#include "apps/command/command_line.h"
#include "apps/command/commands.h"
#include "apps/command/line_output.h"
#include "apps/command/text_lines.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"
#include "tandem/formats/compressed_file.h"

namespace tandem::apps {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

struct GenerateFlags {
  ModelOptions model;
  GenerationOptions generation;
  std::string prompt;
  std::string file;
  bool chat = false;
  std::string system;
  std::size_t batch_size = 16;
  bool json = false;

  bool has_lines() const { return formats::format_ending(file) == ".jsonl"; }
};

void add_input(CLI::App& app, GenerateFlags& options) {
  auto* prompt = app.add_option("--prompt", options.prompt, "the text to continue");
  app.add_option("--file", options.file,
                 "file with the text to continue; -: standard input. A .jsonl has an object with "
                 "prompt or messages on each line, and each gets a line of output")
      ->excludes(prompt);
  app.add_flag("--chat", options.chat,
               "the text is a user's message: the model's chat template puts its words around it");
  app.add_option("--system", options.system,
                 "system message in front of the conversation; implies --chat")
      ->type_name("TEXT");
  app.add_option("--batch_size", options.batch_size,
                 "texts of a .jsonl that are computed side by side; it changes no text")
      ->capture_default_str()
      ->check(whole_number_in(1, 256))
      ->type_name("N");
}

void add_sampling(CLI::App& app, SamplingOptions& sampling) {
  app.add_flag("--do_sample", sampling.sample, "draw each token instead of the likeliest one");
  app.add_option(
         "--temperature", sampling.temperature,
         "divides the logits before a draw: below 1 likely tokens become likelier; 0: no draw")
      ->capture_default_str()
      ->check(number_in(0, 1e3));
  app.add_option("--top_k", sampling.top_k, "draw among so many likeliest tokens; 0: all")
      ->capture_default_str()
      ->check(whole_number_in(0, 1 << 30))
      ->type_name("N");
  app.add_option("--top_p", sampling.top_p,
                 "draw among the fewest likeliest tokens with this sum of probabilities")
      ->capture_default_str()
      ->check(number_in(1e-6, 1));
  app.add_option("--seed", sampling.seed, "of the draws")->capture_default_str();
}

// Temperature 0 disables draws. Flags of draws without --do_sample get a warning, as in
// transformers.
void settle_sampling(const CLI::App& app, SamplingOptions& sampling) {
  if (sampling.temperature == 0) {
    sampling = {};
    return;
  }
  if (sampling.sample) return;
  for (const char* flag : {"--temperature", "--top_k", "--top_p", "--seed"})
    if (app.count(flag) > 0)
      fmt::print(stderr, "tandem: warning: {} has no effect without --do_sample\n", flag);
}

bool parse_options(const std::vector<std::string>& words, GenerateFlags& options) {
  CLI::App app(
      "Continues a text or a conversation with a decoder (GPT-2, Llama, Qwen3), and prints what it "
      "adds. Without --do_sample the likeliest token is next; with it a seed gives the same text "
      "on any number of threads.",
      "tandem generate");
  add_model_flags(app, options.model);
  add_input(app, options);
  app.add_option("--max_new_tokens", options.generation.max_new_tokens,
                 "tokens to add at most; the end-of-text token ends the text before")
      ->capture_default_str()
      ->check(whole_number_in(1, 1 << 20))
      ->type_name("N");
  app.add_option("--stop", options.generation.stop,
                 "text that ends the text and does not belong to it; may be given several times")
      ->allow_extra_args(false)
      ->type_name("TEXT");
  add_sampling(app, options.generation.sampling);
  app.add_flag("--json", options.json,
               "print a JSON object: prompt, text, tokens (their ids), finish_reason (stop or "
               "length) and tokens_per_second");
  if (!parse_command(app, words)) return false;
  settle_sampling(app, options.generation.sampling);
  options.chat = options.chat || app.count("--system") > 0;
  if (options.prompt.empty() && options.file.empty())
    throw ConfigError("generate: found no text, expected --prompt TEXT or --file FILE",
                      /*usage=*/true);
  return true;
}

std::string prompt_of(const GenerateFlags& options) {
  if (options.file.empty()) return options.prompt;
  if (options.file != "-") return read_file(options.file);
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

// A conversation with the system message of the flags, if it has none of its own.
ordered_json with_system(ordered_json messages, const GenerateFlags& options) {
  if (options.system.empty() || messages.front()["role"] == "system") return messages;
  ordered_json all = {{{"role", "system"}, {"content", options.system}}};
  all.insert(all.end(), messages.begin(), messages.end());
  return all;
}

std::vector<std::int32_t> tokens_of(const std::string& prompt, const Generator& generator,
                                    const GenerateFlags& options) {
  if (!options.chat) return generator.tokens_of_text(prompt);
  const ordered_json message = {{"role", "user"}, {"content", prompt}};
  return generator.tokens_of_chat(with_system(ordered_json::array({message}), options));
}

ordered_json result_json(const Generation& made) {
  return {{"text", made.text}, {"tokens", made.tokens}, {"finish_reason", made.finish_reason()}};
}

void print_one(Generator& generator, const GenerateFlags& options, LineOutput& output) {
  const std::string prompt = prompt_of(options);
  const std::vector<std::int32_t> tokens = tokens_of(prompt, generator, options);
  const Clock::time_point begin = Clock::now();
  const Generation made =
      generator.generate(tokens, options.generation, [&](std::string_view text) {
        if (options.json) return;
        output << text;
        output.flush();
      });
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (options.json) {
    ordered_json object = {{"prompt", prompt}};
    object.update(result_json(made));
    object["tokens_per_second"] = static_cast<double>(made.tokens.size()) / seconds;
    output << python_json(object);
  }
  output << '\n';
  output.flush();
}

// --- a file of them ---

struct Row {
  ordered_json input;  // {"prompt": …} or {"messages": …}, as the file has it
  std::vector<std::int32_t> tokens;
};

// The prompt may be a conversation, as in files of run_sft.
Row row_of(const ordered_json& line, const Generator& generator, const GenerateFlags& options) {
  if (!line.is_object())
    raise<DataError>(
        "found a JSON value of the type {}, expected an object with prompt or messages",
        line.type_name());
  const char* const key = line.contains("messages") ? "messages" : "prompt";
  if (!line.contains(key)) raise<DataError>("found neither prompt nor messages in the object");
  const ordered_json& value = line[key];
  Row row{.input = {}, .tokens = {}};
  row.input[key] = value;
  row.tokens = value.is_string() && line.contains("prompt")
                   ? tokens_of(value.get<std::string>(), generator, options)
                   : generator.tokens_of_chat(with_system(chat_messages(value, key), options));
  if (row.tokens.size() + options.generation.max_new_tokens > generator.positions())
    raise<DataError>(
        "the prompt has {} tokens, with --max_new_tokens {} more than the model's {} positions",
        row.tokens.size(), options.generation.max_new_tokens, generator.positions());
  return row;
}

std::vector<Row> read_rows(const Generator& generator, const GenerateFlags& options) {
  std::vector<Row> rows;
  TextLines lines(options.file);
  for (std::string text; lines.next(text);) {
    if (text.find_first_not_of(" \t") == std::string::npos) continue;
    const ordered_json line = try_parse_ordered_json(text);
    try {
      if (line.is_discarded()) raise<DataError>("the line is not JSON");
      rows.push_back(row_of(line, generator, options));
    } catch (const DataError& error) {
      raise<DataError>("{}, line {}: {}", lines.source(), lines.count(), error.what());
    }
  }
  return rows;
}

// The rows' texts in their order, some of them computed at a time.
class RowTexts {
 public:
  RowTexts(Generator& generator, const GenerationOptions& options, const std::vector<Row>& rows,
           std::size_t at_a_time)
      : generator_(generator), options_(options), rows_(rows), made_(rows.size()) {
    for (std::size_t i = 0; i < std::min(at_a_time, rows.size()); ++i)
      threads_.emplace_back([this] { make_some(); });
  }
  ~RowTexts() { stop_.request_stop(); }
  RowTexts(const RowTexts&) = delete;
  RowTexts& operator=(const RowTexts&) = delete;

  // Rethrows what a thread threw.
  Generation next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return made_[taken_].has_value() || error_; });
    if (error_) std::rethrow_exception(error_);
    return *std::exchange(made_[taken_++], std::nullopt);
  }

 private:
  void make_some() noexcept {
    try {
      for (std::size_t i = begun_++; i < rows_.size(); i = begun_++) {
        Generation made = generator_.generate(
            rows_[i].tokens, options_, [](std::string_view) {}, stop_.get_token());
        const std::lock_guard lock(mutex_);
        made_[i] = std::move(made);
        changed_.notify_all();
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      changed_.notify_all();
    }
  }

  Generator& generator_;
  const GenerationOptions& options_;
  const std::vector<Row>& rows_;
  std::atomic<std::size_t> begun_{0};
  std::size_t taken_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::optional<Generation>> made_;
  std::exception_ptr error_;
  std::stop_source stop_;
  std::vector<std::jthread> threads_;  // use all of the above
};

void print_rows(Generator& generator, const GenerateFlags& options, LineOutput& output) {
  const std::vector<Row> rows = read_rows(generator, options);
  const Clock::time_point begin = Clock::now();
  std::size_t tokens = 0;
  RowTexts texts(generator, options.generation, rows, options.batch_size);
  for (const Row& row : rows) {
    const Generation made = texts.next();
    ordered_json object = row.input;
    object.update(result_json(made));
    output << python_json(object) << '\n';
    tokens += made.tokens.size();
  }
  output.flush();
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  fmt::print(stderr, "tandem: {} texts, {} new tokens, {:.1f} tokens per second\n", rows.size(),
             tokens, static_cast<double>(tokens) / seconds);
}

}  // namespace

int generate(const Invocation& invocation) {
  GenerateFlags options;
  if (!parse_options(invocation.words, options)) return 0;
  const FoundModel found(options.model, invocation.environment, /*sentence=*/false,
                         models::decoder_families());
  Generator generator(found, invocation.environment, {.max_texts = options.batch_size});
  print_warnings(generator.model());

  std::signal(SIGPIPE, SIG_IGN);  // write() reports a closed pipe
  LineOutput output(STDOUT_FILENO);
  if (options.has_lines()) {
    print_rows(generator, options, output);
  } else {
    print_one(generator, options, output);
  }
  return 0;
}

}  // namespace tandem::apps
