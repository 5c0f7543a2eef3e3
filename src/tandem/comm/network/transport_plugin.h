// The boundary between tandem and a transport plugin: a shared library, loaded at run time, that
// moves bytes with somebody else's network library (libfabric, an MPI, Gloo). Plain C, so that
// neither side cares how the other was compiled.
//
// A plugin moves messages of known size between ranks and nothing else: headers, matching and
// errors are tandem's (plugin_transport.h). What it must promise:
//   - Messages from one rank to another with one tag arrive in the order in which they were sent,
//     and meet the receives in the order in which these were posted. A receive may be larger than
//     its message, never smaller.
//   - No function waits, except open, exchange and connect, which give up after the configuration's
//     timeout.
//   - send and receive may be called while earlier ones are under way, any number of them; a full
//     queue is TANDEM_FABRIC_AGAIN.
//   - One thread at a time uses a fabric. Several fabrics may live in one process, in different
//     threads.
//   - It never prints, exits or throws.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Changes whenever a struct or a promise of this file does.
#define TANDEM_TRANSPORT_PLUGIN_ABI 1
// The only symbol of a plugin: a tandem_transport_plugin_entry.
#define TANDEM_TRANSPORT_PLUGIN_ENTRY "tandem_transport_plugin_table"

typedef struct tandem_fabric tandem_fabric;  // one rank's end; the plugin knows what it is

typedef struct tandem_fabric_config {
  int32_t rank;
  int32_t world_size;
  int64_t timeout_ms;
  // Numeric address of this host on the route to the others; "": unknown.
  const char* source_address;
  const char* interface_name;  // the network interface the user chose; "": none
  const char* provider;        // FI_PROVIDER as the user set it; "": not set
} tandem_fabric_config;

// Where a function puts its error text, cut to fit and ended by 0.
typedef struct tandem_fabric_error {
  char text[512];
} tandem_fabric_error;

// Receives bytes that belong to `rank`; they are valid during the call only.
typedef void (*tandem_fabric_sink)(void* sink_context, int32_t rank, const void* bytes,
                                   size_t count);

typedef struct tandem_fabric_completion {
  void* context;   // of the send or receive that has ended
  int32_t failed;  // its rank cannot be reached any more; last_error() says why
} tandem_fabric_completion;

// The two tags that are used, so that a library may treat them differently.
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
  uint32_t size;  // of this struct in the plugin
  const char* name;

  int (*open)(const tandem_fabric_config* config, tandem_fabric** fabric,
              tandem_fabric_error* error);
  // Collective: `sink` gets the text of each rank. Null when the library cannot do this before
  // connect.
  int (*exchange)(tandem_fabric* fabric, const void* text, size_t bytes, tandem_fabric_sink sink,
                  void* sink_context, tandem_fabric_error* error);
  // What the other ranks must know of this one; `sink` is called once.
  void (*address)(tandem_fabric* fabric, tandem_fabric_sink sink, void* sink_context);
  // addresses[r] with bytes[r] bytes: what address() gave on rank r.
  int (*connect)(tandem_fabric* fabric, const void* const* addresses, const size_t* bytes,
                 tandem_fabric_error* error);
  // "libfabric 1.17, provider tcp;ofi_rxm, 10.0.0.1"; valid as long as the fabric.
  const char* (*describe)(tandem_fabric* fabric);
  size_t (*max_message_bytes)(tandem_fabric* fabric);
  // `data` must stay as it is until poll() gives `context` back.
  int (*send)(tandem_fabric* fabric, int32_t peer, uint32_t tag, const void* data, size_t bytes,
              void* context);
  int (*receive)(tandem_fabric* fabric, int32_t peer, uint32_t tag, void* data, size_t bytes,
                 void* context);
  // Moves what can be moved; returns how many completions it wrote, at most `capacity`.
  int (*poll)(tandem_fabric* fabric, tandem_fabric_completion* completions, int capacity);
  // A descriptor that becomes readable when poll() has something to do, asked for before each
  // sleep; -1: there is none, or poll() has something to do already.
  int (*wait_descriptor)(tandem_fabric* fabric);
  const char* (*last_error)(tandem_fabric* fabric);
  // For a library whose ranks must end together; may be null. Collective: called again and again
  // before a close in order, until it is TANDEM_FABRIC_OK.
  int (*finish)(tandem_fabric* fabric);
  // `in_order`: no rank has failed and sends have ended. After it the plugin touches no buffer any
  // more.
  void (*close)(tandem_fabric* fabric, int in_order);
} tandem_transport_plugin;

typedef const tandem_transport_plugin* (*tandem_transport_plugin_entry)(void);
__attribute__((visibility("default"))) const tandem_transport_plugin* tandem_transport_plugin_table(
    void);

#ifdef __cplusplus
}
#endif
