#include "tandem/formats/torch_file.h"

#include <array>
#include <cstdint>
#include <string_view>

#include "tandem/core/error.h"
#include "tandem/formats/torch_pickle.h"
#include "tandem/formats/zip_archive.h"

namespace tandem::formats {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::string_view kPickleName = "/data.pkl";

std::string_view text_in(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Throws for a file that is not a ZIP file, and names what it is instead.
[[noreturn]] void refuse_other_format(Bytes file, const std::string& where) {
  const std::string_view start = text_in(file.first(std::min<std::size_t>(file.size(), 512)));
  // The magic number of torch's first own format, pickled.
  constexpr std::string_view kLegacyMagic = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
  constexpr std::size_t kTarMagicAt = 257;
  const bool is_tar = start.size() > kTarMagicAt && start.substr(kTarMagicAt).starts_with("ustar");
  if (is_tar || (start.size() > 2 && start.substr(2).starts_with(kLegacyMagic))) {
    raise<DataError>(
        "{}: written by torch before 1.6, or with _use_new_zipfile_serialization=False, in a "
        "format "
        "that tandem does not read; load it with torch and save it again: "
        "torch.save(torch.load(file, map_location='cpu', weights_only=True), file)",
        where);
  }
  if (start.starts_with("version https://git-lfs")) {
    raise<DataError>(
        "{}: a pointer of Git LFS, not the file itself; run `git lfs pull` in the repository",
        where);
  }
  raise<DataError>(
      "{}: not a file of torch.save: {} bytes that do not begin as a ZIP file does (perhaps a web "
      "page or a broken download)",
      where, file.size());
}

// "pytorch_model" of "pytorch_model/data.pkl": the one folder that all members are in.
std::string find_root(const ZipArchive& archive, const std::string& where) {
  std::string root;
  for (const auto& [name, content] : archive.entries()) {
    if (!name.ends_with(kPickleName) || name.find('/') != name.size() - kPickleName.size())
      continue;
    if (!root.empty()) raise<DataError>("{}: two pickles, {} and {}", where, root, name);
    root = name.substr(0, name.size() - kPickleName.size());
  }
  if (root.empty()) {
    raise<DataError>(
        "{}: a ZIP file without data.pkl in its folder; expected a file of torch.save (TorchScript "
        "and other archives are not read)",
        where);
  }
  return root;
}

}  // namespace

TorchContent::TorchContent(Bytes bytes, const std::string& where, PickledObjects objects)
    : where_(where) {
  if (!ZipArchive::looks_like_one(bytes)) refuse_other_format(bytes, where);
  const ZipArchive archive(bytes, where);
  const std::string root = find_root(archive, where);
  if (archive.find(root + "/constants.pkl")) {
    raise<DataError>("{}: a TorchScript program; expected a state dict saved with torch.save",
                     where);
  }
  const auto order = archive.find(root + "/byteorder");
  if (order && text_in(*order) != "little") {
    raise<DataError>("{}: the byte order is '{}'; expected 'little'", where,
                     text_in(order->first(std::min<std::size_t>(order->size(), 16))));
  }
  const FindStorage find_storage = [&](std::string_view key) {
    return archive.find(fmt::format("{}/data/{}", root, key));
  };
  root_ = &run_pickle(*archive.find(root + std::string(kPickleName)), find_storage, where, objects,
                      nodes_);
}

TorchFile::TorchFile(const std::filesystem::path& path, PickledObjects objects)
    : path_(path), file_(path), content_(file_.bytes(), path.string(), objects) {}

std::vector<TensorView> state_dict_tensors(const TorchValue& root) {
  if (!root.is_dict()) {
    raise<DataError>("{}: holds {}; expected a dict of tensors (model.state_dict())", root.where(),
                     root.type_name());
  }
  std::vector<TensorView> tensors;
  for (const auto& [key, value] : root.items()) {
    if (!key.is_string() || !value.is_tensor()) {
      raise<DataError>(
          "{} is {}; expected a state dict, names and tensors (of a training checkpoint, save "
          "its model.state_dict() alone)",
          value.where(), value.type_name());
    }
    tensors.push_back(value.as_tensor());
    tensors.back().name = key.as_string();
  }
  return tensors;
}

}  // namespace tandem::formats
