#include "apps/lost_mappings.h"

#include <fmt/format.h>
#include <semaphore.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <utility>

#include "tandem/core/mappings.h"
#include "tandem/core/volume.h"

namespace tandem::apps {
namespace {

// A signal handler reaches nothing but these.
std::atomic<const void*> g_address{
    nullptr};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
sem_t g_lost;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
static_assert(std::atomic<const void*>::is_always_lock_free);

void handle(int number, siginfo_t* info, void*) {
  if (!is_in_mapped_file(info->si_addr)) {
    std::signal(number, SIG_DFL);  // the instruction is tried again, and ends the process
    return;
  }
  const void* none = nullptr;
  if (g_address.compare_exchange_strong(none, info->si_addr)) ::sem_post(&g_lost);
  while (true) ::pause();  // there is nothing to continue with
}

}  // namespace

LostMappings::LostMappings(std::function<void(const std::string&)> on_loss)
    : on_loss_(std::move(on_loss)) {
  g_address.store(nullptr);
  ::sem_init(&g_lost, 0, 0);
  struct sigaction action {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
  thread_ = std::thread([this] { watch(); });
}

LostMappings::~LostMappings() {
  std::signal(SIGBUS, SIG_DFL);
  ::sem_post(&g_lost);
  thread_.join();
  ::sem_destroy(&g_lost);
}

void LostMappings::watch() {
  while (::sem_wait(&g_lost) != 0 && errno == EINTR) {
  }
  const void* const address = g_address.load();
  if (address == nullptr) return;  // nothing was lost
  on_loss_(fmt::format("cannot read '{}', which is mapped{}, unless another process cut it short",
                       file_mapped_at(address), advice_on(EIO)));
}

}  // namespace tandem::apps
