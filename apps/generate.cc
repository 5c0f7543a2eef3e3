// `tandem generate --model DIR|NAME --prompt TEXT`: continues a text with a decoder.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "apps/answering/generation.h"
#include "apps/command/command_line.h"
#include "apps/command/commands.h"
#include "apps/command/line_output.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"

namespace tandem::apps {
namespace {

struct Options {
  ModelOptions model;
  GenerationOptions generation;
  std::string prompt;
  std::string file;
  bool json = false;
};

bool parse_options(const std::vector<std::string>& words, Options& options) {
  CLI::App app(
      "Continues a text with a decoder (GPT-2, Llama, Qwen3), and prints what it adds. Without "
      "--do_sample the likeliest token is next; with it a seed gives the same text on any number "
      "of threads.",
      "tandem generate");
  add_model_flags(app, options.model);
  auto* prompt = app.add_option("--prompt", options.prompt, "the text to continue");
  app.add_option("--file", options.file, "file with the text to continue; -: standard input")
      ->excludes(prompt);
  app.add_option("--max_new_tokens", options.generation.max_new_tokens,
                 "tokens to add at most; the end-of-text token ends the text before")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  SamplingOptions& sampling = options.generation.sampling;
  app.add_flag("--do_sample", sampling.sample, "draw each token instead of the likeliest one");
  app.add_option("--temperature", sampling.temperature,
                 "divides the logits before a draw: below 1 likely tokens become likelier")
      ->capture_default_str()
      ->check(number_in(1e-3, 1e3));
  app.add_option("--top_k", sampling.top_k, "draw among so many likeliest tokens; 0: all")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 30))
      ->type_name("N");
  app.add_option("--top_p", sampling.top_p,
                 "draw among the fewest likeliest tokens with this sum of probabilities")
      ->capture_default_str()
      ->check(number_in(1e-6, 1));
  app.add_option("--seed", sampling.seed, "of the draws")->capture_default_str();
  app.add_flag("--json", options.json,
               "print a JSON object: prompt, text, tokens (their ids), finish_reason (stop or "
               "length) and tokens_per_second");
  if (!parse_command(app, words)) return false;
  if (options.prompt.empty() && options.file.empty())
    throw ConfigError("generate: found no text, expected --prompt TEXT or --file FILE",
                      /*usage=*/true);
  return true;
}

std::string prompt_of(const Options& options) {
  if (options.file.empty()) return options.prompt;
  if (options.file != "-") return read_file(options.file);
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

}  // namespace

int generate(const Invocation& invocation) {
  Options options;
  if (!parse_options(invocation.words, options)) return 0;
  const std::string prompt = prompt_of(options);
  const FoundModel found(options.model, invocation.environment, /*sentence=*/false,
                         models::decoder_families());
  Generator generator(found, invocation.environment);
  print_warnings(generator.model());

  std::signal(SIGPIPE, SIG_IGN);  // write() reports a closed pipe
  LineOutput output(STDOUT_FILENO);
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const Generation made =
      generator.generate(prompt, options.generation, [&](std::string_view text) {
        if (options.json) return;
        output << text;
        output.flush();
      });
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (options.json) {
    output << python_json(
        {{"prompt", prompt},
         {"text", made.text},
         {"tokens", made.tokens},
         {"finish_reason", made.stopped ? "stop" : "length"},
         {"tokens_per_second", static_cast<double>(made.tokens.size()) / seconds}});
  }
  output << '\n';
  output.flush();
  return 0;
}

}  // namespace tandem::apps
