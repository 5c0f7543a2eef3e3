// A transport plugin that was found and loaded, and this rank's endpoint in it
// (transport_plugin.h), with exceptions instead of codes.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/comm/network/transport_options.h"
#include "tandem/comm/network/transport_plugin.h"

namespace tandem::comm {

class PluginFabric {
 public:
  // Loads the plugin and opens this rank's endpoint. The plugin is searched for in
  // options.plugin_path, next to the program (../lib/tandem, .), and in tandem's installation
  // directory. It stays loaded until the process ends. Throws ConfigError if the plugin is missing,
  // the library it needs is missing (with the package to install), or the library refuses.
  PluginFabric(const TransportOptions& options, int rank, int world_size,
               std::chrono::milliseconds timeout, const std::string& source_address);
  ~PluginFabric();  // closes if close() was not called, then not in order
  PluginFabric(PluginFabric&& other) noexcept;
  PluginFabric& operator=(PluginFabric&&) = delete;

  // Returns true if exchange() works: the library connects its ranks without help.
  bool can_exchange() const { return plugin_->exchange != nullptr; }
  // Collective: returns the texts of all ranks. Throws CommError.
  std::vector<std::string> exchange(const std::string& text);
  std::string address() const;
  // Collective: addresses[r] is address() of rank r. Throws CommError.
  void connect(std::span<const std::string> addresses);
  std::string describe() const { return plugin_->describe(fabric_); }
  std::string_view name() const { return plugin_->name; }
  void close(bool in_order) noexcept;

  const tandem_transport_plugin& plugin() const { return *plugin_; }
  tandem_fabric* get() const { return fabric_; }

 private:
  int world_size_;
  const tandem_transport_plugin* plugin_ = nullptr;
  tandem_fabric* fabric_ = nullptr;
};

}  // namespace tandem::comm
