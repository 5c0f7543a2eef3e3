#include "tandem/core/volume.h"

#include <unistd.h>

#include <cerrno>

namespace tandem {

bool says_volume_is_gone(int error_number) {
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
  if (says_volume_is_gone(error_number))
    return "; the volume or its server does not answer: a start after it was mounted again goes "
           "on from the newest checkpoint";
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return "; make room there (--save_total_limit keeps fewer checkpoints), then start again: "
             "the job goes on from the newest one";
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

}  // namespace tandem
