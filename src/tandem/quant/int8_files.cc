#include "tandem/quant/int8_files.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <set>
#include <string>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/formats/safetensors.h"
#include "tandem/models/pretrained/weight_files.h"
#include "tandem/quant/quantization_config.h"

namespace tandem::quant {
namespace {

namespace fs = std::filesystem;
using formats::DType;
using formats::TensorView;

// The kernels take inputs as u8, the format as s8: the same grid, moved by this.
constexpr int kSignedShift = 128;

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span<const T>(&value, 1));
}

// The tensors of quantized modules, and what they point to.
class Int8Tensors {
 public:
  void add(const QuantizedLinear& linear) {
    const std::size_t columns = linear.weight.columns;
    std::size_t row = 0;
    for (const LinearModule& module : linear.layer.modules) {
      const std::size_t rows = module.out_features;
      const std::span values(linear.weight.values);
      const std::span scales(linear.weight.scale);
      weights_.insert(module.name + ".weight");
      tensors_.push_back({.name = module.name + ".weight",
                          .dtype = DType::kI8,
                          .shape = {rows, columns},
                          .bytes = std::as_bytes(values.subspan(row * columns, rows * columns))});
      tensors_.push_back({.name = module.name + ".weight_scale",
                          .dtype = DType::kF32,
                          .shape = {rows, 1},
                          .bytes = std::as_bytes(scales.subspan(row, rows))});
      if (linear.input) add_input(module.name, *linear.input);
      row += rows;
    }
  }
  void add(TensorView tensor) {
    if (!weights_.contains(tensor.name)) tensors_.push_back(std::move(tensor));
  }
  std::span<const TensorView> tensors() const { return tensors_; }

 private:
  void add_input(const std::string& module, const kernels::Int8Range& range) {
    const auto zero_point = static_cast<std::int8_t>(range.zero_point - kSignedShift);
    tensors_.push_back({.name = module + ".input_scale",
                        .dtype = DType::kF32,
                        .shape = {1},
                        .bytes = bytes_of(scales_.emplace_back(range.scale))});
    tensors_.push_back({.name = module + ".input_zero_point",
                        .dtype = DType::kI8,
                        .shape = {1},
                        .bytes = bytes_of(zero_points_.emplace_back(zero_point))});
  }

  std::vector<TensorView> tensors_;
  std::set<std::string, std::less<>> weights_;
  std::deque<float> scales_;  // a deque: what tensors_ points to stays where it is
  std::deque<std::int8_t> zero_points_;
};

// Reads what belongs to one module.
class ModuleReader {
 public:
  // `name` is the module's, `file_name` the one it has in the files.
  ModuleReader(const models::WeightFiles& files, const QuantizationConfig& quantization,
               std::string name, std::string file_name)
      : files_(files),
        quantization_(quantization),
        name_(std::move(name)),
        file_name_(std::move(file_name)) {}

  void read_weight(std::size_t rows, std::size_t columns, Int8Matrix& matrix) const {
    const TensorView& weight = tensor(".weight", DType::kI8, {rows, columns});
    const auto* values = reinterpret_cast<const std::int8_t*>(weight.bytes.data());
    matrix.values.insert(matrix.values.end(), values, values + weight.bytes.size());
    const std::vector<float> scales = floats(".weight_scale", {rows, 1});
    for (const float scale : scales) check_scale(".weight_scale", scale);
    matrix.scale.insert(matrix.scale.end(), scales.begin(), scales.end());
    if (find(".weight_zero_point") == nullptr) return;
    for (const std::byte value : tensor(".weight_zero_point", DType::kI8, {rows, 1}).bytes) {
      if (value != std::byte{0}) fail(".weight_zero_point", "not 0", "0: weights are symmetric");
    }
  }

  std::optional<kernels::Int8Range> read_input() const {
    if (quantization_.dynamic) return std::nullopt;
    kernels::Int8Range range;
    range.scale = floats(".input_scale", {1}).front();
    check_scale(".input_scale", range.scale);
    int zero_point = 0;
    if (!quantization_.symmetric_inputs || find(".input_zero_point") != nullptr) {
      zero_point =
          static_cast<std::int8_t>(tensor(".input_zero_point", DType::kI8, {1}).bytes.front());
    }
    range.zero_point = static_cast<std::uint8_t>(zero_point + kSignedShift);
    return range;
  }

 private:
  const TensorView* find(std::string_view suffix) const {
    return files_.find(file_name_ + std::string(suffix));
  }
  [[noreturn]] void fail(std::string_view suffix, std::string_view found,
                         std::string_view expected) const {
    raise<DataError>("{}: tensor '{}{}' is {}; expected {}", files_.path().string(), name_, suffix,
                     found, expected);
  }
  void check_scale(std::string_view suffix, float scale) const {
    if (!(scale > 0) || !std::isfinite(scale))
      fail(suffix, fmt::format("{}", scale), "positive finite scales");
  }
  static std::vector<std::size_t> extents(std::span<const std::size_t> shape) {
    return {shape.begin(), shape.end()};
  }
  const TensorView& shaped(std::string_view suffix,
                           std::initializer_list<std::size_t> shape) const {
    const TensorView* found = find(suffix);
    const std::vector<std::size_t> expected(shape);
    if (found == nullptr) {
      fail(suffix, "missing",
           fmt::format("{}, for '{}.weight' is I8", formats::shape_to_string(expected), name_));
    }
    if (found->shape != expected)
      fail(suffix, formats::shape_to_string(found->shape), formats::shape_to_string(expected));
    return *found;
  }
  const TensorView& tensor(std::string_view suffix, DType dtype,
                           std::initializer_list<std::size_t> shape) const {
    const TensorView& found = shaped(suffix, shape);
    if (found.dtype != dtype)
      fail(suffix, formats::to_string(found.dtype), formats::to_string(dtype));
    return found;
  }
  std::vector<float> floats(std::string_view suffix,
                            std::initializer_list<std::size_t> shape) const {
    const TensorView& found = shaped(suffix, shape);
    if (!formats::is_float(found.dtype))
      fail(suffix, formats::to_string(found.dtype), formats::kFloatNames);
    std::vector<float> values(found.size());
    formats::copy_to_float(found, values);
    return values;
  }

  const models::WeightFiles& files_;
  const QuantizationConfig& quantization_;
  std::string name_, file_name_;
};

// The name that a module has in the files: with or without the base prefix.
std::string file_name_of(const models::WeightFiles& files, const std::string& module,
                         std::string_view prefix) {
  const bool whole = files.find(module + ".weight") != nullptr || !module.starts_with(prefix);
  return whole ? module : module.substr(prefix.size());
}

class LinearReader {
 public:
  LinearReader(const fs::path& directory, const models::ModelConfig& config,
               const QuantizationConfig& quantization)
      : files_(directory), prefix_(config.family->base_prefix), quantization_(quantization) {}

  // Nothing: the layer is in f32.
  std::optional<QuantizedLinear> read(const LinearLayer& layer) {
    if (!is_int8(layer)) return std::nullopt;
    QuantizedLinear linear{.layer = layer, .weight = {}, .input = std::nullopt};
    linear.weight.rows = layer.linear.out_features;
    linear.weight.columns = layer.linear.in_features;
    for (const LinearModule& module : layer.modules) {
      const ModuleReader reader(files_, quantization_, module.name, file_name(module));
      reader.read_weight(module.out_features, layer.linear.in_features, linear.weight);
      const auto input = reader.read_input();
      if (&module != &layer.modules.front() && input != linear.input) {
        raise<DataError>(
            "{}: the input ranges of '{}' and '{}' differ; tandem computes them as one product, so "
            "expected equal input_scale and input_zero_point",
            files_.path().string(), layer.modules.front().name, module.name);
      }
      linear.input = input;
      read_.insert(file_name(module) + ".weight");
    }
    return linear;
  }

  // After all layers.
  void check_nothing_is_left() const {
    for (const TensorView& tensor : files_.tensors()) {
      if (tensor.dtype != DType::kI8 || read_.contains(tensor.name) ||
          tensor.name.ends_with("_zero_point"))
        continue;
      raise<DataError>(
          "{}: tensor '{}' is I8; expected F32, F16 or BF16: only weights of the encoder's linear "
          "layers can be int8",
          files_.path().string(), tensor.name);
    }
    if (read_.empty()) {
      raise<DataError>("{}: config.json states int8, but no linear layer's weight is I8",
                       files_.path().string());
    }
  }

 private:
  std::string file_name(const LinearModule& module) const {
    return file_name_of(files_, module.name, prefix_);
  }

  bool is_int8(const LinearLayer& layer) const {
    std::size_t count = 0;
    for (const LinearModule& module : layer.modules) {
      const TensorView* weight = files_.find(file_name(module) + ".weight");
      if (weight == nullptr || weight->dtype != DType::kI8) continue;
      ++count;
      const auto& ignore = quantization_.ignore;
      if (std::find(ignore.begin(), ignore.end(), module.name) != ignore.end()) {
        raise<DataError>(
            "{}: '{}.weight' is I8, but config.json lists the module under "
            "quantization_config.ignore",
            files_.path().string(), module.name);
      }
    }
    if (count == 0 || count == layer.modules.size()) return count != 0;
    raise<DataError>(
        "{}: {} of the {} modules '{}' … '{}' are I8; tandem computes them as one product, so "
        "expected all or none",
        files_.path().string(), count, layer.modules.size(), layer.modules.front().name,
        layer.modules.back().name);
  }

  models::WeightFiles files_;
  std::string_view prefix_;
  QuantizationConfig quantization_;
  std::set<std::string, std::less<>> read_;
};

bool is_quantization_parameter(std::string_view name) {
  return name.ends_with(".weight_scale") || name.ends_with(".weight_zero_point") ||
         name.ends_with(".input_scale") || name.ends_with(".input_zero_point");
}

}  // namespace

void save_int8(const fs::path& directory, const models::ModelConfig& config,
               std::string_view architecture, const nn::ParameterLayout& layout,
               std::span<const float> weights, std::span<const QuantizedLinear> linears) {
  Int8Tensors tensors;
  QuantizationConfig quantization;
  quantization.dynamic = !linears.empty() && !linears.front().input;
  std::set<std::string, std::less<>> quantized;
  for (const QuantizedLinear& linear : linears) {
    if (linear.input.has_value() == quantization.dynamic)
      raise<InvalidArgument>("static and dynamic layers in one model; expected one kind");
    tensors.add(linear);
    for (const LinearModule& module : linear.layer.modules) quantized.insert(module.name);
  }
  constexpr std::string_view kWeight = ".weight";
  for (const nn::ParameterSpec& parameter : layout.parameters()) {
    tensors.add({.name = parameter.name,
                 .dtype = DType::kF32,
                 .shape = parameter.shape,
                 .bytes = std::as_bytes(weights.subspan(parameter.offset, parameter.size))});
    if (parameter.kind != nn::ParameterKind::kWeight) continue;
    std::string module = parameter.name.substr(0, parameter.name.size() - kWeight.size());
    if (!quantized.contains(module)) quantization.ignore.push_back(std::move(module));
  }
  formats::write_safetensors(directory / "model.safetensors", tensors.tensors());
  write_file(directory / "config.json", config_json(config, architecture, quantization));
}

std::vector<QuantizedLinear> load_linears(const fs::path& directory,
                                          const models::ModelConfig& config,
                                          const QuantizationConfig& quantization,
                                          const nn::ParameterLayout& layout) {
  LinearReader reader(directory, config, quantization);
  std::vector<QuantizedLinear> linears;
  for (const LinearLayer& layer : linear_layers(layout)) {
    if (auto linear = reader.read(layer)) linears.push_back(std::move(*linear));
  }
  reader.check_nothing_is_left();
  return linears;
}

models::LoadReport load_other_weights(const fs::path& directory, const models::ModelConfig& config,
                                      const nn::ParameterLayout& layout,
                                      std::span<const QuantizedLinear> linears,
                                      std::span<float> weights,
                                      const models::LoadOptions& options) {
  const auto taken = [](const TensorView& tensor, const nn::ParameterSpec* parameter) {
    return parameter == nullptr ? is_quantization_parameter(tensor.name)
                                : tensor.dtype == DType::kI8;
  };
  models::LoadReport report =
      models::load_pretrained(directory, config, layout, weights, options, taken);
  for (const QuantizedLinear& linear : linears) {
    dequantize(linear.weight,
               weights.subspan(linear.layer.linear.weight, linear.weight.values.size()));
  }
  return report;
}

}  // namespace tandem::quant
