#include "apps/serve/completion_request.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <random>
#include <string_view>
#include <utility>

#include "apps/serve/request_json.h"
#include "tandem/core/json.h"

namespace tandem::apps {
namespace {

using nlohmann::json;

constexpr std::int64_t kMostTokens = 1 << 20;

double number_of(const std::string& name, const json& value, double min, double max) {
  if (!value.is_number() || !(value.get<double>() >= min && value.get<double>() <= max))
    raise<DataError>("{} is {}, expected a number from {} to {}", name, shown(value), min, max);
  return value.get<double>();
}

// 0 asks for the likeliest tokens.
void set_temperature(const std::string& name, const json& value, CompletionFields& fields) {
  const double temperature = number_of(name, value, 0, 100);
  fields.options.sampling.sample = temperature > 0;
  if (temperature > 0) fields.options.sampling.temperature = temperature;
}

void set_top_k(const std::string& name, const json& value, CompletionFields& fields) {
  const bool all = value == -1;  // vLLM's
  fields.options.sampling.top_k = all ? 0 : count_value(name, value, 0, 1 << 30);
}

void set_seed(const std::string& name, const json& value, CompletionFields& fields) {
  if (!value.is_number_integer())
    raise<DataError>("{} is {}, expected an integer", name, shown(value));
  fields.options.sampling.seed = value.is_number_unsigned()
                                     ? value.get<std::uint64_t>()
                                     : static_cast<std::uint64_t>(value.get<std::int64_t>());
}

void set_stop(const std::string& name, const json& value, CompletionFields& fields) {
  constexpr std::size_t kMost = 16, kLongest = 1000;
  const json list = value.is_array() ? value : json::array({value});
  if (list.size() > kMost)
    raise<DataError>("{} has {} texts, expected at most {}", name, list.size(), kMost);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string where = value.is_array() ? fmt::format("{}[{}]", name, i) : name;
    if (!list[i].is_string() || list[i].get_ref<const std::string&>().empty() ||
        list[i].get_ref<const std::string&>().size() > kLongest)
      raise<DataError>("{} is {}, expected a text of 1 to {} bytes", where, shown(list[i]),
                       kLongest);
    fields.options.stop.push_back(list[i].get<std::string>());
  }
}

void set_max_tokens(const std::string& name, const json& value, CompletionFields& fields) {
  fields.max_tokens = count_value(name, value, 1, kMostTokens);
}

void set_stream_options(const std::string& name, const json& value, CompletionFields& fields) {
  if (!value.is_object())
    raise<DataError>("{} is {}, expected an object with include_usage", name, shown(value));
  for (const auto& [option, setting] : value.items()) {
    const std::string where = name + "." + option.substr(0, 80);
    if (option != "include_usage")
      raise<DataError>("{} is not known; known is include_usage", where);
    fields.include_usage = boolean_value(where, setting);
  }
}

using Set = std::function<void(const std::string& name, const json& value, CompletionFields&)>;

const std::map<std::string, Set>& openai_setters() {
  static const std::map<std::string, Set> setters = {
      {"temperature", set_temperature},
      {"top_p",
       [](const std::string& name, const json& value, CompletionFields& fields) {
         fields.options.sampling.top_p = number_of(name, value, 0, 1);
       }},
      {"top_k", set_top_k},
      {"seed", set_seed},
      {"stop", set_stop},
      {"max_tokens", set_max_tokens},
      {"max_completion_tokens", set_max_tokens},
      {"n",
       [](const std::string& name, const json& value, CompletionFields& fields) {
         fields.choices = count_value(name, value, 1, 1 << 10);
       }},
      {"stream", [](const std::string& name, const json& value,
                    CompletionFields& fields) { fields.stream = boolean_value(name, value); }},
      {"stream_options", set_stream_options}};
  return setters;
}

// Fields that change nothing.
constexpr std::string_view kIgnored[] = {"user",
                                         "metadata",
                                         "store",
                                         "safety_identifier",
                                         "service_tier",
                                         "parallel_tool_calls",
                                         "prompt_cache_key"};

// Fields with the one value that asks for nothing.
const std::map<std::string, json>& neutral_fields() {
  static const std::map<std::string, json> fields = {{"best_of", 1},
                                                     {"echo", false},
                                                     {"suffix", ""},
                                                     {"logprobs", false},
                                                     {"top_logprobs", 0},
                                                     {"frequency_penalty", 0},
                                                     {"presence_penalty", 0},
                                                     {"repetition_penalty", 1},
                                                     {"min_p", 0},
                                                     {"logit_bias", json::object()},
                                                     {"tools", json::array()},
                                                     {"tool_choice", "none"},
                                                     {"response_format", {{"type", "text"}}}};
  return fields;
}

bool is_ignored(const std::string& name) {
  return std::ranges::find(kIgnored, name) != std::end(kIgnored);
}

void check_neutral(const std::string& name, const json& value) {
  const auto found = neutral_fields().find(name);
  if (found == neutral_fields().end())
    raise<DataError>("{} is not a known field of the request", name.substr(0, 80));
  if (value != found->second)
    raise<DataError>("{} is {}, expected {}: anything else is not supported", name, shown(value),
                     found->second.dump());
}

}  // namespace

CompletionFields::CompletionFields() {
  options.sampling.sample = true;
  options.sampling.top_k = 0;
  std::random_device random;
  options.sampling.seed = std::uint64_t{random()} << 32 | random();
}

CompletionFields openai_fields(const json& body, const std::string& input,
                               const CompletionLimits& limits) {
  CompletionFields fields;
  for (const auto& [name, value] : body.items()) {
    if (name == input || value.is_null() || is_ignored(name)) continue;
    if (name == "model") {  // one model is served, under any name
      string_value(name, value);
    } else if (const auto set = openai_setters().find(name); set != openai_setters().end()) {
      set->second(name, value, fields);
    } else {
      check_neutral(name, value);
    }
  }
  if (fields.choices > limits.max_texts)
    raise<DataError>("n is {}, expected at most {}", fields.choices, limits.max_texts);
  if (fields.include_usage && !fields.stream)
    raise<DataError>("stream_options needs \"stream\": true");
  return fields;
}

CompletionFields inference_fields(const json& body) {
  CompletionFields fields;
  SamplingOptions& sampling = fields.options.sampling;
  sampling.sample = false;
  for_each_parameter(body, [&](const std::string& name, const json& value) {
    if (name == "do_sample") {
      sampling.sample = boolean_value(name, value);
    } else if (name == "temperature") {
      sampling.temperature = number_of(name, value, 1e-3, 100);
    } else if (name == "max_new_tokens") {
      set_max_tokens(name, value, fields);
    } else if (name == "stop" || name == "stop_sequences") {
      set_stop(name, value, fields);
    } else if (name == "return_full_text") {
      fields.full_text = boolean_value(name, value);
    } else if (name == "top_p" || name == "top_k" || name == "seed") {
      openai_setters().at(name)(name, value, fields);
    } else {
      unknown_parameter(name,
                        "max_new_tokens, do_sample, temperature, top_k, top_p, seed, stop and "
                        "return_full_text");
    }
  });
  return fields;
}

std::vector<const char*> openai_field_names() {
  std::vector<const char*> names = {"prompt", "messages", "model"};
  for (const auto& [name, set] : openai_setters()) names.push_back(name.c_str());
  for (const auto& [name, value] : neutral_fields()) names.push_back(name.c_str());
  return names;
}

std::vector<std::string> prompts_of(const json& value, const std::string& name, std::size_t max) {
  if (value.is_string()) return {value.get<std::string>()};
  if (!value.is_array())
    raise<DataError>("{} is {}, expected a text or a list of texts", name, shown(value));
  if (value.empty() || value.size() > max)
    raise<DataError>("{} has {} texts, expected 1 to {}", name, value.size(), max);
  std::vector<std::string> prompts;
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (!value[i].is_string())
      raise<DataError>("{}[{}] is {}, expected a text (token ids are not supported)", name, i,
                       shown(value[i]));
    prompts.push_back(value[i].get<std::string>());
  }
  return prompts;
}

GenerationOptions options_for(std::size_t prompt_tokens, const CompletionFields& fields,
                              std::size_t otherwise, const CompletionLimits& limits) {
  if (prompt_tokens >= limits.positions)
    raise<DataError>("the prompt has {} tokens; the model's context has {} for prompt and answer",
                     prompt_tokens, limits.positions);
  const std::size_t room = limits.positions - prompt_tokens;
  if (fields.max_tokens && *fields.max_tokens > limits.max_new_tokens)
    raise<DataError>("max_tokens is {}, expected at most {}, which this server allows",
                     *fields.max_tokens, limits.max_new_tokens);
  if (fields.max_tokens && *fields.max_tokens > room)
    raise<DataError>(
        "max_tokens is {}, with {} tokens of the prompt more than the model's context of {}; ask "
        "for at most {}",
        *fields.max_tokens, prompt_tokens, limits.positions, room);
  GenerationOptions options = fields.options;
  options.time_limit = limits.time_limit;
  options.max_new_tokens =
      fields.max_tokens.value_or(std::min({room, limits.max_new_tokens, otherwise}));
  return options;
}

}  // namespace tandem::apps
