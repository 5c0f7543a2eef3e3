#include "tandem/core/volume.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace tandem {
namespace {

namespace fs = std::filesystem;

bool has(const fs::path& path, fs::file_status (*look)(const fs::path&, std::error_code&),
         bool (*is_it)(fs::file_status)) {
  std::error_code error;
  const bool found = is_it(look(path, error));
  if (error && means_volume_gone(error.value()))
    throw io_error("cannot look for", path.native(), error.value());
  return found;
}

// Nothing where not even the root can be looked at.
std::optional<dev_t> device_of(const fs::path& directory) {
  for (fs::path at = fs::absolute(directory);; at = at.parent_path()) {
    struct stat info {};
    if (::stat(at.c_str(), &info) == 0) return info.st_dev;
    if (means_volume_gone(errno)) throw io_error("cannot look for", at.native(), errno);
    if (at == at.parent_path()) return std::nullopt;
  }
}

}  // namespace

bool means_volume_gone(int error_number) {
  switch (error_number) {
    case ESTALE:
    case ENOTCONN:
    case ECONNABORTED:  // under way when a FUSE server died; the calls after it get ENOTCONN
    case EIO:
    case EREMOTEIO:
    case ENODEV:
    case ENXIO:
    case EHOSTDOWN:
    case ETIMEDOUT:
      return true;
    default:
      return false;
  }
}

std::string advice_on(int error_number) {
  if (means_volume_gone(error_number))
    return "; the volume or its server does not answer: a start after it was mounted again goes "
           "on from the newest checkpoint";
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return "; make room there, then start again: a training resumes from its newest checkpoint "
             "(--save_total_limit keeps fewer of them)";
    case EROFS:
      return "; mount the volume for writing (readOnly: false), or write to another one";
    case EACCES:
    case EPERM:
      return fmt::format(
          "; this process is user {}, group {}: give it the right to (fsGroup of a pod)",
          ::geteuid(), ::getegid());
    default:
      return {};
  }
}

bool is_there(const fs::path& path) { return has(path, fs::status, fs::exists); }

bool is_directory_there(const fs::path& path) { return has(path, fs::status, fs::is_directory); }

bool is_there_now(const fs::path& path) {
  if (is_there(path)) return true;
  if (::mkdir(path.c_str(), 0700) == 0) {
    ::rmdir(path.c_str());
    return false;
  }
  return errno == EEXIST && is_there(path);
}

VolumeMark::VolumeMark(fs::path directory)
    : directory_(std::move(directory)), device_(device_of(directory_)) {}

void VolumeMark::require_same() const {
  if (device_of(directory_) == device_) return;
  throw VolumeGone(fmt::format("'{}' was on a volume that is not mounted there any more{}",
                               directory_.native(), advice_on(ENOTCONN)));
}

void VolumeMark::during(const std::function<void()>& write) const {
  require_same();
  try {
    write();
  } catch (const IoError&) {
    require_same();
    throw;
  } catch (const std::system_error&) {  // errors of std::filesystem
    require_same();
    throw;
  }
}

}  // namespace tandem
