#include "tandem/rendezvous/torch_store.h"

#include <thread>

#include "tandem/core/error.h"
#include "tandem/net/connect.h"
#include "tandem/net/event_loop.h"
#include "tandem/net/plain_bytes.h"

namespace tandem::rendezvous {
namespace {

using namespace torch_store;  // NOLINT(google-build-using-namespace): the names of the protocol

std::string begin(Query query) { return std::string(1, static_cast<char>(query)); }

template <class T>
void append_number(std::string& to, T value) {
  to += net::view_of(value);
}

void append_text(std::string& to, std::string_view text) {
  append_number<std::uint64_t>(to, text.size());
  to += text;
}

std::string about_key(Query query, std::string_view key) {
  std::string request = begin(query);
  append_text(request, key);
  return request;
}

std::string about_keys(Query query, std::span<const std::string> keys) {
  std::string request = begin(query);
  append_number<std::uint64_t>(request, keys.size());
  for (const std::string& key : keys) append_text(request, key);
  return request;
}

}  // namespace

TorchStore::TorchStore(const std::string& host, int port, const net::Deadline& deadline,
                       Milliseconds timeout)
    : where_(fmt::format("the store at {}:{}", host, port)), timeout_(timeout) {
  const std::string hosts[] = {host};
  std::string failure;
  while (!socket_) {
    net::Connected connected = net::connect_first(hosts, port, {}, deadline, failure);
    socket_ = std::move(connected.socket);
    address_ = connected.address;
    if (socket_) break;
    if (deadline.passed()) {
      raise<CommError>("cannot reach {} within {:.0f} s: {}", where_, deadline.limit_seconds(),
                       failure);
    }
    std::this_thread::sleep_for(
        std::chrono::milliseconds(deadline.remaining_ms(std::chrono::milliseconds(100))));
  }
  std::string request = begin(kValidate);
  append_number(request, kMagic);
  send(request);
}

void TorchStore::send(const std::string& request) {
  if (net::send_all(socket_, std::as_bytes(std::span(request)), net::Deadline(timeout_)) !=
      net::IoStatus::kDone)
    raise<CommError>("cannot send to {}: it accepts no data; check that its host is running",
                     where_);
}

void TorchStore::receive(std::span<std::byte> bytes, Milliseconds limit, std::string_view what) {
  const net::Deadline deadline(limit);
  const net::IoStatus status = net::receive_all(socket_, bytes, deadline);
  if (status == net::IoStatus::kDone) return;
  raise<CommError>("{} {} while {} was expected", where_,
                   status == net::IoStatus::kClosed
                       ? std::string("closed the connection")
                       : fmt::format("did not answer within {:.0f} s", deadline.limit_seconds()),
                   what);
}

template <class T>
T TorchStore::receive_number() {
  T value{};
  receive(std::as_writable_bytes(std::span(&value, 1)), timeout_, "a number");
  return value;
}

std::string TorchStore::receive_text(std::size_t max_bytes) {
  const auto size = receive_number<std::uint64_t>();
  if (size > max_bytes)
    raise<CommError>("{} announced a text of {} bytes, expected at most {}", where_, size,
                     max_bytes);
  std::string text(size, '\0');
  receive(std::as_writable_bytes(std::span(text)), timeout_, "a text");
  return text;
}

void TorchStore::set(std::string_view key, std::string_view value) {
  std::string request = about_key(kSet, key);
  append_text(request, value);
  send(request);
}

std::string TorchStore::compare_set(std::string_view key, std::string_view expected,
                                    std::string_view desired) {
  std::string request = about_key(kCompareSet, key);
  append_text(request, expected);
  append_text(request, desired);
  send(request);
  return receive_text(kMaxValueBytes);
}

std::string TorchStore::get(std::string_view key, Milliseconds limit) {
  const std::string keys[] = {std::string(key)};
  if (!wait(keys, limit)) {
    raise<CommError>("{} has had no '{}' for {:.0f} s", where_, key,
                     std::chrono::duration<double>(limit).count());
  }
  send(about_key(kGet, key));
  return receive_text(kMaxValueBytes);
}

std::int64_t TorchStore::add(std::string_view key, std::int64_t amount) {
  std::string request = about_key(kAdd, key);
  append_number(request, amount);
  send(request);
  return receive_number<std::int64_t>();
}

bool TorchStore::check(std::span<const std::string> keys) {
  send(about_keys(kCheck, keys));
  return receive_number<std::uint8_t>() == 0;
}

// After the limit the wait is called off; the answer may have been under way.
bool TorchStore::await_release(Milliseconds limit) {
  const net::Deadline deadline(limit);
  if (!net::wait_readable(socket_.get(), deadline)) {
    send(begin(kCancelWait));
    if (receive_number<std::uint8_t>() == kStopWaiting) receive_number<std::uint8_t>();
    return false;
  }
  return receive_number<std::uint8_t>() == kStopWaiting;
}

bool TorchStore::wait(std::span<const std::string> keys, Milliseconds limit) {
  send(about_keys(kWait, keys));
  return await_release(limit);
}

std::int64_t TorchStore::num_keys() {
  send(begin(kNumKeys));
  return receive_number<std::int64_t>();
}

bool TorchStore::remove(std::string_view key) {
  send(about_key(kDelete, key));
  return receive_number<std::int64_t>() == 1;
}

void TorchStore::append(std::string_view key, std::string_view value) {
  std::string request = about_key(kAppend, key);
  append_text(request, value);
  send(request);
}

std::vector<std::string> TorchStore::multi_get(std::span<const std::string> keys) {
  send(about_keys(kMultiGet, keys));
  std::vector<std::string> values;
  for (std::size_t i = 0; i < keys.size(); ++i) values.push_back(receive_text(kMaxValueBytes));
  return values;
}

void TorchStore::multi_set(std::span<const std::string> keys, std::span<const std::string> values) {
  if (keys.size() != values.size())
    raise<InvalidArgument>("{} keys and {} values", keys.size(), values.size());
  std::string request = begin(kMultiSet);
  append_number<std::uint64_t>(request, keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    append_text(request, keys[i]);
    append_text(request, values[i]);
  }
  send(request);
}

std::uint32_t TorchStore::ping(std::uint32_t number) {
  std::string request = begin(kPing);
  append_number(request, number);
  send(request);
  return receive_number<std::uint32_t>();
}

void TorchStore::queue_push(std::string_view key, std::string_view value) {
  std::string request = about_key(kQueuePush, key);
  append_text(request, value);
  send(request);
}

std::optional<std::string> TorchStore::queue_pop(std::string_view key) {
  send(about_key(kQueuePop, key));
  if (receive_number<std::int64_t>() <= 0) return std::nullopt;
  return receive_text(kMaxValueBytes);
}

std::int64_t TorchStore::queue_length(std::string_view key) {
  send(about_key(kQueueLength, key));
  return receive_number<std::int64_t>();
}

std::vector<std::string> TorchStore::list_keys() {
  send(begin(kListKeys));
  const auto count = receive_number<std::int64_t>();
  std::vector<std::string> keys;
  for (std::int64_t i = 0; i < count; ++i) keys.push_back(receive_text(kMaxKeyBytes));
  return keys;
}

bool TorchStore::barrier(std::string_view key, std::int64_t world_size, Milliseconds limit) {
  std::string request = about_key(kBarrier, key);
  append_number(request, world_size);
  send(request);
  return await_release(limit);
}

}  // namespace tandem::rendezvous
