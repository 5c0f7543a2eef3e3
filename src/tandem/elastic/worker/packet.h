// Messages between an agent and its workers, over a socket that the worker inherits. Both belong to
// one program and one user; an invalid packet ends the connection all the same.
//
//   payload of a frame = view u64 · first u64 · second u64 · text
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/net/frame.h"
#include "tandem/net/socket.h"

namespace tandem::elastic {

// The longest text of an address.
inline constexpr std::size_t kMostAddress = 4096;

enum class PacketKind : std::uint32_t {
  // From a worker.
  kAsk = 1,   // requests the decision made at the start of the job
  kDecided,   // text: the decision
  kReady,     // has model and data, and can compute; first: the last step of its node, second: the
              // job's logical shards; text: kernels and inputs (ready_text)
  kAddress,   // from rank 0 of `view`: text is the address for the other ranks
  kApplied,   // first: a step; text: its record. From the first worker of the node
  kProgress,  // text: the job's progress, followed by the lines to be printed with it, which are
              // `first` bytes; second: 1 if that is further than the start of the view. From the
              // first worker of the node
  kArrives,   // text: TrainingProgress of the state that replaces the node's. From the first
              // worker of the node
  kMeasured,  // text: its measurements, for users; opaque here
  kLeft,    // the view, after a step as its header requested, or because of kStop. first: the last
            // step that its node has or can finish; second: 1 if by the header
  kFailed,  // `view` cannot continue, for the reason in text; kLeft follows. If a frame arrived
            // damaged, first and second: 1 + the ranks of its sender and its receiver
  kDone,    // the job, to its end; first: the exit code
  kLearnsAt,  // to the kLearn of `view`; text: address at which the sender of the state connects
  kLearned,   // to the same; first: a Learned; second: the step; text: the reason of a failure
  // To a worker.
  kDecide,        // no decision exists: make it
  kDecision,      // text: the decision
  kRun,           // `view`: first is the rank, second the size; text: a Briefing
  kMeet,          // text: the address of rank 0 of `view`
  kStop,          // leave the view at once
  kChange,        // leave it after the next step
  kEndRequested,  // a user or a scheduler requests the end of the job
  kPrinted,       // the lines of kProgress
  kLearn,  // take the state of the job from a member before there is a view. `view` is the number
           // of the attempt; an earlier one is abandoned
  kServeState,  // text: the address of a node that learns
  kNumKinds
};

inline constexpr net::FrameProtocol kPacketProtocol{
    "a worker's channel", 0x4b444e54, static_cast<std::uint32_t>(PacketKind::kNumKinds),
    std::size_t{1} << 30};

// The result of kLearn.
enum class Learned : std::uint64_t {
  kNothing,  // the sender did not connect, or is gone
  kLevel,    // the state of a step is complete, and advances with the job
  kNever     // no other sender would help either
};

struct Packet {
  PacketKind kind = PacketKind::kAsk;
  std::uint64_t view = 0;
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  std::string text = {};
};

// The progress that led to the weights of a step: like them, it outlives workers.
struct TrainingProgress {
  std::string progress = {};                      // progress of the job; empty: at its beginning
  std::vector<std::vector<double>> records = {};  // records of the steps since
};
std::string to_text(const TrainingProgress& training_progress);
TrainingProgress training_progress_from(std::string_view text);  // Throws CommError.

// The information that a worker gets with a view.
struct Briefing {
  std::string why = {};  // reason for the view; for users
  bool keeps = false;    // is the first worker of its node, which reports the progress to the agent
  bool paused = false;   // too few nodes: save a checkpoint and leave
  bool one_node = true;  // all ranks of the view are on this node
  // For the first worker of a node: the last TrainingProgress kept here, and one that arrived with
  // another state since. The worker reads the memory and uses the one that led to its contents.
  TrainingProgress training_progress = {};
  TrainingProgress arrived = {};
};
std::string to_text(const Briefing& briefing);
Briefing briefing_from(std::string_view text);  // Throws CommError.

// Content of kReady: the name of the kernels, and a fingerprint of all other inputs that must
// agree.
struct Computes {
  std::string kernels;
  std::string fingerprint;  // 32 bytes
  std::string inputs = {};  // its inputs, in short lines "name=value" for users
};
std::string ready_text(const Computes& computes);
Computes computes_from(std::string_view text);  // Throws CommError.

std::string record_text(const std::vector<double>& record);
std::vector<double> record_from(std::string_view text);  // Throws CommError.

// One end. Reading: one thread; sending: one thread at a time.
class PacketSocket {
 public:
  PacketSocket() = default;
  explicit PacketSocket(net::FileDescriptor socket) : socket_(std::move(socket)) {}
  const net::FileDescriptor& descriptor() const { return socket_; }
  // Throws CommError if the other end is gone, or reads nothing for 30 s.
  void send(const Packet& packet) const;
  // Reads the available bytes without waiting; false: the other end is gone, or sent invalid data.
  bool read();
  // The next complete packet of the bytes read.
  std::optional<Packet> take();

 private:
  net::FileDescriptor socket_;  // non-blocking
  net::FrameReader received_{kPacketProtocol};
};

// Two ends, non-blocking, not inherited by started programs. Throws IoError.
std::pair<net::FileDescriptor, net::FileDescriptor> socket_pair();

}  // namespace tandem::elastic
