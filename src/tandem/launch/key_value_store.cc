#include "tandem/launch/key_value_store.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "tandem/core/error.h"

namespace tandem::launch {
namespace {

std::int64_t decimal(const std::string& key, const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    raise<DataError>("the value of '{}' is no number and nothing can be added to it", key);
  return value;
}

std::size_t bytes_of(const std::string& key, const std::string& value) {
  return KeyValueStore::kEntryBytes + key.size() + value.size();
}

// In the list of the client and in that of the key.
std::size_t bytes_of_awaited(const std::string& key) {
  return KeyValueStore::kAwaitedBytes + 2 * key.size();
}

}  // namespace

// The bytes of a key count once for its value and once for a queue of that name.
void KeyValueStore::charge(std::size_t added, std::size_t removed) {
  if (added > removed && bytes_ + added - removed > max_bytes_) {
    raise<DataError>("the store holds {} bytes, and no more than {} are kept", bytes_, max_bytes_);
  }
  bytes_ += added;
  bytes_ -= std::min(bytes_, removed);
}

bool KeyValueStore::has(const std::string& key) const {
  return values_.contains(key) || queue_length(key) > 0;
}

bool KeyValueStore::has_all(std::span<const std::string> keys) const {
  return std::all_of(keys.begin(), keys.end(), [this](const auto& key) { return has(key); });
}

void KeyValueStore::set(const std::string& key, std::string value) {
  const auto found = values_.find(key);
  charge(bytes_of(key, value), found == values_.end() ? 0 : bytes_of(key, found->second));
  values_[key] = std::move(value);
  wake(key, true);
}

std::string KeyValueStore::compare_set(const std::string& key, const std::string& expected,
                                       const std::string& desired) {
  const auto found = values_.find(key);
  const bool absent = found == values_.end();
  if (absent ? expected.empty() : found->second == expected) {
    set(key, desired);
    return desired;
  }
  return absent ? expected : found->second;
}

std::string KeyValueStore::get(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? "" : found->second;
}

std::int64_t KeyValueStore::add(const std::string& key, std::int64_t amount) {
  const auto found = values_.find(key);
  std::int64_t sum = amount;
  if (found != values_.end() && __builtin_add_overflow(decimal(key, found->second), amount, &sum)) {
    raise<DataError>("the sum of '{}' does not fit in 64 bits", key);
  }
  set(key, std::to_string(sum));
  return sum;
}

bool KeyValueStore::remove(const std::string& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return false;
  charge(0, bytes_of(key, found->second));
  values_.erase(found);
  return true;
}

void KeyValueStore::append(const std::string& key, const std::string& value) {
  const auto found = values_.find(key);
  if (found == values_.end()) return set(key, value);
  charge(value.size(), 0);
  found->second += value;
  wake(key, true);
}

void KeyValueStore::queue_push(const std::string& key, std::string value) {
  charge(bytes_of(key, value), 0);
  queues_[key].push_back(std::move(value));
  wake(key, false);
}

std::size_t KeyValueStore::queue_pop(const std::string& key, std::string& value) {
  const auto found = queues_.find(key);
  if (found == queues_.end()) return 0;
  const std::size_t count = found->second.size();
  value = std::move(found->second.front());
  found->second.pop_front();
  charge(0, bytes_of(key, value));
  if (count == 1) queues_.erase(found);
  return count;
}

std::size_t KeyValueStore::queue_length(const std::string& key) const {
  const auto found = queues_.find(key);
  return found == queues_.end() ? 0 : found->second.size();
}

std::vector<std::string_view> KeyValueStore::keys() const {
  std::vector<std::string_view> keys;
  for (const auto& [key, value] : values_) keys.emplace_back(key);
  return keys;
}

bool KeyValueStore::wait(Client client, std::span<const std::string> keys) {
  forget(client);
  std::set<std::string> missing;
  for (const std::string& key : keys) {
    if (!has(key)) missing.insert(key);
  }
  if (missing.empty()) return true;
  await(client, std::move(missing));
  return false;
}

void KeyValueStore::await(Client client, std::set<std::string> missing) {
  std::size_t bytes = 0;
  for (const std::string& key : missing) bytes += bytes_of_awaited(key);
  charge(bytes, 0);
  for (const std::string& key : missing) waiting_for_[key].push_back(client);
  awaited_[client] = std::move(missing);
}

bool KeyValueStore::barrier(Client client, const std::string& key, std::int64_t world_size) {
  const auto found = values_.find(key);
  const std::int64_t count = found == values_.end() ? 1 : decimal(key, found->second) + 1;
  std::string text = std::to_string(count);
  charge(bytes_of(key, text), found == values_.end() ? 0 : bytes_of(key, found->second));
  values_[key] = std::move(text);
  if (count >= world_size) {
    wake(key, true);
    return true;
  }
  forget(client);
  await(client, {key});
  return false;
}

// All clients that wait for the key, or with `all` false the first whose wait it ends.
void KeyValueStore::wake(const std::string& key, bool all) {
  const auto found = waiting_for_.find(key);
  if (found == waiting_for_.end()) return;
  std::deque<Client> clients = std::move(found->second);
  waiting_for_.erase(found);
  while (!clients.empty()) {
    const Client client = clients.front();
    clients.pop_front();
    auto& missing = awaited_[client];
    missing.erase(key);
    charge(0, bytes_of_awaited(key));
    if (!missing.empty()) continue;
    awaited_.erase(client);
    released_.push_back(client);
    if (!all) break;
  }
  if (!clients.empty()) waiting_for_[key] = std::move(clients);
}

void KeyValueStore::forget(Client client) {
  const auto found = awaited_.find(client);
  if (found == awaited_.end()) return;
  for (const std::string& key : found->second) {
    charge(0, bytes_of_awaited(key));
    const auto waiting = waiting_for_.find(key);
    if (waiting == waiting_for_.end()) continue;
    std::erase(waiting->second, client);
    if (waiting->second.empty()) waiting_for_.erase(waiting);
  }
  awaited_.erase(found);
}

std::vector<KeyValueStore::Client> KeyValueStore::take_released() {
  return std::exchange(released_, {});
}

}  // namespace tandem::launch
