// Communicators split from communicators.
#include <algorithm>
#include <bit>
#include <span>

#include "tandem/comm/collectives/communicator_state.h"
#include "tandem/core/error.h"

namespace tandem::comm {

namespace {

// Numbers that the channel byte of a message header can distinguish.
constexpr int kMaxContext = 256 / (Communicator::kChannels + 1) - 1;

// A rank's message for a split: its color and key, and the numbers of its communicators.
struct Wish {
  std::int64_t color = 0;
  std::int64_t key = 0;
  std::uint64_t used = 0;
};

// The first number that is free on all ranks. All colors get the same one: no two ranks communicate
// under it in two groups.
int free_number(std::span<const Wish> wishes) {
  std::uint64_t used = 0;
  for (const Wish& wish : wishes) used |= wish.used;
  const int number = std::countr_one(used);
  if (number > kMaxContext) {
    raise<InvalidArgument>(
        "split: {} communicators made by split exist already, and there can be no more; close some",
        kMaxContext);
  }
  return number;
}

// The ranks of `color`, in the order of (key, rank).
std::vector<int> ranks_of(std::span<const Wish> wishes, int color) {
  std::vector<int> ranks;
  for (std::size_t r = 0; r < wishes.size(); ++r) {
    if (wishes[r].color == color) ranks.push_back(static_cast<int>(r));
  }
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return wishes[static_cast<std::size_t>(a)].key < wishes[static_cast<std::size_t>(b)].key;
  });
  return ranks;
}

}  // namespace

std::unique_ptr<Communicator> Communicator::split(int color, int key) {
  State& s = *state_;
  const auto inside = s.comm_context->progress_thread.enter();
  const Wish own{color, key, s.comm_context->contexts};
  std::vector<Wish> wishes(ranks());
  all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(wishes)));
  const int number = free_number(wishes);
  if (color < 0) return nullptr;
  s.comm_context->contexts |= std::uint64_t{1} << number;
  const std::vector<int> chosen = ranks_of(wishes, color);
  auto state = std::make_unique<State>();
  state->options = s.options;
  state->comm_context = s.comm_context;
  state->context_number = number;
  state->identify(
      mix(mix(s.history, static_cast<std::uint64_t>(number)), static_cast<std::uint64_t>(color)));
  state->size = static_cast<int>(chosen.size());
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    state->members.push_back(s.world(chosen[i]));
    if (chosen[i] == s.rank) state->rank = static_cast<int>(i);
  }
  auto part = finish(std::move(state));
  part->state_->limits.short_bytes = s.limits.short_bytes;
  part->state_->tuning =
      "fixed inside the node; between nodes those of the communicator it was split from";
  return part;
}

}  // namespace tandem::comm
