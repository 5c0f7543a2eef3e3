// A transport plugin that flips bits of what another one sends, as damage below the plugin would.
//
// TANDEM_TEST_PLUGIN is the file of the other plugin. One bit of every TANDEM_TEST_FLIP_EVERY-th
// message of rank 0 is flipped.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "tandem/comm/network/transport_plugin.h"

namespace {

const tandem_transport_plugin* g_real = nullptr;
bool g_sends_damage = false;  // rank 0
unsigned long g_sent = 0;
// Messages must stay unchanged until they are sent; the test is short enough to keep them all.
std::vector<std::unique_ptr<char[]>> g_copies;

int open_fabric(const tandem_fabric_config* config, tandem_fabric** fabric,
                tandem_fabric_error* error) {
  g_sends_damage = config->rank == 0;
  return g_real->open(config, fabric, error);
}

int send_damaged(tandem_fabric* fabric, int32_t peer, uint32_t tag, const void* data, size_t bytes,
                 void* context) {
  static const unsigned long every =
      std::strtoul(std::getenv("TANDEM_TEST_FLIP_EVERY"), nullptr, 10);
  if (!g_sends_damage || every == 0 || bytes == 0 || (g_sent + 1) % every != 0) {
    const int result = g_real->send(fabric, peer, tag, data, bytes, context);
    g_sent += result == TANDEM_FABRIC_OK ? 1 : 0;
    return result;
  }
  auto& copy = g_copies.emplace_back(std::make_unique<char[]>(bytes));
  std::memcpy(copy.get(), data, bytes);
  // Somewhere else each time, but always in what a message of any size has.
  copy[(g_sent * 2654435761u) % bytes] ^= static_cast<char>(1 << g_sent % 8);
  const int result = g_real->send(fabric, peer, tag, copy.get(), bytes, context);
  g_sent += result == TANDEM_FABRIC_OK ? 1 : 0;
  return result;
}

}  // namespace

extern "C" const tandem_transport_plugin* tandem_transport_plugin_table() {
  static tandem_transport_plugin table;
  if (g_real != nullptr) return &table;
  void* handle = ::dlopen(std::getenv("TANDEM_TEST_PLUGIN"), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return nullptr;
  const auto entry = reinterpret_cast<tandem_transport_plugin_entry>(
      ::dlsym(handle, TANDEM_TRANSPORT_PLUGIN_ENTRY));
  g_real = entry == nullptr ? nullptr : entry();
  if (g_real == nullptr) return nullptr;
  table = *g_real;
  table.open = open_fabric;
  table.send = send_damaged;
  return &table;
}
