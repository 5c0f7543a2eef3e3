// The TCPStore: bytes written by hand, this project's client, and bytes that no client sends.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <random>
#include <thread>

#include "support/other_user.h"
#include "tandem/core/error.h"
#include "tandem/launch/job_link.h"
#include "tandem/launch/store_server.h"
#include "tandem/rendezvous/connect.h"
#include "tandem/rendezvous/plain_bytes.h"
#include "tandem/rendezvous/torch_store.h"

namespace tandem::launch {
namespace {

using rendezvous::Deadline;
using rendezvous::FileDescriptor;
using rendezvous::TorchStore;
using std::chrono::milliseconds;
using namespace std::chrono_literals;

// A job's host that only serves its store.
class Server {
 public:
  explicit Server(const std::string& token = "") {
    FileDescriptor listener = rendezvous::listen_tcp(true, 0);
    port_ = rendezvous::local_port(listener);
    host_ = std::make_unique<JobHost>(std::move(listener), JobRules{}, AgentInfo{}, token, 10s,
                                      [](const std::string&) {});
    thread_ = std::thread([this] { serve(); });
  }
  ~Server() {
    stop_ = true;
    thread_.join();
  }
  int port() const { return port_; }
  TorchStore client() const { return TorchStore("127.0.0.1", port_, Deadline(20s)); }
  FileDescriptor raw() const {
    std::string failure;
    const std::string hosts[] = {"127.0.0.1"};
    return std::move(rendezvous::connect_first(hosts, port_, {}, Deadline(20s), failure).socket);
  }

 private:
  void serve() {
    while (!stop_) {
      std::vector<pollfd> waits;
      host_->add_to(waits);
      ::poll(waits.data(), waits.size(), 20);
      host_->serve();
    }
  }
  std::unique_ptr<JobHost> host_;
  int port_ = 0;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

std::string bytes(std::initializer_list<int> values) {
  std::string text;
  for (const int value : values) text += static_cast<char>(value);
  return text;
}

void send_bytes(const FileDescriptor& socket, const std::string& text) {
  rendezvous::send_all(socket, std::as_bytes(std::span(text)), Deadline(20s));
}

std::string receive_bytes(const FileDescriptor& socket, std::size_t size) {
  std::string text(size, '\0');
  EXPECT_EQ(rendezvous::receive_all(socket, std::as_writable_bytes(std::span(text)), Deadline(20s)),
            rendezvous::IoStatus::kDone);
  return text;
}

const std::string kHandshake = bytes({0, 0xCE, 0xF7, 0x85, 0x3C});

// As torch 2.15 puts it on the wire (TCPStore.cpp), byte by byte.
TEST(TcpStore, SpeaksTheProtocolByteByByte) {
  const Server server;
  const FileDescriptor socket = server.raw();
  send_bytes(socket, kHandshake + bytes({13, 1, 2, 3, 4}));  // PING
  EXPECT_EQ(receive_bytes(socket, 4), bytes({1, 2, 3, 4}));
  const std::string key = bytes({1, 0, 0, 0, 0, 0, 0, 0, 'k'});
  const std::string value = bytes({2, 0, 0, 0, 0, 0, 0, 0, 'v', 'w'});
  send_bytes(socket, bytes({1}) + key + value + bytes({3}) + key);  // SET, GET
  EXPECT_EQ(receive_bytes(socket, 10), value);
  const std::string one = bytes({1, 0, 0, 0, 0, 0, 0, 0});
  send_bytes(socket, bytes({5}) + one + key + bytes({6}) + one + key);  // CHECK, WAIT
  EXPECT_EQ(receive_bytes(socket, 2), bytes({0, 0}));
  const std::string number = bytes({1, 0, 0, 0, 0, 0, 0, 0, 'n'});
  send_bytes(socket, bytes({4}) + number + bytes({5, 0, 0, 0, 0, 0, 0, 0}));  // ADD
  EXPECT_EQ(receive_bytes(socket, 8), bytes({5, 0, 0, 0, 0, 0, 0, 0}));
  send_bytes(socket, bytes({3}) + number);
  EXPECT_EQ(receive_bytes(socket, 9), bytes({1, 0, 0, 0, 0, 0, 0, 0, '5'}));
  send_bytes(socket, bytes({6}) + one + bytes({1, 0, 0, 0, 0, 0, 0, 0, 'x'}) + bytes({12}));
  EXPECT_EQ(receive_bytes(socket, 1), bytes({1}));  // WAIT, then CANCEL_WAIT: canceled
}

// The protocol has no secret: data stored by another user would fill the memory of this one's
// agent.
TEST(TcpStore, RefusesOtherUsersOfTheHost) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  for (const char* token : {"", "a token"}) {
    const Server server(token);
    const std::string ping = kHandshake + bytes({13, 1, 2, 3, 4});
    int status = -1;
    const pid_t unauthenticated_peer = testing::connect_as(65534, AF_INET, server.port(), ping);
    ASSERT_EQ(::waitpid(unauthenticated_peer, &status, 0), unauthenticated_peer);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "it was answered: " << status;
    const pid_t own = testing::connect_as(::geteuid(), AF_INET, server.port(), ping);
    ASSERT_EQ(::waitpid(own, &status, 0), own);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 2) << "it got no answer: " << status;
    EXPECT_EQ(server.client().ping(1), 1U);
  }
}

TEST(TcpStore, RefusesWhatOtherUsersLeftBehind) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  FileDescriptor listener = rendezvous::listen_tcp(true, 0);
  const int port = rendezvous::local_port(listener);
  JobHost host(std::move(listener), JobRules{}, AgentInfo{}, "", 10s, [](const std::string&) {});
  const std::string set = bytes({1, 1, 0, 0, 0, 0, 0, 0, 0, 'k', 1, 0, 0, 0, 0, 0, 0, 0, 'v'});
  std::string words = kHandshake;
  while (words.size() < 500'000) words += set;  // more than is read at once
  const pid_t unauthenticated_peer =
      testing::connect_as(65534, AF_INET, port, words, /*stays=*/false);
  int status = -1;
  ASSERT_EQ(::waitpid(unauthenticated_peer, &status, 0), unauthenticated_peer);
  EXPECT_EQ(status, 0);
  std::atomic<bool> stop{false};
  std::thread server([&] {
    while (!stop) (void)host.serve();
  });
  TorchStore store("127.0.0.1", port, Deadline(20s));
  EXPECT_EQ(store.num_keys(), 0);
  stop = true;
  server.join();
}

TEST(TcpStore, EveryRequestOfOurClient) {
  const Server server;
  TorchStore store = server.client();
  store.set("a", "1");
  store.append("a", "2");
  EXPECT_EQ(store.get("a", 5s), "12");
  EXPECT_EQ(store.add("a", -2), 10);
  EXPECT_EQ(store.compare_set("b", "", "new"), "new");
  EXPECT_EQ(store.compare_set("b", "old", "x"), "new");
  EXPECT_EQ(store.compare_set("absent", "old", "x"), "old");
  EXPECT_EQ(store.num_keys(), 2);
  const std::string both[] = {"a", "b"};
  const std::string values[] = {"x", std::string(1 << 20, 'y')};
  EXPECT_TRUE(store.check(both));
  store.multi_set(both, values);
  EXPECT_EQ(store.multi_get(both).back().size(), values[1].size());
  EXPECT_EQ(store.ping(77), 77U);
  store.queue_push("q", "first");
  store.queue_push("q", "second");
  EXPECT_EQ(store.queue_length("q"), 2);
  EXPECT_EQ(store.queue_pop("q"), "first");
  EXPECT_EQ(store.queue_pop("empty"), std::nullopt);
  EXPECT_EQ(store.list_keys().size(), 2U);
  EXPECT_TRUE(store.remove("a"));
  EXPECT_FALSE(store.remove("a"));
  EXPECT_FALSE(store.wait(both, 50ms));
  EXPECT_FALSE(store.barrier("alone", 2, 50ms));
  EXPECT_EQ(store.ping(78), 78U) << "a wait that was called off leaves the connection in order";
}

TEST(TcpStore, WaitersAreReleased) {
  const Server server;
  std::thread waiter([&] { EXPECT_EQ(server.client().get("late", 60s), "here"); });
  std::thread popper([&] {
    TorchStore store = server.client();
    const std::string key[] = {"line"};
    EXPECT_TRUE(store.wait(key, 60s));
  });
  std::thread barrier([&] { EXPECT_TRUE(server.client().barrier("b", 2, 60s)); });
  TorchStore store = server.client();
  EXPECT_TRUE(store.barrier("b", 2, 60s));
  store.set("late", "here");
  store.queue_push("line", "x");
  waiter.join();
  popper.join();
  barrier.join();
}

bool is_closed(const FileDescriptor& socket) {
  std::byte byte{};
  return rendezvous::receive_all(socket, std::span(&byte, 1), Deadline(20s)) ==
         rendezvous::IoStatus::kClosed;
}

TEST(TcpStore, ShowsUnauthenticatedPeersOut) {
  const Server server;
  const std::string huge = bytes({255, 255, 255, 255, 255, 255, 255, 127});
  for (const std::string& text :
       {std::string("GET / HTTP/1.0\r\n\r\n"), bytes({0, 1, 2, 3, 4}) + std::string(20, 'x'),
        kHandshake + bytes({99}), kHandshake + bytes({1}) + huge, kHandshake + bytes({10}) + huge,
        kHandshake + bytes({4, 1, 0, 0, 0, 0, 0, 0, 0, 'z'}) + huge +
            bytes({4, 1, 0, 0, 0, 0, 0, 0, 0, 'z'}) + huge}) {
    const FileDescriptor socket = server.raw();
    send_bytes(socket, text);
    ::shutdown(socket.get(), SHUT_WR);
    std::string rest(64, '\0');
    while (::recv(socket.get(), rest.data(), 0, MSG_PEEK) > 0) {
    }
    SUCCEED();
  }
  const FileDescriptor socket = server.raw();
  send_bytes(socket, kHandshake + bytes({99}));
  EXPECT_TRUE(is_closed(socket));
  EXPECT_EQ(server.client().ping(1), 1U) << "others are not disturbed";
}

TEST(TcpStore, SurvivesNoise) {
  const Server server;
  std::mt19937 random(20);
  for (int round = 0; round < 300; ++round) {
    const FileDescriptor socket = server.raw();
    std::string noise = kHandshake;
    for (unsigned i = random() % 200; i > 0; --i)
      noise += static_cast<char>(random() % 3 == 0 ? random() % 256 : random() % 20);
    send_bytes(socket, noise);
  }
  EXPECT_EQ(server.client().ping(9), 9U);
}

TEST(TcpStore, WhoAsksWithoutAPauseKeepsItFromNobody) {
  const Server server;
  const FileDescriptor busy = server.raw();
  const std::string set = bytes({1, 1, 0, 0, 0, 0, 0, 0, 0, 'k', 1, 0, 0, 0, 0, 0, 0, 0, 'v'});
  std::string many;
  while (many.size() < 1 << 20) many += set;
  std::atomic<bool> stop{false};
  send_bytes(busy, kHandshake);
  std::thread flood([&] {
    while (!stop) send_bytes(busy, many);
  });
  std::this_thread::sleep_for(200ms);
  std::string answer;
  try {
    TorchStore other = server.client();
    other.set("a", "1");
    answer = other.get("a", 20s);
  } catch (const Error& error) {
    answer = error.what();
  }
  stop = true;
  flood.join();
  EXPECT_EQ(answer, "1");
}

TEST(TcpStore, DoesNotRepeatAValueUntilTheMemoryIsFull) {
  const Server server;
  TorchStore store = server.client();
  store.set("k", std::string(8 << 20, 'x'));
  EXPECT_EQ(store.multi_get(std::vector<std::string>(3, "k")).size(), 3u);
  const FileDescriptor socket = server.raw();
  std::string request = kHandshake + bytes({10, 16, 0, 0, 0, 0, 0, 0, 0});  // MULTI_GET of 16 keys
  for (int i = 0; i < 16; ++i) request += bytes({1, 0, 0, 0, 0, 0, 0, 0, 'k'});
  send_bytes(socket, request);
  EXPECT_TRUE(is_closed(socket));
  EXPECT_EQ(store.ping(1), 1U);
}

// 40 requests, each complete except for its last byte.
TEST(StoreServer, ShowsOutWhoFillsTheMemory) {
  constexpr std::size_t kClients = 40;
  constexpr std::uint64_t kSize = 8 << 20;
  StoreServer server;
  std::vector<FileDescriptor> ends;
  for (std::size_t i = 0; i < kClients; ++i) {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    ends.emplace_back(pair[0]);
    const std::string key = bytes({1, 1, 0, 0, 0, 0, 0, 0, 0, 'k'});
    server.adopt(FileDescriptor(pair[1]), i == 0 ? kHandshake
                                                 : kHandshake + key +
                                                       std::string(rendezvous::view_of(kSize)) +
                                                       std::string(kSize - 1, 'x'));
  }
  server.serve();
  EXPECT_EQ(server.num_clients(), std::size_t{1} + (std::size_t{256} << 20) / kSize - 1)
      << "those that together hold less than 256 MB, and the one that holds nothing";
}

TEST(KeyValueStore, CountsWhatHasNoBytes) {
  KeyValueStore store(1 << 20);
  const auto push_nothing = [&] {
    for (int i = 0; i < 10000; ++i) store.queue_push("", "");
  };
  EXPECT_THROW(push_nothing(), DataError);
}

TEST(KeyValueStore, CountsWhoWaits) {
  KeyValueStore store(1 << 20);
  std::vector<std::string> keys;
  for (int i = 0; i < 500; ++i) keys.push_back(std::to_string(i));
  for (int round = 0; round < 100; ++round) EXPECT_FALSE(store.wait(1, keys)) << "one client";
  EXPECT_THROW(
      [&] {
        for (int client = 2; client < 10; ++client) store.wait(client, keys);
      }(),
      DataError);
  for (int client = 1; client < 10; ++client) store.forget(client);
  for (const std::string& key : keys) store.set(key, "x");
  EXPECT_TRUE(store.wait(1, keys));
}

TEST(KeyValueStore, KeepsNoMoreThanItsLimit) {
  KeyValueStore store(100 + KeyValueStore::kEntryBytes);
  store.set("k", std::string(90, 'x'));
  EXPECT_THROW(store.set("l", std::string(20, 'x')), DataError);
  EXPECT_THROW(store.queue_push("q", std::string(20, 'x')), DataError);
  EXPECT_THROW(store.append("k", std::string(20, 'x')), DataError);
  store.set("k", "short");
  store.append("k", "er");
  EXPECT_EQ(store.get("k"), "shorter");
  EXPECT_THROW(store.add("k", 1), DataError);
}

}  // namespace
}  // namespace tandem::launch
