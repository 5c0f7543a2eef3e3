// Files of torch.save: pytorch_model.bin, optimizer.pt, scheduler.pt. They are ZIP files with the
// tensors' bytes stored plainly and a pickle that describes them; the bytes are mapped, not copied,
// and the pickle is read by an interpreter that knows dicts, lists, numbers, texts and tensors and
// can run nothing (torch_pickle.h).
#pragma once

#include <cstddef>
#include <deque>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "tandem/core/file.h"
#include "tandem/formats/tensor_view.h"
#include "tandem/formats/torch_pickle.h"
#include "tandem/formats/torch_value.h"

namespace tandem::formats {

// The content of such a file that is in memory already. `bytes` must outlive the object; `where`
// names it in messages. Throws DataError: for files from before torch 1.6 and other formats with
// what to do, for compressed, truncated or contradictory ones, for names outside the list of
// torch_names.cc, for tensors that are not contiguous or leave their storage.
class TorchContent {
 public:
  TorchContent(std::span<const std::byte> bytes, const std::string& where,
               PickledObjects objects = PickledObjects::kRefused);
  TorchContent(const TorchContent&) = delete;
  TorchContent& operator=(const TorchContent&) = delete;

  TorchValue root() const { return {*root_, where_}; }

 private:
  std::string where_;
  std::deque<TorchNode> nodes_;
  const TorchNode* root_ = nullptr;
};

// An open file. Values and tensors live as long as the object.
class TorchFile {
 public:
  // Throws IoError, and DataError as above.
  explicit TorchFile(const std::filesystem::path& path,
                     PickledObjects objects = PickledObjects::kRefused);

  const std::filesystem::path& path() const { return path_; }
  TorchValue root() const { return content_.root(); }

 private:
  std::filesystem::path path_;
  MappedFile file_;
  TorchContent content_;
};

// The tensors of a state dict under their names, in the file's order. Throws DataError when the
// value is not a dict of tensors; names the key when they are one level below.
std::vector<TensorView> state_dict_tensors(const TorchValue& root);

// Writes a state dict as torch.save does, atomically: torch.load(path, weights_only=True) reads it.
// Throws IoError, and InvalidArgument for a type that torch's files do not have, a view whose bytes
// do not fit its shape, or a name twice. For other values: torch_writer.h.
void write_torch_state_dict(const std::filesystem::path& path, std::span<const TensorView> tensors);

}  // namespace tandem::formats
