// The wire protocol of torch.distributed's TCPStore (torch 2.15, TCPStoreBackend.hpp), and a client
// of it. A connection begins with kValidate and the magic number; after that each request is one
// byte and its arguments. Numbers are in the byte order of the machine (x86-64 and arm64: little
// endian); keys and values are a u64 length and bytes. Nothing is signed or encrypted.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/net/socket.h"

namespace tandem::rendezvous {

namespace torch_store {

inline constexpr std::uint32_t kMagic = 0x3C85F7CE;
enum Query : std::uint8_t {
  kValidate,     // u32 magic
  kSet,          // key, value
  kCompareSet,   // key, expected, desired → value that is there now
  kGet,          // key → value, empty when absent
  kAdd,          // key, i64 → the sum, i64; values are decimal texts
  kCheck,        // u64 count, keys → u8: 0 all there, 1 not
  kWait,         // u64 count, keys → u8 kStopWaiting once all are there
  kNumKeys,      // → i64
  kDelete,       // key → i64: 1 or 0
  kAppend,       // key, value
  kMultiGet,     // u64 count, keys → values
  kMultiSet,     // u64 count, (key, value)…
  kCancelWait,   // → u8 kWaitCanceled
  kPing,         // u32 → the same
  kQueuePush,    // key, value
  kQueuePop,     // key → i64 values that were there, and the first if any
  kQueueLength,  // key → i64
  kListKeys,     // → i64 count, keys
  kBarrier,      // key, i64 world size → u8 kStopWaiting once that many have come
};
enum WaitAnswer : std::uint8_t { kStopWaiting, kWaitCanceled };

// Limits of torch's own server.
inline constexpr std::size_t kMaxKeyBytes = 8 << 10;
inline constexpr std::size_t kMaxValueBytes = 8 << 20;
inline constexpr std::size_t kMaxKeys = 128 << 10;

}  // namespace torch_store

// Waiting requests have their own limit; every other answer is due within `timeout`. Throws
// CommError, which names the server, if it does not answer, closes, or sends a malformed answer.
// One thread.
class TorchStore {
 public:
  using Milliseconds = std::chrono::milliseconds;
  // Tries until the deadline.
  TorchStore(const std::string& host, int port, const net::Deadline& deadline,
             Milliseconds timeout = std::chrono::seconds(30));

  void set(std::string_view key, std::string_view value);
  std::string compare_set(std::string_view key, std::string_view expected,
                          std::string_view desired);
  // Waits for the key.
  std::string get(std::string_view key, Milliseconds limit);
  std::int64_t add(std::string_view key, std::int64_t amount);
  bool check(std::span<const std::string> keys);
  // False when the limit passes before all keys are there.
  bool wait(std::span<const std::string> keys, Milliseconds limit);
  std::int64_t num_keys();
  bool remove(std::string_view key);
  void append(std::string_view key, std::string_view value);
  std::vector<std::string> multi_get(std::span<const std::string> keys);
  void multi_set(std::span<const std::string> keys, std::span<const std::string> values);
  std::uint32_t ping(std::uint32_t number);
  void queue_push(std::string_view key, std::string_view value);
  std::optional<std::string> queue_pop(std::string_view key);
  std::int64_t queue_length(std::string_view key);
  std::vector<std::string> list_keys();
  // False if the limit passes before `world_size` have joined.
  bool barrier(std::string_view key, std::int64_t world_size, Milliseconds limit);

  // The server's address, numeric.
  const std::string& address() const { return address_; }

 private:
  void send(const std::string& request);
  template <class T>
  T receive_number();
  std::string receive_text(std::size_t max_bytes);
  void receive(std::span<std::byte> bytes, Milliseconds limit, std::string_view what);
  bool await_release(Milliseconds limit);

  net::FileDescriptor socket_;
  std::string where_;
  std::string address_;
  Milliseconds timeout_;
};

}  // namespace tandem::rendezvous
