#include "tandem/comm/algorithms/schedule.h"

#include <algorithm>
#include <bit>

#include "tandem/core/error.h"

namespace tandem::comm {
namespace {

using Kind = Step::Kind;

// Part `part` of `count` elements.
std::size_t cut(std::size_t count, int part, int parts) {
  return count / static_cast<std::size_t>(parts) * static_cast<std::size_t>(part) +
         count % static_cast<std::size_t>(parts) * static_cast<std::size_t>(part) /
             static_cast<std::size_t>(parts);
}

// Records the steps of one participant.
class Writer {
 public:
  explicit Writer(std::size_t count) : count_(count) { schedule_.steps.reserve(8); }
  void send(int peer, std::size_t begin, std::size_t end, int array = 0) {
    schedule_.steps.push_back({Kind::kSend, round_, peer, array, begin, end, 0});
  }
  void receive(int peer, std::size_t begin, std::size_t end, int array = 0) {
    schedule_.steps.push_back({Kind::kReceive, round_, peer, array, begin, end, 0});
  }
  // Sums that were complete before the present round, and the routes of such sums.
  void finish(std::size_t begin, std::size_t end) {
    schedule_.steps.push_back({Kind::kFinish, std::max(0, round_ - 1), 0, 0, begin, end, 0});
  }
  void send_final(int peer, std::size_t begin, std::size_t end) {
    schedule_.steps.push_back({Kind::kSend, round_, peer, 0, begin, end, 0, /*final=*/true});
  }
  void receive_final(int peer, std::size_t begin, std::size_t end) {
    schedule_.steps.push_back({Kind::kReceive, round_, peer, 0, begin, end, 0, /*final=*/true});
  }
  void receive_and_add(int peer, std::size_t begin, std::size_t end) {
    const int scratch = use_scratch(end - begin);
    schedule_.steps.push_back({Kind::kReceive, round_, peer, scratch, 0, end - begin, 0});
    schedule_.steps.push_back({Kind::kAccumulate, round_, peer, 0, begin, end, scratch});
  }
  void send_all(int peer) { send(peer, 0, count_); }
  void receive_all(int peer) { receive(peer, 0, count_); }
  void next_round() { ++round_; }
  Schedule take() { return std::move(schedule_); }

 private:
  // One scratch array serves all rounds.
  int use_scratch(std::size_t elements) {
    if (schedule_.scratch.empty()) schedule_.scratch.push_back(0);
    schedule_.scratch[0] = std::max(schedule_.scratch[0], elements);
    return 1;
  }
  std::size_t count_;
  int round_ = 0;
  Schedule schedule_;
};

// The first participant of a subtree collects its sum: first each half collects its own, then the
// first participant of the right half sends to that of the left. Afterwards the sum takes the same
// routes back.
struct Visit {
  int begin, middle;
};

// The subtrees that contain `me`, from the root down.
void visits_of(int begin, int end, int me, std::vector<Visit>& visits) {
  if (end - begin == 1) return;
  const int middle = begin + left_leaves(end - begin);
  visits.push_back({begin, middle});
  if (me < middle) return visits_of(begin, middle, me, visits);
  visits_of(middle, end, me, visits);
}

Schedule tree(int participants, int me, std::size_t count) {
  Writer writer(count);
  std::vector<Visit> visits;
  visits_of(0, participants, me, visits);
  for (auto visit = visits.rbegin(); visit != visits.rend(); ++visit) {
    if (me == visit->begin) writer.receive_and_add(visit->middle, 0, count);
    if (me == visit->middle) writer.send_all(visit->begin);
    writer.next_round();
  }
  if (me == 0) writer.finish(0, count);
  for (const Visit& visit : visits) {
    if (me == visit.begin) writer.send_final(visit.middle, 0, count);
    if (me == visit.middle) writer.receive_final(visit.begin, 0, count);
    writer.next_round();
  }
  return writer.take();
}

// For algorithms on 2^k participants. Each even one among the first 2·extra participants sends its
// numbers to the next and later receives the result from it. Returns the number among the 2^k, or
// −1.
int fold(Writer& writer, int participants, int me, std::size_t count) {
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(participants)));
  const int extra = participants - power;
  if (extra == 0) return me;
  const int number = me >= 2 * extra ? me - extra : me % 2 == 1 ? me / 2 : -1;
  if (me < 2 * extra) {
    if (me % 2 == 0) writer.send_all(me + 1);
    if (me % 2 == 1) writer.receive_and_add(me - 1, 0, count);
  }
  writer.next_round();
  return number;
}

void unfold(Writer& writer, int participants, int me, std::size_t count) {
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(participants)));
  const int extra = participants - power;
  if (me >= 2 * extra) return;
  if (me % 2 == 1) writer.send_final(me - 1, 0, count);
  if (me % 2 == 0) writer.receive_final(me + 1, 0, count);
}

int unfolded(int number, int participants) {
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(participants)));
  const int extra = participants - power;
  return number < extra ? 2 * number + 1 : number + extra;
}

Schedule doubling(int participants, int me, std::size_t count) {
  Writer writer(count);
  const int number = fold(writer, participants, me, count);
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(participants)));
  for (int distance = 1; distance < power; distance *= 2) {
    if (number >= 0) {
      const int peer = unfolded(number ^ distance, participants);
      writer.send_all(peer);
      writer.receive_and_add(peer, 0, count);
    }
    writer.next_round();
  }
  if (number >= 0) writer.finish(0, count);
  unfold(writer, participants, me, count);
  return writer.take();
}

// Rabenseifner's algorithm. At each distance the two partners divide their data, add their half,
// and continue with that half; then the same steps in reverse gather. The distances double, as in
// the canonical tree.
Schedule halving(int participants, int me, std::size_t count) {
  Writer writer(count);
  const int number = fold(writer, participants, me, count);
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(participants)));
  struct Half {
    int peer;
    std::size_t begin, end, other_begin, other_end;
  };
  std::vector<Half> halves;
  std::size_t begin = 0;
  std::size_t end = count;
  for (int distance = 1; distance < power; distance *= 2) {
    if (number >= 0) {
      const std::size_t middle = begin + (end - begin) / 2;
      const bool low = (number & distance) == 0;
      Half half{unfolded(number ^ distance, participants), begin, middle, middle, end};
      if (!low) half = {half.peer, middle, end, begin, middle};
      writer.send(half.peer, half.other_begin, half.other_end);
      writer.receive_and_add(half.peer, half.begin, half.end);
      halves.push_back(half);
      begin = half.begin;
      end = half.end;
    }
    writer.next_round();
  }
  if (number >= 0) writer.finish(begin, end);
  for (int distance = power / 2; distance > 0; distance /= 2) {
    if (number >= 0) {
      const Half& half = halves.back();
      writer.send_final(half.peer, half.begin, half.end);
      writer.receive_final(half.peer, half.other_begin, half.other_end);
      halves.pop_back();
    }
    writer.next_round();
  }
  unfold(writer, participants, me, count);
  return writer.take();
}

// Slice s starts at participant s + 1 and is complete at participant s after N − 1 rounds; then it
// goes around once more.
Schedule ring(int participants, int me, std::size_t count) {
  Writer writer(count);
  const int next = (me + 1) % participants;
  const int previous = (me + participants - 1) % participants;
  const auto slice = [&](int s) { return ((s % participants) + participants) % participants; };
  for (int round = 0; round + 1 < participants; ++round) {
    const int out = slice(me - round - 1);
    const int in = slice(me - round - 2);
    writer.send(next, cut(count, out, participants), cut(count, out + 1, participants));
    writer.receive_and_add(previous, cut(count, in, participants),
                           cut(count, in + 1, participants));
    writer.next_round();
  }
  writer.finish(cut(count, me, participants), cut(count, me + 1, participants));
  for (int round = 0; round + 1 < participants; ++round) {
    const int out = slice(me - round);
    const int in = slice(me - round - 1);
    writer.send_final(next, cut(count, out, participants), cut(count, out + 1, participants));
    writer.receive_final(previous, cut(count, in, participants), cut(count, in + 1, participants));
    writer.next_round();
  }
  return writer.take();
}

Schedule exchange(int participants, int me, std::size_t count) {
  std::vector<Subtree> leaves;
  for (int i = 0; i < participants; ++i) leaves.push_back({i, i + 1, i});
  return schedule_exchange(participants, me, count, leaves, sum_program(0, participants, leaves));
}

}  // namespace

std::string_view name_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kExchange:
      return "exchange";
    case Algorithm::kTree:
      return "tree";
    case Algorithm::kDoubling:
      return "recursive_doubling";
    case Algorithm::kHalving:
      return "rabenseifner";
    case Algorithm::kRing:
      return "ring";
  }
  return "unknown algorithm";
}

bool is_canonical(Algorithm algorithm, int participants) {
  if (algorithm == Algorithm::kExchange || algorithm == Algorithm::kTree) return true;
  if (participants <= 2) return true;  // a + b
  if (algorithm == Algorithm::kRing) return false;
  return std::has_single_bit(static_cast<unsigned>(participants));
}

Schedule schedule_all_reduce(Algorithm algorithm, int participants, int me, std::size_t count) {
  if (participants == 1) return {};
  switch (algorithm) {
    case Algorithm::kExchange:
      return exchange(participants, me, count);
    case Algorithm::kTree:
      return tree(participants, me, count);
    case Algorithm::kDoubling:
      return doubling(participants, me, count);
    case Algorithm::kHalving:
      return halving(participants, me, count);
    case Algorithm::kRing:
      return ring(participants, me, count);
  }
  return {};
}

// Slice j of the elements is added by participant j, which receives all partials of it, and is sent
// back to all.
Schedule schedule_exchange(int participants, int me, std::size_t count,
                           std::span<const Subtree> partials, const SumProgram& tree) {
  Schedule schedule;
  schedule.program = tree;
  const auto begin_of = [&](int j) { return cut(count, j, participants); };
  const std::size_t own_length = begin_of(me + 1) - begin_of(me);
  int num_own = 0;
  for (const Subtree& partial : partials) num_own += partial.owner == me ? 1 : 0;
  TANDEM_CHECK(num_own > 0, "participant {} has no partial sum", me);
  int own = 0;
  for (const Subtree& partial : partials) {
    if (partial.owner == me) {
      for (int j = 0; j < participants; ++j) {
        if (j == me) continue;
        schedule.steps.push_back({Kind::kSend, 0, j, own, begin_of(j), begin_of(j + 1), 0,
                                  /*final=*/false, /*leaf=*/partial.leaves() == 1});
      }
      schedule.operands.push_back({own++, true});
    } else {
      const int array = num_own + static_cast<int>(schedule.scratch.size());
      schedule.scratch.push_back(own_length);
      schedule.steps.push_back({Kind::kReceive, 0, partial.owner, array, 0, own_length, 0,
                                /*final=*/false, /*leaf=*/partial.leaves() == 1});
      schedule.operands.push_back({array, false});
    }
  }
  schedule.steps.push_back({Kind::kTree, 0, me, 0, begin_of(me), begin_of(me + 1), 0});
  schedule.steps.push_back({Kind::kFinish, 0, me, 0, begin_of(me), begin_of(me + 1), 0});
  for (int step = 1; step < participants; ++step) {
    const int peer = (me + step) % participants;
    schedule.steps.push_back(
        {Kind::kSend, 1, peer, 0, begin_of(me), begin_of(me + 1), 0, /*final=*/true});
    schedule.steps.push_back(
        {Kind::kReceive, 1, peer, 0, begin_of(peer), begin_of(peer + 1), 0, /*final=*/true});
  }
  return schedule;
}

Schedule schedule_broadcast(int participants, int me, int root, std::size_t count) {
  Writer writer(count);
  const int relative = (me - root + participants) % participants;
  const auto rank_at = [&](int r) { return (r + root) % participants; };
  int bit = 1;
  while (bit < participants && (relative & bit) == 0) bit *= 2;
  if (relative != 0) {
    writer.receive_all(rank_at(relative - bit));
    writer.next_round();
  }
  for (bit /= 2; bit > 0; bit /= 2) {
    if (relative + bit < participants) writer.send_all(rank_at(relative + bit));
  }
  return writer.take();
}

Schedule schedule_barrier(int participants, int me) {
  Writer writer(0);
  for (int distance = 1; distance < participants; distance *= 2) {
    writer.send((me + distance) % participants, 0, 0);
    writer.receive((me - distance + participants) % participants, 0, 0);
    writer.next_round();
  }
  return writer.take();
}

}  // namespace tandem::comm
