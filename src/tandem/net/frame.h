// Messages between processes of tandem, as frames on sockets and pipes. All of tandem's protocols
// use this format, with a magic number and a limit of their own. Handshakes of a fixed size come
// before it; the data of collectives is streamed into place (comm/network/frame.h).
//
//   frame = magic u32 · kind u32 · payload bytes u32 · CRC-32C of the payload u32
//           · CRC-32C of the fields before it u32 · payload
//
// Reading is strict. A frame of another protocol, a damaged one and one beyond the limit are
// refused before memory is taken for the length that it states. The checksums find damage by links;
// proofs of the sender are part of the payload (net/job_token.h).
//
// Values have the byte order of the hosts, which all hosts of a job share. A FrameReader has one
// user at a time; functions are safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "tandem/core/error.h"
#include "tandem/net/socket.h"

namespace tandem::net {

struct FrameProtocol {
  std::string_view name;             // for messages: "a rank's monitor"
  std::uint32_t magic = 0;           // four letters
  std::uint32_t num_kinds = 0;       // kinds are below this number
  std::size_t most_payload = 65536;  // bytes
};

inline constexpr std::size_t kFrameHeadBytes = 20;

// A frame was changed in transit.
class DamagedFrame : public CommError {
 public:
  using CommError::CommError;
};

struct Frame {
  std::uint32_t kind = 0;
  std::string payload;
};

// The bytes of a frame, whose payload is the parts one after another. Throws InvalidArgument if
// they are longer than `protocol` allows.
std::string encode_frame(const FrameProtocol& protocol, std::uint32_t kind,
                         std::initializer_list<std::string_view> parts);

// The length of the frame at the beginning of `bytes`; that of a head while the head is incomplete.
// Throws DamagedFrame, or CommError if it is not a frame that `protocol` allows. Foreign bytes are
// found as soon as the magic number would be complete.
std::size_t frame_bytes(const FrameProtocol& protocol, std::string_view bytes);

// The frame at the beginning of `bytes`; nothing while it is incomplete. Throws as frame_bytes().
std::optional<Frame> decode_frame(const FrameProtocol& protocol, std::string_view bytes);

// Finds frames in a stream of bytes.
class FrameReader {
 public:
  // `bytes` have been read from the stream.
  explicit FrameReader(const FrameProtocol& protocol, std::string_view bytes = {})
      : protocol_(protocol), bytes_(bytes) {}

  const FrameProtocol& protocol() const { return protocol_; }
  void append(std::string_view bytes);
  // The next complete frame. Throws as frame_bytes(); skip_damage() is the only way on.
  std::optional<Frame> take();
  // Drops the bytes up to the possible start of another frame: the length of a damaged frame is not
  // reliable. Returns their number.
  std::size_t skip_damage();

  // Appends the bytes that have arrived at a non-blocking descriptor, until the longest frame fits
  // in: the others wait in the kernel. Returns nothing while the stream is open, 0 at its end,
  // otherwise the error number.
  std::optional<int> read_from(const FileDescriptor& descriptor);
  // The same up to the end of the next frame: later frames stay in the kernel and wake a poll.
  // Throws as frame_bytes().
  std::optional<int> read_one_from(const FileDescriptor& descriptor);

 private:
  // Appends at most `bytes` bytes.
  enum class Progress { kSome, kNone, kEnded };
  Progress read_some(const FileDescriptor& descriptor, std::size_t bytes, int& error_number);
  std::string_view rest() const { return std::string_view(bytes_).substr(taken_); }

  FrameProtocol protocol_;
  std::string bytes_;
  std::size_t taken_ = 0;  // bytes of frames that have been taken
};

}  // namespace tandem::net
