#include "tandem/formats/safetensors.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/formats/unique_json.h"

namespace tandem::formats {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kSizePrefix = sizeof(std::uint64_t);
constexpr std::uint64_t kMaxHeaderSize = 100'000'000;
constexpr std::size_t kDataAlignment = 8;
constexpr std::string_view kMetadataKey = "__metadata__";

// The text of the header of a file with these bytes.
std::string_view header_text(std::span<const std::byte> file, const std::string& where) {
  if (file.size() < kSizePrefix) {
    raise<DataError>(
        "{}: the file has {} bytes; expected a safetensors file, which starts with an 8-byte "
        "header size",
        where, file.size());
  }
  std::uint64_t header_size = 0;
  std::memcpy(&header_size, file.data(), kSizePrefix);
  if (header_size > kMaxHeaderSize) {
    raise<DataError>(
        "{}: header size is {} bytes; expected at most {} (perhaps not a safetensors file)", where,
        header_size, kMaxHeaderSize);
  }
  if (header_size > file.size() - kSizePrefix) {
    raise<DataError>(
        "{}: the file ends inside its header: header size is {} bytes, but only {} follow "
        "(perhaps a truncated download)",
        where, header_size, file.size() - kSizePrefix);
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kSizePrefix,
                              header_size);
  if (!text.starts_with('{')) {
    raise<DataError>("{}: the header starts with {}; expected '{{'", where,
                     text.empty()
                         ? "nothing"
                         : fmt::format("byte 0x{:02x}", static_cast<unsigned char>(text.front())));
  }
  return text;
}

std::map<std::string, std::string> parse_metadata(const Json& entry, const std::string& where) {
  if (!entry.is_object()) {
    raise<DataError>("{}: {} is {}; expected an object of strings", where, kMetadataKey,
                     entry.type_name());
  }
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) {
      raise<DataError>("{}: {} '{}' is {}; expected a string", where, kMetadataKey, key,
                       value.type_name());
    }
    metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

// entry[key] as a list of non-negative integers.
std::vector<std::size_t> parse_integers(const Json& entry, const char* key,
                                        const std::string& tensor) {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_array()) {
    raise<DataError>("{}: {} is {}; expected a list of non-negative integers", tensor, key,
                     found == entry.end() ? "missing" : found->dump());
  }
  std::vector<std::size_t> values;
  for (const Json& value : *found) {
    if (!value.is_number_unsigned()) {
      raise<DataError>("{}: {} is {}; expected a list of non-negative integers", tensor, key,
                       found->dump());
    }
    values.push_back(value.get<std::size_t>());
  }
  return values;
}

struct HeaderEntry {
  TensorView tensor;  // without bytes yet
  std::size_t begin = 0;
  std::size_t end = 0;
};

HeaderEntry parse_entry(const std::string& name, const Json& entry, const std::string& where) {
  const std::string tensor = fmt::format("{}: tensor '{}'", where, name);
  if (!entry.is_object()) {
    raise<DataError>("{}: header entry is {}; expected an object", tensor, entry.type_name());
  }
  const std::string dtype_name = entry.contains("dtype") && entry["dtype"].is_string()
                                     ? entry["dtype"].get<std::string>()
                                     : "missing or not a string";
  const std::optional<DType> dtype = dtype_of_name(dtype_name);
  if (!dtype) {
    raise<DataError>(
        "{}: dtype is {}; expected one of F32, F16, BF16, F64, F8_E4M3, F8_E5M2, BOOL, I8 … I64, "
        "U8 … U64",
        tensor, dtype_name);
  }
  HeaderEntry result;
  result.tensor.name = name;
  result.tensor.dtype = *dtype;
  result.tensor.shape = parse_integers(entry, "shape", tensor);
  const std::vector<std::size_t> offsets = parse_integers(entry, "data_offsets", tensor);
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    raise<DataError>("{}: data_offsets is {}; expected [begin, end] with begin <= end", tensor,
                     shape_to_string(offsets));
  }
  result.begin = offsets[0];
  result.end = offsets[1];
  const std::optional<std::size_t> expected = byte_size(*dtype, result.tensor.shape);
  if (!expected || *expected != result.end - result.begin) {
    raise<DataError>("{}: {} of shape {} takes {} bytes, but data_offsets {} hold {}", tensor,
                     dtype_name, shape_to_string(result.tensor.shape),
                     expected ? fmt::format("{}", *expected) : "more than 2^64",
                     shape_to_string(offsets), result.end - result.begin);
  }
  return result;
}

// The tensors must tile [0, data_size): sorted by place, each starts where the one before it ends.
void check_tiling(std::span<const HeaderEntry> entries, std::size_t data_size,
                  const std::string& where) {
  std::size_t end = 0;
  for (const HeaderEntry& entry : entries) {
    if (entry.begin != end) {
      raise<DataError>(
          "{}: tensor '{}' begins at data offset {}; expected {} ({} the tensor before it)", where,
          entry.tensor.name, entry.begin, end,
          entry.begin < end ? "it overlaps" : "there is a hole behind");
    }
    end = entry.end;
  }
  if (end != data_size) {
    raise<DataError>("{}: the file has {} bytes of tensor data; its header expects {}{}", where,
                     data_size, end, data_size < end ? " (perhaps a truncated download)" : "");
  }
}

std::string header_of(std::span<const TensorView* const> tensors,
                      const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[std::string(kMetadataKey)] = metadata;
  std::size_t offset = 0;
  for (const TensorView* tensor : tensors) {
    header[tensor->name] = {{"dtype", to_string(tensor->dtype)},
                            {"shape", tensor->shape},
                            {"data_offsets", {offset, offset + tensor->bytes.size()}}};
    offset += tensor->bytes.size();
  }
  std::string text = header.dump();
  text.append((kDataAlignment - text.size() % kDataAlignment) % kDataAlignment, ' ');
  return text;
}

}  // namespace

SafetensorsContent::SafetensorsContent(std::span<const std::byte> bytes, const std::string& where) {
  const std::string_view text = header_text(bytes, where);
  const std::span<const std::byte> data = bytes.subspan(kSizePrefix + text.size());
  const Json header = parse_unique_json(text, where + ": the header");

  std::vector<HeaderEntry> entries;
  for (const auto& [name, entry] : header.items()) {
    if (name == kMetadataKey) {
      metadata_ = parse_metadata(entry, where);
    } else {
      entries.push_back(parse_entry(name, entry, where));
    }
  }
  std::sort(entries.begin(), entries.end(), [](const HeaderEntry& a, const HeaderEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  check_tiling(entries, data.size(), where);
  for (HeaderEntry& entry : entries) {
    index_.emplace(entry.tensor.name, tensors_.size());
    entry.tensor.bytes = data.subspan(entry.begin, entry.end - entry.begin);
    tensors_.push_back(std::move(entry.tensor));
  }
}

const TensorView* SafetensorsContent::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

void write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<const TensorView*> ordered;
  std::set<std::string_view> names;
  for (const TensorView& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      raise<InvalidArgument>("tensor '{}' occurs twice; expected distinct names", tensor.name);
    }
    if (byte_size(tensor.dtype, tensor.shape) != tensor.bytes.size()) {
      raise<InvalidArgument>("tensor '{}': {} bytes do not fit {} of shape {}", tensor.name,
                             tensor.bytes.size(), to_string(tensor.dtype),
                             shape_to_string(tensor.shape));
    }
    ordered.push_back(&tensor);
  }
  std::sort(ordered.begin(), ordered.end(), [](const TensorView* a, const TensorView* b) {
    return a->dtype != b->dtype ? a->dtype > b->dtype : a->name < b->name;
  });

  const std::string header = header_of(ordered, metadata);
  const std::uint64_t header_size = header.size();
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(&header_size, 1)));
  file.write(header);
  for (const TensorView* tensor : ordered) file.write(tensor->bytes);
  file.commit();
}

}  // namespace tandem::formats
