// Bytes of a stream of frames, in pieces: every protocol reads them so (net/frame.h). The first
// byte of an input: odd: frames with right checksums (frames.h), otherwise the bytes as they are;
// the rest of it is the size of the pieces. Frames come as they were sent, and the reader takes
// no more memory than the bytes that have arrived.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/frames.h"
#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "tandem/net/frame.h"

namespace {

using namespace tandem;

constexpr net::FrameProtocol kProtocol{"a fuzz target", 0x5a5a5546, 5, 4096};

// All frames of `stream`, which arrives in pieces of `piece` bytes. After damage the reader looks
// for the next frame, as a monitor does.
std::string encoded_again(std::string_view stream, std::size_t piece) {
  net::FrameReader reader(kProtocol);
  std::string frames;
  while (true) {
    try {
      while (const auto frame = reader.take()) {
        fuzz::require(frame->kind < kProtocol.num_kinds);
        fuzz::require(frame->payload.size() <= kProtocol.most_payload);
        frames += net::encode_frame(kProtocol, frame->kind, {frame->payload});
      }
      if (stream.empty()) return frames;
      reader.append(stream.substr(0, piece));
      stream.remove_prefix(std::min(piece, stream.size()));
    } catch (const CommError&) {
      fuzz::require(reader.skip_damage() > 0);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  // Two streams, their frames and two readers, in texts that double.
  const fuzz::MemoryLimit limit(64 * size + (std::size_t{64} << 10));
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const bool right = data[0] % 2 != 0;
  const std::string stream = right ? fuzz::as_frames(kProtocol, input) : std::string(input);
  const std::string once = encoded_again(stream, stream.size() + 1);
  // The size of the pieces does not matter.
  fuzz::require(encoded_again(stream, 1 + data[0] / 2u) == once);
  if (right) fuzz::require(once.size() <= stream.size() && stream.starts_with(once));
  return 0;
}
