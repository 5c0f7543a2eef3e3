#include "tandem/trainer/checkpoint_damage.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>
#include <string_view>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/volume.h"
#include "tandem/formats/torch_file.h"
#include "tandem/models/pretrained/adapter_files.h"
#include "tandem/models/pretrained/weight_files.h"
#include "tandem/trainer/checkpoint_manifest.h"
#include "tandem/trainer/python_checkpoint.h"
#include "tandem/trainer/resume_state.h"
#include "tandem/trainer/trainer_state.h"

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;

std::string_view kind_of(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFDIR:
      return "a directory";
    case S_IFIFO:
      return "a FIFO";
    case S_IFSOCK:
      return "a socket";
    case S_IFCHR:
    case S_IFBLK:
      return "a device";
    default:
      return "another kind of file";
  }
}

// Opening a FIFO waits for its writer, and reading a device may not end: neither is done.
std::optional<std::string> find_odd_file(const fs::path& directory) {
  for (const fs::path& path : list_directory(directory)) {
    const std::string name = path.filename();
    if (!is_read_on_resuming(name) && name != kManifestFile && name != kSchedulerFile) continue;
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) {
      if (means_volume_gone(errno)) throw io_error("cannot examine", path.native(), errno);
      return fmt::format("'{}' is damaged: it is a link to a missing file", path.native());
    }
    if (!S_ISREG(info.st_mode)) {
      return fmt::format("'{}' is damaged: it is {}, expected a regular file", path.native(),
                         kind_of(info.st_mode));
    }
  }
  return std::nullopt;
}

// Reads the files that a resumed run would read first: files that are cut off or empty do not
// parse.
void read_forms(const fs::path& directory) {
  const fs::path state = directory / "trainer_state.json", own = directory / "tandem_state.json",
                 optimizer = directory / "optimizer.pt", schedule = directory / kSchedulerFile;
  (void)TrainerState::parse(read_file(state), state.native());
  if (is_there(own)) (void)ResumeState::parse(read_file(own), own.native());
  const models::WeightFiles weights(models::is_adapter_directory(directory)
                                        ? models::find_adapter_weights(directory)
                                        : directory);
  if (is_there(optimizer)) const formats::TorchFile file(optimizer);
  if (is_python_checkpoint(directory) && is_there(schedule))
    const formats::TorchFile file(schedule);
}

}  // namespace

std::optional<std::string> find_damage(const fs::path& directory) {
  try {
    if (auto odd = find_odd_file(directory)) return odd;
    if (auto change = find_change(directory)) return change;
    read_forms(directory);
  } catch (const VolumeGone&) {
    throw;
  } catch (const DataError& error) {
    return error.what();
  } catch (const IoError& error) {
    return error.what();
  }
  return std::nullopt;
}

void require_undamaged(const fs::path& directory) {
  if (const auto damage = find_damage(directory)) raise<DataError>("{}", *damage);
}

}  // namespace tandem::trainer
