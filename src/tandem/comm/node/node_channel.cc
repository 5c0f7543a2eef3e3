#include "tandem/comm/node/node_channel.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <ctime>

#include "tandem/comm/node/futex.h"
#include "tandem/core/error.h"
#include "tandem/core/pages.h"

namespace tandem::comm {
namespace {

// Not FUTEX_PRIVATE: the sleepers are other processes.
bool same_call(const CallRecord& a, const CallRecord& b) {
  return a.sequence == b.sequence && a.operation == b.operation && a.type == b.type &&
         a.op == b.op && a.count == b.count && a.root == b.root && a.collective == b.collective;
}

std::string describe(const CallRecord& record) {
  Call call;
  call.operation = record.operation;
  call.type = record.type;
  call.op = record.op;
  call.root = record.root;
  call.count = record.count;
  return describe(call, record.collective);
}

}  // namespace

std::size_t NodeChannel::segment_bytes() {
  return page_aligned(sizeof(Shared)) + 2 * kSlotBytes + kRingDepth * kRingStride;
}

NodeChannel::NodeChannel(std::vector<std::span<std::byte>> segments, int local_rank,
                         Disagree disagree)
    : segments_(std::move(segments)), local_rank_(local_rank), disagree_(std::move(disagree)) {}

// ---- op headers ----

bool NodeChannel::may_post_header(int& missing) {
  if (settled_) return true;
  return all_announced(missing);
}

void NodeChannel::post_header(const Call& call, std::uint64_t collective, const Whole& whole,
                              std::span<const std::byte> data) {
  ++sequence_;
  const bool is_stage = whole.history != 0;
  const Call& named = is_stage ? whole.call : call;
  CallRecord& record = shared(local_rank_).history[sequence_ % kHistory];
  record.sequence = sequence_;
  record.count = named.count;
  record.root = named.root;
  record.operation = named.operation;
  record.type = named.type;
  record.op = named.op;
  record.collective = collective;
  std::uint64_t signature = hash_of_calls(signature_, call, collective);
  if (is_stage) signature = mix(signature, whole.history);
  signature_ = static_cast<std::uint32_t>(signature);
  Line& own = line(local_rank_, sequence_);
  own.signature = signature_;
  if (!data.empty()) std::memcpy(own.data, data.data(), data.size());
  own.sequence.store(sequence_, std::memory_order_seq_cst);
  settled_ = false;
  wake_sleepers();
}

bool NodeChannel::announced(int local) {
  const Line& theirs = line(local, sequence_);
  if (theirs.sequence.load(std::memory_order_acquire) != sequence_) return false;
  if (theirs.signature != signature_) report_difference(local);
  return true;
}

bool NodeChannel::all_announced(int& missing) {
  for (int local = 0; local < size(); ++local) {
    if (local == local_rank_ || announced(local)) continue;
    missing = local;
    return false;
  }
  settled_ = true;
  return true;
}

// The first op header that differs identifies the two calls. It is one of the last, because every
// rank checks all others' op headers before it announces again.
void NodeChannel::report_difference(int local) const {
  std::uint32_t first = sequence_;
  const CallRecord* own = shared(local_rank_).history;
  const CallRecord* theirs = shared(local).history;
  for (std::uint32_t back = 0; back < kHistory && back < sequence_; ++back) {
    const std::uint32_t at = (sequence_ - back) % kHistory;
    if (!same_call(own[at], theirs[at])) first = sequence_ - back;
  }
  disagree_(local, describe(own[first % kHistory]), describe(theirs[first % kHistory]));
  TANDEM_CHECK(false, "the handler of a disagreement returned");
  throw std::logic_error("unreachable");
}

std::byte* NodeChannel::slot(int local, std::uint32_t sequence) const {
  return segments_[static_cast<std::size_t>(local)].data() + page_aligned(sizeof(Shared)) +
         (sequence & 1u) * kSlotBytes;
}

// ---- the staging ring ----

void NodeChannel::post(Counter counter, std::uint32_t value) {
  shared(local_rank_).counters.value[counter].store(value, std::memory_order_seq_cst);
  wake_sleepers();
}

bool NodeChannel::reached(int local, Counter counter, std::uint32_t value) const {
  const std::uint32_t found = shared(local).counters.value[counter].load(std::memory_order_acquire);
  return static_cast<std::int32_t>(found - value) >= 0;
}

std::byte* NodeChannel::ring(int local, std::uint32_t band) const {
  return segments_[static_cast<std::size_t>(local)].data() + page_aligned(sizeof(Shared)) +
         2 * kSlotBytes + (band % kRingDepth) * kRingStride;
}

// ---- memory of the communicator ----

std::uint32_t NodeChannel::add_allocation(std::vector<std::span<std::byte>> segments) {
  const std::lock_guard lock(allocations_mutex_);
  allocations_.push_back({next_allocation_, std::move(segments)});
  return next_allocation_++;
}

void NodeChannel::remove_allocation(std::uint32_t id) {
  const std::lock_guard lock(allocations_mutex_);
  std::erase_if(allocations_, [&](const Allocation& one) { return one.id == id; });
}

Location NodeChannel::locate(const std::byte* data, std::size_t bytes) const {
  const std::lock_guard lock(allocations_mutex_);
  Location location;
  for (const Allocation& one : allocations_) {
    const std::span<std::byte> own = one.segments[static_cast<std::size_t>(local_rank_)];
    if (std::less<>()(data, own.data())) continue;
    const auto offset = static_cast<std::size_t>(data - own.data());
    if (offset > own.size() || bytes > own.size() - offset) continue;
    location.allocation = one.id;
    location.offset = offset;
    break;
  }
  return location;
}

std::byte* NodeChannel::resolve(int local, const Location& location, std::size_t bytes) const {
  const std::lock_guard lock(allocations_mutex_);
  for (const Allocation& one : allocations_) {
    if (one.id != location.allocation) continue;
    const std::span<std::byte> theirs = one.segments[static_cast<std::size_t>(local)];
    TANDEM_CHECK(location.offset + bytes <= theirs.size(), "{} bytes at {} of {}", bytes,
                 location.offset, theirs.size());
    return theirs.data() + location.offset;
  }
  return nullptr;
}

// ---- sleeping ----

void NodeChannel::prepare_sleep() {
  shared(local_rank_).doorbell.asleep.store(1, std::memory_order_seq_cst);
}

void NodeChannel::sleep(long timeout_us) {
  const timespec timeout{timeout_us / 1000000, timeout_us % 1000000 * 1000};
  futex(shared(local_rank_).doorbell.asleep, FUTEX_WAIT, 1, &timeout);
  stay_awake();
}

void NodeChannel::stay_awake() {
  shared(local_rank_).doorbell.asleep.store(0, std::memory_order_relaxed);
}

void NodeChannel::wake_sleepers() {
  for (int local = 0; local < size(); ++local) {
    if (local == local_rank_) continue;
    std::atomic<std::uint32_t>& asleep = shared(local).doorbell.asleep;
    if (asleep.load(std::memory_order_seq_cst) == 0) continue;
    asleep.store(0, std::memory_order_seq_cst);
    futex(asleep, FUTEX_WAKE, INT_MAX, nullptr);
  }
}

}  // namespace tandem::comm
