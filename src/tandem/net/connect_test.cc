// Finding the right address among addresses that are wrong, silent or used by another program.
#include "tandem/net/connect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tandem/core/error.h"
#include "tandem/net/interfaces.h"

namespace tandem::net {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr milliseconds kTimeout{10000};

// Completes the handshake with every connection to one port of 127.0.0.2 and further loopback
// addresses.
class Greeter {
 public:
  explicit Greeter(const std::string& text) : listener_(listen_tcp(false, 0)) {
    thread_ = std::thread([this, text] {
      std::vector<FileDescriptor> connections;
      while (!stop_) {
        FileDescriptor connection = accept_tcp(listener_, 20);
        if (!connection) continue;
        send_all(connection, std::as_bytes(std::span(text)), Deadline(kTimeout));
        connections.push_back(std::move(connection));
      }
    });
  }
  ~Greeter() {
    stop_ = true;
    thread_.join();
  }
  int port() const { return local_port(listener_); }

 private:
  FileDescriptor listener_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

Handshake expects(const std::string& text) {
  return {"", text.size(), [text](const std::string& answer) { return answer == text; }, {}};
}

Connected connect_to(const std::vector<std::string>& hosts, int port, const Handshake& handshake,
                     std::string& failure, milliseconds timeout = kTimeout) {
  return connect_first(hosts, port, handshake, Deadline(timeout), failure);
}

TEST(ConnectFirst, TheFirstAddressThatAnswersRightWins) {
  const Greeter greeter("hello");
  std::string failure;
  const Connected found =
      connect_to({"127.0.0.2", "127.0.0.3"}, greeter.port(), expects("hello"), failure);
  EXPECT_TRUE(found.socket);
  EXPECT_EQ(found.address, "127.0.0.2");
  EXPECT_EQ(found.answer, "hello");
}

TEST(ConnectFirst, NamesThatDoNotResolveAndOtherProgramsAreNamed) {
  const Greeter greeter("other");
  std::string failure;
  const Connected found =
      connect_to({"no-such-host.invalid", "127.0.0.2"}, greeter.port(), expects("hello"), failure);
  EXPECT_FALSE(found.socket);
  EXPECT_THAT(failure, AllOf(HasSubstr("'no-such-host.invalid' does not resolve"),
                             HasSubstr("127.0.0.2: another program listens there")));
}

// A listener that accepts (the kernel does so alone) and sends nothing.
TEST(ConnectFirst, ASilentListenerIsNoSuccess) {
  const FileDescriptor silent = listen_tcp(true, 0);
  const int port = local_port(silent);
  std::string failure;
  EXPECT_FALSE(
      connect_to({"127.0.0.1"}, port, expects("hello"), failure, milliseconds(300)).socket);
  EXPECT_THAT(failure, HasSubstr("no answer"));
}

TEST(Interfaces, ListsAndExclusions) {
  EXPECT_THAT(own_addresses("lo"), ::testing::Contains("127.0.0.1"));
  EXPECT_THAT(own_addresses(""), ::testing::Not(::testing::Contains("127.0.0.1")));
  EXPECT_EQ(own_addresses("^no-such-interface"), own_addresses(""));
  try {
    own_addresses("lo,ib7");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'lo,ib7'"), HasSubstr("no interface 'ib7'"),
                                    HasSubstr("lo (127.0.0.1)"), HasSubstr("TANDEM_IFNAME")));
  }
}

}  // namespace
}  // namespace tandem::net
