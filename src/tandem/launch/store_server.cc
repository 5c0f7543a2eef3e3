#include "tandem/launch/store_server.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>

#include "tandem/core/error.h"
#include "tandem/rendezvous/plain_bytes.h"
#include "tandem/rendezvous/torch_store.h"

namespace tandem::launch {
namespace {

using namespace rendezvous::torch_store;  // NOLINT(google-build-using-namespace): protocol's names
using rendezvous::FileDescriptor;
using rendezvous::view_of;

// A request of many keys and values; torch's own have a few.
constexpr std::size_t kMaxRequestBytes = std::size_t{64} << 20;
// A client with this many unread bytes of answers is not read from.
constexpr std::size_t kMaxUnread = std::size_t{16} << 20;
// An answer may be many values, or one value many times.
constexpr std::size_t kMaxAnswerBytes = std::size_t{64} << 20;
// Limit for all clients together: incomplete requests and unread answers.
constexpr std::size_t kMaxBuffered = std::size_t{256} << 20;

// A request is incomplete: `bytes` of it are needed before the next attempt to read it.
struct Incomplete {
  std::size_t bytes;
};

// The arguments of one request, from the front of the received bytes.
class Arguments {
 public:
  explicit Arguments(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  T number() {
    need(sizeof(T));
    const T value = rendezvous::read_as<T>(bytes_.substr(at_));
    at_ += sizeof(T);
    return value;
  }
  std::string key() { return text(kMaxKeyBytes); }
  std::string value() { return text(kMaxValueBytes); }
  std::size_t count() {
    const auto count = number<std::uint64_t>();
    if (count > kMaxKeys) raise<DataError>("a request about {} keys", count);
    return count;
  }
  std::vector<std::string> keys() {
    std::vector<std::string> keys;
    for (std::size_t left = count(); left > 0; --left) {
      need_texts(left);
      keys.push_back(key());
    }
    return keys;
  }
  // Number of texts that follow, each with at least its size field. A client that sends many of
  // them a few bytes at a time does not cause a new parse for each.
  void need_texts(std::size_t count) { need(count * sizeof(std::uint64_t)); }
  std::size_t used() const { return at_; }

 private:
  void need(std::size_t size) {
    if (at_ + size > kMaxRequestBytes) raise<DataError>("a request of more than 64 MiB");
    if (bytes_.size() - at_ < size) throw Incomplete{at_ + size};
  }
  std::string text(std::size_t max_bytes) {
    const auto size = number<std::uint64_t>();
    if (size > max_bytes) raise<DataError>("a text of {} bytes", size);
    need(size);
    std::string text(bytes_.substr(at_, size));
    at_ += size;
    return text;
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
};

// The answer to a request.
class Answer {
 public:
  explicit Answer(std::string& to) : to_(to), limit_(to.size() + kMaxAnswerBytes) {}
  template <class T>
  void number(T value) {
    to_ += view_of(value);
  }
  void text(std::string_view text) {
    if (to_.size() + text.size() > limit_) raise<DataError>("an answer of more than 64 MiB");
    number<std::uint64_t>(text.size());
    to_ += text;
  }

 private:
  std::string& to_;
  std::size_t limit_;
};

void answer_queue_pop(KeyValueStore& store, const std::string& key, Answer& answer) {
  std::string value;
  const std::size_t count = store.queue_pop(key, value);
  answer.number(static_cast<std::int64_t>(count));
  if (count > 0) answer.text(value);
}

void answer_list(KeyValueStore& store, Answer& answer) {
  const auto keys = store.keys();
  answer.number(static_cast<std::int64_t>(keys.size()));
  for (const std::string_view key : keys) answer.text(key);
}

// All arguments are read before anything is changed: an incomplete request leaves no trace.
void set_many(KeyValueStore& store, Arguments& arguments) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (std::size_t left = arguments.count(); left > 0; --left) {
    arguments.need_texts(2 * left);
    std::string key = arguments.key();
    pairs.emplace_back(std::move(key), arguments.value());
  }
  for (auto& [key, value] : pairs) store.set(key, std::move(value));
}

void check_magic(std::uint32_t number) {
  if (number != kMagic) raise<DataError>("not a client of a TCPStore");
}

// Requests about one key, which has been read.
void perform_on_key(Query query, const std::string& key, KeyValueStore& store, int client,
                    Arguments& arguments, Answer& answer) {
  switch (query) {
    case kSet:
      return store.set(key, arguments.value());
    case kCompareSet: {
      const std::string expected = arguments.value();
      return answer.text(store.compare_set(key, expected, arguments.value()));
    }
    case kGet:
      return answer.text(store.get(key));
    case kAdd:
      return answer.number(store.add(key, arguments.number<std::int64_t>()));
    case kDelete:
      return answer.number<std::int64_t>(store.remove(key) ? 1 : 0);
    case kAppend:
      return store.append(key, arguments.value());
    case kQueuePush:
      return store.queue_push(key, arguments.value());
    case kQueuePop:
      return answer_queue_pop(store, key, answer);
    case kQueueLength:
      return answer.number(static_cast<std::int64_t>(store.queue_length(key)));
    default:
      if (store.barrier(client, key, arguments.number<std::int64_t>()))
        answer.number<std::uint8_t>(kStopWaiting);
  }
}

void perform(Query query, KeyValueStore& store, int client, Arguments& arguments, Answer& answer) {
  switch (query) {
    case kValidate:
      return check_magic(arguments.number<std::uint32_t>());
    case kCheck:
      return answer.number<std::uint8_t>(store.has_all(arguments.keys()) ? 0 : 1);
    case kWait:
      if (store.wait(client, arguments.keys())) answer.number<std::uint8_t>(kStopWaiting);
      return;
    case kNumKeys:
      return answer.number(store.size());
    case kMultiGet:
      for (const std::string& key : arguments.keys()) answer.text(store.get(key));
      return;
    case kMultiSet:
      return set_many(store, arguments);
    case kCancelWait:
      store.forget(client);
      return answer.number<std::uint8_t>(kWaitCanceled);
    case kPing:
      return answer.number(arguments.number<std::uint32_t>());
    case kListKeys:
      return answer_list(store, answer);
    default:
      if (query > kBarrier) raise<DataError>("an unknown request, {}", static_cast<int>(query));
      perform_on_key(query, arguments.key(), store, client, arguments, answer);
  }
}

}  // namespace

struct StoreServer::Client {
  int number = 0;
  FileDescriptor socket;
  std::string received;
  std::size_t wanted = 1;  // bytes before the next look
  std::string unsent;

  bool reads() const { return unsent.size() < kMaxUnread; }
  std::size_t buffered() const { return received.size() + unsent.size(); }
  // Performs the received requests. Throws DataError for an invalid one.
  void perform_all(KeyValueStore& store) {
    std::size_t at = 0, answered = unsent.size();
    wanted = 1;
    try {
      while (at < received.size() && reads()) {
        answered = unsent.size();
        const auto rest = std::string_view(received).substr(at);
        Arguments arguments(rest.substr(1));
        Answer answer(unsent);
        perform(static_cast<Query>(rest.front()), store, number, arguments, answer);
        at += 1 + arguments.used();
      }
    } catch (const Incomplete& missing) {
      wanted = 1 + missing.bytes;
    } catch (const DataError&) {
      unsent.resize(answered);  // no half of an answer
      throw;
    }
    received.erase(0, at);
  }
};

StoreServer::StoreServer() = default;
StoreServer::~StoreServer() = default;

void StoreServer::adopt(FileDescriptor socket, std::string received) {
  auto client = std::make_unique<Client>();
  client->number = next_++;
  client->socket = std::move(socket);
  client->received = std::move(received);
  clients_.emplace(client->number, std::move(client));
}

void StoreServer::add_to(std::vector<pollfd>& waits) const {
  for (const auto& [number, client] : clients_) {
    const short events =
        static_cast<short>((client->reads() ? POLLIN : 0) | (client->unsent.empty() ? 0 : POLLOUT));
    waits.push_back({client->socket.get(), events, 0});
  }
}

// Reads a few pieces: a client that sends without a pause is served alternately with the others.
// False: the connection has ended or violated the protocol.
bool StoreServer::read(Client& client) {
  char bytes[65536];
  for (int pieces = 0; client.reads() && pieces < 4; ++pieces) {
    const ssize_t got = ::recv(client.socket.get(), bytes, sizeof bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) return false;
    client.received.append(bytes, static_cast<std::size_t>(got));
    if (client.received.size() >= client.wanted) client.perform_all(store_);
  }
  if (client.received.size() >= client.wanted) client.perform_all(store_);
  return true;
}

bool StoreServer::write(Client& client) {
  std::size_t at = 0;
  while (at < client.unsent.size()) {
    const ssize_t sent = ::send(client.socket.get(), client.unsent.data() + at,
                                client.unsent.size() - at, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) break;
    if (sent <= 0) return false;
    at += static_cast<std::size_t>(sent);
  }
  client.unsent.erase(0, at);
  return true;
}

void StoreServer::answer_released() {
  for (const int number : store_.take_released()) {
    const auto found = clients_.find(number);
    if (found != clients_.end()) Answer(found->second->unsent).number<std::uint8_t>(kStopWaiting);
  }
}

void StoreServer::serve() {
  std::vector<int> gone;
  for (const auto& [number, client] : clients_) {
    bool alive = false;
    try {
      alive = read(*client);
    } catch (const DataError&) {  // the client is not one of the job's programs
    }
    if (!alive) gone.push_back(number);
  }
  answer_released();
  for (const auto& [number, client] : clients_) {
    if (!write(*client)) gone.push_back(number);
  }
  for (const int number : gone) show_out(number);
  show_out_the_greediest();
}

void StoreServer::show_out(int number) {
  store_.forget(number);
  clients_.erase(number);
}

// Programs of a job send little: a client that fills the memory is not one of them.
void StoreServer::show_out_the_greediest() {
  std::size_t buffered = 0;
  for (const auto& [number, client] : clients_) buffered += client->buffered();
  while (buffered > kMaxBuffered) {
    const auto greediest = std::max_element(
        clients_.begin(), clients_.end(),
        [](const auto& a, const auto& b) { return a.second->buffered() < b.second->buffered(); });
    buffered -= greediest->second->buffered();
    show_out(greediest->first);
  }
}

void StoreServer::clear() {
  clients_.clear();
  store_ = KeyValueStore(kMaxStoreBytes);
}

}  // namespace tandem::launch
