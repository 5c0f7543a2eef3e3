// Messages between the ranks and the daemons of an mpirun: lines of PMI, and frames over ssh's
// pipe, with right checksums (frames.h) and as they are. The first byte chooses.
#include <unistd.h>

#include <cstdint>
#include <string>

#include "fuzz/frames.h"
#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "tandem/core/error.h"
#include "tandem/launch/mpirun/daemon_stream.h"
#include "tandem/launch/mpirun/pmi_server.h"
#include "tandem/launch/mpirun/rank_start.h"

namespace {

using namespace tandem;

// Lines of three ranks in turn. No answer is longer than a rank of MPICH can read.
void serve_pmi(std::string_view text) {
  launch::PmiRules rules;
  rules.size = 3;
  rules.program_of = {0, 0, 1};
  launch::PmiServer server(rules);
  for (int turn = 0; !text.empty(); ++turn) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    for (const auto& reply : server.take(turn % 3, line)) {
      fuzz::require(reply.rank >= 0 && reply.rank < 3);
      fuzz::require(reply.line.size() < 2048 && reply.line.find('\n') == std::string::npos);
    }
    if (turn % 7 == 6) server.left(turn % 3);
    (void)server.stuck();
  }
  fuzz::require(!server.aborted() ||
                (server.aborted()->exit_code > 0 && server.aborted()->exit_code < 256));
}

void send_frames(std::string_view bytes) {
  int there[2], back[2];
  if (::pipe(there) != 0) return;
  if (::pipe(back) != 0) return;
  net::FileDescriptor writer(there[1]), reader(back[0]);
  launch::DaemonStream stream(net::FileDescriptor(there[0]), net::FileDescriptor(back[1]), false);
  using Kind = launch::DaemonMessage::Kind;
  const auto& protocol = launch::DaemonStream::kProtocol;
  const std::string all = net::encode_frame(protocol, static_cast<std::uint32_t>(Kind::kHandshake),
                                            {"rank", launch::DaemonStream::kVersion}) +
                          std::string(bytes);
  if (::write(writer.get(), all.data(), all.size()) < 0) return;
  writer.reset();
  stream.serve();
  while (const auto frame = stream.take()) {
    fuzz::require(frame->payload.size() <= bytes.size());
    if (frame->kind != Kind::kStart) continue;
    try {
      (void)launch::rank_start_from(frame->payload);
    } catch (const Error&) {
    }
  }
  fuzz::require(!stream.ended().empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0 || size > 32768) return 0;
  // An empty object of JSON takes 35 bytes for each of its text; a line of PMI as many values as
  // words; frames are read 64 KB at a time into a text that doubles.
  const fuzz::MemoryLimit limit(64 * size + (std::size_t{256} << 10));
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      serve_pmi(rest);
      break;
    case 1:
      send_frames(fuzz::as_frames(launch::DaemonStream::kProtocol, rest));
      break;
    case 3:
      send_frames(rest);
      break;
    default:
      try {
        (void)launch::rank_start_from(std::string(rest));
      } catch (const Error&) {
      }
  }
  return 0;
}
