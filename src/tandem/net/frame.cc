#include "tandem/net/frame.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include "tandem/core/crc32c.h"
#include "tandem/net/plain_bytes.h"

namespace tandem::net {
namespace {

// A damaged magic number differs in a few bits; foreign bytes differ in more.
constexpr int kFewBits = 4;
constexpr std::size_t kPiece = 16384;  // bytes per call of read()

struct Head {
  std::uint32_t magic = 0;
  std::uint32_t kind = 0;
  std::uint32_t bytes = 0;
  std::uint32_t payload_checksum = 0;
  std::uint32_t checksum = 0;
};
static_assert(sizeof(Head) == kFrameHeadBytes);

[[noreturn]] void raise_foreign(const FrameProtocol& protocol, std::uint32_t magic) {
  raise<CommError>("the bytes received are not a frame of {}: found {:#010x}, expected {:#010x}",
                   protocol.name, magic, protocol.magic);
}

// `bytes` begin with a magic number.
void check_magic(const FrameProtocol& protocol, std::string_view bytes) {
  const auto magic = read_as<std::uint32_t>(bytes);
  if (std::popcount(magic ^ protocol.magic) > kFewBits) raise_foreign(protocol, magic);
}

// `bytes` have a whole head.
Head read_head(const FrameProtocol& protocol, std::string_view bytes) {
  check_magic(protocol, bytes);
  const auto head = read_as<Head>(bytes);
  if (is_whole(head) && head.magic != protocol.magic) raise_foreign(protocol, head.magic);
  if (!is_whole(head))
    raise<DamagedFrame>("the head of a frame of {} arrived with a wrong checksum", protocol.name);
  if (head.kind >= protocol.num_kinds || head.bytes > protocol.most_payload) {
    raise<CommError>(
        "a frame of {} is invalid: found kind {} with {} bytes, expected a kind below {} with at "
        "most {} bytes; use the same tandem on all hosts",
        protocol.name, head.kind, head.bytes, protocol.num_kinds, protocol.most_payload);
  }
  return head;
}

}  // namespace

std::string encode_frame(const FrameProtocol& protocol, std::uint32_t kind,
                         std::initializer_list<std::string_view> parts) {
  Head head;
  head.magic = protocol.magic;
  head.kind = kind;
  std::size_t bytes = 0;
  for (const std::string_view part : parts) {
    bytes += part.size();
    head.payload_checksum = crc32c(part, head.payload_checksum);
  }
  TANDEM_CHECK(kind < protocol.num_kinds);
  if (bytes > protocol.most_payload) {
    raise<InvalidArgument>("a frame of {} cannot hold {} bytes, expected at most {}", protocol.name,
                           bytes, protocol.most_payload);
  }
  head.bytes = static_cast<std::uint32_t>(bytes);
  std::string frame;
  frame.reserve(sizeof head + bytes);
  frame += view_of(sealed(head));
  for (const std::string_view part : parts) frame += part;
  return frame;
}

std::size_t frame_bytes(const FrameProtocol& protocol, std::string_view bytes) {
  if (bytes.size() >= sizeof protocol.magic) check_magic(protocol, bytes);
  if (bytes.size() < sizeof(Head)) return sizeof(Head);
  return sizeof(Head) + read_head(protocol, bytes).bytes;
}

std::optional<Frame> decode_frame(const FrameProtocol& protocol, std::string_view bytes) {
  if (bytes.size() < frame_bytes(protocol, bytes)) return std::nullopt;
  const auto head = read_as<Head>(bytes);
  const std::string_view payload = bytes.substr(sizeof head, head.bytes);
  if (crc32c(payload) != head.payload_checksum)
    raise<DamagedFrame>("a frame of {} arrived with a wrong checksum", protocol.name);
  return Frame{head.kind, std::string(payload)};
}

void FrameReader::append(std::string_view bytes) {
  bytes_.erase(0, std::exchange(taken_, 0));
  bytes_ += bytes;
}

std::optional<Frame> FrameReader::take() {
  std::optional<Frame> frame = decode_frame(protocol_, rest());
  if (frame) taken_ += kFrameHeadBytes + frame->payload.size();
  return frame;
}

std::size_t FrameReader::skip_damage() {
  const std::string_view magic = view_of(protocol_.magic);
  const std::string_view bytes = rest();
  const std::size_t next = bytes.find(magic, 1);
  const std::size_t skipped =
      next != bytes.npos ? next : bytes.size() - std::min(bytes.size(), magic.size() - 1);
  taken_ += skipped;
  return skipped;
}

FrameReader::Progress FrameReader::read_some(const FileDescriptor& descriptor, std::size_t bytes,
                                             int& error_number) {
  char piece[kPiece];
  while (true) {
    const ssize_t count = ::read(descriptor.get(), piece, std::min(bytes, kPiece));
    if (count > 0) {
      append({piece, static_cast<std::size_t>(count)});
      return Progress::kSome;
    }
    error_number = count == 0 ? 0 : errno;
    if (error_number == EAGAIN || error_number == EWOULDBLOCK) return Progress::kNone;
    if (error_number != EINTR) return Progress::kEnded;
  }
}

std::optional<int> FrameReader::read_from(const FileDescriptor& descriptor) {
  Progress progress = Progress::kSome;
  int error_number = 0;
  while (progress == Progress::kSome && rest().size() < kFrameHeadBytes + protocol_.most_payload)
    progress = read_some(descriptor, kPiece, error_number);
  return progress == Progress::kEnded ? std::optional(error_number) : std::nullopt;
}

std::optional<int> FrameReader::read_one_from(const FileDescriptor& descriptor) {
  Progress progress = Progress::kSome;
  int error_number = 0;
  while (progress == Progress::kSome) {
    const std::size_t wanted = frame_bytes(protocol_, rest());
    if (rest().size() >= wanted) return std::nullopt;
    progress = read_some(descriptor, wanted - rest().size(), error_number);
  }
  return progress == Progress::kEnded ? std::optional(error_number) : std::nullopt;
}

}  // namespace tandem::net
