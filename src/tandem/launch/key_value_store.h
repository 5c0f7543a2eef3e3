// The contents of a TCPStore and its waiting clients, without sockets: the semantics of the
// requests of tandem/rendezvous/torch_store.h, as in torch's libuv server.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tandem::launch {

class KeyValueStore {
 public:
  using Client = int;  // any number that identifies a connection

  // Size of an entry besides its key and value, and of a key that a client waits for.
  static constexpr std::size_t kEntryBytes = 128, kAwaitedBytes = 1024;

  // Throws DataError if keys, values and waiting clients would exceed max_bytes.
  explicit KeyValueStore(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  void set(const std::string& key, std::string value);
  // Sets the value if it equals `expected`, or if it is absent and `expected` is empty. Returns the
  // value after the call; if it is absent, `expected` (as torch does).
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired);
  std::string get(const std::string& key) const;  // empty when absent
  // Throws DataError if the value is not a decimal number or the sum exceeds 64 bits.
  std::int64_t add(const std::string& key, std::int64_t amount);
  bool has_all(std::span<const std::string> keys) const;
  std::int64_t size() const { return static_cast<std::int64_t>(values_.size()); }
  bool remove(const std::string& key);
  void append(const std::string& key, const std::string& value);
  void queue_push(const std::string& key, std::string value);
  // Returns the length of the queue before the call; its first value is moved to `value`.
  std::size_t queue_pop(const std::string& key, std::string& value);
  std::size_t queue_length(const std::string& key) const;
  // Valid until the next change.
  std::vector<std::string_view> keys() const;

  // True: no wait needed. False: take_released() returns the client once all keys exist.
  bool wait(Client client, std::span<const std::string> keys);
  // Counts the client; true if `world_size` have arrived, which releases the others.
  bool barrier(Client client, const std::string& key, std::int64_t world_size);
  void forget(Client client);
  std::vector<Client> take_released();

 private:
  bool has(const std::string& key) const;
  void charge(std::size_t added, std::size_t removed);
  void wake(const std::string& key, bool all);
  void await(Client client, std::set<std::string> missing);

  std::size_t max_bytes_;
  std::size_t bytes_ = 0;
  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<std::string, std::deque<std::string>> queues_;
  std::map<Client, std::set<std::string>> awaited_;  // keys that each client still waits for
  std::unordered_map<std::string, std::deque<Client>> waiting_for_;  // in order of arrival
  std::vector<Client> released_;
};

}  // namespace tandem::launch
