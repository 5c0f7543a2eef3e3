// Interface for progress of downloads, implemented by the console. The library itself never prints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tandem::hub {

// Calls come from the thread that resolves a name, in the order of events. The default of each does
// nothing.
class DownloadObserver {
 public:
  virtual ~DownloadObserver() = default;
  // `resumed_from` bytes were there already.
  virtual void file_begin(std::string_view /*name*/, std::optional<std::uint64_t> /*size*/,
                          std::uint64_t /*resumed_from*/) {}
  virtual void file_progress(std::uint64_t /*bytes*/, std::optional<std::uint64_t> /*size*/) {}
  virtual void file_end() {}
  // Another process is downloading the same; `holder` is its description.
  virtual void waiting(std::string_view /*what*/, std::string_view /*holder*/) {}
  // A retry and the like.
  virtual void note(std::string_view /*text*/) {}
};

}  // namespace tandem::hub
