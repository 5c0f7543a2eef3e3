#include "tandem/formats/torch_writer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <set>

#include "tandem/core/error.h"
#include "tandem/formats/torch_file.h"
#include "tandem/formats/torch_names.h"
#include "tandem/formats/zip_archive.h"

namespace tandem::formats {
namespace {

// The pickle of a value, instruction by instruction (protocol 2), and the tensors it refers to.
class Pickler {
 public:
  explicit Pickler(const TorchItem& root) {
    out_ = "\x80\x02";
    put(root);
    out_ += '.';
  }
  const std::string& pickle() const { return out_; }
  const std::vector<const TensorView*>& tensors() const { return tensors_; }

 private:
  void put(const TorchItem& item) {
    std::visit([this](const auto& value) { put_value(value); }, item.value);
  }
  void put_value(std::monostate) { out_ += 'N'; }
  void put_value(bool value) { out_ += value ? '\x88' : '\x89'; }
  void put_value(std::int64_t value) {
    if (value >= 0 && value < 256) {
      out_ += 'K';
      raw(static_cast<std::uint8_t>(value));
    } else if (std::in_range<std::int32_t>(value)) {
      out_ += 'J';
      raw(static_cast<std::int32_t>(value));
    } else {
      out_ += "\x8a\x08";
      raw(value);
    }
  }
  void put_value(double value) {  // the only number with its high bytes first
    out_ += 'G';
    auto bytes = std::bit_cast<std::array<char, sizeof(double)>>(value);
    std::reverse(bytes.begin(), bytes.end());
    out_.append(bytes.data(), bytes.size());
  }
  void put_value(const std::string& text) {
    out_ += 'X';
    raw(static_cast<std::uint32_t>(text.size()));
    out_ += text;
  }
  void put_value(const TorchItem::List& list) {
    out_ += list.is_tuple ? "(" : "](";
    for (const TorchItem& element : list.elements) put(element);
    out_ += list.is_tuple ? 't' : 'e';
  }
  void put_value(const TorchItem::Dict& dict) {
    out_ += dict.is_ordered ? kOrderedDict : "}";
    out_ += '(';
    for (const auto& [key, value] : dict.entries) {
      put(key);
      put(value);
    }
    out_ += 'u';
  }
  // torch._utils._rebuild_tensor_v2(storage, 0, shape, strides, requires_grad=False, hooks)
  void put_value(const TensorView& tensor) {
    out_ += "ctorch._utils\n_rebuild_tensor_v2\n((";
    put_value("storage");
    out_ += fmt::format("ctorch\n{}\n", torch_storage_type(tensor.dtype));
    put_value(fmt::format("{}", tensors_.size()));
    put_value("cpu");
    put_value(static_cast<std::int64_t>(tensor.size()));
    out_ += "tQ";
    put_value(std::int64_t{0});
    put_tuple(tensor.shape);
    std::vector<std::size_t> strides(tensor.shape.size(), 1);
    for (std::size_t i = strides.size(); i-- > 1;)
      strides[i - 1] = strides[i] * std::max<std::size_t>(tensor.shape[i], 1);
    put_tuple(strides);
    put_value(false);
    out_ += kOrderedDict;
    out_ += "tR";
    tensors_.push_back(&tensor);
  }
  void put_value(const char* text) { put_value(std::string(text)); }
  void put_tuple(std::span<const std::size_t> values) {
    out_ += '(';
    for (const std::size_t value : values) put_value(static_cast<std::int64_t>(value));
    out_ += 't';
  }
  template <class T>
  void raw(T value) {
    out_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }

  static constexpr std::string_view kOrderedDict = "ccollections\nOrderedDict\n)R";
  std::string out_;
  std::vector<const TensorView*> tensors_;
};

}  // namespace

// Keys are made in their place: gcc 12 warns of moved variants that it believes unset.
void TorchItem::Dict::set(std::string key, TorchItem item) {
  auto& [its_key, its_value] = entries.emplace_back();
  its_key.value.emplace<std::string>(std::move(key));
  its_value = std::move(item);
}

void TorchItem::Dict::set(std::int64_t key, TorchItem item) {
  auto& [its_key, its_value] = entries.emplace_back();
  its_key.value.emplace<std::int64_t>(key);
  its_value = std::move(item);
}

void write_torch_file(const std::filesystem::path& path, const TorchItem& root) {
  const Pickler pickler(root);
  const std::string folder = path.stem().string();
  const auto bytes_of = [](std::string_view text) { return std::as_bytes(std::span(text)); };
  std::vector<ZipEntry> members = {{folder + "/data.pkl", bytes_of(pickler.pickle())},
                                   {folder + "/byteorder", bytes_of("little")}};
  for (const TensorView* tensor : pickler.tensors()) {
    if (byte_size(tensor->dtype, tensor->shape) != tensor->bytes.size()) {
      raise<InvalidArgument>("tensor '{}': {} bytes do not fit {} of shape {}", tensor->name,
                             tensor->bytes.size(), to_string(tensor->dtype),
                             shape_to_string(tensor->shape));
    }
    members.push_back({fmt::format("{}/data/{}", folder, members.size() - 2), tensor->bytes});
  }
  members.push_back({folder + "/version", bytes_of("3\n")});
  write_zip(path, members);
}

void write_torch_state_dict(const std::filesystem::path& path,
                            std::span<const TensorView> tensors) {
  TorchItem::Dict dict{.entries = {}, .is_ordered = true};
  std::set<std::string_view> names;
  for (const TensorView& tensor : tensors) {
    if (!names.insert(tensor.name).second)
      raise<InvalidArgument>("tensor '{}' occurs twice; expected distinct names", tensor.name);
    dict.set(tensor.name, TorchItem{tensor});
  }
  write_torch_file(path, TorchItem{std::move(dict)});
}

}  // namespace tandem::formats
