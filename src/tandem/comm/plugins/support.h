// Common code of the plugins: the C functions of the plugin interface over a C++ class.
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include "tandem/comm/network/transport_plugin.h"

namespace tandem::comm::plugins {

// Runs `body`; an exception becomes the error text of the interface.
template <class Body>
int guarded(tandem_fabric_error* error, const Body& body) noexcept {
  try {
    body();
    return TANDEM_FABRIC_OK;
  } catch (const std::exception& exception) {
    const std::size_t length = std::min(std::strlen(exception.what()), sizeof error->text - 1);
    std::memcpy(error->text, exception.what(), length);
    error->text[length] = '\0';
    return TANDEM_FABRIC_FAILED;
  }
}

// The interface's function table over `Fabric`, a class with functions of the same names:
//   Fabric(config); address() -> string; connect(addresses, bytes); describe(), last_error() ->
//   const char*; max_message_bytes(); send(…), receive(…) -> TANDEM_FABRIC_*; poll(completions,
//   capacity); wait_descriptor(); close(in_order) -> bool: the object may be deleted;
//   exchange(text, sink, sink_context) and finish() where the library has them.
// The constructor, connect and exchange throw std::exception; nothing else throws.
template <class Fabric>
struct Boundary {
  static Fabric& self(tandem_fabric* fabric) { return *reinterpret_cast<Fabric*>(fabric); }

  static int open(const tandem_fabric_config* config, tandem_fabric** fabric,
                  tandem_fabric_error* error) {
    return guarded(error, [&] { *fabric = reinterpret_cast<tandem_fabric*>(new Fabric(*config)); });
  }
  static void address(tandem_fabric* fabric, tandem_fabric_sink sink, void* sink_context) {
    const std::string bytes = self(fabric).address();
    sink(sink_context, 0, bytes.data(), bytes.size());
  }
  static int connect(tandem_fabric* fabric, const void* const* addresses, const std::size_t* bytes,
                     tandem_fabric_error* error) {
    return guarded(error, [&] { self(fabric).connect(addresses, bytes); });
  }
  static const char* describe(tandem_fabric* fabric) { return self(fabric).describe(); }
  static std::size_t max_message_bytes(tandem_fabric* fabric) {
    return self(fabric).max_message_bytes();
  }
  static int send(tandem_fabric* fabric, std::int32_t peer, std::uint32_t tag, const void* data,
                  std::size_t bytes, void* context) {
    return self(fabric).send(peer, tag, data, bytes, context);
  }
  static int receive(tandem_fabric* fabric, std::int32_t peer, std::uint32_t tag, void* data,
                     std::size_t bytes, void* context) {
    return self(fabric).receive(peer, tag, data, bytes, context);
  }
  static int poll(tandem_fabric* fabric, tandem_fabric_completion* completions, int capacity) {
    return self(fabric).poll(completions, capacity);
  }
  static int wait_descriptor(tandem_fabric* fabric) { return self(fabric).wait_descriptor(); }
  static const char* last_error(tandem_fabric* fabric) { return self(fabric).last_error(); }
  static void close(tandem_fabric* fabric, int in_order) {
    if (self(fabric).close(in_order != 0)) {
      delete &self(fabric);
    } else {
      keep(self(fabric));
    }
  }
  // An object that its library cannot close safely is kept until the process ends. This is
  // intentional, and the object stays reachable, so that no leak checker reports it.
  static void keep(Fabric& fabric) {
    static std::mutex mutex;
    static auto& kept = *new std::vector<Fabric*>;
    const std::lock_guard lock(mutex);
    kept.push_back(&fabric);
  }
  // Functions that only some libraries have.
  static int exchange(tandem_fabric* fabric, const void* text, std::size_t bytes,
                      tandem_fabric_sink sink, void* sink_context, tandem_fabric_error* error) {
    const std::string own(static_cast<const char*>(text), bytes);
    return guarded(error, [&] { self(fabric).exchange(own, sink, sink_context); });
  }
  static int finish(tandem_fabric* fabric) { return self(fabric).finish(); }

  static tandem_transport_plugin table(const char* name) {
    tandem_transport_plugin plugin{};
    plugin.abi = TANDEM_TRANSPORT_PLUGIN_ABI;
    plugin.size = sizeof plugin;
    plugin.name = name;
    plugin.open = open;
    plugin.address = address;
    plugin.connect = connect;
    plugin.describe = describe;
    plugin.max_message_bytes = max_message_bytes;
    plugin.send = send;
    plugin.receive = receive;
    plugin.poll = poll;
    plugin.wait_descriptor = wait_descriptor;
    plugin.last_error = last_error;
    plugin.close = close;
    if constexpr (requires { &Fabric::exchange; }) plugin.exchange = exchange;
    if constexpr (requires { &Fabric::finish; }) plugin.finish = finish;
    return plugin;
  }
};

// The return value of tandem_transport_plugin_table().
template <class Fabric>
const tandem_transport_plugin* table_of(const char* name) {
  static const tandem_transport_plugin kPlugin = Boundary<Fabric>::table(name);
  return &kPlugin;
}

}  // namespace tandem::comm::plugins
