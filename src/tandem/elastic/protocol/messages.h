// The messages between agents. wire.h has the bytes.
//
//   Ask ─→ Told                      a node that is in no view looks for the job
//   Propose ─→ Answer                "stop; what do you hold?"
//   Offer ─→ Accept, then Install    the new view
//   Beat ⇄ Beat                      the leader and each of its members are alive
//   Suspect ─→                       a member reports to the leader what it has seen
//   Ended ─→                         the job is over
//   AppMessage ─→                          messages between drivers
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tandem/elastic/protocol/view.h"

namespace tandem::membership {

using Fingerprint = std::array<unsigned char, 32>;

// Properties of a job that must be the same on every node (rule R6 of docs/elastic_protocol.md).
struct JobIdentity {
  std::string kernels;       // the name of the set that all compute with
  Fingerprint files{};       // flags, data, tokenizer, configuration, program
  std::uint32_t shards = 0;  // logical shards
  std::string inputs = {};   // the content behind `files`, in lines "name=value" for people
  friend bool operator==(const JobIdentity&, const JobIdentity&) = default;
};

// Report of a joining node about itself.
struct Credentials {
  std::string name;                  // its host, for messages
  std::vector<std::string> kernels;  // the sets that it can compute with
  Fingerprint files{};
  std::uint32_t shards = 0;
  std::string inputs = {};  // as JobIdentity's; sent only on request (Verdict::kShow)
  friend bool operator==(const Credentials&, const Credentials&) = default;
};

// Sent repeatedly until the node is in a view: the answers show when it has to act.
struct Ask {
  Credentials who;
  NodeState node_state;
};

enum class Verdict : std::uint8_t {
  kWait,    // no view yet, or none that continues
  kAsk,     // the first member of the view decides
  kLearn,   // a member sends you the state; you are in the next view that begins with you ready
  kSpare,   // the job has MAX nodes
  kRefuse,  // the job refuses you; `reason` has the cause
  kShow,    // refused by your fingerprint; send your inputs, and the answer shows which differ
};

struct AskReply {
  Verdict verdict = Verdict::kWait;
  std::string reason;
  std::uint64_t step = 0;  // that the sender holds
  std::optional<View> view;
};

struct Propose {
  ViewNumber number;
  ViewNumber installed;  // the newest view that the proposer knows
};

struct Answer {
  ViewNumber number;    // number of the proposal
  ViewNumber promised;  // higher than `number`: refused, another proposal is running
  NodeState node_state;
  std::optional<View> installed;    // if newer than Propose::installed
  std::vector<View> accepted;       // since then, and not known to be installed
  std::vector<NodeId> dead;         // certainly
  std::vector<NodeId> unreachable;  // for some time
  std::vector<Fault> faults;        // its own newest
};

struct Offer {
  View view;
  std::vector<View> pending;  // those of earlier proposals that may have been installed
};

struct Accept {
  ViewNumber number;
};

struct Install {
  ViewNumber number;
};

struct Beat {
  ViewNumber number;  // number of the sender's view
  std::uint64_t step = 0;
};

struct Suspect {
  ViewNumber number;
  std::vector<NodeId> dead;    // certainly
  std::vector<NodeId> silent;  // perhaps
};

struct Ended {
  std::int32_t code = 0;  // the process's exit code; 0: the last step is applied
  std::string message;
};

enum class AppMessageKind : std::uint8_t {
  kHandshake,  // the connection is authentic; nothing else
  kDecision,   // what was decided once for the whole job
  kAddress,    // the bootstrap address of the workers of view `number`
  kQuestion,   // forwarded for a person; number: the forwarding node and its count
  kReply,      // to the kQuestion with this number
  kLearner,    // listening address of a node that learns the job's state from the receiver
};

// The agent (agent.h) ignores it.
struct AppMessage {
  AppMessageKind kind = AppMessageKind::kHandshake;
  ViewNumber number;
  std::string text;
};

using Message = std::variant<Ask, AskReply, Propose, Answer, Offer, Accept, Install, Beat, Suspect,
                             Ended, AppMessage>;

}  // namespace tandem::membership
