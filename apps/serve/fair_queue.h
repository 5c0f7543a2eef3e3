// Requests that wait for their turn to be computed, shared fairly between the addresses that sent
// them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

namespace tandem::apps {

// At most `slots` items run at once, of one address at most half of the slots (at least one), so
// that one client leaves room for others. The next item belongs to the waiting address with the
// fewest running items, then to the one that was not served for longest. Items of one address keep
// their order. Item: a pointer. Not thread-safe.
template <class Item>
class FairQueue {
 public:
  explicit FairQueue(std::size_t slots)
      : slots_(slots), slots_per_address_(std::max<std::size_t>(1, slots / 2)) {}

  void push(const std::string& address, Item item) {
    addresses_[address].waiting.push_back(item);
    ++waiting_;
  }

  // The item that runs from now on, until finished(); nothing when none may.
  std::optional<Item> start_next() {
    if (running_ >= slots_ || waiting_ == 0) return std::nullopt;
    Address* next = nullptr;
    for (auto& [name, address] : addresses_) {
      if (address.waiting.empty() || address.running >= slots_per_address_) continue;
      if (next == nullptr || before(address, *next)) next = &address;
    }
    if (next == nullptr) return std::nullopt;
    const Item item = next->waiting.front();
    next->waiting.pop_front();
    next->served = ++served_;
    ++next->running;
    ++running_;
    --waiting_;
    return item;
  }

  // An item of this address that ran has ended.
  void finished(const std::string& address) {
    --addresses_.at(address).running;
    --running_;
    forget_if_idle(address);
  }

  // Takes an item out that waits; false: it does not wait.
  bool remove(const std::string& address, Item item) {
    const auto found = addresses_.find(address);
    if (found == addresses_.end() || std::erase(found->second.waiting, item) == 0) return false;
    --waiting_;
    forget_if_idle(address);
    return true;
  }

  std::size_t waiting() const { return waiting_; }
  std::size_t running() const { return running_; }

 private:
  struct Address {
    std::deque<Item> waiting;
    std::size_t running = 0;
    std::uint64_t served = 0;  // when an item of it was started last
  };

  static bool before(const Address& a, const Address& b) {
    return a.running != b.running ? a.running < b.running : a.served < b.served;
  }

  void forget_if_idle(const std::string& address) {
    const auto found = addresses_.find(address);
    if (found->second.waiting.empty() && found->second.running == 0) addresses_.erase(found);
  }

  std::size_t slots_, slots_per_address_;
  std::map<std::string, Address> addresses_;
  std::size_t waiting_ = 0, running_ = 0;
  std::uint64_t served_ = 0;
};

}  // namespace tandem::apps
