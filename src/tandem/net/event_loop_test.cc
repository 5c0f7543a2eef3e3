#include "tandem/net/event_loop.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

namespace tandem::net {
namespace {

using std::chrono::milliseconds;
using Clock = EventLoop::Clock;

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    in = FileDescriptor(ends[0]);
    out = FileDescriptor(ends[1]);
  }
  void put() const { EXPECT_EQ(::write(out.get(), "x", 1), 1); }
  FileDescriptor in, out;
};

TEST(EventLoop, CallsTheHandlersOfReadyDescriptorsInOrder) {
  Pipe first, second, third;
  first.put();
  third.put();
  EventLoop loop;
  std::string called;
  loop.read(third.in, [&] { called += "3"; });
  loop.read(second.in, [&] { called += "2"; });
  loop.read(first.in, [&] { called += "1"; });
  loop.write(second.out, [&] { called += "w"; });
  EXPECT_TRUE(loop.run_once(milliseconds(20000)));
  EXPECT_EQ(called, "31w");
}

TEST(EventLoop, ForgetsWhatItWaitedFor) {
  Pipe pipe;
  pipe.put();
  EventLoop loop;
  int calls = 0;
  loop.read(pipe.in, [&] { ++calls; });
  loop.within(milliseconds(0));
  loop.run_once(milliseconds(20000));
  const auto start = Clock::now();
  EXPECT_FALSE(loop.run_once(milliseconds(30)));
  EXPECT_EQ(calls, 1);
  EXPECT_GE(Clock::now() - start, milliseconds(30));
}

TEST(EventLoop, EndsAtTheEarliestDeadline) {
  Pipe silent;
  EventLoop loop;
  const auto start = Clock::now();
  loop.read(silent.in);
  loop.within(milliseconds(10000));
  loop.until(Deadline(milliseconds(20)));
  loop.until(Clock::time_point::max());
  loop.run_once(milliseconds(15000));
  EXPECT_GE(Clock::now() - start, milliseconds(20));
  EXPECT_LT(Clock::now() - start, milliseconds(9000));
}

TEST(EventLoop, DoesNotWaitAfterADeadlineThatHasPassed) {
  EventLoop loop;
  const auto start = Clock::now();
  loop.until(start - std::chrono::hours(1));
  loop.run_once(milliseconds(15000));
  EXPECT_LT(Clock::now() - start, milliseconds(9000));
}

TEST(EventLoop, EndOfAStreamIsAnEvent) {
  Pipe pipe;
  pipe.out.reset();
  EventLoop loop;
  bool called = false;
  loop.read(pipe.in, [&] { called = true; });
  loop.read(FileDescriptor(), [&] { FAIL() << "of a closed descriptor"; });
  loop.run_once(milliseconds(20000));
  EXPECT_TRUE(called);
}

TEST(Wait, ReportsWhetherADescriptorWasReadyInTime) {
  Pipe pipe;
  EXPECT_FALSE(wait_readable(pipe.in.get(), Deadline(milliseconds(5))));
  EXPECT_TRUE(wait_writable(pipe.out.get(), Deadline(milliseconds(20000))));
  pipe.put();
  EXPECT_TRUE(wait_readable(pipe.in.get(), Deadline(milliseconds(20000))));
}

}  // namespace
}  // namespace tandem::net
