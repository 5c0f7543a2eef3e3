// The interface between tandem and a transport plugin: a shared library, loaded at run time, that
// moves bytes with a third-party network library (libfabric, an MPI, Gloo). Plain C, so that the
// two sides may be compiled by different compilers.
//
// A plugin only moves messages of known size between ranks; headers, matching and errors belong to
// tandem (plugin_transport.h). A plugin guarantees:
//   - Messages from one rank to another with one tag arrive in the order in which they were sent,
//     and match the receives in the order in which these were posted. A receive may be larger than
//     its message, never smaller.
//   - No function waits, except open, exchange and connect, which give up after the configuration's
//     timeout.
//   - send and receive may be called while any number of earlier ones are in flight; a full queue
//     returns TANDEM_FABRIC_AGAIN.
//   - One thread at a time uses a fabric. Several fabrics may exist in one process, in different
//     threads.
//   - It never prints, exits or throws.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Changes whenever a struct or a guarantee of this file does.
#define TANDEM_TRANSPORT_PLUGIN_ABI 1
// The only symbol of a plugin: a tandem_transport_plugin_entry.
#define TANDEM_TRANSPORT_PLUGIN_ENTRY "tandem_transport_plugin_table"

typedef struct tandem_fabric tandem_fabric;  // one rank's endpoint; opaque to tandem

typedef struct tandem_fabric_config {
  int32_t rank;
  int32_t world_size;
  int64_t timeout_ms;
  // Numeric address of this host on the route to the others; "": unknown.
  const char* source_address;
  const char* interface_name;  // the network interface chosen by the user; "": none
  const char* provider;        // FI_PROVIDER from the environment; "": not set
} tandem_fabric_config;

// The buffer for a function's error text, truncated to fit and terminated by 0.
typedef struct tandem_fabric_error {
  char text[512];
} tandem_fabric_error;

// Receives bytes that belong to `rank`; they are valid only during the call.
typedef void (*tandem_fabric_sink)(void* sink_context, int32_t rank, const void* bytes,
                                   size_t count);

typedef struct tandem_fabric_completion {
  void* context;   // context of the send or receive that has ended
  int32_t failed;  // its rank is unreachable; last_error() has the reason
} tandem_fabric_completion;

// The two tags in use, so that a library may treat them differently.
enum {
  // At most TANDEM_FABRIC_PACKET_BYTES; receives are always posted for every other rank.
  TANDEM_FABRIC_PACKET = 0,
  TANDEM_FABRIC_BODY = 1  // announced by a packet: sent before its receive is posted
};
#define TANDEM_FABRIC_PACKET_BYTES 4096

enum {
  TANDEM_FABRIC_OK = 0,
  TANDEM_FABRIC_AGAIN = 1,  // not now: try again after poll()
  TANDEM_FABRIC_FAILED = 2
};

typedef struct tandem_transport_plugin {
  uint32_t abi;   // TANDEM_TRANSPORT_PLUGIN_ABI of the plugin
  uint32_t size;  // size of this struct in the plugin
  const char* name;

  int (*open)(const tandem_fabric_config* config, tandem_fabric** fabric,
              tandem_fabric_error* error);
  // Collective: `sink` receives the text of each rank. Null if the library cannot do this before
  // connect.
  int (*exchange)(tandem_fabric* fabric, const void* text, size_t bytes, tandem_fabric_sink sink,
                  void* sink_context, tandem_fabric_error* error);
  // The information that the other ranks need about this one; `sink` is called once.
  void (*address)(tandem_fabric* fabric, tandem_fabric_sink sink, void* sink_context);
  // addresses[r] with bytes[r] bytes: the result of address() on rank r.
  int (*connect)(tandem_fabric* fabric, const void* const* addresses, const size_t* bytes,
                 tandem_fabric_error* error);
  // "libfabric 1.17, provider tcp;ofi_rxm, 10.0.0.1"; valid as long as the fabric.
  const char* (*describe)(tandem_fabric* fabric);
  size_t (*max_message_bytes)(tandem_fabric* fabric);
  // `data` must stay unchanged until poll() returns `context`.
  int (*send)(tandem_fabric* fabric, int32_t peer, uint32_t tag, const void* data, size_t bytes,
              void* context);
  int (*receive)(tandem_fabric* fabric, int32_t peer, uint32_t tag, void* data, size_t bytes,
                 void* context);
  // Moves as much as possible; returns the number of completions written, at most `capacity`.
  int (*poll)(tandem_fabric* fabric, tandem_fabric_completion* completions, int capacity);
  // A descriptor that becomes readable when poll() has work, requested before each sleep; -1: no
  // descriptor, or poll() already has work.
  int (*wait_descriptor)(tandem_fabric* fabric);
  const char* (*last_error)(tandem_fabric* fabric);
  // For a library whose ranks must end together; may be null. Collective: called repeatedly before
  // a close in order, until it returns TANDEM_FABRIC_OK.
  int (*finish)(tandem_fabric* fabric);
  // `in_order`: no rank has failed and sends have ended. After it the plugin accesses no buffer.
  void (*close)(tandem_fabric* fabric, int in_order);
} tandem_transport_plugin;

typedef const tandem_transport_plugin* (*tandem_transport_plugin_entry)(void);
__attribute__((visibility("default"))) const tandem_transport_plugin* tandem_transport_plugin_table(
    void);

#ifdef __cplusplus
}
#endif
