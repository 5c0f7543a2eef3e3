// One step: own additions, messages between nodes, the tree's sum of each bucket, the gradient's
// norm.
#include <algorithm>
#include <array>

#include "tandem/core/error.h"
#include "tandem/dist/gradient_engine_state.h"
#include "tandem/dist/state_observer.h"
#include "tandem/dist/tree_sum.h"
#include "tandem/kernels/reduce.h"

namespace tandem::dist {
namespace {

constexpr std::chrono::microseconds kTimeout{500};
constexpr std::size_t kChunk = ModelState::kChunk;

}  // namespace

void GradientEngine::gradient_ready(std::size_t shard, std::size_t end) {
  State& s = *state_;
  TANDEM_CHECK(shard == s.run.begin + s.current_shard && s.current_shard < s.run.size(),
               "shard {} is ready, expected shard {} of [{}, {})", shard,
               s.run.begin + s.current_shard, s.run.begin, s.run.end);
  TANDEM_CHECK(end >= s.current_end && end <= s.model.elements(), "elements up to {} after {}", end,
               s.current_end);
  const ShardStep& step = s.plan.steps[s.current_shard];
  s.add_own(step, {s.current_end, end});
  s.current_end = end;
  if (step.completes >= 0) {
    const std::size_t bucket = s.buckets[0].size();
    const std::size_t ready = end == s.model.elements() ? s.buckets.size() : end / bucket;
    comm::raise_flag(s.local[s.local_rank].ready(static_cast<std::size_t>(step.completes)),
                     s.flag_base + static_cast<std::uint32_t>(ready));
    if (s.current_shard + 1 == s.run.size()) s.record_begun(ready);
  }
  if (end == s.model.elements()) {
    ++s.current_shard;
    s.current_end = 0;
  }
  s.advance();
}

// The additions of the tree that this shard makes possible, over the elements that have become
// final.
void GradientEngine::State::add_own(const ShardStep& step, const Range& range) {
  if (step.additions.empty() || range.size() == 0) return;
  static const comm::SumProgram pair = {0, 1, comm::kAdd};
  const LocalRank& own = local[local_rank];
  threads.parallel_for(num_chunks(range.size(), kChunk), [&](std::size_t chunk, int) {
    const std::size_t begin = range.begin + chunk * kChunk;
    const std::size_t count = std::min(kChunk, range.end - begin);
    for (const auto& addition : step.additions) {
      float* sum = own.arena(static_cast<std::size_t>(addition.first)) + begin;
      const float* other = own.arena(static_cast<std::size_t>(addition.second)) + begin;
      if (rounded()) {
        tree_sum_bf16(kernels, pair, std::array<SumOperand, 2>{{{.f32 = sum}, {.f32 = other}}},
                      1.0f, {.scaled = sum}, count);
      } else {
        kernels::add(kernels, count, sum, other, sum);
      }
    }
  });
}

bool GradientEngine::State::node_ready(std::size_t bucket) const {
  const auto target = flag_base + static_cast<std::uint32_t>(bucket) + 1;
  return std::all_of(operands.begin(), operands.end(), [&](const Operand& operand) {
    return operand.local_rank < 0 ||
           comm::flag_reached(
               local[static_cast<std::size_t>(operand.local_rank)].ready(operand.partial), target);
  });
}

// Does everything that can be done now. Buckets go through each stage in order.
void GradientEngine::State::advance() {
  const auto all_done = [](const std::vector<Request>& requests) {
    return std::all_of(requests.begin(), requests.end(), [](const Request& r) { return r.done(); });
  };
  if (several_nodes()) {
    post_receives();
    communicator.progress();
    while (next_send < buckets.size() && node_ready(next_send)) send_partials(next_send++);
  } else if (world_size > 1) {
    communicator.life().throw_if_failed();
  }
  while (next_reduce < buckets.size() && node_ready(next_reduce)) {
    if (several_nodes() && !all_done(partial_receives[next_reduce])) break;
    reduce_slice(next_reduce++);
    if (!several_nodes()) record_complete(next_reduce - 1);
  }
  if (!several_nodes()) return;
  while (next_gather < buckets.size() && all_done(reduced_receives[next_gather])) {
    take_gathered(next_gather++);
    record_complete(next_gather - 1);
  }
}

// This rank has done its part of the buckets before `end`.
void GradientEngine::State::record_begun(std::size_t end) {
  if (world_size == 1) return;
  tickets.resize(buckets.size());
  comm::FlightRecorder::Entry entry;
  entry.what = comm::FlightRecorder::Kind::kBucket;
  entry.type = comm::DataType::kFloat32;
  entry.op = comm::ReduceOp::kSum;
  for (; recorded < end; ++recorded) {
    entry.sequence = recorded;
    entry.count = buckets[recorded].size();
    tickets[recorded] = communicator.flight_record().begin(entry);
  }
}

void GradientEngine::State::record_complete(std::size_t bucket) {
  if (world_size > 1 && bucket < recorded) communicator.flight_record().end(tickets[bucket]);
}

void GradientEngine::State::post_receives() {
  if (receives_posted) return;
  receives_posted = true;
  send_used = 0;
  roots_taken = 0;
  std::size_t roots_expected = 0;
  receive_offset.assign(remote.size(), 0);
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    partial_receives[b].clear();
    reduced_receives[b].clear();
    const std::size_t own = slice(b, rank).size();
    for (std::size_t n = 0; n < remote.size(); ++n) {
      RemoteNode& node = remote[n];
      const std::size_t count = own * node.num_partials;
      if (count != 0) {
        const auto target = node.received.subspan(receive_offset[n], wire_bytes(count));
        partial_receives[b].push_back(communicator.start_receive_bytes(
            target, wire_type(), count, node.sender, kPartialsChannel));
        receive_offset[n] += target.size();
      }
      for (const int member : node.served) {
        const Range theirs = slice(b, member);
        if (theirs.size() == 0) continue;
        if (rounded()) {
          reduced_receives[b].push_back(communicator.start_receive(
              std::span(received_roots).subspan(roots_expected, theirs.size()), member,
              kReducedChannel));
          roots_expected += theirs.size();
          continue;
        }
        // Their reduced slice can only come after they got our partials of it: no rank here reads
        // the old values any more.
        reduced_receives[b].push_back(communicator.start_receive(
            std::span(reduced + theirs.begin, theirs.size()), member, kReducedChannel));
      }
    }
  }
}

// This node's partials of the slices of those remote ranks that this rank serves.
void GradientEngine::State::send_partials(std::size_t bucket) {
  for (const RemoteNode& node : remote) {
    for (const int member : node.served) {
      const Range theirs = slice(bucket, member);
      if (theirs.size() == 0) continue;
      const std::size_t elements = theirs.size() * node_programs.size();
      const auto message = send_buffer.subspan(send_used, wire_bytes(elements));
      send_used += message.size();
      threads.parallel_for(num_chunks(theirs.size(), kChunk), [&](std::size_t chunk, int thread) {
        const std::size_t begin = theirs.begin + chunk * kChunk;
        const std::size_t count = std::min(kChunk, theirs.end - begin);
        std::vector<SumOperand>& own_inputs = cleared_inputs(thread);
        for (const Operand& operand : operands) {
          if (operand.local_rank < 0) break;
          const LocalRank& owner = local[static_cast<std::size_t>(operand.local_rank)];
          own_inputs.push_back({.f32 = owner.arena(operand.partial) + begin});
        }
        for (std::size_t k = 0; k < node_programs.size(); ++k) {
          std::byte* to = message.data() + wire_bytes(k * theirs.size() + begin - theirs.begin);
          if (rounded()) {
            tree_sum_bf16(kernels, node_programs[k], own_inputs, 1.0f,
                          {.root = reinterpret_cast<bfloat16*>(to)}, count);
          } else {
            tree_sum(kernels, node_programs[k], own_inputs, 1.0f, reinterpret_cast<float*>(to),
                     count);
          }
        }
      });
      sends.push_back(
          communicator.start_send_bytes(message, wire_type(), elements, member, kPartialsChannel));
    }
  }
}

// Number of elements in this rank's slices of earlier buckets.
std::size_t GradientEngine::State::elements_before(std::size_t bucket) const {
  std::size_t before = 0;
  for (std::size_t b = 0; b < bucket; ++b) before += slice(b, rank).size();
  return before;
}

// The rest of the tree for this rank's slice of the bucket, times 1/L, and the squared norm while
// it is in the cache.
void GradientEngine::State::reduce_slice(std::size_t bucket) {
  const Range own = slice(bucket, rank);
  if (own.size() == 0) return;
  const std::size_t before = several_nodes() ? elements_before(bucket) : 0;
  bfloat16* roots = several_nodes() && rounded() ? own_roots.data() + before : nullptr;
  threads.parallel_for(num_chunks(own.size(), kChunk), [&](std::size_t chunk, int thread) {
    const std::size_t begin = own.begin + chunk * kChunk;
    const std::size_t count = std::min(kChunk, own.end - begin);
    std::vector<SumOperand>& own_inputs = cleared_inputs(thread);
    for (const Operand& operand : operands) {
      if (operand.local_rank >= 0) {
        const LocalRank& owner = local[static_cast<std::size_t>(operand.local_rank)];
        own_inputs.push_back({.f32 = owner.arena(operand.partial) + begin});
        continue;
      }
      const RemoteNode& node = remote[operand.node];
      const std::size_t element = before * node.num_partials + operand.node_partial * own.size();
      own_inputs.push_back(
          wire_operand(node.received.data() + wire_bytes(element + begin - own.begin)));
    }
    if (rounded()) {
      bfloat16* root = roots == nullptr ? nullptr : roots + (begin - own.begin);
      tree_sum_bf16(kernels, program, own_inputs, scale, {.scaled = reduced + begin, .root = root},
                    count);
    } else {
      tree_sum(kernels, program, own_inputs, scale, reduced + begin, count);
    }
    norm_partials[begin / kChunk] = kernels::squared_norm(kernels, count, reduced + begin);
  });
  for (const RemoteNode& node : remote) {
    sends.push_back(
        rounded() ? communicator.start_send(std::span<const bfloat16>(roots, own.size()),
                                            node.receiver, kReducedChannel)
                  : communicator.start_send(std::span<const float>(reduced + own.begin, own.size()),
                                            node.receiver, kReducedChannel));
  }
}

// Slices that other nodes reduced lie in place, or their roots are still to be multiplied; the rank
// that received them computes their part of the norm.
void GradientEngine::State::take_gathered(std::size_t bucket) {
  for (const RemoteNode& node : remote) {
    for (const int member : node.served) {
      const Range theirs = slice(bucket, member);
      if (rounded()) widen_roots(theirs);
      norm_of(theirs);
    }
  }
}

void GradientEngine::State::widen_roots(const Range& range) {
  const bfloat16* roots = received_roots.data() + roots_taken;
  roots_taken += range.size();
  threads.parallel_for(num_chunks(range.size(), kChunk), [&](std::size_t chunk, int) {
    const std::size_t begin = range.begin + chunk * kChunk;
    const std::size_t count = std::min(kChunk, range.end - begin);
    kernels::convert(kernels, count, roots + (begin - range.begin), reduced + begin);
    kernels::scale(kernels, count, scale, reduced + begin, reduced + begin);
  });
}

void GradientEngine::State::norm_of(const Range& range) {
  if (range.size() == 0) return;
  threads.parallel_for(num_chunks(range.size(), kChunk), [&](std::size_t chunk, int) {
    const std::size_t begin = range.begin + chunk * kChunk;
    norm_partials[begin / kChunk] =
        kernels::squared_norm(kernels, std::min(kChunk, range.end - begin), reduced + begin);
  });
}

bool GradientEngine::State::complete() const {
  if (next_reduce < buckets.size()) return false;
  if (!several_nodes()) return true;
  return next_send == buckets.size() && next_gather == buckets.size() &&
         std::all_of(sends.begin(), sends.end(), [](const Request& r) { return r.done(); });
}

// Sleeps until a neighbour or the network may have brought what is missing.
void GradientEngine::State::wait_for_more(std::chrono::steady_clock::time_point since) {
  const std::size_t bucket = several_nodes() ? std::min(next_send, next_reduce) : next_reduce;
  // Every wait has a text for the case that it fails; a step allocates nothing for it.
  std::array<char, 64> text;
  const auto end = fmt::format_to_n(text.data(), text.size(), "gradient bucket {} of {}",
                                    bucket + 1, buckets.size());
  const std::string_view what(text.data(), std::min(end.size, text.size()));
  const auto target = flag_base + static_cast<std::uint32_t>(bucket) + 1;
  if (several_nodes()) {
    communicator.progress(kTimeout);
    communicator.check_wait(since, -1, what);
    return;
  }
  for (const Operand& operand : operands) {
    const LocalRank& neighbour = local[static_cast<std::size_t>(operand.local_rank)];
    communicator.wait_for_flag(neighbour.ready(operand.partial), target, neighbour.rank, what);
  }
}

void GradientEngine::State::node_barrier(std::string_view what) {
  if (world_size == 1) return;
  ++barriers;
  comm::raise_flag(local[local_rank].barrier(), barriers);
  for (const LocalRank& neighbour : local) {
    communicator.wait_for_flag(neighbour.barrier(), barriers, neighbour.rank, what);
  }
}

void GradientEngine::finish() {
  State& s = *state_;
  TANDEM_CHECK(s.current_shard == s.run.size(), "finish() with {} of {} shards ready",
               s.current_shard, s.run.size());
  const auto since = std::chrono::steady_clock::now();
  s.advance();
  while (!s.complete()) {
    s.wait_for_more(since);
    s.advance();
  }
  s.source().hold();
  s.node_barrier("the end of the gradient reduction");
  s.flag_base += static_cast<std::uint32_t>(s.buckets.size());
  s.current_shard = s.next_send = s.next_reduce = s.next_gather = s.recorded = 0;
  s.sends.clear();
  s.receives_posted = false;
}

void GradientEngine::publish() { state_->node_barrier("the weight update"); }

double GradientEngine::squared_norm() const {
  double total = 0;
  for (std::size_t i = 0; i < num_chunks(state_->model.elements(), kChunk); ++i)
    total += state_->norm_partials[i];
  return total;
}

}  // namespace tandem::dist
