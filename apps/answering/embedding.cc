#include "apps/answering/embedding.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "apps/answering/framed_sequences.h"
#include "tandem/core/error.h"
#include "tandem/tasks/text_classification/text_features.h"

namespace tandem::apps {
namespace {

std::string prompt_text(const models::SentenceFiles& files, const EmbedOptions& options) {
  if (options.prompt) return *options.prompt;
  const auto name = options.prompt_name ? options.prompt_name : files.default_prompt_name;
  return name ? prompt_named(files, *name, "--prompt_name") : "";
}

void check_size(const EmbedOptions& options, std::size_t size) {
  if (options.truncate_dim > size) {
    raise<ConfigError>("--truncate_dim {}: the embeddings have {} values", options.truncate_dim,
                       size);
  }
}

}  // namespace

std::string prompt_named(const models::SentenceFiles& files, const std::string& name,
                         std::string_view flag) {
  const auto found = files.prompts.find(name);
  if (found != files.prompts.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, text] : files.prompts) names.push_back(known);
  raise<ConfigError>("{}: unknown prompt '{}', expected one of {}", flag, name,
                     fmt::join(names, ", "));
}

FoundModel find_bi_encoder(const ModelOptions& model, const Environment& environment) {
  return {model, environment, /*sentence=*/true, models::all_families()};
}

Embedder::Embedder(const FoundModel& found, EmbedOptions options, const Environment& environment)
    : options_(std::move(options)),
      files_(models::read_sentence_files(found.location.sentence_directory(), found.config)),
      prompt_(prompt_text(files_, options_)),
      model_(found, Purpose::kEmbeddings,
             std::bind_front(models::make_pooling_head, files_.poolings, files_.include_prompt),
             environment),
      frame_(model_.tokenizer().text_template()),
      tokenizing_(model_.num_threads()),
      size_(models::embedding_size(files_, found.config.hidden_size)) {
  check_size(options_, size_);
  if (options_.truncate_dim > 0) size_ = options_.truncate_dim;
  if (max_tokens() <= frame_.special_tokens_of_one())
    raise<ConfigError>("--max_seq_length {}: expected more than the {} special tokens",
                       max_tokens(), frame_.special_tokens_of_one());
}

std::size_t Embedder::max_tokens() const {
  std::size_t most = model_.max_tokens();
  if (options_.max_seq_length > 0) return std::min(most, options_.max_seq_length);
  return std::min(most, files_.max_seq_length.value_or(most));
}

std::size_t Embedder::unpooled_tokens(const std::string& prompt) const {
  if (files_.include_prompt) return 0;
  return text_classification::num_prompt_tokens(model_.tokenizer(), prompt, max_tokens());
}

void Embedder::encode(std::string_view text, FunctionRef<std::string()> name,
                      text::Encoding& encoding) const {
  try {
    model_.tokenizer().encode(text, encoding);
    text::require_a_token(frame_.special_tokens_of_one(), encoding.ids.size());
  } catch (const DataError& error) {
    raise<DataError>("{}: {}", name(), error.what());
  }
}

std::vector<std::vector<std::int32_t>> Embedder::tokenize(const std::string& prompt,
                                                          std::span<const std::string> texts,
                                                          const TextNumbers& numbers) {
  std::vector<std::vector<std::int32_t>> ids(texts.size());
  struct OfThread {
    std::string text;
    text::Encoding encoding;
  };
  std::vector<OfThread> threads(static_cast<std::size_t>(tokenizing_.num_threads()));
  const std::size_t room = max_tokens() - frame_.special_tokens_of_one();
  tokenizing_.parallel_for(texts.size(), [&](std::size_t i, int thread) {
    auto& [text, encoding] = threads[static_cast<std::size_t>(thread)];
    text.assign(prompt).append(texts[i]);
    encode(
        text, [&] { return fmt::format("{} {}", numbers.what, numbers.first + i); }, encoding);
    ids[i].assign(encoding.ids.begin(), encoding.ids.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                                   room, encoding.ids.size())));
  });
  return ids;
}

void Embedder::finish(std::span<const float> pooled, bool normalize, std::span<float> out) const {
  std::vector<float> embedding(pooled.begin(), pooled.end());
  models::apply_modules(files_.modules, embedding);
  embedding.resize(out.size());
  const models::EmbeddingModule normalization[] = {models::NormalizeModule{}};
  if (normalize) models::apply_modules(normalization, embedding);
  std::copy(embedding.begin(), embedding.end(), out.begin());
}

std::vector<float> Embedder::embed(const std::string& prompt, std::span<const std::string> texts,
                                   const TextNumbers& numbers, const std::stop_token& cancelled) {
  const auto ids = tokenize(prompt, texts, numbers);
  // Texts of one length are computed together: threads then end their work together.
  std::vector<std::size_t> order(texts.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return ids[a].size() > ids[b].size(); });
  auto sequences = std::make_shared<FramedSequences>();
  const std::size_t unpooled = unpooled_tokens(prompt);
  for (const std::size_t i : order) sequences->add(frame_, ids[i], unpooled);
  const std::vector<float> pooled = model_.logits_of(sequences, cancelled);
  const std::size_t width = texts.empty() ? 0 : pooled.size() / texts.size();
  std::vector<float> embeddings(texts.size() * size_);
  tokenizing_.parallel_for(order.size(), [&](std::size_t k, int) {
    finish(std::span(pooled).subspan(k * width, width), options_.normalize,
           std::span(embeddings).subspan(order[k] * size_, size_));
  });
  return embeddings;
}

Embeddings Embedder::answer(std::span<const TextToEmbed> texts, const EmbedRequest& request,
                            const std::stop_token& cancelled) {
  if (request.truncate_dim > size_)
    raise<DataError>("dimensions is {}, expected 1 to {}", request.truncate_dim, size_);
  const std::string prompt =
      request.prompt_name ? prompt_named(files_, *request.prompt_name, "prompt_name") : prompt_;
  const std::size_t unpooled = unpooled_tokens(prompt);
  const std::size_t room = max_tokens() - frame_.special_tokens_of_one();
  auto sequences = std::make_shared<FramedSequences>();
  Embeddings found{
      .values = {}, .size = request.truncate_dim > 0 ? request.truncate_dim : size_, .tokens = 0};
  text::Encoding encoding;
  for (const TextToEmbed& text : texts) {
    encode(
        prompt + text.text, [&] { return text.name; }, encoding);
    const std::size_t tokens = encoding.ids.size();
    if (tokens > room && !request.truncate) {
      raise<DataError>("{} has {} tokens, expected at most {}; shorten it or send truncate true",
                       text.name, tokens + frame_.special_tokens_of_one(), max_tokens());
    }
    const auto kept = std::span(encoding.ids).first(std::min(room, tokens));
    sequences->add(frame_, kept, unpooled);
    found.tokens += kept.size() + frame_.special_tokens_of_one();
  }
  const std::vector<float> pooled = model_.logits_of(sequences, cancelled);
  const std::size_t width = pooled.size() / texts.size();
  found.values.resize(texts.size() * found.size);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    finish(std::span(pooled).subspan(i * width, width), request.normalize,
           std::span(found.values).subspan(i * found.size, found.size));
  }
  return found;
}

}  // namespace tandem::apps
