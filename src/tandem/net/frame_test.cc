#include "tandem/net/frame.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tandem/net/event_loop.h"
#include "tandem/net/plain_bytes.h"

namespace tandem::net {
namespace {

using ::testing::HasSubstr;

constexpr FrameProtocol kProtocol{"a test", 0x54455354, 3, 100};

template <class Function>
std::string error_of(Function function) {
  try {
    function();
  } catch (const CommError& error) {
    return error.what();
  }
  return "";
}

TEST(Frame, HasThePayloadOfItsParts) {
  const std::string bytes = encode_frame(kProtocol, 2, {"one", "", "two"});
  ASSERT_EQ(bytes.size(), kFrameHeadBytes + 6);
  const auto frame = decode_frame(kProtocol, bytes);
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->kind, 2u);
  EXPECT_EQ(frame->payload, "onetwo");
}

// The layout that frame.h documents: other versions of tandem depend on it.
TEST(Frame, HasTheDocumentedLayout) {
  const std::string bytes = encode_frame(kProtocol, 1, {"abc"});
  const std::string fields("TSET\1\0\0\0\3\0\0\0\xb7\x3f\x4b\x36", 16);
  EXPECT_EQ(bytes.substr(0, 16), fields);
  // The field of the head's own checksum counts as zeros.
  EXPECT_EQ(read_as<std::uint32_t>(bytes.substr(16)), crc32c(fields + std::string(4, '\0')));
  EXPECT_EQ(bytes.substr(20), "abc");
}

TEST(Frame, IsIncompleteUntilItsLastByte) {
  const std::string bytes = encode_frame(kProtocol, 0, {"payload"});
  for (std::size_t count = 0; count < bytes.size(); ++count) {
    EXPECT_FALSE(decode_frame(kProtocol, bytes.substr(0, count)).has_value()) << count;
    EXPECT_EQ(frame_bytes(kProtocol, bytes.substr(0, count)),
              count < kFrameHeadBytes ? kFrameHeadBytes : bytes.size());
  }
  EXPECT_TRUE(decode_frame(kProtocol, bytes + "more").has_value());
}

TEST(Frame, ChangedInAnyBitIsDamaged) {
  const std::string bytes = encode_frame(kProtocol, 1, {"payload"});
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string changed = bytes;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    EXPECT_THROW(decode_frame(kProtocol, changed), DamagedFrame) << bit;
  }
}

// The magic numbers of two protocols may differ in one bit.
TEST(Frame, OfAnotherProtocolIsNotDamaged) {
  for (const std::uint32_t magic : {0xabadcafeu, kProtocol.magic ^ 1}) {
    const FrameProtocol other{"another", magic, 3, 100};
    try {
      (void)decode_frame(kProtocol, encode_frame(other, 1, {"payload"}));
      FAIL() << "expected an error";
    } catch (const DamagedFrame&) {
      FAIL() << "expected no damage";
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(), HasSubstr(fmt::format("found {:#x}, expected 0x54455354", magic)));
    }
  }
  EXPECT_NO_THROW((void)frame_bytes(kProtocol, "GET"));
  EXPECT_THROW((void)frame_bytes(kProtocol, "GET "), CommError);
}

// The head is enough: no memory is taken for the length that it states.
TEST(Frame, BeyondTheLimitsIsRefusedByItsHead) {
  FrameProtocol wide = kProtocol;
  wide.most_payload = std::size_t{1} << 20;
  wide.num_kinds = 9;
  const std::string longer =
      encode_frame(wide, 1, {std::string(101, 'x')}).substr(0, kFrameHeadBytes);
  EXPECT_THAT(error_of([&] { (void)frame_bytes(kProtocol, longer); }),
              HasSubstr("found kind 1 with 101 bytes, expected a kind below 3 with at most 100"));
  const std::string unknown = encode_frame(wide, 3, {}).substr(0, kFrameHeadBytes);
  EXPECT_THAT(error_of([&] { (void)frame_bytes(kProtocol, unknown); }),
              HasSubstr("found kind 3 with 0 bytes"));
}

TEST(FrameReader, TakesFramesFromPiecesOfAnySize) {
  const std::string stream = encode_frame(kProtocol, 0, {"first"}) +
                             encode_frame(kProtocol, 1, {""}) +
                             encode_frame(kProtocol, 2, {std::string(100, 'x')});
  for (std::size_t piece = 1; piece <= stream.size(); ++piece) {
    FrameReader reader(kProtocol);
    std::vector<std::string> payloads;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      reader.append(std::string_view(stream).substr(at, piece));
      while (auto frame = reader.take()) payloads.push_back(std::move(frame->payload));
    }
    EXPECT_THAT(payloads, ::testing::ElementsAre("first", "", std::string(100, 'x'))) << piece;
  }
}

TEST(FrameReader, ContinuesWithTheNextFrameAfterDamage) {
  const std::string frame = encode_frame(kProtocol, 1, {"payload"});
  for (std::size_t byte = 0; byte < frame.size(); ++byte) {
    std::string changed = frame;
    changed[byte] = static_cast<char>(changed[byte] ^ 0x10);
    FrameReader reader(kProtocol);
    reader.append(changed + encode_frame(kProtocol, 2, {"next"}));
    std::optional<Frame> found;
    for (int skipped = 0; !found; ++skipped) {
      ASSERT_LT(skipped, 3);
      try {
        found = reader.take();
      } catch (const DamagedFrame&) {
        reader.skip_damage();
      }
    }
    EXPECT_EQ(found->payload, "next") << byte;
  }
}

struct Ends {
  FileDescriptor here, there;
};

Ends connect() {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

void write_all(const FileDescriptor& to, const std::string& bytes) {
  ASSERT_EQ(::write(to.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
}

TEST(FrameReader, ReadsWhatHasArrived) {
  Ends ends = connect();
  FrameReader reader(kProtocol);
  EXPECT_EQ(reader.read_from(ends.here), std::nullopt);
  write_all(ends.there, encode_frame(kProtocol, 1, {"payload"}));
  EXPECT_EQ(reader.read_from(ends.here), std::nullopt);
  EXPECT_EQ(reader.take().value().payload, "payload");
  ends.there.reset();
  EXPECT_EQ(reader.read_from(ends.here), 0);
}

TEST(FrameReader, ReadsOneFrameAndLeavesTheNextInTheKernel) {
  Ends ends = connect();
  FrameReader reader(kProtocol);
  const std::string first = encode_frame(kProtocol, 1, {"first"});
  write_all(ends.there, first.substr(0, first.size() - 1));
  EXPECT_EQ(reader.read_one_from(ends.here), std::nullopt);
  EXPECT_FALSE(reader.take());
  write_all(ends.there, first.substr(first.size() - 1) + encode_frame(kProtocol, 2, {"second"}));
  EXPECT_EQ(reader.read_one_from(ends.here), std::nullopt);
  EXPECT_EQ(reader.take().value().payload, "first");
  EXPECT_FALSE(reader.take());
  EXPECT_TRUE(wait_readable(ends.here.get(), Deadline(std::chrono::milliseconds(0))));
  EXPECT_EQ(reader.read_one_from(ends.here), std::nullopt);
  EXPECT_EQ(reader.take().value().payload, "second");
  ends.there.reset();
  EXPECT_EQ(reader.read_one_from(ends.here), 0);
}

// A peer that sends without end fills the kernel's buffer, not the memory of this process.
TEST(FrameReader, LeavesTheRestInTheKernel) {
  Ends ends = connect();
  FrameReader reader(kProtocol);
  std::string stream;
  for (int i = 0; i < 1000; ++i) stream += encode_frame(kProtocol, 1, {"payload"});
  write_all(ends.there, stream);
  int taken = 0;
  EXPECT_EQ(reader.read_from(ends.here), std::nullopt);
  while (reader.take()) ++taken;
  EXPECT_LT(taken, 1000);
  EXPECT_GT(taken, 0);
  for (int round = 0; round < 10; ++round) {
    EXPECT_EQ(reader.read_from(ends.here), std::nullopt);
    while (reader.take()) ++taken;
  }
  EXPECT_EQ(taken, 1000);
}

}  // namespace
}  // namespace tandem::net
