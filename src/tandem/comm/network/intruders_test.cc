// A process connects to the open ports and names of a job and sends invalid bytes, from the
// bootstrap to the last shrink agreement: the job continues.
#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "support/handshakes.h"
#include "support/ports.h"
#include "support/unauthenticated_peer.h"
#include "tandem/comm/collectives/test_ranks.h"
#include "tandem/comm/network/transport.h"
#include "tandem/net/rank_handshake.h"
#include "tandem/rendezvous/bootstrap_wire.h"

namespace tandem::comm {
namespace {

namespace wire = rendezvous::wire;
using net::ConnectionKind;
using net::FileDescriptor;
using net::view_of;

// The sockets that listen in this process.
std::set<std::string> own_sockets() {
  std::set<std::string> inodes;
  DIR* folder = ::opendir("/proc/self/fd");
  while (const dirent* entry = folder ? ::readdir(folder) : nullptr) {
    char target[64] = "";
    const std::string path = fmt::format("/proc/self/fd/{}", entry->d_name);
    if (::readlink(path.c_str(), target, sizeof target - 1) < 0) continue;
    const std::string text = target;
    if (text.starts_with("socket:[")) inodes.insert(text.substr(8, text.size() - 9));
  }
  if (folder) ::closedir(folder);
  return inodes;
}

std::set<int> listening_ports(const std::set<std::string>& own) {
  std::set<int> ports;
  for (const char* path : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      std::istringstream stream(line);
      std::vector<std::string> words;
      for (std::string word; stream >> word;) words.push_back(word);
      if (words.size() < 10 || words[3] != "0A" || !own.contains(words[9])) continue;
      ports.insert(std::stoi(words[1].substr(words[1].find(':') + 1), nullptr, 16));
    }
  }
  return ports;
}

std::set<std::string> listening_names(const std::set<std::string>& own) {
  std::set<std::string> names;
  std::ifstream file("/proc/self/net/unix");
  for (std::string line; std::getline(file, line);) {
    std::istringstream stream(line);
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);
    if (words.size() < 8 || !own.contains(words[6]) || words[7].front() != '@') continue;
    names.insert(words[7].substr(1));
  }
  return names;
}

FileDescriptor visit_name(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) socket.reset();
  return socket;
}

// Sends `bytes` to all listeners of this process, repeatedly, and keeps the connections open.
class Intruder {
 public:
  explicit Intruder(std::string bytes) : bytes_(std::move(bytes)), thread_([this] { intrude(); }) {}
  ~Intruder() {
    stop_ = true;
    thread_.join();
  }

  // Waits until the listeners have accepted `count` more of its connections than before the call.
  // False: timed out.
  bool wait_for_visits(int count) const {
    const int enough = visits_ + count;
    for (int i = 0; i < 4000 && visits_ < enough; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return visits_ >= enough;
  }

 private:
  void intrude() {
    std::vector<FileDescriptor> connections;
    while (!stop_) {
      const std::set<std::string> own = own_sockets();
      for (const int port : listening_ports(own))
        connections.emplace_back(tandem::testing::connect_to_port(port));
      for (const std::string& name : listening_names(own)) connections.push_back(visit_name(name));
      std::erase_if(connections, [](const FileDescriptor& connection) { return !connection; });
      for (const FileDescriptor& connection : connections) {
        visits_ +=
            ::send(connection.get(), bytes_.data(), bytes_.size(), MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
      }
      if (connections.size() > 40) connections.erase(connections.begin(), connections.begin() + 20);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  std::string bytes_;
  std::atomic<int> visits_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

std::string noise() {
  std::string bytes;
  for (int i = 0; i < 700; ++i) bytes += static_cast<char>(i * i * 31 + i / 7);
  return bytes;
}

// The peer info is some of the noise.
std::string rank_handshake(std::uint32_t version, std::size_t peer_info_bytes) {
  wire::HandshakeMessage rank_handshake;
  rank_handshake.version = version;
  rank_handshake.world_size = 3;
  rank_handshake.rank = 2;
  return wire::handshake_frame(rank_handshake, noise().substr(0, peer_info_bytes)) + noise();
}

std::string damaged(std::string bytes) {
  bytes[30] ^= 1;
  return bytes;
}

std::string endless_handshake() {
  net::FrameProtocol wide = wire::kToRank0;
  wide.most_payload = std::size_t{1} << 30;
  return net::encode_frame(wide, wire::kHandshake, {std::string(1 << 20, 'x')})
      .substr(0, net::kFrameHeadBytes);
}

// In the right form, without the secret.
std::string rank_handshake(ConnectionKind kind) {
  return tandem::testing::connection_handshake(kind, {}, 2, 0) + noise();
}

struct Words {
  const char* name;
  std::string bytes;
};

void PrintTo(const Words& one, std::ostream* out) { *out << one.name; }

std::vector<Words> all_words() {
  return {{"Noise", noise()},
          {"Zeros", std::string(500, '\0')},
          {"Http", "GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n"},
          {"ForgedHello", rank_handshake(wire::kVersion, 100)},
          {"DamagedHello", damaged(rank_handshake(wire::kVersion, 100))},
          {"AnotherVersion", rank_handshake(99, 100)},
          {"EndlessCard", endless_handshake() + noise()},
          {"AWordAfterNoHello", net::encode_frame(wire::kToRank0, wire::kGaveUp, {noise()})},
          {"MeshData", rank_handshake(ConnectionKind::kData)},
          {"MeshControl", rank_handshake(ConnectionKind::kControl)},
          {"MeshLocal", rank_handshake(ConnectionKind::kLocal)},
          {"Reunion", rank_handshake(ConnectionKind::kShrinkAgreement)},
          {"NoKind", rank_handshake(static_cast<ConnectionKind>(77))},
          {"Messages", std::string(view_of(Header())) + noise()}};
}

class Intruders : public ::testing::TestWithParam<std::tuple<Words, std::string>> {};

constexpr const char* kNoVisit = "no peer intruded";

// Bootstraps, works and continues without rank 2. Every phase lasts until it has been disturbed:
// one rank waits for that, the others for it.
std::string job_of_rank(int rank, int port, const std::string& token, const Intruder& intruder) {
  rendezvous::Identity identity;
  identity.rank = identity.local_rank = rank;
  identity.world_size = identity.local_size = 3;
  identity.master_port = port;
  identity.master_port_given = true;
  identity.job_token = token;
  Options options;
  options.timeout = std::chrono::seconds(30);
  if (rank == 2 && !intruder.wait_for_visits(3)) return kNoVisit;
  try {
    const auto communicator = Communicator::create(identity, options);
    std::vector<float> data(5000, 1.0f);
    for (int i = 0; i < 10; ++i) {
      if (rank == 2 && i == 5 && !intruder.wait_for_visits(3)) return kNoVisit;
      std::fill(data.begin(), data.end(), 1.0f);
      communicator->all_reduce(std::span(data), ReduceOp::kSum);
      if (data[17] != 3.0f) return "a wrong sum";
    }
    if (rank == 2) {
      communicator->close();
      return "";
    }
    if (rank == 1 && !intruder.wait_for_visits(3)) return kNoVisit;
    ShrinkOptions shrinking;
    shrinking.exclude = {2};
    const auto rest = communicator->shrink(shrinking);
    std::int64_t sum = 1;
    rest->all_reduce(std::span(&sum, 1), ReduceOp::kSum);
    rest->close();
    return sum == 2 ? "" : "a wrong sum after the shrink agreement";
  } catch (const std::exception& error) {
    return error.what();
  }
}

TEST_P(Intruders, DoNotDisturbTheJob) {
  const auto& [words, token] = GetParam();
  const int port = tandem::testing::free_port();
  std::vector<std::string> errors(3);
  {
    Intruder intruder(words.bytes);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      ranks.emplace_back([&, rank, token = token] {
        errors[static_cast<std::size_t>(rank)] = job_of_rank(rank, port, token, intruder);
      });
    }
    for (std::thread& rank : ranks) rank.join();
  }
  EXPECT_THAT(errors, ::testing::Each(::testing::IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(All, Intruders,
                         ::testing::Combine(::testing::ValuesIn(all_words()),
                                            ::testing::Values("", "secret")),
                         [](const auto& instance) {
                           return std::string(std::get<0>(instance.param).name) +
                                  (std::get<1>(instance.param).empty() ? "" : "WithToken");
                         });

}  // namespace
}  // namespace tandem::comm
