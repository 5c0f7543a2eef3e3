// Communicators made of communicators.
#include <algorithm>
#include <bit>
#include <cstring>

#include "tandem/comm/api/communicator_state.h"
#include "tandem/core/error.h"

namespace tandem::comm {

namespace {

// Numbers that the channel byte of a message header can tell apart.
constexpr int kMaxFamily = 256 / (Communicator::kChannels + 1) - 1;

}  // namespace

std::unique_ptr<Communicator> Communicator::split(int color, int key) {
  State& s = *state_;
  const auto inside = s.fabric->helper.enter();
  struct Wish {
    std::int64_t color = 0;
    std::int64_t key = 0;
    std::uint64_t used = 0;
  };
  const Wish own{color, key, s.fabric->families};
  std::vector<std::byte> all(ranks() * sizeof(Wish));
  all_gather(std::as_bytes(std::span(&own, 1)), std::span(all));
  std::vector<Wish> wishes(ranks());
  std::memcpy(wishes.data(), all.data(), all.size());
  // The first number that is free on all ranks. All colors get the same one: no two ranks talk
  // under it in two groups.
  std::uint64_t used = 0;
  for (const Wish& wish : wishes) used |= wish.used;
  const int number = std::countr_one(used);
  if (number > kMaxFamily) {
    raise<InvalidArgument>(
        "split: {} communicators made by split exist already, and there can be no more; close some",
        kMaxFamily);
  }
  s.fabric->families |= std::uint64_t{1} << number;
  if (color < 0) {
    s.fabric->families &= ~(std::uint64_t{1} << number);
    return nullptr;
  }
  std::vector<int> chosen;
  for (int r = 0; r < s.size; ++r) {
    if (wishes[static_cast<std::size_t>(r)].color == color) chosen.push_back(r);
  }
  std::stable_sort(chosen.begin(), chosen.end(), [&](int a, int b) {
    return wishes[static_cast<std::size_t>(a)].key < wishes[static_cast<std::size_t>(b)].key;
  });
  auto state = std::make_unique<State>();
  state->options = s.options;
  state->fabric = s.fabric;
  state->family = number;
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
