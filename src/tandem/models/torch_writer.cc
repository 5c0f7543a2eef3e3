#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <set>

#include "tandem/core/error.h"
#include "tandem/models/torch_file.h"
#include "tandem/models/torch_names.h"
#include "tandem/models/zip_archive.h"

namespace tandem::models {
namespace {

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void put_text(std::string& out, std::string_view text) {
  out += 'X';
  put(out, static_cast<std::uint32_t>(text.size()));
  out += text;
}

void put_int(std::string& out, std::size_t value) {
  if (value < 256) {
    out += 'K';
    put(out, static_cast<std::uint8_t>(value));
  } else if (value <= static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    out += 'J';
    put(out, static_cast<std::int32_t>(value));
  } else {
    out += "\x8a\x08";
    put(out, static_cast<std::uint64_t>(value));
  }
}

void put_tuple(std::string& out, std::span<const std::size_t> values) {
  out += '(';
  for (const std::size_t value : values) put_int(out, value);
  out += 't';
}

constexpr std::string_view kOrderedDict = "ccollections\nOrderedDict\n)R";

// torch._utils._rebuild_tensor_v2(storage, 0, shape, strides, requires_grad=False, hooks)
void put_tensor(std::string& out, const TensorView& tensor, std::size_t key) {
  out += "ctorch._utils\n_rebuild_tensor_v2\n((";
  put_text(out, "storage");
  out += fmt::format("ctorch\n{}\n", torch_storage_type(tensor.dtype));
  put_text(out, fmt::format("{}", key));
  put_text(out, "cpu");
  put_int(out, tensor.size());
  out += "tQ";
  put_int(out, 0);
  put_tuple(out, tensor.shape);
  std::vector<std::size_t> strides(tensor.shape.size(), 1);
  for (std::size_t i = strides.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<std::size_t>(tensor.shape[i], 1);
  put_tuple(out, strides);
  out += '\x89';
  out += kOrderedDict;
  out += "tR";
}

}  // namespace

void write_torch_state_dict(const std::filesystem::path& path,
                            std::span<const TensorView> tensors) {
  std::string pickle = "\x80\x02";
  pickle += kOrderedDict;
  pickle += '(';
  const std::string root = path.stem().string();
  std::vector<ZipMember> members(2);
  std::set<std::string_view> names;
  for (const TensorView& tensor : tensors) {
    if (!names.insert(tensor.name).second)
      raise<InvalidArgument>("tensor '{}' is to be written twice", tensor.name);
    if (byte_size(tensor.dtype, tensor.shape) != tensor.bytes.size()) {
      raise<InvalidArgument>("tensor '{}': {} bytes do not fit {} of shape {}", tensor.name,
                             tensor.bytes.size(), to_string(tensor.dtype),
                             shape_to_string(tensor.shape));
    }
    const std::size_t key = members.size() - 2;
    put_text(pickle, tensor.name);
    put_tensor(pickle, tensor, key);
    members.push_back({fmt::format("{}/data/{}", root, key), tensor.bytes});
  }
  pickle += "u.";
  const auto bytes_of = [](std::string_view text) { return std::as_bytes(std::span(text)); };
  members[0] = {root + "/data.pkl", bytes_of(pickle)};
  members[1] = {root + "/byteorder", bytes_of("little")};
  members.push_back({root + "/version", bytes_of("3\n")});
  write_zip(path, members);
}

}  // namespace tandem::models
