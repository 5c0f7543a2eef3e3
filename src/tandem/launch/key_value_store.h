// What a TCPStore keeps and who waits for what, without sockets: the meaning of the requests of
// tandem/rendezvous/torch_store.h, as torch's libuv server has it.
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
  using Client = int;  // any number that names a connection

  // What an entry takes beside its key and value, and what a key takes that somebody waits for.
  static constexpr std::size_t kEntryBytes = 128, kAwaitedBytes = 1024;

  // Throws DataError when there would be more than max_bytes of keys, values and who waits.
  explicit KeyValueStore(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  void set(const std::string& key, std::string value);
  // Sets when the value is `expected`, or when there is none and `expected` is empty. Returns what
  // is there then; where nothing is, `expected` (as torch does).
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired);
  std::string get(const std::string& key) const;  // empty when absent
  // Throws DataError when the value is not a decimal number or the sum leaves 64 bits.
  std::int64_t add(const std::string& key, std::int64_t amount);
  bool has_all(std::span<const std::string> keys) const;
  std::int64_t size() const { return static_cast<std::int64_t>(values_.size()); }
  bool remove(const std::string& key);
  void append(const std::string& key, const std::string& value);
  void queue_push(const std::string& key, std::string value);
  // How many there were before; the first of them is moved to `value`.
  std::size_t queue_pop(const std::string& key, std::string& value);
  std::size_t queue_length(const std::string& key) const;
  // Valid until something changes.
  std::vector<std::string_view> keys() const;

  // True: nothing to wait for. False: take_released() names the client once all keys are there.
  bool wait(Client client, std::span<const std::string> keys);
  // Counts the client; true when `world_size` have come, which releases the others.
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
  std::map<Client, std::set<std::string>> awaited_;                  // what each still waits for
  std::unordered_map<std::string, std::deque<Client>> waiting_for_;  // in order of arrival
  std::vector<Client> released_;
};

}  // namespace tandem::launch
