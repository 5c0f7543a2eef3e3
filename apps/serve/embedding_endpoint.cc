#include "apps/serve/embedding_endpoint.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <numeric>

#include "apps/serve/openai_forms.h"
#include "apps/serve/request_json.h"
#include "tandem/text/base64.h"

namespace tandem::apps {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// --- what all forms share ---

TextToEmbed text_to_embed(const json& input, const std::string& name) {
  if (input.is_string()) return {.name = name, .text = input.get<std::string>()};
  if (input.is_number() || (input.is_array() && !input.empty() && input.front().is_number())) {
    raise<DataError>(
        "{} is a list of token ids, which are not supported; expected a text (LangChain: "
        "check_embedding_ctx_length=False)",
        input.is_number() ? name.substr(0, name.find('[')) : name);
  }
  raise<DataError>("{} is a {}, expected a text", name, input.type_name());
}

std::vector<TextToEmbed> texts_to_embed(const json& inputs, const std::string& name,
                                        std::size_t max_texts) {
  if (!inputs.is_array()) return {text_to_embed(inputs, name)};
  if (inputs.empty() || (inputs.size() > max_texts && !inputs.front().is_number()))
    raise<DataError>("{} has {} texts, expected 1 to {}", name, inputs.size(), max_texts);
  std::vector<TextToEmbed> texts;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    texts.push_back(text_to_embed(inputs[i], fmt::format("{}[{}]", name, i)));
  return texts;
}

std::size_t dimensions_of(const json& value) {
  constexpr std::int64_t kMost = 1 << 20;  // a client of embeddings knows the model's number
  if (!value.is_number_integer() || value.get<std::int64_t>() < 1 ||
      value.get<std::int64_t>() > kMost)
    raise<DataError>("dimensions is {}, expected a positive integer", shown(value));
  return static_cast<std::size_t>(value.get<std::int64_t>());
}

[[noreturn]] void refuse_name(const std::string& name, const char* known) {
  raise<DataError>("{} is not known; known are {}", name.substr(0, 80), known);
}

// --- text-embeddings-inference ---

void set_parameter(const std::string& name, const json& value, EmbedRequest& request) {
  if (name == "normalize") {
    request.normalize = boolean_value(name, value);
  } else if (name == "truncate") {
    request.truncate = boolean_value(name, value);
  } else if (name == "prompt_name") {
    request.prompt_name = string_value(name, value);
  } else if (name == "dimensions") {
    request.truncate_dim = dimensions_of(value);
  } else if (name == "truncation_direction") {
    std::string side = string_value(name, value);
    if (side != "right" && side != "Right")
      raise<DataError>("truncation_direction is {}, expected right: the end is cut", shown(value));
  } else {
    refuse_name(name, "normalize, truncate, truncation_direction, prompt_name and dimensions");
  }
}

// Next to the inputs, as text-embeddings-inference has them, and in "parameters", as the Hub.
EmbedRequest parameters_of(const json& body) {
  EmbedRequest request;
  for (const auto& [name, value] : body.items()) {
    const bool other = name == "inputs" || name == "parameters" || name == "options";
    if (!other && !value.is_null()) set_parameter(name, value, request);
  }
  for_each_parameter(body, [&](const std::string& name, const json& value) {
    set_parameter(name, value, request);
  });
  return request;
}

ordered_json embed(const json& body, std::size_t max_texts, const FindEmbeddings& find,
                   const std::stop_token& cancelled) {
  const EmbedRequest request = parameters_of(body);
  const auto texts = texts_to_embed(body["inputs"], "inputs", max_texts);
  const Embeddings found = find(texts, request, cancelled);
  ordered_json all = ordered_json::array();
  for (std::size_t i = 0; i < texts.size(); ++i)
    all.push_back(std::span(found.values).subspan(i * found.size, found.size));
  return all;
}

ordered_json similarity(const json& body, std::size_t max_texts, const FindEmbeddings& find,
                        const std::stop_token& cancelled) {
  constexpr const char* kExpected = "an object with source_sentence and sentences";
  EmbedRequest request = parameters_of(body);
  request.normalize = true;
  const json& inputs = body["inputs"];
  std::vector<TextToEmbed> texts{
      {.name = "inputs.source_sentence",
       .text = text_entry(inputs, "source_sentence", "inputs", kExpected)}};
  if (!inputs.contains("sentences") || !inputs["sentences"].is_array())
    raise<DataError>("inputs has no list 'sentences'; expected {}", kExpected);
  for (TextToEmbed& text : texts_to_embed(inputs["sentences"], "inputs.sentences", max_texts))
    texts.push_back(std::move(text));
  const Embeddings found = find(texts, request, cancelled);
  const auto source = std::span(found.values).first(found.size);
  ordered_json cosines = ordered_json::array();
  for (std::size_t i = 1; i < texts.size(); ++i) {
    const auto sentence = std::span(found.values).subspan(i * found.size, found.size);
    cosines.push_back(std::inner_product(source.begin(), source.end(), sentence.begin(), 0.0));
  }
  return cosines;
}

// --- OpenAI ---

struct OpenAiRequest {
  EmbedRequest embed;
  bool base64 = false;
};

OpenAiRequest openai_request(const json& body) {
  OpenAiRequest request;
  for (const auto& [name, value] : body.items()) {
    if (name == "input" || name == "user" || value.is_null()) continue;
    if (name == "model") {
      string_value(name, value);  // one model is served, whatever clients call it
    } else if (name == "dimensions") {
      request.embed.truncate_dim = dimensions_of(value);
    } else if (name == "encoding_format") {
      request.base64 = value == "base64";
      if (!request.base64 && value != "float")
        raise<DataError>("encoding_format is {}, expected float or base64", shown(value));
    } else {
      refuse_name(name, "input, model, encoding_format, dimensions and user");
    }
  }
  return request;
}

std::string base64_of(std::span<const float> embedding) {
  std::string bytes;
  for (const float value : embedding) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(bits >> shift & 0xff);
  }
  return text::to_base64(bytes);
}

ordered_json openai_embeddings(const json& body, const std::string& model, std::size_t max_texts,
                               const FindEmbeddings& find, const std::stop_token& cancelled) {
  const OpenAiRequest request = openai_request(body);
  const auto texts = texts_to_embed(body["input"], "input", max_texts);
  const Embeddings found = find(texts, request.embed, cancelled);
  ordered_json data = ordered_json::array();
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto embedding = std::span(found.values).subspan(i * found.size, found.size);
    ordered_json entry = {{"object", "embedding"}, {"index", i}};
    if (request.base64)
      entry["embedding"] = base64_of(embedding);
    else
      entry["embedding"] = embedding;
    data.push_back(std::move(entry));
  }
  return {{"object", "list"},
          {"data", std::move(data)},
          {"model", model},
          {"usage", {{"prompt_tokens", found.tokens}, {"total_tokens", found.tokens}}}};
}

ordered_json embedding_error(int status, const std::string& message) {
  constexpr const char* kNames[] = {"input", "model", "encoding_format", "dimensions"};
  return openai_error(status, message, kNames);
}

}  // namespace

Endpoint embedding_endpoint(const std::string& model, std::size_t max_texts, ordered_json info,
                            FindEmbeddings find_embeddings) {
  using std::stop_token;
  const auto embeds = [=](const json& body, const stop_token& cancelled) {
    return embed(body, max_texts, find_embeddings, cancelled);
  };
  const auto compares = [=](const json& body, const stop_token& cancelled) {
    return similarity(body, max_texts, find_embeddings, cancelled);
  };
  const auto answer = [=](const json& body, const stop_token& cancelled) {
    return body["inputs"].is_object() ? compares(body, cancelled) : embeds(body, cancelled);
  };
  const auto openai = [=](const json& body, const stop_token& cancelled) {
    return openai_embeddings(body, model, max_texts, find_embeddings, cancelled);
  };
  const std::string texts = R"({"inputs": ["a text", "another"]})";
  return {.task = "feature-extraction",
          .example = texts,
          .info = std::move(info),
          .answer = answer,
          .routes = {{.path = "/embed", .key = "inputs", .example = texts, .answer = embeds},
                     {.path = "/similarity",
                      .key = "inputs",
                      .example =
                          R"({"inputs": {"source_sentence": "a text", "sentences": ["another"]}})",
                      .answer = compares},
                     {.path = "/v1/embeddings",
                      .key = "input",
                      .example = R"({"input": ["a text", "another"]})",
                      .answer = openai,
                      .error = embedding_error}},
          .documents = openai_models(model)};
}

}  // namespace tandem::apps
