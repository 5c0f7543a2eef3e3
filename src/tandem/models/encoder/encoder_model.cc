#include "tandem/models/encoder/encoder_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/models/encoder/lora.h"
#include "tandem/nn/low_rank.h"

namespace tandem::models {
namespace {

ModelConfig validated(ModelConfig config) {
  config.validate("model configuration");
  return config;
}

// Number of weights in matrices, which is what a product with each of them reads.
double num_weights(const nn::ParameterLayout& layout) {
  std::size_t total = 0;
  for (const nn::ParameterSpec& parameter : layout.parameters()) {
    if (parameter.shape.size() == 2) total += parameter.size;
  }
  return static_cast<double>(total);
}

nn::Pass pass_of(const kernels::Context& context, const nn::Weights& weights,
                 const nn::PackedBatch& batch, const nn::DropoutStream& dropout,
                 std::span<std::byte> low_rank) {
  return {.context = context,
          .weights = weights,
          .sequences = batch.sequences(),
          .dropout = dropout,
          .low_rank_memory = low_rank,
          .unpooled = batch.unpooled};
}

// An empty layout: of one zone, or with the sizes of its zones, which the same parameters in a
// layout of its own give.
nn::ParameterLayout empty_layout(const ModelConfig& config, const MakeHead& make_head) {
  if (!config.lora) return {};
  const auto trained = std::make_shared<LoraParts>(*config.lora, config);
  nn::ParameterLayout measured(trained);
  const std::unique_ptr<const Head> head = make_head(config, measured);
  const Encoder encoder(config, measured);
  trained->require_matches();
  return {trained, measured};
}

// Whether a layer keeps something of a row for those behind it.
bool keeps_rows(const std::vector<std::size_t>& widths) {
  return std::ranges::any_of(widths, [](std::size_t width) { return width > 0; });
}

}  // namespace

EncoderModel::EncoderModel(ModelConfig config, const MakeHead& make_head)
    : config_(validated(std::move(config))),
      layout_(empty_layout(config_, make_head)),
      head_(make_head(config_, layout_)),
      head_end_(layout_.trained_size()),
      head_linears_(layout_.linears().size()),
      head_weights_(head_->shape().outside || head_->shape().few_products ? 0
                                                                          : num_weights(layout_)),
      encoder_(config_, layout_) {
  head_->layout_complete(layout_);
}

std::string EncoderModel::architecture() const {
  return fmt::format("{}{}", config_.family->class_prefix, head_->shape().class_suffix);
}

// The multiply-adds of the adapters at the layers of this stage, for one of these layers' own.
// Layers below the lowest trained one have no adapters.
double EncoderModel::adapter_share(std::string_view stage) const {
  double own = 0, adapters = 0;
  for (const nn::Linear& linear : layout_.linears()) {
    if (linear.name != stage) continue;
    own += static_cast<double>(linear.out_features) * static_cast<double>(linear.in_features);
    for (const nn::LowRankPart& part : linear.low_rank.parts)
      adapters +=
          static_cast<double>(part.rank) * static_cast<double>(linear.in_features + part.outputs);
  }
  if (adapters == 0) return 0;
  const double layers = static_cast<double>(encoder_.num_layers());
  return adapters / own * layers / (layers - static_cast<double>(encoder_.lowest_trained()));
}

// Products of a forward and a backward pass for one of the forward pass, at the lowest trained
// layer and above. A frozen layer has no product for the gradient of its weight.
double EncoderModel::products_per_forward(std::string_view stage) const {
  const bool frozen = layout_.has_frozen_base() && stage != "attention";
  return frozen ? 2 + 3 * adapter_share(stage) : 3;
}

// The products of all layers: of those below the lowest trained one the forward pass alone.
template <class Count>
double EncoderModel::products_of_layers(Count count) const {
  const std::size_t lowest = encoder_.lowest_trained();
  double products = 0;
  count(LayerRange{0, lowest}, [&](std::string_view, double number) { products += number; });
  count(LayerRange{lowest, encoder_.num_layers()}, [&](std::string_view stage, double number) {
    products += products_per_forward(stage) * number;
  });
  return products;
}

double EncoderModel::training_flops(std::size_t rows, std::size_t keys) const {
  const double of_layers = products_of_layers([&](LayerRange layers, Layer::AddProducts add) {
    encoder_.count_products(static_cast<double>(rows), static_cast<double>(keys),
                            head_->shape().reads_first_rows(), layers, add);
  });
  return 2 * (of_layers + 3 * head_weights_ * head_->units(static_cast<double>(rows), 1.0));
}

double EncoderModel::shared_training_flops(std::size_t longest) const {
  return 2 * products_of_layers([&](LayerRange layers, Layer::AddProducts add) {
           encoder_.count_shared_products(longest, layers, add);
         });
}

void EncoderModel::count_products(std::size_t rows, std::size_t keys,
                                  Layer::AddProducts add) const {
  encoder_.count_products(static_cast<double>(rows), static_cast<double>(keys),
                          head_->shape().reads_first_rows(), {0, encoder_.num_layers()}, add);
}

double EncoderModel::training_flops(const nn::PackedBatch& batch) const {
  double flops = 0;
  std::size_t longest = 0;
  for (std::size_t i = 0; i < batch.num_sequences(); ++i) {
    const std::size_t rows = batch.row_begin[i + 1] - batch.row_begin[i];
    longest = std::max(longest, rows);
    flops += training_flops(rows, batch.key_count[i]);
  }
  return flops + shared_training_flops(longest);
}

void EncoderModel::plan(Arena& arena, const BatchShape& batch, Activations& activations) const {
  const PassKind kind = activations.kind_;
  encoder_.plan(arena, batch.rows, head_->shape().reads_first_rows() ? batch.sequences : 0, kind,
                activations.encoder_);
  const std::size_t memory = head_->memory(batch.rows, batch.sequences, is_training(kind));
  activations.head_ = memory == 0 ? std::span<float>() : arena.allocate<float>(memory);
  const std::size_t low_rank = low_rank_bytes(batch, activations.precision());
  activations.low_rank_ =
      low_rank == 0 ? std::span<std::byte>() : arena.allocate<std::byte>(low_rank);
}

// The largest of all layers: one at a time uses it. Heads compute in f32.
std::size_t EncoderModel::low_rank_bytes(const BatchShape& batch, nn::Precision precision) const {
  std::size_t largest = 0;
  const std::vector<nn::Linear>& linears = layout_.linears();
  for (std::size_t i = 0; i < linears.size(); ++i) {
    const bool of_head = i < head_linears_;
    const std::size_t rows =
        of_head ? head_->units(batch.rows, batch.sequences) : encoder_.product_rows(batch.rows);
    largest = std::max(largest, nn::low_rank_bytes(linears[i], rows,
                                                   of_head ? nn::Precision::kFloat32 : precision));
  }
  return largest;
}

Activations EncoderModel::make_activations(const BatchShape& capacity, nn::Precision precision,
                                           PassKind kind, const Activations* within) const {
  Activations activations;
  if (within != nullptr) activations.memory_ = within->memory_;
  activations.capacity_ = capacity;
  activations.kind_ = kind;
  if (precision == nn::Precision::kBfloat16) {
    activations.encoder_.tensors.emplace<EncoderTensors<bfloat16>>();
  }
  Arena measure;
  plan(measure, capacity, activations);
  Activations::Memory& memory = *activations.memory_;
  ++memory.passes;  // whatever lay in it is given up
  if (memory.arena.capacity() < measure.used()) memory.arena = Arena(measure.used());
  memory.arena.reset();
  plan(memory.arena, capacity, activations);
  if (head_->shape().reads_first_rows()) {
    activations.first_row_begin_.resize(capacity.sequences + 1);
    std::iota(activations.first_row_begin_.begin(), activations.first_row_begin_.end(), 0u);
    activations.first_key_count_.assign(capacity.sequences, 1);
  }
  return activations;
}

// The pass of the first row of each sequence, as sequences of one row.
nn::Pass EncoderModel::first_rows(const nn::Pass& pass, const Activations& activations) const {
  const std::size_t count = pass.sequences.count();
  return {pass.context,
          pass.weights,
          {.row_begin = std::span(activations.first_row_begin_).first(count + 1),
           .key_count = std::span(activations.first_key_count_).first(count),
           .sample = pass.sequences.sample},
          pass.dropout,
          pass.low_rank_memory};
}

void EncoderModel::check_pass(const nn::Weights& weights, const nn::PackedBatch& batch,
                              const Activations& activations, std::size_t logits_size) const {
  const std::size_t rows = batch.rows();
  if (rows == 0 || rows > activations.capacity().rows ||
      batch.num_sequences() > activations.capacity().sequences) {
    raise<InvalidArgument>(
        "the batch has {} rows in {} sequences; expected 1 to {} rows in at most {}", rows,
        batch.num_sequences(), activations.capacity().rows, activations.capacity().sequences);
  }
  if (batch.row_begin.back() != rows || batch.token_type_ids.size() != rows) {
    raise<InvalidArgument>(
        "the batch has {} input ids, {} token types, and sequences of {} rows in all; expected "
        "equal "
        "numbers",
        rows, batch.token_type_ids.size(), batch.row_begin.back());
  }
  if (!batch.unpooled.empty() &&
      (batch.unpooled.size() != batch.num_sequences() || head_->shape().reads_first_rows())) {
    raise<InvalidArgument>("{} counts of tokens that are not pooled; expected {} or none",
                           batch.unpooled.size(),
                           head_->shape().reads_first_rows() ? 0 : batch.num_sequences());
  }
  const std::size_t f32 = weights.bf16.empty() ? layout_.size() : layout_.operands_begin();
  if ((weights.f32.size() != layout_.size() && weights.f32.size() != f32) ||
      (!weights.bf16.empty() && weights.bf16.size() != layout_.bf16_size())) {
    raise<InvalidArgument>(
        "the weights have {} f32 and {} bf16 elements; expected {} and {} (or none)",
        weights.f32.size(), weights.bf16.size(), f32, layout_.bf16_size());
  }
  if (weights.observer != nullptr && !weights.bf16.empty()) {
    raise<InvalidArgument>("an observer of linear layers needs f32; found bf16 weights");
  }
  if (weights.observer != nullptr && is_training(activations.kind())) {
    raise<InvalidArgument>("an observer of linear layers needs activations of an inference");
  }
  if (weights.precision() != activations.precision()) {
    raise<InvalidArgument>("the activations were made for another precision than the weights have");
  }
  if (logits_size != num_logits(batch)) {
    raise<InvalidArgument>("room for {} logits; expected {} for {} rows in {} sequences",
                           logits_size, num_logits(batch), rows, batch.num_sequences());
  }
}

void EncoderModel::check_past(const nn::PackedBatch& batch, std::span<KeyValues* const> past,
                              const Activations& activations) {
  if (batch.num_sequences() != past.size() || is_training(activations.kind())) {
    raise<InvalidArgument>("{} sequences behind those of {}; expected as many of an inference",
                           batch.num_sequences(), past.size());
  }
  for (std::size_t i = 0; i < past.size(); ++i) {
    const std::size_t rows = batch.sequences().rows_of(i), before = past[i]->rows();
    if (batch.key_count[i] != rows || before + rows > past[i]->capacity() ||
        past[i]->precision() != activations.precision()) {
      raise<InvalidArgument>(
          "{} rows behind {}; expected rows without padding, up to {} rows in all", rows, before,
          past[i]->capacity());
    }
  }
}

void EncoderModel::check_backward(const nn::Weights& weights, const Activations& activations,
                                  std::size_t grads_size) const {
  if (!is_training(activations.kind())) {
    raise<InvalidArgument>("backward needs activations of a training pass; found inference");
  }
  if (activations.pass_ != activations.memory_->passes) {
    raise<InvalidArgument>(
        "backward after another pass in the same memory; it must follow its own forward");
  }
  if (weights.int8 != nullptr) {
    raise<InvalidArgument>("backward through int8 layers; they are for evaluation only");
  }
  if (grads_size != layout_.trained_size()) {
    raise<InvalidArgument>("room for {} gradients; expected {}", grads_size,
                           layout_.trained_size());
  }
}

void EncoderModel::forward(const kernels::Context& context, const nn::Weights& weights,
                           const nn::PackedBatch& batch, const nn::DropoutStream& dropout,
                           Activations& activations, std::span<float> logits) const {
  check_pass(weights, batch, activations, logits.size());
  Activations::Memory& memory = *activations.memory_;
  activations.pass_ = ++memory.passes;
  memory.arena.reset();
  plan(memory.arena, {batch.rows(), batch.num_sequences()}, activations);
  const nn::Pass pass = pass_of(context, weights, batch, dropout, activations.low_rank_);
  // An observer of linear layers must see their inputs for all rows.
  if (!head_->shape().reads_first_rows() || weights.observer != nullptr) {
    encoder_.forward(pass, batch, activations.encoder_, nullptr);
    head_->forward(pass, activations.encoder_.output, activations.head_, logits);
    return;
  }
  const nn::Pass first = first_rows(pass, activations);
  encoder_.forward(pass, batch, activations.encoder_, &first);
  head_->forward(first, activations.encoder_.output.first(first.rows() * config_.hidden_size),
                 activations.head_, logits);
}

bool EncoderModel::reads_last_rows_of_decoder() const {
  return head_->shape().reads == HeadShape::Reads::kLast && keeps_rows(encoder_.key_value_widths());
}

KeyValues EncoderModel::make_key_values(std::size_t capacity, nn::Precision precision) const {
  std::vector<std::size_t> widths = encoder_.key_value_widths();
  if (!keeps_rows(widths)) {
    raise<ConfigError>("model_type {} generates no text; expected a decoder",
                       config_.family->model_type);
  }
  if (capacity > config_.max_tokens()) {
    raise<ConfigError>("a text of {} tokens; the model has {} positions", capacity,
                       config_.max_tokens());
  }
  return {std::move(widths), capacity, precision};
}

void EncoderModel::forward_behind(const kernels::Context& context, const nn::Weights& weights,
                                  const nn::PackedBatch& batch, std::span<KeyValues* const> past,
                                  Activations& activations, std::span<float> logits) const {
  check_pass(weights, batch, activations, logits.size());
  check_past(batch, past, activations);
  Activations::Memory& memory = *activations.memory_;
  activations.pass_ = ++memory.passes;
  memory.arena.reset();
  plan(memory.arena, {batch.rows(), batch.num_sequences()}, activations);
  std::vector<std::uint32_t> past_rows;
  for (const KeyValues* kept : past) past_rows.push_back(static_cast<std::uint32_t>(kept->rows()));
  const nn::Pass pass{context, weights, batch.sequences(), {}, activations.low_rank_, past_rows};
  encoder_.forward(pass, batch, activations.encoder_, nullptr, past);
  head_->forward(pass, activations.encoder_.output, activations.head_, logits);
  for (std::size_t i = 0; i < past.size(); ++i) past[i]->keep(past[i]->rows() + batch.key_count[i]);
}

void EncoderModel::backward(const kernels::Context& context, const nn::Weights& weights,
                            const nn::PackedBatch& batch, const nn::DropoutStream& dropout,
                            std::span<const float> grad_logits, Activations& activations,
                            std::span<float> grads, bool accumulate,
                            FunctionRef<void(std::size_t end)> gradient_ready) const {
  check_pass(weights, batch, activations, grad_logits.size());
  check_backward(weights, activations, grads.size());
  const nn::Pass pass = pass_of(context, weights, batch, dropout, activations.low_rank_);
  const nn::Gradients gradients{grads, accumulate, head_->shape().shares_word_embeddings};
  const EncoderActivations& encoder = activations.encoder_;
  const bool reads_first_rows = head_->shape().reads_first_rows();
  const nn::Pass given = reads_first_rows ? first_rows(pass, activations) : pass;
  const std::size_t size = given.rows() * config_.hidden_size;
  head_->backward(given, encoder.output.first(size), activations.head_, grad_logits,
                  encoder.grad.first(size), gradients);
  // Several parts behind the last trained one end where it does.
  std::size_t ready = 0;
  const auto part_ready = [&](std::size_t end) {
    if (end > ready) gradient_ready(ready = end);
  };
  part_ready(head_end_);
  encoder_.backward(pass, batch, encoder, reads_first_rows ? &given : nullptr, gradients,
                    part_ready);
}

}  // namespace tandem::models
