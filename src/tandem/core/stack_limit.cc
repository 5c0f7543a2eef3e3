#include "tandem/core/stack_limit.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>

#include "tandem/core/error.h"

namespace tandem {
namespace {

constexpr rlim_t kUsualStack = rlim_t{8} << 20;  // limit of Linux distributions

}  // namespace

void ensure_stack() {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kLeastStack) return;
  const rlim_t found = limit.rlim_cur;
  limit.rlim_cur = std::min(limit.rlim_max, kUsualStack);
  if (limit.rlim_cur < kLeastStack || ::setrlimit(RLIMIT_STACK, &limit) != 0) {
    raise<ConfigError>(
        "the limit of stacks (RLIMIT_STACK, 'ulimit -s') is too low: found {} KiB, expected at "
        "least {}; raise it with 'ulimit -s {}', or the hard limit where that fails",
        found >> 10, kLeastStack >> 10, kUsualStack >> 10);
  }
  // The C library has read the limit before main().
  pthread_attr_t attributes;
  if (::pthread_attr_init(&attributes) != 0) return;
  if (::pthread_attr_setstacksize(&attributes, static_cast<std::size_t>(limit.rlim_cur)) == 0)
    ::pthread_setattr_default_np(&attributes);
  ::pthread_attr_destroy(&attributes);
}

}  // namespace tandem
