// Cost of a training step on a cluster: pure functions from a machine profile, a cluster and a
// model to seconds and bytes. Nothing here measures or communicates.
//
// The step that is modelled is that of dist/gradient_engine.h with one logical shard per rank:
//
//   step = compute + reduction + messages that backward does not hide + optimizer
//
//   compute    forward and backward: training FLOPs / (peak × share reached). All ranks get equal
//              batches; waiting for a rank that is slower than the others is not in the model.
//   reduction  bytes that the busiest rank reads and writes when it adds partials, over the rate of
//              such additions. They run in the caller's threads between kernels, so they are never
//              hidden.
//   messages   bytes through the link of the busiest node, both directions at once, a fixed time
//              per message of the busiest rank, and twice the latency (partials, then sums).
//   optimizer  once per node, its ranks share it: 28 bytes per parameter, and 2 more
//              for those of which there is a bf16 copy.
//
// Messages begin when their part of the gradient is final: after each layer, and the embeddings
// after everything else. The step waits for every transfer that is not complete when backward ends.
// That is the best case: it takes for granted that messages move while kernels compute, although
// without a helper thread they do so only as far as the sockets' buffers reach. The worst case,
// nothing hidden, is computed as well.
#pragma once

#include <cstddef>
#include <vector>

#include "tandem/elastic/protocol/goodput.h"

namespace tandem::apps::plan {

// Speed of one rank while all ranks of its node work.
struct MachineProfile {
  double peak_flops = 0;           // FLOP/s of multiply-adds on registers
  double share_of_peak = 0;        // that forward and backward reach; (0, 1]
  double memory_bandwidth = 0;     // bytes/s of the optimizer, read and written
  double reduce_bandwidth = 0;     // bytes/s of the gradient's sums, read and written
  double message_seconds = 10e-6;  // processor time of one message, sent or received
};

struct Cluster {
  int nodes = 1;
  int ranks_per_node = 1;
  double link_bandwidth = 0;  // bytes/s of a node, in each direction; more than one node only
  double latency = 0;         // seconds, one way
  int world_size() const { return nodes * ranks_per_node; }
};

// Work of one rank in one step.
struct Workload {
  double flops = 0;   // forward and backward
  double tokens = 0;  // rows that are computed
  std::size_t layers = 1;
  std::size_t elements = 0;            // parameters
  std::size_t embedding_elements = 0;  // those of the embeddings, whose gradient is final last
  std::size_t bf16_elements = 0;       // those with a bf16 copy
  std::size_t activations = 0;         // bytes
};

// Data moved in one step. Bytes of messages are f32, also in bf16 training.
struct Traffic {
  double node_sent = 0;          // by the node that sends most
  double node_received = 0;      // by the node that receives most
  double all_sent = 0;           // by all nodes
  double all_received = 0;       // equals all_sent
  double rank_messages = 0;      // sent and received by the rank that has most
  double reduced_bytes = 0;      // read and written by the busiest rank while it adds
  double message_memory = 0;     // bytes of buffers in the node that needs most
  std::size_t slice_owners = 0;  // ranks that own anything of the gradient
};

// Every bucket is cut into one slice per rank at multiples of the chunk, so a bucket of 16 chunks
// has 16 owners however many ranks there are, others from bucket to bucket; an owner receives its
// slice from every other node and sends the sum back to every other node. Balanced, a node sends 2
// (N−1)/N of the gradient; where there are fewer chunks in the gradient than nodes, the owners'
// nodes send and receive N−1 times their slices.
Traffic traffic(std::size_t elements, const Cluster& cluster);

// The bytes that a node would send (and receive) in a step if slices were dealt evenly.
double even_node_bytes(std::size_t elements, const Cluster& cluster);

// Forward is a third of the FLOPs.
double backward_seconds(double compute_seconds);

// Seconds after the end of backward until the last message is through. The gradient becomes final
// in `layers` equal parts, one at the end of each of as many equal parts of backward, and the share
// `last` (of the embeddings) at its end. `wire` is the time of all messages.
double exposed_seconds(double wire, double backward, std::size_t layers, double last);

struct Memory {
  double weights = 0;      // weights of a node, f32 and the bf16 copy
  double moments = 0;      // moments of a node
  double gradients = 0;    // gradients of a node, all ranks
  double messages = 0;     // buffers of the node that needs most
  double activations = 0;  // activations of a node, all ranks
  double node() const { return weights + moments + gradients + messages + activations; }
};

struct Prediction {
  double compute = 0;    // seconds
  double reduction = 0;  // with one rank: its mean and norm, no communication
  double wire = 0;       // all messages
  double exposed = 0;    // the part that backward does not hide
  double optimizer = 0;
  double step = 0;           // with overlap
  double step_unhidden = 0;  // without
  double communication_share = 0;
  double tokens_per_second = 0;
  double efficiency = 0;  // tokens/s per rank, over those of one rank alone
  Traffic traffic;
  Memory memory;
};

Prediction predict(const MachineProfile& profile, const Cluster& cluster, const Workload& workload);

// Steps per second of an elastic job whose nodes fail (elastic/protocol/goodput.h), over those of
// the same job undisturbed. The logical shards are those of the whole cluster, one per rank: with
// fewer nodes the busiest rank computes several.
double goodput(const MachineProfile& profile, const Cluster& cluster, const Workload& workload,
               const membership::NodeFailures& failures);

}  // namespace tandem::apps::plan
