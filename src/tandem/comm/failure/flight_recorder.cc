#include "tandem/comm/failure/flight_recorder.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <optional>

#include "tandem/comm/algorithms/call.h"
#include "tandem/core/file.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace tandem::comm {
namespace {

std::atomic<std::uint64_t> g_requests{
    0};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables): a signal handler can reach
         // nothing else
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

std::int64_t now_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The cheapest clock: small operations take less time than two readings of the system clock.
std::int64_t now_ticks() {
#if defined(__x86_64__)
  return static_cast<std::int64_t>(__rdtsc());
#else
  return now_ns();
#endif
}

std::uint64_t pack(const FlightRecorder::Entry& entry) {
  return std::uint64_t{static_cast<std::uint8_t>(entry.what)} << 56 |
         std::uint64_t{static_cast<std::uint8_t>(entry.operation)} << 48 |
         std::uint64_t{static_cast<std::uint8_t>(entry.type)} << 40 |
         std::uint64_t{static_cast<std::uint8_t>(entry.op)} << 32 |
         static_cast<std::uint32_t>(entry.root);
}

FlightRecorder::Entry unpack(std::uint64_t kind) {
  FlightRecorder::Entry entry;
  entry.what = static_cast<FlightRecorder::Kind>(kind >> 56);
  entry.operation = static_cast<Operation>(kind >> 48 & 0xff);
  entry.type = static_cast<DataType>(kind >> 40 & 0xff);
  entry.op = static_cast<ReduceOp>(kind >> 32 & 0xff);
  entry.root = static_cast<std::int32_t>(kind & 0xffffffff);
  return entry;
}

std::string_view name_of(const FlightRecorder::Entry& entry) {
  switch (entry.what) {
    case FlightRecorder::Kind::kOperation:
      return comm::name_of(entry.operation);
    case FlightRecorder::Kind::kReceive:
      return "receive";
    case FlightRecorder::Kind::kFlag:
      return "wait for flag";
    case FlightRecorder::Kind::kBucket:
      return "gradient bucket";
  }
  return "unknown";
}

}  // namespace

std::string describe(const FlightRecorder::Entry& entry) {
  if (entry.what == FlightRecorder::Kind::kOperation && entry.operation != Operation::kSend) {
    const Call call{entry.operation, entry.type, entry.op, entry.root, entry.count};
    return describe(call, entry.sequence);
  }
  std::string text = fmt::format("{} #{}", name_of(entry), entry.sequence);
  if (entry.count != 0) text += fmt::format(" of {} {}", entry.count, comm::name_of(entry.type));
  if (entry.what == FlightRecorder::Kind::kOperation)
    text += fmt::format(" to rank {}", entry.root);
  if (entry.what == FlightRecorder::Kind::kReceive || entry.what == FlightRecorder::Kind::kFlag)
    text += fmt::format(" from rank {}", entry.root);
  return text;
}

FlightRecorder::FlightRecorder() : start_(now()) {}

FlightRecorder::Moment FlightRecorder::now() { return {now_ticks(), now_ns()}; }

// The ticket is withdrawn before anything else changes, and every store releases that: a reader
// that has acquired a new value finds the ticket withdrawn.
FlightRecorder::Ticket FlightRecorder::begin(const Entry& entry) noexcept {
  const std::uint64_t number = next_.load(std::memory_order_relaxed);
  Slot& slot = slots_[number % kCapacity];
  slot.ticket.store(0, std::memory_order_relaxed);
  slot.sequence.store(entry.sequence, std::memory_order_release);
  slot.kind.store(pack(entry), std::memory_order_release);
  slot.count.store(entry.count, std::memory_order_release);
  slot.communicator.store(entry.communicator, std::memory_order_release);
  slot.history.store(entry.history, std::memory_order_release);
  slot.begun.store(now_ticks(), std::memory_order_release);
  slot.ended.store(0, std::memory_order_release);
  slot.ticket.store(number + 1, std::memory_order_release);
  next_.store(number + 1, std::memory_order_release);
  return number + 1;
}

void FlightRecorder::end(Ticket ticket) noexcept {
  if (ticket == 0) return;
  Slot& slot = slots_[(ticket - 1) % kCapacity];
  if (slot.ticket.load(std::memory_order_relaxed) != ticket) return;  // overwritten long ago
  slot.ended.store(now_ticks(), std::memory_order_release);
}

std::optional<FlightRecorder::Kept> FlightRecorder::read(std::uint64_t number) const {
  const Slot& slot = slots_[number % kCapacity];
  if (slot.ticket.load(std::memory_order_acquire) != number + 1) return std::nullopt;
  Kept kept;
  kept.entry = unpack(slot.kind.load(std::memory_order_acquire));
  kept.entry.sequence = slot.sequence.load(std::memory_order_acquire);
  kept.entry.count = slot.count.load(std::memory_order_acquire);
  kept.entry.communicator = slot.communicator.load(std::memory_order_acquire);
  kept.entry.history = slot.history.load(std::memory_order_acquire);
  kept.begun = slot.begun.load(std::memory_order_acquire);
  kept.ended = slot.ended.load(std::memory_order_acquire);
  if (slot.ticket.load(std::memory_order_relaxed) != number + 1) return std::nullopt;
  return kept;
}

std::vector<FlightRecorder::Entry> FlightRecorder::entries() const {
  const std::uint64_t last = operations();
  std::vector<Entry> entries;
  for (std::uint64_t number = last > kCapacity ? last - kCapacity : 0; number < last; ++number) {
    if (const auto kept = read(number)) entries.push_back(kept->entry);
  }
  return entries;
}

template <class Condition>
std::optional<FlightRecorder::Entry> FlightRecorder::newest(Condition condition) const {
  const std::uint64_t last = operations();
  for (std::uint64_t back = 1; back <= std::min<std::uint64_t>(last, kCapacity); ++back) {
    const auto kept = read(last - back);
    if (kept && condition(kept->entry)) return kept->entry;
  }
  return std::nullopt;
}

std::optional<FlightRecorder::Entry> FlightRecorder::newest_collective() const {
  return newest([](const Entry& entry) { return entry.communicator != 0; });
}

std::optional<FlightRecorder::Entry> FlightRecorder::find_collective(std::uint64_t communicator,
                                                                     std::uint64_t sequence) const {
  return newest([&](const Entry& entry) {
    return entry.communicator == communicator && entry.sequence == sequence;
  });
}

std::vector<std::string> FlightRecorder::lines() const {
  std::vector<std::string> result;
  for (const Entry& entry : entries()) result.push_back(describe(entry));
  return result;
}

std::string FlightRecorder::text(const std::string& heading) const {
  const std::uint64_t last = operations();
  const std::uint64_t first = last > kCapacity ? last - kCapacity : 0;
  const Moment now = FlightRecorder::now();
  const double ticks_per_ms =
      1e6 * static_cast<double>(now.ticks - start_.ticks) /
      static_cast<double>(std::max<std::int64_t>(1, now.nanoseconds - start_.nanoseconds));
  const auto milliseconds = [&](std::int64_t ticks) {
    return static_cast<double>(ticks) / ticks_per_ms;
  };
  std::string text = fmt::format(
      "{}\nthe last {} of {} operations; times in ms, counted back from {:%Y-%m-%d %H:%M:%S} UTC\n"
      "{:>10} {:<15} {:<9} {:<5} {:>12} {:>6} {:>14} {:>12}  {}\n",
      heading, last - first, last, fmt::gmtime(std::time(nullptr)), "sequence", "operation", "type",
      "op", "count", "root", "began", "took", "state");
  for (std::uint64_t number = first; number < last; ++number) {
    const auto kept = read(number);
    if (!kept) continue;
    const auto& [entry, begun, ended] = *kept;
    text += fmt::format("{:>10} {:<15} {:<9} {:<5} {:>12} {:>6} {:>14.3f} {:>12.3f}  {}\n",
                        entry.sequence, name_of(entry), comm::name_of(entry.type),
                        entry.op == ReduceOp::kNone ? "-" : comm::name_of(entry.op), entry.count,
                        entry.root, milliseconds(begun - now.ticks),
                        milliseconds((ended == 0 ? now.ticks : ended) - begun),
                        ended == 0 ? "not complete" : "complete");
  }
  return text;
}

std::filesystem::path FlightRecorder::write(const std::filesystem::path& folder,
                                            const std::string& name,
                                            const std::string& heading) const noexcept {
  const auto attempt =
      [&](const std::filesystem::path& where) -> std::optional<std::filesystem::path> {
    try {
      const std::filesystem::path path = where / fmt::format("tandem-flight-{}.txt", name);
      write_file(path, text(heading));
      return path;
    } catch (...) {  // the failure that caused this record is more important
      return std::nullopt;
    }
  };
  try {
    if (const auto path = attempt(folder)) return *path;
    if (const auto path = attempt(std::filesystem::temp_directory_path())) return *path;
  } catch (...) {  // no directory for temporary files
  }
  return {};
}

void request_flight_records() noexcept { g_requests.fetch_add(1, std::memory_order_relaxed); }

std::uint64_t flight_record_requests() noexcept {
  return g_requests.load(std::memory_order_relaxed);
}

}  // namespace tandem::comm
