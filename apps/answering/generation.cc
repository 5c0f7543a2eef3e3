#include "apps/answering/generation.h"

#include <algorithm>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/kernels/linear.h"
#include "tandem/models/heads/causal_language_head.h"

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

}  // namespace

Generator::Generator(const FoundModel& found, const Environment& environment)
    : model_(found, Purpose::kGeneration, models::make_causal_language_head, environment),
      output_(model_.context(), found.config.vocab_size, found.config.hidden_size,
              model_.weights_f32().data() +
                  models::causal_output_matrix(found.config, model_.model().layout())),
      end_tokens_(end_tokens_of(found.location.config_directory, model_.tokenizer())),
      logits_(found.config.vocab_size) {}

std::vector<std::int32_t> Generator::encode(std::string_view prompt) const {
  text::Encoding encoding;
  model_.tokenizer().encode(prompt, encoding);
  std::vector<std::int32_t> tokens;
  if (const auto begin = model_.tokenizer().text_frame().begin) tokens.push_back(*begin);
  tokens.insert(tokens.end(), encoding.ids.begin(), encoding.ids.end());
  if (tokens.empty()) raise<DataError>("the prompt has no token; expected a text");
  return tokens;
}

std::span<const float> Generator::logits_behind(std::span<const std::int32_t> tokens,
                                                models::KeyValues& past) {
  const std::size_t H = output_.in_features();
  nn::PackedBatch batch;
  while (!tokens.empty()) {
    const auto some = tokens.first(std::min(tokens.size(), InferenceModel::kRowsBehind));
    batch.clear();
    batch.append(some, {}, 0);
    hidden_.resize(some.size() * H);
    model_.forward_behind(batch, past, hidden_);
    tokens = tokens.subspan(some.size());
  }
  kernels::linear_forward<float>(model_.context(), 1, output_, hidden_.data() + hidden_.size() - H,
                                 nullptr, logits_.data());
  return logits_;
}

Generation Generator::generate(std::string_view prompt, const GenerationOptions& options,
                               FunctionRef<void(std::string_view)> on_text) {
  const std::vector<std::int32_t> start = encode(prompt);
  const std::size_t positions = model_.model().config().max_tokens();
  if (start.size() + options.max_new_tokens > positions) {
    raise<ConfigError>(
        "the prompt has {} tokens, with --max_new_tokens {} more than the model's {} positions; "
        "shorten one of them",
        start.size(), options.max_new_tokens, positions);
  }
  models::KeyValues past =
      model_.model().make_key_values(start.size() + options.max_new_tokens, model_.precision());
  Generation made;
  TextFromBytes characters;
  const auto add = [&](const std::string& text) {
    made.text += text;
    if (!text.empty()) on_text(text);
  };
  std::span<const float> logits = logits_behind(start, past);
  while (made.tokens.size() < options.max_new_tokens) {
    const std::size_t position = start.size() + made.tokens.size();
    const auto token = static_cast<std::int32_t>(choose_token(logits, options.sampling, position));
    made.stopped = std::ranges::find(end_tokens_, token) != end_tokens_.end();
    if (made.stopped) break;
    made.tokens.push_back(token);
    if (!model_.tokenizer().is_special(token))
      add(characters.take(model_.tokenizer().bytes_of(token)));
    if (made.tokens.size() < options.max_new_tokens)
      logits = logits_behind({&made.tokens.back(), 1}, past);
  }
  add(characters.finish());
  return made;
}

}  // namespace tandem::apps
