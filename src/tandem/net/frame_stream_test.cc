#include "tandem/net/frame_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace tandem::net {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr FrameProtocol kStreamProtocol{"a test", 0x54455354, 3, 100000};

struct Streams {
  Streams() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    here.emplace(FrameReader(kStreamProtocol), FileDescriptor(ends[0]));
    there.emplace(FrameReader(kStreamProtocol), FileDescriptor(ends[1]));
  }
  std::optional<FrameStream> here, there;
};

// A stream that reads from a pipe; `writer` is the other end.
struct Piped {
  explicit Piped(FrameStreamLimits limits) {
    int to[2], from[2];
    EXPECT_EQ(::pipe(to), 0);
    EXPECT_EQ(::pipe(from), 0);
    writer = FileDescriptor(to[1]);
    reader = FileDescriptor(from[0]);
    stream.emplace(FrameReader(kStreamProtocol), FileDescriptor(to[0]), FileDescriptor(from[1]),
                   limits);
  }
  void write(const std::string& bytes) const {
    EXPECT_EQ(::write(writer.get(), bytes.data(), bytes.size()),
              static_cast<ssize_t>(bytes.size()));
  }
  FileDescriptor writer, reader;
  std::optional<FrameStream> stream;
};

// Otherwise a thread that has just reported that it is ready would sleep during the order that it
// waits for.
TEST(FrameStream, BytesThatArriveDuringASendWakeTheWaitingThread) {
  Streams streams;
  streams.there->send(0, {"order"});
  streams.here->send(0, {"ready"});
  EventLoop loop;
  streams.here->add_to(loop);
  EXPECT_TRUE(loop.run_once(milliseconds(0)));
  EXPECT_FALSE(streams.here->take());
  streams.here->serve();
  EXPECT_EQ(streams.here->take().value().payload, "order");
}

TEST(FrameStream, MovesMoreThanASocketHolds) {
  Streams streams;
  for (int i = 0; i < 8; ++i) streams.here->send(1, {std::string(100000, 'a' + char(i))});
  EXPECT_GT(streams.here->unsent(), 0u);
  std::string initials;
  for (int i = 0; i < 1000 && initials.size() < 8; ++i) {
    streams.here->serve();
    streams.there->serve();
    while (const auto frame = streams.there->take()) initials += frame->payload.front();
  }
  EXPECT_EQ(initials, "abcdefgh");
  EXPECT_EQ(streams.here->unsent(), 0u);
}

TEST(FrameStream, DropsAPeerThatDoesNotRead) {
  Streams streams;
  for (int i = 0; i < 100 && streams.here->ended().empty(); ++i)
    streams.here->send(1, {std::string(100000, 'x')});
  EXPECT_EQ(streams.here->ended(), "it does not read");
}

TEST(FrameStream, GivesTheFramesBeforeTheEnd) {
  Streams streams;
  streams.there->send(1, {"last words"});
  streams.there.reset();
  streams.here->send(1, {"too late"});
  streams.here->serve();
  EXPECT_THAT(streams.here->ended(), HasSubstr("its connection "));
  EXPECT_EQ(streams.here->take().value().payload, "last words");
}

TEST(FrameStream, EndsAtBytesThatAreNoFrame) {
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n"), std::string(100, '\xff')}) {
    Piped piped({});
    piped.write(encode_frame(kStreamProtocol, 0, {"right"}) + bytes);
    piped.stream->serve();
    EXPECT_EQ(piped.stream->take().value().payload, "right");
    EXPECT_FALSE(piped.stream->take());
    EXPECT_EQ(piped.stream->ended(), "it sent something that is not a frame");
  }
}

TEST(FrameStream, SkipsNoiseBeforeTheFirstFrameOnly) {
  for (const std::string& noise : {std::string("x"), std::string(19, 'x'), std::string(900, 'x')}) {
    Piped piped({.most_noise = 1000});
    piped.write(noise + encode_frame(kStreamProtocol, 0, {"first"}));
    piped.stream->serve();
    EXPECT_EQ(piped.stream->take().value().payload, "first");
    piped.write("more noise, which is not skipped");
    piped.stream->serve();
    EXPECT_FALSE(piped.stream->take());
    EXPECT_EQ(piped.stream->ended(), "it sent something that is not a frame");
  }
  Piped chatter({.most_noise = 1000});
  chatter.write(std::string(2000, 'x') + encode_frame(kStreamProtocol, 0, {"first"}));
  chatter.stream->serve();
  EXPECT_FALSE(chatter.stream->take());
  EXPECT_EQ(chatter.stream->ended(), "it is not tandem of this version");
}

// The sender finds out: the peer would refuse the frame.
TEST(FrameStream, EndsAtAMessageBeyondTheLimit) {
  Streams streams;
  streams.here->send(0, {std::string(100001, 'x')});
  EXPECT_THAT(streams.here->ended(),
              HasSubstr("cannot hold 100001 bytes, expected at most 100000"));
  EXPECT_EQ(streams.here->unsent(), 0u);
}

}  // namespace
}  // namespace tandem::net
