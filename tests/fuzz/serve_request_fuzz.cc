// Requests to `tandem serve`, from what the server has read to what it will send, with the demo's
// model behind it: every request gets an answer of the documented form, and an answer that is found
// is the text of its span.
//
// An input is a line "METHOD PATH HOST ORIGIN" and the body.
#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string_view>

#include "apps/serve/completion_endpoint.h"
#include "apps/serve/label_endpoint.h"
#include "apps/serve/question_endpoint.h"
#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/text/utf8.h"

namespace {

using namespace tandem;

// Longer ones would only be more windows, and fewer inputs a second.
constexpr std::size_t kMaxContext = 4096;

std::size_t byte_of_code_point(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  for (; index > 0 && at < text.size(); --index) {
    ++at;
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
  }
  return at;
}

apps::ModelOptions demo_model() {
  apps::ModelOptions model;
  model.files.model_name_or_path =
      (std::filesystem::path(TANDEM_SOURCE_DIR) / "examples" / "demo" / "model").string();
  return model;
}

void check_answers(const std::vector<apps::Answer>& answers, const std::string& context,
                   std::size_t n_best) {
  fuzz::require(!answers.empty() && answers.size() <= n_best);
  for (const apps::Answer& answer : answers) {
    fuzz::require(answer.probability >= 0 && answer.probability <= 1);
    fuzz::require(answer.span.has_value() == !answer.text.empty());
    if (!answer.span) continue;
    const std::size_t begin = byte_of_code_point(context, answer.span->start);
    const std::size_t end = byte_of_code_point(context, answer.span->end);
    fuzz::require(begin <= end && context.substr(begin, end - begin) == answer.text);
  }
}

std::vector<std::vector<apps::Answer>> find_answers(std::span<const apps::Question> questions,
                                                    const apps::AnswerOptions& options,
                                                    const std::stop_token& cancelled) {
  static const Environment environment(
      std::map<std::string, std::string, std::less<>>{{"OMP_NUM_THREADS", "1"}});
  static apps::Reader reader(apps::FoundModel(demo_model(), environment), environment);
  std::size_t total = 0;
  for (const apps::Question& question : questions) total += question.context.size();
  if (total > kMaxContext) raise<DataError>("too long for this target");
  const auto answers = reader.answer(questions, options, cancelled);
  fuzz::require(answers.size() == questions.size());
  for (std::size_t i = 0; i < answers.size(); ++i)
    check_answers(answers[i], questions[i].context, options.n_best);
  return answers;
}

apps::HttpRequest request_of(std::string_view input) {
  const std::size_t end = std::min(input.find('\n'), input.size());
  std::string_view line = input.substr(0, end);
  std::array<std::string, 4> words;
  for (std::string& word : words) {
    const std::size_t space = std::min(line.find(' '), line.size());
    word = line.substr(0, space);
    line.remove_prefix(std::min(space + 1, line.size()));
  }
  return {.method = words[0],
          .path = words[1],
          .host = words[2],
          .origin = words[3],
          .body = std::string(input.substr(std::min(end + 1, input.size())))};
}

// Every letter is a token.
std::vector<std::vector<apps::LabelledToken>> find_tokens(std::span<const apps::LabelledText> texts,
                                                          const apps::LabelOptions&,
                                                          const std::stop_token&) {
  std::vector<std::vector<apps::LabelledToken>> found;
  for (const apps::LabelledText& text : texts) {
    auto& tokens = found.emplace_back();
    const std::size_t length = tandem::text::count_code_points(text.text);
    for (std::size_t i = 0; i < length; ++i) {
      tokens.push_back({.begin = i,
                        .end = i + 1,
                        .continues_word = i % 3 == 1,
                        .probabilities = {i % 2 == 0 ? 0.5 : 0.1, 0.3, 0.2}});
    }
  }
  return found;
}

std::vector<std::vector<apps::LabelScore>> find_labels(std::span<const apps::LabelledText> texts,
                                                       const apps::LabelOptions&,
                                                       std::optional<apps::Scores>,
                                                       const std::stop_token&) {
  return std::vector<std::vector<apps::LabelScore>>(texts.size(), {{2, 0.5}, {0, 0.3}, {1, 0.2}});
}

// Every byte is a token.
std::vector<std::int32_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()),
          reinterpret_cast<const std::uint8_t*>(text.data()) + text.size()};
}

std::vector<std::int32_t> bytes_of_chat(const nlohmann::ordered_json& messages) {
  std::vector<std::int32_t> tokens;
  for (const auto& message : messages) {
    const auto text = bytes_of(message.at("content").get_ref<const std::string&>());
    tokens.insert(tokens.end(), text.begin(), text.end());
  }
  return tokens;
}

// The begin of the prompt.
apps::Generation repeat_prompt(std::span<const std::int32_t> prompt,
                               const apps::GenerationOptions& options,
                               FunctionRef<void(std::string_view)> on_text,
                               const std::stop_token&) {
  const std::size_t count = std::min(prompt.size(), options.max_new_tokens);
  apps::Generation made;
  made.tokens.assign(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(count));
  made.text.assign(count, 'a');
  on_text(made.text);
  return made;
}

// Server-sent events, the last of which ends the stream.
void check_stream(const apps::HttpResponse& response) {
  std::string sent;
  response.stream([&](std::string_view piece) { sent += piece; }, {});
  fuzz::require(response.status == 200 && sent.starts_with("data: ") &&
                sent.ends_with("data: [DONE]\n\n"));
}

void check(const apps::InferenceService& service, const std::uint8_t* data, std::size_t size) {
  const apps::HttpRequest request = request_of({reinterpret_cast<const char*>(data), size});
  const apps::HttpResponse response = service.handle(request);
  constexpr std::array<int, 5> kStatuses = {200, 400, 403, 404, 405};
  fuzz::require(std::find(kStatuses.begin(), kStatuses.end(), response.status) != kStatuses.end());
  fuzz::require((response.status == 405) == !response.allow.empty());
  if (response.stream) return check_stream(response);
  if (response.content_type != "application/json") {
    fuzz::require(response.status == 200 && request.method != "POST");
    return;
  }
  const auto body = nlohmann::json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  fuzz::require(!body.is_discarded());
  if (response.status != 200) fuzz::require(body.is_object() && body.contains("error"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const apps::ServiceOptions options{
      .model = "demo", .num_parameters = 1, .allowed_hosts = {}};
  static const std::vector<std::string> labels = {"B-a", "I-a", "O"};
  // Each text has a thread of its own.
  static const apps::CompletionLimits limits{
      .positions = 4096, .max_new_tokens = 256, .max_texts = 3, .time_limit = {}};
  static const std::array services = {
      apps::InferenceService(options, apps::question_endpoint({}, 32, find_answers)),
      apps::InferenceService(options, apps::text_endpoint({}, 32, labels, find_labels)),
      apps::InferenceService(
          options, apps::token_endpoint({}, apps::Aggregation::kFirst, 32, labels, find_tokens)),
      apps::InferenceService(options, apps::completion_endpoint("demo", limits, {{"chat", true}},
                                                                {.tokens_of_text = bytes_of,
                                                                 .tokens_of_chat = bytes_of_chat,
                                                                 .generate = repeat_prompt}))};
  // A request has 10,000 values at most, so its JSON is little more than its texts, which are kept
  // as parsed and as questions; the windows of 4 KB of context and the answers take the rest.
  const fuzz::MemoryLimit limit(64 * size + (std::size_t{2} << 20));
  for (const apps::InferenceService& service : services) check(service, data, size);
  return 0;
}
