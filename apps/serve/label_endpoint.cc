#include "apps/serve/label_endpoint.h"

#include <fmt/format.h>

#include <array>
#include <limits>

#include "apps/answering/label_json.h"
#include "apps/serve/request_json.h"
#include "tandem/core/json.h"

namespace tandem::apps {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

LabelledText labelled_text(const json& input, const std::string& name) {
  if (!input.is_string()) raise<DataError>("{} is a {}, expected a text", name, input.type_name());
  return {.name = name, .text = input.get<std::string>(), .pair = std::nullopt};
}

LabelledText text_or_pair_of(const json& input, const std::string& name) {
  if (!input.is_object()) return labelled_text(input, name);
  constexpr const char* kExpected = "a text or an object with text and text_pair";
  LabelledText text{
      .name = name, .text = text_entry(input, "text", name, kExpected), .pair = std::nullopt};
  if (input.contains("text_pair")) text.pair = text_entry(input, "text_pair", name, kExpected);
  return text;
}

// --- text classification ---

struct TextParameters {
  std::size_t top_k = std::numeric_limits<std::size_t>::max();
  std::optional<Scores> scores;
};

Scores scores_of(const json& value) {
  constexpr std::array<std::string_view, 3> kNames = {"softmax", "sigmoid", "none"};
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (value.is_string() && value.get_ref<const std::string&>() == kNames[i])
      return static_cast<Scores>(i);
  }
  raise<DataError>("parameters.function_to_apply is {}, expected softmax, sigmoid or none",
                   shown(value));
}

void set_parameter(const std::string& name, const json& value, TextParameters& parameters) {
  if (name == "top_k") {
    parameters.top_k = count_parameter(name, value, 1, 1 << 20);
  } else if (name == "function_to_apply") {
    parameters.scores = scores_of(value);
  } else {
    unknown_parameter(name, "top_k and function_to_apply");
  }
}

// --- token classification ---

struct TokenParameters {
  LabelOptions labels;
  Aggregation aggregation = Aggregation::kFirst;
  std::vector<std::string> ignored = {"O"};
};

std::vector<std::string> names_of(const std::string& name, const json& value) {
  if (!value.is_array())
    raise<DataError>("parameters.{} is {}, expected a list of labels", name, shown(value));
  std::vector<std::string> names;
  for (const json& label : value) {
    if (!label.is_string())
      raise<DataError>("parameters.{} has {}, expected labels", name, shown(label));
    names.push_back(label.get<std::string>());
  }
  return names;
}

void set_parameter(const std::string& name, const json& value, TokenParameters& parameters) {
  if (name == "aggregation_strategy") {
    const auto found = value.is_string() ? aggregation_of(value.get<std::string>()) : std::nullopt;
    if (!found) {
      raise<DataError>("parameters.{} is {}, expected one of {}", name, shown(value),
                       fmt::join(aggregation_names(), ", "));
    }
    parameters.aggregation = *found;
  } else if (name == "ignore_labels") {
    parameters.ignored = names_of(name, value);
  } else if (name == "stride") {
    parameters.labels.stride = count_parameter(name, value, 0, 1 << 20);
  } else {
    unknown_parameter(name, "aggregation_strategy, ignore_labels and stride");
  }
}

template <class Parameters>
Parameters parameters_of(const json& request, Parameters parameters) {
  for_each_parameter(request, [&](const std::string& name, const json& value) {
    set_parameter(name, value, parameters);
  });
  return parameters;
}

}  // namespace

Endpoint text_endpoint(const LabelOptions& options, std::size_t max_texts,
                       const std::vector<std::string>& labels, FindLabels find_labels) {
  const auto answer = [=](const json& request, const std::stop_token& cancelled) {
    const auto parameters = parameters_of(request, TextParameters{});
    const json& inputs = request["inputs"];
    const auto texts = read_inputs(inputs, max_texts, "texts", text_or_pair_of);
    std::vector<ordered_json> results;
    for (const auto& scores : find_labels(texts, options, parameters.scores, cancelled))
      results.push_back(labels_json(scores, labels, parameters.top_k));
    return ordered_json(std::move(results));  // a list for a single text, too, as the Hub's API
  };
  return {.task = "text-classification",
          .example = R"({"inputs": "a text"})",
          .info = {{"labels", labels}},
          .answer = answer};
}

Endpoint token_endpoint(const LabelOptions& options, Aggregation aggregation, std::size_t max_texts,
                        const std::vector<std::string>& labels, FindTokens find_tokens) {
  const auto answer = [=](const json& request, const std::stop_token& cancelled) {
    const auto parameters =
        parameters_of(request, TokenParameters{.labels = options, .aggregation = aggregation});
    const json& inputs = request["inputs"];
    const auto texts = read_inputs(inputs, max_texts, "texts", labelled_text);
    const auto found = find_tokens(texts, parameters.labels, cancelled);
    std::vector<ordered_json> results;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      results.push_back(entities_json(
          texts[i].text, entities(found[i], labels, parameters.aggregation, parameters.ignored),
          parameters.aggregation));
    }
    return inputs.is_array() ? ordered_json(std::move(results)) : std::move(results.front());
  };
  return {.task = "token-classification",
          .example = R"({"inputs": "a text"})",
          .info = {{"labels", labels},
                   {"aggregation_strategy",
                    aggregation_names()[static_cast<std::size_t>(aggregation)]}},
          .answer = answer};
}

}  // namespace tandem::apps
