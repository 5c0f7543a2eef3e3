// Every interleaving of a writer and a reader of one ring (node_streams.h) and of their sleeps; the
// steps are as in interleaving_test.cc.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "tandem/comm/node/interleaving.h"
#include "tandem/comm/node/node_streams.h"

namespace tandem::comm {
namespace {

// A writer sends `kTotal` bytes through a ring of two, a reader takes them; each sleeps if it can
// do nothing. An eventfd stays readable until it is read.
constexpr std::uint8_t kTotal = 5;
constexpr std::uint8_t kCapacity = 2;

enum class StreamStep : std::uint8_t { kLook, kCopy, kPosted, kBell, kRaised, kSleep, kAwake };

struct StreamSide {
  StreamStep at = StreamStep::kLook;
  bool asleep = false;       // the doorbell's word
  bool rung = false;         // its eventfd
  bool second_look = false;  // before a sleep
  bool after_sleep = false;
  std::uint8_t counter = 0;  // written or taken
  auto operator<=>(const StreamSide&) const = default;
};
struct StreamState {
  std::array<StreamSide, 2> side{};  // writer, reader
  std::array<std::uint8_t, kCapacity> cell{};
  auto operator<=>(const StreamState&) const = default;
};

struct StreamModel {
  std::uint64_t capacity_of_rule = kCapacity;
  bool looks_again = true;

  bool can_move(const StreamState& state, std::size_t me) const {
    const std::uint64_t written = state.side[0].counter;
    const std::uint64_t taken = state.side[1].counter;
    if (me == 0)
      return written < kTotal && stream_rules::writable(written, taken, capacity_of_rule) > 0;
    return stream_rules::readable(written, taken) > 0;
  }

  std::string steps(const StreamState& state, std::size_t me,
                    std::vector<StreamState>& next) const {
    const StreamSide& own = state.side[me];
    const auto change = [&](auto edit) {
      StreamState changed = state;
      edit(changed, changed.side[me], changed.side[1 - me]);
      next.push_back(changed);
    };
    const auto go = [&](StreamStep to) {
      change([&](StreamState&, StreamSide& s, StreamSide&) { s.at = to; });
    };
    switch (own.at) {
      case StreamStep::kLook:
        if (own.counter == kTotal) return "";
        change([&](StreamState& all, StreamSide& s, StreamSide&) {
          const bool can = can_move(state, me);
          s.at = can               ? StreamStep::kCopy
                 : own.second_look ? StreamStep::kSleep
                                   : StreamStep::kRaised;
          if (can && me == 0) all.cell[own.counter % kCapacity] = 0;  // being overwritten
          s.second_look = false;
        });
        return "";
      case StreamStep::kCopy: {
        const std::size_t cell = own.counter % kCapacity;
        if (me == 1 && state.cell[cell] != own.counter + 1) return "the reader got another byte";
        change([&](StreamState& all, StreamSide& s, StreamSide&) {
          if (me == 0) all.cell[cell] = static_cast<std::uint8_t>(own.counter + 1);
          s.at = StreamStep::kPosted;
        });
        return "";
      }
      case StreamStep::kPosted:  // the counter
        change([](StreamState&, StreamSide& s, StreamSide&) {
          ++s.counter;
          s.at = StreamStep::kBell;
        });
        return "";
      case StreamStep::kBell:  // the other's word is exchanged, then its eventfd written
        if (state.side[1 - me].asleep) {
          change([](StreamState&, StreamSide& s, StreamSide& other) {
            other.asleep = false;
            s.at = StreamStep::kAwake;
          });
        } else {
          go(StreamStep::kLook);
        }
        return "";
      case StreamStep::kAwake:
        change([](StreamState&, StreamSide& s, StreamSide& other) {
          other.rung = true;
          s.at = StreamStep::kLook;
        });
        return "";
      case StreamStep::kRaised:
        change([&](StreamState&, StreamSide& s, StreamSide&) {
          s.asleep = true;
          s.second_look = looks_again;
          s.at = looks_again ? StreamStep::kLook : StreamStep::kSleep;
        });
        return "";
      case StreamStep::kSleep:  // poll(2), then the word and the eventfd in two steps
        if (own.after_sleep) {
          change([](StreamState&, StreamSide& s, StreamSide&) {
            s.rung = s.after_sleep = false;
            s.at = StreamStep::kLook;
          });
        } else if (own.rung) {
          change([](StreamState&, StreamSide& s, StreamSide&) {
            s.asleep = false;
            s.after_sleep = true;
          });
        }
        return "";
    }
    return "";
  }

  std::string run() const {
    return explore<StreamState>(
        StreamState{},
        [this](const StreamState& state, std::vector<StreamState>& next) {
          for (const std::size_t me : {0ul, 1ul}) {
            const std::string wrong = steps(state, me, next);
            if (!wrong.empty()) return wrong;
          }
          return std::string();
        },
        [](const StreamState& state) {
          return state.side[0].counter == kTotal && state.side[1].counter == kTotal;
        });
  }
};

TEST(Streams, EveryInterleavingMovesAllBytes) { EXPECT_EQ(StreamModel{}.run(), ""); }

TEST(Streams, ALooserRuleIsCaught) {
  EXPECT_EQ((StreamModel{kCapacity + 1}.run()), "the reader got another byte");
  EXPECT_EQ((StreamModel{kCapacity, false}.run()), "no rank can move, and not all are done");
}

}  // namespace
}  // namespace tandem::comm
