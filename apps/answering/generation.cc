#include "apps/answering/generation.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/models/heads/causal_language_head.h"
#include "tandem/text/chat/tokenizer_chat.h"

namespace tandem::apps {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// eos_token_id of a file: a number, a list, or null. Nothing where the file does not state it.
std::optional<std::vector<std::int32_t>> read_end_tokens(const fs::path& path) {
  if (!fs::exists(path)) return std::nullopt;
  const json object = json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  if (!object.is_object() || !object.contains("eos_token_id")) return std::nullopt;
  const json& value = object["eos_token_id"];
  std::vector<std::int32_t> tokens;
  if (value.is_null()) return tokens;
  for (const json& id : value.is_array() ? value : json::array({value})) {
    if (!id.is_number_integer())
      raise<ConfigError>("{}: eos_token_id is {}; expected an integer or a list of them",
                         path.string(), value.dump());
    tokens.push_back(id.get<std::int32_t>());
  }
  return tokens;
}

// As transformers: generation_config.json, else config.json, and last the tokenizer's.
std::vector<std::int32_t> end_tokens_of(const fs::path& directory,
                                        const text::Tokenizer& tokenizer) {
  for (const char* file : {"generation_config.json", "config.json"}) {
    if (const auto tokens = read_end_tokens(directory / file); tokens && !tokens->empty())
      return *tokens;
  }
  const auto token = tokenizer.eos_token_id();
  return token ? std::vector<std::int32_t>{*token} : std::vector<std::int32_t>{};
}

std::vector<std::int32_t> without_empty(std::vector<std::int32_t> tokens) {
  if (tokens.empty()) raise<DataError>("the prompt has no token; expected a text");
  return tokens;
}

}  // namespace

const char* Generation::finish_reason() const {
  return end == TextEnd::kEndToken || end == TextEnd::kEnough ? "stop" : "length";
}

Generator::Generator(const FoundModel& found, const Environment& environment,
                     const TokenLimits& limits)
    : model_(found, Purpose::kGeneration, models::make_causal_language_head, environment),
      output_(model_.context(), found.config.vocab_size, found.config.hidden_size,
              model_.weights_f32().data() +
                  models::causal_output_matrix(found.config, model_.model().layout()),
              model_.precision()),
      scheduler_(token_model(found), limits) {
  if (!has_chat_template()) return;
  try {
    template_.emplace(text::chat_template_of(model_.tokenizer()));
  } catch (const DataError& error) {  // texts can be continued in any case
    template_problem_ = error.what();
  }
}

TokenModel Generator::token_model(const FoundModel& found) {
  constexpr std::size_t kRows = 64;  // that padding does not count for much
  const std::size_t some = std::min(kRows, positions());
  return {.make_key_values =
              [this](std::size_t capacity) {
                return model_.model().make_key_values(capacity, model_.precision());
              },
          .advance = std::bind_front(&Generator::advance, this),
          .vocab_size = output_.vocabulary(),
          .row_bytes = model_.model().make_key_values(some, model_.precision()).bytes() / some,
          .end_tokens = end_tokens_of(found.location.config_directory, model_.tokenizer())};
}

std::vector<std::int32_t> Generator::tokens_of_text(std::string_view prompt) const {
  text::Encoding encoding;
  model_.tokenizer().encode(prompt, encoding);
  std::vector<std::int32_t> tokens;
  if (const auto begin = model_.tokenizer().text_frame().begin) tokens.push_back(*begin);
  tokens.insert(tokens.end(), encoding.ids.begin(), encoding.ids.end());
  return without_empty(std::move(tokens));
}

std::vector<std::int32_t> Generator::tokens_of_chat(const nlohmann::ordered_json& messages) const {
  if (!template_) {
    raise<DataError>("{}", !template_problem_.empty()
                               ? template_problem_
                               : "the model has no chat template (chat_template.jinja), so it "
                                 "was not made for conversations; send a prompt instead");
  }
  text::Encoding encoding;
  model_.tokenizer().encode(template_->render(messages, /*add_generation_prompt=*/true), encoding);
  return without_empty(std::move(encoding.ids));
}

void Generator::advance(const nn::PackedBatch& batch, std::span<models::KeyValues* const> past,
                        std::span<const std::size_t> rows, std::span<float> logits) {
  const std::size_t H = output_.width();
  hidden_.resize(batch.rows() * H);
  model_.forward_behind(batch, past, hidden_);
  if (rows.empty()) return;
  last_.resize(rows.size() * H);
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::copy_n(hidden_.data() + rows[i] * H, H, last_.data() + i * H);
  output_.compute(model_.context(), rows.size(), last_.data(), logits.data());
}

Generation Generator::generate(std::span<const std::int32_t> prompt,
                               const GenerationOptions& options,
                               FunctionRef<void(std::string_view)> on_text,
                               const std::stop_token& cancelled) {
  if (prompt.size() + options.max_new_tokens > positions()) {
    raise<ConfigError>(
        "the prompt has {} tokens, with --max_new_tokens {} more than the model's {} positions; "
        "shorten one of them",
        prompt.size(), options.max_new_tokens, positions());
  }
  Generation made;
  TextFromBytes characters;
  TextUntil until(options.stop);
  const auto add = [&](const std::string& text) {
    made.text += text;
    if (!text.empty()) on_text(text);
  };
  const auto take = [&](std::int32_t token) {
    made.tokens.push_back(token);
    if (!model_.tokenizer().is_special(token))
      add(until.take(characters.take(model_.tokenizer().bytes_of(token))));
    return !until.stopped();
  };
  made.end = scheduler_.continue_text({.prompt = {prompt.begin(), prompt.end()},
                                       .max_new_tokens = options.max_new_tokens,
                                       .sampling = options.sampling,
                                       .time_limit = options.time_limit},
                                      take, cancelled);
  add(until.take(characters.finish()));
  add(until.finish());
  return made;
}

}  // namespace tandem::apps
