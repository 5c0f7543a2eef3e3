// What an agent and its workers say to each other, over a socket that the worker inherits: both are
// of one program and one user, but a packet that makes no sense ends the connection all the same.
//
//   packet = magic u32 · kind u32 · view u64 · first u64 · second u64 · bytes u64 · text
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/rendezvous/socket.h"

namespace tandem::elastic {

enum class PacketKind : std::uint32_t {
  // From a worker.
  kAsk = 1,   // what was decided at the start of the job?
  kDecided,   // text: it
  kReady,     // has model and data, and would compute; first: the step that its node has, second:
              // the job's logical shards; text: what it computes with and on (ready_text)
  kPlace,     // of `view`, whose rank 0 it is: text is where the others meet it
  kApplied,   // first: a step; text: its record. From the first worker of the node
  kProgress,  // text: where the job is, and behind it the lines that are to be printed with it, of
              // which `first` bytes are; second: 1 if that is further than where the view began.
              // From the first worker of the node
  kArrives,   // text: the Account of the state that is about to replace the node's. From the first
              // worker of the node
  kMeasured,  // text: what it has measured, for who watches the job; opaque here
  kLeft,    // the view, after a step as its header said, or because of kStop. first: the step that
            // its node has or can finish; second: 1 if by the header
  kFailed,  // `view` cannot go on, as text says; kLeft follows. If a frame arrived damaged, first
            // and second: 1 + the ranks of its sender and its receiver
  kDone,    // the job, to its end; first: the exit code
  kLearnsAt,  // to the kLearn of `view`; text: where whoever sends it the state of the job meets it
  kLearned,   // to the same; first: a Learned; second: the step; text: why not
  // To a worker.
  kDecide,        // nobody has: do it
  kDecision,      // text: what was decided
  kRun,           // `view`: first is the rank, second the size; text: a Briefing
  kMeet,          // text: where rank 0 of `view` is
  kStop,          // leave the view at once
  kChange,        // leave it after the next step
  kEndRequested,  // a person or a scheduler wants the job to stop
  kPrinted,       // the lines of kProgress
  kLearn,         // take the state of the job from a member before there is a view. `view` counts
                  // them; what an earlier one has begun is given up
  kTeach          // text: where a node waits that learns
};

// What became of kLearn.
enum class Learned : std::uint64_t {
  kNothing,  // the sender did not come, or is gone
  kLevel,    // the state of a step is there, and goes on with the job's
  kNever     // another sender would not help either
};

struct Packet {
  PacketKind kind = PacketKind::kAsk;
  std::uint64_t view = 0;
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  std::string text = {};
};

// What led to the weights of a step: as they do, it outlives workers.
struct Account {
  std::string progress = {};                      // where the job was; empty: at its beginning
  std::vector<std::vector<double>> records = {};  // of the steps since
};
std::string to_text(const Account& account);
Account account_from(std::string_view text);  // Throws CommError.

// What a worker is told with a view.
struct Briefing {
  std::string why = {};  // the view was needed; for people
  bool keeps = false;    // is the first worker of its node, which tells the agent where the job is
  bool paused = false;   // too few nodes: save a checkpoint and leave
  bool one_node = true;  // all ranks of the view are on this node
  // To the first worker of a node: what was kept here last, and what arrived with another state
  // since. Which one counts is for who sees the memory to say: the one that led to what lies there.
  Account account = {};
  Account arrived = {};
};
std::string to_text(const Briefing& briefing);
Briefing briefing_from(std::string_view text);  // Throws CommError.

// Of kReady: the name of the kernels, and a fingerprint of all else that must be the same.
struct Computes {
  std::string kernels;
  std::string fingerprint;  // 32 bytes
  std::string inputs = {};  // what it is made of, in short lines "name=value" for people
};
std::string ready_text(const Computes& computes);
Computes computes_from(std::string_view text);  // Throws CommError.

std::string record_text(const std::vector<double>& record);
std::vector<double> record_from(std::string_view text);  // Throws CommError.

// One end. Reading: one thread; sending: one thread at a time.
class PacketSocket {
 public:
  PacketSocket() = default;
  explicit PacketSocket(rendezvous::FileDescriptor socket) : socket_(std::move(socket)) {}
  const rendezvous::FileDescriptor& descriptor() const { return socket_; }
  // Throws CommError when the other end is gone, or takes nothing for 30 s.
  void send(const Packet& packet) const;
  // Reads what is there without waiting; false: the other end is gone, or said nonsense.
  bool read();
  // The next whole packet of what was read.
  std::optional<Packet> take();

 private:
  rendezvous::FileDescriptor socket_;  // non-blocking
  std::string received_;
};

// Two ends, non-blocking, neither inherited by programs that are started. Throws IoError.
std::pair<rendezvous::FileDescriptor, rendezvous::FileDescriptor> socket_pair();

}  // namespace tandem::elastic
