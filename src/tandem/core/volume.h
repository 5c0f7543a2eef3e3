// Volumes that fail under a job: what such an error means, and whether it pays to start again.
#pragma once

#include <string>

#include "tandem/core/error.h"

namespace tandem {

inline constexpr int kVolumeGone = 201;  // exit code

// The volume, or the way to its server, is gone: whoever is started again may find it mounted anew.
// io_error() throws it itself for such errors.
class VolumeGone : public IoError {
 public:
  using IoError::IoError;
  int exit_code() const noexcept override { return kVolumeGone; }
};

// Whether errno says that it is gone: a stale handle, a server or a device that does not answer.
bool says_volume_is_gone(int error_number);

// What to try, with "; " in front; empty where the error says it all.
std::string advice_on(int error_number);

}  // namespace tandem
