// The agent's control socket with good, bad and silent visitors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "tandem/core/error.h"
#include "tandem/launch/control_socket.h"

namespace tandem::launch {
namespace {

using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr milliseconds kLimit{20000};

JobStatus example() {
  JobStatus status;
  status.job = "job \x1b[31m";
  status.host = "node0";
  status.agent = ::getpid();
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

// An agent in a thread, until the end of the test.
class Agent {
 public:
  explicit Agent(ControlSocket::Answer answer) : answer_(std::move(answer)) {
    EXPECT_EQ(socket_.failure(), "");
    thread_ = std::thread([this] {
      while (!stop_.load()) {
        std::vector<pollfd> waits;
        socket_.add_to(waits);
        ::poll(waits.data(), waits.size(), 5);
        socket_.serve(answer_);
      }
    });
  }
  ~Agent() {
    stop_.store(true);
    thread_.join();
  }

 private:
  ControlSocket socket_{::getpid()};
  ControlSocket::Answer answer_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

std::string what(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(ControlSocket, TellsTheStatusAndDoesWhatItIsTold) {
  int drained = -1;
  {
    const Agent agent([&](const ControlRequest& request) -> std::string {
      if (request.kind == ControlRequest::Kind::kStatus) return to_json(example());
      if (request.kind == ControlRequest::Kind::kResize) raise<ConfigError>("not so many");
      drained = request.number;
      return "worker 2 is drained";
    });
    EXPECT_THAT(running_agents(), Contains(::getpid()));
    const JobStatus status = ask_status(::getpid(), kLimit);
    EXPECT_EQ(for_people(status),
              fmt::format("job job ?[31m (run_qa.py), agent {} on node0: view 3: 1 of 2 workers "
                          "compute, step 58 is applied, 1 worker lost so far\n"
                          "  worker 0 computes as rank 1 (pid 17)\n  worker 1 is drained\n",
                          ::getpid()));
    EXPECT_EQ(to_json(status), to_json(job_status_from(to_json(status))));
    EXPECT_EQ(status.restarts * 100 + status.nodes * 10 + status.ranks, 234);
    EXPECT_EQ(status.seconds_lost, 0.5);
    EXPECT_EQ(ask_change(::getpid(), {ControlRequest::Kind::kDrain, 2}, kLimit),
              "worker 2 is drained");
    EXPECT_THAT(what([] {
                  ask_change(::getpid(), {ControlRequest::Kind::kResize, 9}, kLimit);
                }),
                HasSubstr("not so many"));
  }
  EXPECT_EQ(drained, 2);
  EXPECT_THAT(running_agents(), Not(Contains(::getpid())));
  EXPECT_THAT(what([] { ask_status(::getpid(), kLimit); }), HasSubstr("cannot be reached"));
}

TEST(ControlSocket, RefusesWhatItDoesNotKnow) {
  for (const char* line : {"", "drain", "drain x", "drain 1 2", "stop 1", "resize 99999999999"})
    EXPECT_THROW(control_request_from(line), DataError) << line;
  EXPECT_EQ(control_request_from("resize 3").number, 3);
  EXPECT_THROW(job_status_from("{}"), DataError);
  EXPECT_THROW(job_status_from("[1"), DataError);
}

// More than it lets in, who say nothing: the next one is answered when they are gone.
TEST(ControlSocket, SilentVisitorsKeepNobodyOutForEver) {
  const Agent agent([](const ControlRequest&) { return to_json(example()); });
  const std::string name = fmt::format("tandem-run/{}/{}", ::geteuid(), ::getpid());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  std::vector<rendezvous::FileDescriptor> silent;
  for (int i = 0; i < 16; ++i) {
    silent.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(silent.back().get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  }
  silent.erase(silent.begin());
  EXPECT_EQ(ask_status(::getpid(), kLimit).step, 58u);
}

}  // namespace
}  // namespace tandem::launch
