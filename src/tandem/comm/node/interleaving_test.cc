// Every interleaving of small models of the shared-memory protocols. Other ranks may run between
// the steps of a model. Memory is sequentially consistent in the model; the code's orderings
// guarantee that where it matters (see node_channel.h). Copies take two steps, begin and end, so
// that the model detects a slot that is overwritten during a read.
#include "tandem/comm/node/interleaving.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "tandem/comm/node/staging.h"

namespace tandem::comm {
namespace {

// ---- the staging ring ----

constexpr int kMaxRanks = 3;
constexpr int kDepth = 2;

// An operation of the model: the ranks that read from each rank, and whether results are collected.
struct ModelOperation {
  std::uint32_t bands;
  bool collects;
  int only_source;  // −1: every rank reads from every rank
};

enum class Doing : std::uint8_t { kNothing, kStaging, kConsuming, kCollecting };

struct RankState {
  std::uint8_t operation = 0;
  std::uint8_t base = 0;
  std::uint8_t staged = 0, consumed = 0, collected = 0;
  Doing doing = Doing::kNothing;
  std::array<std::uint8_t, 3> posted{};       // staged, reduced, consumed
  std::array<std::uint8_t, kDepth> cell{};    // the band (counted from 1) whose data is in the slot
  std::array<std::uint8_t, kDepth> result{};  // the same for the result
  auto operator<=>(const RankState&) const = default;
};
using RingState = std::array<RankState, kMaxRanks>;

struct RingModel {
  int ranks;
  std::vector<ModelOperation> operations;
  std::uint32_t depth_of_rule = kDepth;  // the correct value; tests change it

  bool reads(int reader, int owner, const ModelOperation& operation) const {
    return reader != owner && (operation.only_source < 0 || operation.only_source == owner);
  }
  static bool reached(std::uint8_t counter, std::uint32_t value) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(counter) - value) >= 0;
  }

  // The possible next steps of rank `me`.
  std::string steps(const RingState& state, int me, std::vector<RingState>& next) const {
    const RankState& own = state[static_cast<std::size_t>(me)];
    if (own.operation == operations.size()) return "";
    const ModelOperation& operation = operations[own.operation];
    staging::Cursor cursor{own.staged, own.consumed, own.collected};
    const auto change = [&](auto edit) {
      RingState changed = state;
      edit(changed[static_cast<std::size_t>(me)]);
      next.push_back(changed);
    };
    switch (own.doing) {
      case Doing::kStaging:
        change([&](RankState& s) {
          s.doing = Doing::kNothing;
          ++s.staged;
          s.posted[0] = static_cast<std::uint8_t>(staging::count_with(own.base + own.staged));
        });
        return "";
      case Doing::kConsuming:
      case Doing::kCollecting:
        return finish_reading(state, me, operation, next);
      case Doing::kNothing:
        break;
    }
    if (cursor.done(operation.bands)) {
      change([&](RankState& s) {
        ++s.operation;
        s.base = static_cast<std::uint8_t>(s.base + operation.bands);
        s.staged = s.consumed = s.collected = 0;
      });
      return "";
    }
    if (cursor.may_stage(operation.bands) && may_stage(state, me, operation)) {
      const std::uint32_t band = own.base + own.staged;
      // From here on the slot is being overwritten: no rank may be reading it.
      for (int other = 0; other < ranks; ++other) {
        const RankState& reader = state[static_cast<std::size_t>(other)];
        if (other == me || reader.operation == operations.size()) continue;
        if (!reads(other, me, operations[reader.operation])) continue;
        const bool same_slot = (reader.doing == Doing::kConsuming &&
                                (reader.base + reader.consumed) % kDepth == band % kDepth) ||
                               (reader.doing == Doing::kCollecting &&
                                (reader.base + reader.collected) % kDepth == band % kDepth);
        if (same_slot) return "a slot is overwritten while a rank reads it";
      }
      change([&](RankState& s) {
        s.doing = Doing::kStaging;
        s.cell[band % kDepth] = static_cast<std::uint8_t>(band + 1);
      });
    }
    if (cursor.may_consume() && all(state, me, operation, 0, own.base + own.consumed))
      change([](RankState& s) { s.doing = Doing::kConsuming; });
    if (operation.collects && cursor.may_collect() &&
        all(state, me, operation, 1, own.base + own.collected))
      change([](RankState& s) { s.doing = Doing::kCollecting; });
    return "";
  }

  bool may_stage(const RingState& state, int me, const ModelOperation& operation) const {
    const RankState& own = state[static_cast<std::size_t>(me)];
    for (int other = 0; other < ranks; ++other) {
      if (other == me) continue;
      const std::uint32_t needed = staging::consumed_before_staging(
          own.base, own.base + own.staged, depth_of_rule, reads(other, me, operation));
      if (!reached(state[static_cast<std::size_t>(other)].posted[2], needed)) return false;
    }
    return true;
  }

  bool all(const RingState& state, int me, const ModelOperation& operation, std::size_t counter,
           std::uint32_t band) const {
    for (int other = 0; other < ranks; ++other) {
      if (reads(me, other, operation) &&
          !reached(state[static_cast<std::size_t>(other)].posted[counter],
                   staging::count_with(band)))
        return false;
    }
    return true;
  }

  std::string finish_reading(const RingState& state, int me, const ModelOperation& operation,
                             std::vector<RingState>& next) const {
    RingState changed = state;
    RankState& own = changed[static_cast<std::size_t>(me)];
    const bool collecting = own.doing == Doing::kCollecting;
    const std::uint32_t band = own.base + (collecting ? own.collected : own.consumed);
    for (int other = 0; other < ranks; ++other) {
      if (!reads(me, other, operation)) continue;
      const RankState& source = state[static_cast<std::size_t>(other)];
      const std::uint8_t found =
          collecting ? source.result[band % kDepth] : source.cell[band % kDepth];
      if (found != band + 1) return "a rank read the data of another band";
    }
    own.doing = Doing::kNothing;
    const auto with_band = static_cast<std::uint8_t>(staging::count_with(band));
    if (collecting) {
      ++own.collected;
      own.posted[2] = with_band;
    } else {
      ++own.consumed;
      if (operation.collects) {
        own.result[band % kDepth] = static_cast<std::uint8_t>(band + 1);
        own.posted[1] = with_band;
      } else {
        own.collected = own.consumed;
        own.posted[2] = with_band;
      }
    }
    next.push_back(changed);
    return "";
  }

  std::string run(std::size_t* states = nullptr) const {
    return explore<RingState>(
        RingState{},
        [this](const RingState& state, std::vector<RingState>& next) {
          for (int me = 0; me < ranks; ++me) {
            const std::string wrong = steps(state, me, next);
            if (!wrong.empty()) return wrong;
          }
          return std::string();
        },
        [this](const RingState& state) {
          for (int me = 0; me < ranks; ++me) {
            if (state[static_cast<std::size_t>(me)].operation != operations.size()) return false;
          }
          return true;
        },
        states);
  }
};

TEST(StagingRing, EveryInterleavingMovesTheRightBands) {
  const ModelOperation all_reduce{3, true, -1};
  const ModelOperation all_gather{3, false, -1};
  const ModelOperation broadcast{3, false, 0};
  const ModelOperation other_root{2, false, 1};
  const ModelOperation empty{0, false, -1};
  for (const auto& operations :
       std::vector<std::vector<ModelOperation>>{{all_reduce, all_reduce},
                                                {all_gather, all_reduce, all_gather},
                                                {broadcast, broadcast, all_reduce},
                                                {broadcast, other_root, broadcast},
                                                {all_reduce, empty, other_root, all_gather}}) {
    std::size_t states = 0;
    EXPECT_EQ((RingModel{2, operations}.run(&states)), "");
    EXPECT_GT(states, 100u);
  }
  EXPECT_EQ((RingModel{3, {{2, true, -1}, {2, false, 0}}}.run()), "");
  EXPECT_EQ((RingModel{3, {{3, false, 1}, {2, false, 0}}}.run()), "");
}

// The explorer detects the error if the rule is wrong.
TEST(StagingRing, ALooserRuleIsCaught) {
  EXPECT_NE((RingModel{2, {{4, true, -1}}, kDepth + 1}.run()), "");
  EXPECT_NE((RingModel{2, {{4, false, 0}}, kDepth + 1}.run()), "");
  EXPECT_NE((RingModel{2, {{2, false, 0}, {2, false, 0}}, kDepth + 1}.run()), "");
}

// ---- op headers: two lines and slots per rank ----

struct HeaderWriter {
  std::uint8_t announced = 0;
  bool settled = true;
  bool writing = false;
  bool reading = false;
  // The operation whose data is in the line; counts as its sequence.
  std::array<std::uint8_t, 2> line{};
  std::array<std::uint8_t, 2> data{};
  auto operator<=>(const HeaderWriter&) const = default;
};
using OpHeaderState = std::array<HeaderWriter, kMaxRanks>;

struct OpHeaderModel {
  int ranks;
  // By operation: −1: every rank waits for every rank; otherwise all wait for this rank only.
  std::vector<int> roots;
  bool check_previous = true;  // the rule: operation n only after all announced n − 1

  bool all_at(const OpHeaderState& state, int me, std::uint8_t operation) const {
    for (int other = 0; other < ranks; ++other) {
      if (other != me && state[static_cast<std::size_t>(other)].line[operation % 2] != operation)
        return false;
    }
    return true;
  }

  std::string steps(const OpHeaderState& state, int me, std::vector<OpHeaderState>& next) const {
    const HeaderWriter& own = state[static_cast<std::size_t>(me)];
    const auto change = [&](auto edit) {
      OpHeaderState changed = state;
      edit(changed[static_cast<std::size_t>(me)]);
      next.push_back(changed);
    };
    const std::uint8_t now = own.announced;
    if (own.writing) {  // the data is written; now the sequence
      change([&](HeaderWriter& s) {
        s.writing = false;
        s.announced = static_cast<std::uint8_t>(now + 1);
        s.line[(now + 1) % 2] = s.announced;
        s.settled = false;
        s.reading = true;
      });
      return "";
    }
    if (own.reading) {
      const int root = roots[static_cast<std::size_t>(now - 1)];
      const auto take = [&](int source) {
        return source == me || state[static_cast<std::size_t>(source)].data[now % 2] == now;
      };
      if (root >= 0) {
        if (root != me && state[static_cast<std::size_t>(root)].line[now % 2] != now) return "";
        if (!take(root)) return "a rank read the data of another operation";
        change([](HeaderWriter& s) { s.reading = false; });
        return "";
      }
      if (!all_at(state, me, now)) return "";
      for (int source = 0; source < ranks; ++source) {
        if (!take(source)) return "a rank read the data of another operation";
      }
      change([](HeaderWriter& s) {
        s.reading = false;
        s.settled = true;
      });
      return "";
    }
    if (now == roots.size()) return "";
    if (check_previous && !own.settled && !all_at(state, me, now)) return "";
    change([&](HeaderWriter& s) {
      s.writing = true;
      s.data[(now + 1) % 2] = static_cast<std::uint8_t>(now + 1);
    });
    return "";
  }

  std::string run() const {
    return explore<OpHeaderState>(
        OpHeaderState{},
        [this](const OpHeaderState& state, std::vector<OpHeaderState>& next) {
          for (int me = 0; me < ranks; ++me) {
            const std::string wrong = steps(state, me, next);
            if (!wrong.empty()) return wrong;
          }
          return std::string();
        },
        [this](const OpHeaderState& state) {
          for (int me = 0; me < ranks; ++me) {
            const HeaderWriter& one = state[static_cast<std::size_t>(me)];
            if (one.announced != roots.size() || one.reading) return false;
          }
          return true;
        });
  }
};

TEST(OpHeaders, TwoLinesAreEnough) {
  for (const auto& roots : std::vector<std::vector<int>>{
           {-1, -1, -1, -1}, {0, 0, 0, 0, 0}, {0, 1, 0, 1}, {-1, 0, 0, -1, 1, 1, -1}}) {
    EXPECT_EQ((OpHeaderModel{2, roots}.run()), "");
    EXPECT_EQ((OpHeaderModel{3, roots}.run()), "");
  }
}

TEST(OpHeaders, WithoutLookingBackTheyAreNot) {
  EXPECT_NE((OpHeaderModel{2, {0, 0, 0, 0}, false}.run()), "");
}

// ---- sleeping and waking ----

// A waiter needs the flags of all posters. Each step is one access to shared memory.
struct SleepState {
  std::array<bool, 2> flag{};
  bool asleep = false;   // the doorbell's word
  bool blocked = false;  // in the kernel
  bool woken = false;
  // 0 checks, 5 has seen nothing, 1 has set its doorbell, 2 has checked again, 3 is back from the
  // kernel, 4 done.
  std::uint8_t waiter = 0;
  // 0 start, 1 has posted, 2 saw a sleeper, 3 has cleared the doorbell, 4 done.
  std::array<std::uint8_t, 2> poster{};
  auto operator<=>(const SleepState&) const = default;
};

std::string explore_sleep(bool looks_again) {
  return explore<SleepState>(
      SleepState{},
      [&](const SleepState& state, std::vector<SleepState>& next) {
        const auto change = [&](auto edit) {
          SleepState changed = state;
          edit(changed);
          next.push_back(changed);
        };
        const bool all = state.flag[0] && state.flag[1];
        switch (state.waiter) {
          case 0:
            change([&](SleepState& s) { s.waiter = all ? 4 : 5; });
            break;
          case 5:
            change([](SleepState& s) {
              s.asleep = true;
              s.waiter = 1;
            });
            break;
          case 1:
            change([&](SleepState& s) {
              if (looks_again && all) {
                s.waiter = 4;
              } else {
                s.waiter = 2;
              }
            });
            break;
          case 2:  // FUTEX_WAIT compares and blocks in one step
            if (!state.blocked) {
              change([](SleepState& s) {
                s.blocked = s.asleep;
                s.waiter = s.asleep ? 2 : 3;
              });
            } else if (state.woken) {
              change([](SleepState& s) {
                s.blocked = s.woken = false;
                s.waiter = 3;
              });
            }
            break;
          case 3:
            change([](SleepState& s) {
              s.asleep = false;
              s.waiter = 0;
            });
            break;
          default:
            break;
        }
        for (std::size_t p = 0; p < 2; ++p) {
          switch (state.poster[p]) {
            case 0:
              change([&](SleepState& s) {
                s.flag[p] = true;
                s.poster[p] = 1;
              });
              break;
            case 1:
              change([&](SleepState& s) { s.poster[p] = s.asleep ? 2 : 4; });
              break;
            case 2:
              change([&](SleepState& s) {
                s.asleep = false;
                s.poster[p] = 3;
              });
              break;
            case 3:
              change([&](SleepState& s) {
                s.woken = s.blocked;
                s.poster[p] = 4;
              });
              break;
            default:
              break;
          }
        }
        return std::string();
      },
      [](const SleepState& state) { return state.waiter == 4; });
}

TEST(Doorbell, NoWakeIsLost) { EXPECT_EQ(explore_sleep(true), ""); }

TEST(Doorbell, WithoutTheSecondLookOneIs) { EXPECT_NE(explore_sleep(false), ""); }

}  // namespace
}  // namespace tandem::comm
