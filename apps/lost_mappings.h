// Handles reads of a mapped file whose volume has gone.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace tandem::apps {

// While it lives, a SIGBUS out of a MappedFile stops the thread that raised it, and `on_loss` is
// called with the message, in a thread of its own; it must end the process. Any other SIGBUS ends
// the process as ever. One at a time in a process.
class LostMappings {
 public:
  explicit LostMappings(std::function<void(const std::string& message)> on_loss);
  ~LostMappings();
  LostMappings(const LostMappings&) = delete;
  LostMappings& operator=(const LostMappings&) = delete;

 private:
  void watch();

  const std::function<void(const std::string&)> on_loss_;
  std::thread thread_;
};

}  // namespace tandem::apps
