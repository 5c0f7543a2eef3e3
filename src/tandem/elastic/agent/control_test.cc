// An agent's request listener, with valid, invalid and silent connections from its host and others.
#include "tandem/launch/control/control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <thread>

#include "support/unauthenticated_peer.h"
#include "tandem/core/error.h"
#include "tandem/elastic/agent/agent_links.h"
#include "tandem/net/address.h"
#include "tandem/net/event_loop.h"

namespace tandem::elastic {
namespace {

using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr milliseconds kControlLimit{20000};

launch::JobStatus example() {
  launch::JobStatus status;
  status.job = "job \x1b[31m";
  status.host = "node0";
  status.agent = ::getpid();
  status.address = "node0:29400";
  status.program = "run_qa.py";
  status.view = 3;
  status.step = 58;
  status.losses = 1;
  status.restarts = 2;
  status.nodes = 3;
  status.ranks = 4;
  status.seconds_lost = 0.5;
  status.members = {{0, 1, 17, "computes"}, {1, -1, 0, "is drained"}};
  return status;
}

using Answer = std::function<std::string(const launch::ControlRequest&)>;

// An agent in a thread, until the end of the test. Its job has no other agent, so it answers alone.
class TestAgent {
 public:
  explicit TestAgent(Answer answer, const std::string& token = "a secret")
      : desk_(::getpid(), token), answer_(std::move(answer)) {
    EXPECT_EQ(desk_.failure(), "");
    thread_ = std::thread([this] {
      while (!stop_.load()) {
        net::EventLoop loop;
        desk_.add_to(loop);
        links_.add_to(loop);
        loop.run_once(std::chrono::milliseconds(5));
        for (auto& visitor : links_.serve().visitors) desk_.welcome(std::move(visitor));
        for (const auto& question : desk_.serve()) {
          try {
            desk_.answer(question.client, answer_(question.request));
          } catch (const Error& error) {
            desk_.answer(question.client, fmt::format(R"({{"error":"{}"}})", error.what()));
          }
          desk_.finish(question.client);
        }
      }
    });
  }
  ~TestAgent() {
    stop_.store(true);
    thread_.join();
  }
  launch::AgentAddress address(const std::string& token = "a secret") const {
    return {.address = net::join_host("127.0.0.1", port_), .token = token};
  }
  int port() const { return port_; }

 private:
  launch::ControlDesk desk_;
  net::FileDescriptor listener_ = net::listen_tcp(/*loopback_only=*/true, 0);
  int port_ = net::local_port(listener_);
  AgentLinks links_{std::move(listener_),
                    {.self = {1, "here"}, .job = 0, .token = "", .log = [](const auto&) {}}};
  Answer answer_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

launch::AgentAddress here() { return {.pid = ::getpid()}; }
std::string status_line() { return R"({"status":)" + to_json(example()) + "}"; }

std::string what(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Control, ReportsTheStatusAndObeysOrders) {
  std::vector<std::string> done;
  {
    const TestAgent agent([&](const launch::ControlRequest& request) -> std::string {
      if (request.kind == launch::ControlRequest::Kind::kStatus) return status_line();
      if (request.kind == launch::ControlRequest::Kind::kResize) raise<ConfigError>("not so many");
      done.push_back(to_line(request));
      return R"({"done":"worker 2 is drained"})";
    });
    EXPECT_THAT(launch::running_agents(), Contains(::getpid()));
    for (const launch::AgentAddress& address : {here(), agent.address()}) {
      const launch::JobStatus status = launch::ask_status(address, kControlLimit).agents.at(0);
      EXPECT_EQ(launch::for_people(status),
                fmt::format("job job ?[31m (run_qa.py), agent {} on node0 (node0:29400): view 3 of "
                            "4 ranks on 3 nodes: 1 of 2 workers here compute, step 58 is applied, "
                            "1 worker lost so far\n"
                            "  worker 0 computes as rank 1 (pid 17)\n  worker 1 is drained\n",
                            ::getpid()));
      EXPECT_EQ(to_json(status), to_json(launch::job_status_from(to_json(status))));
      EXPECT_EQ(status.restarts * 100 + status.nodes * 10 + status.ranks, 234);
      EXPECT_EQ(status.seconds_lost, 0.5);
      EXPECT_EQ(launch::ask_change(address, {launch::ControlRequest::Kind::kDrain, 2, "node1:9"},
                                   kControlLimit),
                "worker 2 is drained");
      EXPECT_THAT(
          what([&] {
            launch::ask_change(address, {launch::ControlRequest::Kind::kResize, 9}, kControlLimit);
          }),
          HasSubstr("not so many"));
    }
  }
  EXPECT_THAT(done, ElementsAre("drain 2 at node1:9", "drain 2 at node1:9"));
  EXPECT_THAT(launch::running_agents(), Not(Contains(::getpid())));
  EXPECT_THAT(what([] { launch::ask_status(here(), kControlLimit); }),
              HasSubstr("cannot be reached"));
}

TEST(Control, RefusesWhatItDoesNotKnow) {
  for (const char* line : {"", "drain", "drain x", "drain 1 2", "stop 1", "resize 99999999999",
                           "leave 1", "resize", " at node1:9"})
    EXPECT_THROW(launch::control_request_from(line), DataError) << line;
  for (const char* line : {"status", "status at a:1", "leave at [::1]:2", "drain 4", "resize 3"})
    EXPECT_EQ(to_line(launch::control_request_from(line)), line);
  EXPECT_THROW(launch::job_status_from("{}"), DataError);
  EXPECT_THROW(launch::job_status_from("[1"), DataError);
}

// More silent connections than it admits: the next one is answered when they are closed.
TEST(Control, SilentConnectionsDoNotBlockOthersForever) {
  const TestAgent agent([](const launch::ControlRequest&) { return status_line(); });
  const std::string name = fmt::format("tandem-run/{}/{}", ::geteuid(), ::getpid());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  std::vector<net::FileDescriptor> silent;
  for (int i = 0; i < 16; ++i) {
    silent.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(silent.back().get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  }
  silent.erase(silent.begin());
  EXPECT_EQ(launch::ask_status(here(), kControlLimit).agents.at(0).step, 58u);
}

// Over the network the token is needed: that of the job, which must have one.
TEST(Control, VisitorsProveTheToken) {
  const auto never = [](const launch::ControlRequest&) -> std::string {
    throw std::logic_error("asked");
  };
  {
    const TestAgent agent(never);
    for (const char* token : {"another", ""}) {
      EXPECT_THAT(what([&] { launch::ask_status(agent.address(token), kControlLimit); }),
                  HasSubstr("another TANDEM_JOB_TOKEN"));
    }
  }
  const TestAgent open(never, "");
  for (const char* token : {"a secret", ""}) {
    EXPECT_THAT(what([&] { launch::ask_status(open.address(token), kControlLimit); }),
                HasSubstr("without TANDEM_JOB_TOKEN"));
  }
}

std::string line_frame(std::string_view line) {
  return net::encode_frame(launch::ControlLine::kProtocol, 0, {line});
}

// Unauthenticated connections make room for new ones.
TEST(Control, UnauthenticatedPeersAtThePortDoNotBlockOthers) {
  int asked = 0;
  const TestAgent agent([&](const launch::ControlRequest&) {
    ++asked;
    return status_line();
  });
  const std::string handshake_bytes = net::make_visitor_handshake();
  std::vector<net::FileDescriptor> unauthenticated_peers;
  for (int i = 0; i < 40; ++i) {
    unauthenticated_peers.emplace_back(testing::connect_to_port(agent.port()));
    const int unauthenticated_peer = unauthenticated_peers.back().get();
    ASSERT_EQ(testing::receive_bytes(unauthenticated_peer, kControlLimit, net::kHandshakeBytes)
                  .bytes.size(),
              net::kHandshakeBytes);
    testing::send_bytes(unauthenticated_peer, handshake_bytes);
    if (i % 4 == 1) testing::send_bytes(unauthenticated_peer, "status, in no frame at all");
    if (i % 4 == 2) testing::send_bytes(unauthenticated_peer, line_frame("status"));
    if (i % 4 == 3)
      testing::send_bytes(unauthenticated_peer, line_frame(std::string(32, '0') + "status"));
  }
  EXPECT_EQ(launch::ask_status(agent.address(), kControlLimit).agents.at(0).step, 58u);
  EXPECT_EQ(asked, 1);
}

}  // namespace
}  // namespace tandem::elastic
