#include "membership/toy_workers.h"

#include <algorithm>

namespace tandem::simulation {
namespace {

constexpr Time kAgain{200};
constexpr Time kStall{2500};
constexpr Time kReach{1000};  // for what is left of what was learned
constexpr int kCopy = 25;     // ms of a chunk: long enough for a death meanwhile

}  // namespace

Workers::Workers(Peer self, const Values& weights, std::uint64_t step, std::uint64_t data,
                 const Breaks& breaks, Surroundings& around)
    : self_(std::move(self)), weights_(weights), data_(data), breaks_(breaks), around_(around) {
  at_.fill(step);
}

bool Workers::whole() const {
  return std::all_of(at_.begin(), at_.end(), [&](std::uint64_t s) { return s == at_[0]; });
}

std::uint64_t Workers::step() const { return *std::min_element(at_.begin(), at_.end()); }

void Workers::store_chunk(std::size_t index, std::uint64_t step, std::uint64_t value) {
  weights_[index] = value;
  at_[index] = step;
  gradient_.reset();
}

void Workers::run(Time now, const View& view) {
  view_ = view;
  reconfiguration_point_asked_ = reconfiguration_point_ = broken_ = false;
  own_.reset();
  own_before_.reset();
  std::erase_if(parts_, [&](const auto& entry) { return entry.second.view < view.number; });
  since_ = now;
  seek_newest();
  if (step() < newest_) {
    doing_ = Doing::kLevelling;
    staged_ = {};
    learned_wrong_ = false;
    again_ = now + kAgain;
    ask_for_state(now);
    around_.wake_after(kAgain);
    return;
  }
  begin_step(now);
}

// Where the view begins. Its members look only at each other: a node with a newer step that is not
// a member (its workers are gone) is not asked, and that step is computed again.
void Workers::seek_newest() {
  newest_ = 0;
  for (const auto& member : view_.members) newest_ = std::max(newest_, member.step);
  const auto first = std::find_if(view_.members.begin(), view_.members.end(),
                                  [&](const auto& member) { return member.step == newest_; });
  source_ = first->peer;
}

// A learned state counts if it is right; its remaining parts are on their way.
void Workers::ask_for_state(Time now) {
  const Values* learned = learned_wrong_ ? nullptr : around_.learned(newest_);
  if (learned == nullptr && !learned_wrong_ && now < since_ + kReach && around_.learns()) return;
  StateAsk ask{view_.number, newest_, {}};
  if (learned != nullptr) ask.learned = checksum(*learned);
  around_.send(source_, ask);
}

std::uint64_t Workers::stop() {
  if (doing_ == Doing::kApplying) {
    // Done by the survivors, or by a restarted worker.
    if (breaks_.forget_undo) done_ = 0;
    apply_some(Time{0}, kChunks);
  }
  if (doing_ == Doing::kCopying && broken_)
    forget_replaced();
  else if (doing_ == Doing::kCopying)
    copy_some(Time{0}, kChunks);  // nothing of it needs the others
  doing_ = Doing::kNothing;
  return step();
}

void Workers::begin_step(Time now) {
  around_.settled(step());
  if (view_.paused || reconfiguration_point_) {
    doing_ = Doing::kHalted;
    return;
  }
  doing_ = Doing::kComputing;
  computing_ = step() + 1;
  since_ = now;
  due_ = now + around_.random_delay(2, 40);
  around_.wake_after(due_ - now);
}

void Workers::send_part() {
  for (const auto& member : view_.members) {
    if (member.peer.id != self_.id) around_.send(member.peer, *own_);
  }
}

void Workers::wake(Time now) {
  if (broken_ || doing_ == Doing::kNothing || doing_ == Doing::kHalted) return;
  if (doing_ == Doing::kComputing && now >= due_) {
    const auto size = static_cast<std::uint32_t>(view_.members.size());
    std::uint32_t position = 0;
    while (view_.members[position].peer.id != self_.id) ++position;
    Part part{view_.number,
              computing_,
              self_.id,
              kShards * position / size,
              kShards * (position + 1) / size,
              {},
              reconfiguration_point_asked_,
              false};
    if (around_.poisoned(computing_, part.begin, part.end)) {
      broken_ = true;
      return around_.worker_failed(computing_);
    }
    add_gradients(weights_, computing_, part.begin, part.end, data_, part.sum);
    own_before_ = own_;
    own_ = part;
    parts_[{computing_, self_.id}] = part;
    doing_ = Doing::kReducing;
    again_ = now + kAgain;
    send_part();
    return try_reduce(now);
  }
  if (doing_ == Doing::kApplying && now >= due_) return apply_some(now, 1);
  if (doing_ == Doing::kCopying && now >= due_) return copy_some(now, 1);
  const bool waits = doing_ == Doing::kLevelling || doing_ == Doing::kReducing;
  if (!waits || now < again_) return;
  again_ = now + kAgain;
  if (now >= since_ + kStall) {
    std::vector<NodeId> silent;
    if (doing_ == Doing::kLevelling) silent.push_back(source_.id);
    for (const auto& member : view_.members) {
      if (doing_ == Doing::kReducing && !parts_.contains({computing_, member.peer.id})) {
        silent.push_back(member.peer.id);
      }
    }
    since_ = now;
    around_.step_failed(view_.number, silent);
    if (doing_ == Doing::kNothing) return;
  } else if (doing_ == Doing::kLevelling) {
    ask_for_state(now);
  } else {
    send_part();
  }
  around_.wake_after(kAgain);
}

void Workers::receive(Time now, const Peer& from, const Frame& frame) {
  std::visit([&](const auto& f) { on(now, from, f); }, frame);
}

void Workers::on(Time now, const Peer& from, const Part& part) {
  if (part.view < view_.number && !breaks_.sum_any_view) return;  // the fence
  const auto key = std::pair(part.step, part.from);
  if (part.view == view_.number && own_before_ && part.step == own_before_->step) {
    Part again = *own_before_;
    again.repeated = true;
    if (!part.repeated) around_.send(from, again);  // the other side has not received it
    return;
  }
  if (part.step + 1 < computing_) return;
  const auto it = parts_.find(key);
  if (it == parts_.end() || it->second.view < part.view) parts_[key] = part;
  if (doing_ == Doing::kReducing && !broken_) try_reduce(now);
}

void Workers::check_parts(const std::vector<Part>& parts) {
  std::uint32_t next = 0;
  for (const Part& part : parts) {
    if (part.view != view_.number) {
      around_.violation("fence: a part of another view was summed");
    }
    if (part.begin != next) around_.violation("fence: a shard is summed twice or not at all");
    next = part.end;
  }
  if (next != kShards) around_.violation("fence: the last shards are missing");
}

void Workers::try_reduce(Time now) {
  std::vector<Part> parts;
  for (const auto& member : view_.members) {
    const auto it = parts_.find({computing_, member.peer.id});
    if (it == parts_.end()) break;
    if (it->second.view != view_.number && !breaks_.sum_any_view) break;
    parts.push_back(it->second);
  }
  if (parts.size() < view_.members.size()) {
    around_.wake_after(std::max(Time{1}, again_ - now));
    return;
  }
  check_parts(parts);
  gradient_ = Values{};
  reconfiguration_point_ = false;
  for (const Part& part : parts) {
    reconfiguration_point_ = reconfiguration_point_ || part.reconfiguration_point;
    for (std::size_t k = 0; k < kChunks; ++k) (*gradient_)[k] += part.sum[k];
  }
  around_.reduced(computing_, *gradient_);
  doing_ = Doing::kApplying;
  done_ = 0;
  due_ = now + around_.random_delay(0, 3);
  around_.wake_after(due_ - now);
}

void Workers::apply_some(Time now, std::size_t chunks) {
  for (; chunks > 0 && done_ < kChunks; --chunks, ++done_) {
    weights_[done_] = updated(weights_[done_], (*gradient_)[done_], computing_);
    at_[done_] = computing_;
  }
  if (doing_ != Doing::kApplying || now == Time{0}) return;  // stop() does the rest
  if (done_ < kChunks) {
    due_ = now + around_.random_delay(0, 2);
    return around_.wake_after(due_ - now);
  }
  std::erase_if(parts_, [&](const auto& entry) { return entry.first.first <= computing_; });
  const bool reconfiguration_point = reconfiguration_point_;
  const std::uint64_t step = computing_;
  begin_step(now);
  around_.applied(view_.number, step, reconfiguration_point);
}

// ---- the state inside a view ----

void Workers::on(Time, const Peer& from, const StateAsk& ask) {
  if (ask.view != view_.number || !whole() || step() != ask.step) return;
  if (doing_ == Doing::kNothing || doing_ == Doing::kApplying) return;
  if (ask.learned == checksum(weights_)) return around_.send(from, LearnedRight{ask.view});
  for (std::size_t k = 0; k < kChunks; ++k)
    around_.send(from, StateChunk{ask.view, ask.step, k, weights_[k]});
}

// All of it counts from one moment.
void Workers::on(Time now, const Peer&, const LearnedRight& right) {
  if (doing_ != Doing::kLevelling || broken_ || right.view != view_.number) return;
  const Values* learned = around_.learned(newest_);
  if (learned == nullptr) return;
  for (std::size_t k = 0; k < kChunks; ++k) store_chunk(k, newest_, (*learned)[k]);
  around_.learned_counts();
  begin_step(now);
}

void Workers::on(Time now, const Peer&, const StateChunk& chunk) {
  if (doing_ != Doing::kLevelling || broken_ || chunk.view != view_.number) return;
  learned_wrong_ = true;
  staged_[chunk.index] = chunk.value;
  if (breaks_.replace_in_place) weights_[chunk.index] = chunk.value;
  if (!std::all_of(staged_.begin(), staged_.end(), [](const auto& c) { return c.has_value(); }))
    return;
  doing_ = Doing::kCopying;
  done_ = 0;
  due_ = now + around_.random_delay(0, kCopy);
  around_.wake_after(due_ - now);
}

void Workers::copy_some(Time now, std::size_t chunks) {
  for (; chunks > 0 && done_ < kChunks; --chunks, ++done_)
    store_chunk(done_, newest_, *staged_[done_]);
  if (now == Time{0}) return;  // stop() does the rest
  if (done_ == kChunks) return begin_step(now);
  due_ = now + around_.random_delay(0, kCopy);
  around_.wake_after(due_ - now);
}

// A node that dies in the middle of a copy keeps nothing: its successor begins with initial
// weights.
void Workers::forget_replaced() {
  if (breaks_.keep_half_copies) {
    at_.fill(newest_);
    return;
  }
  weights_ = initial_weights();
  at_.fill(0);
  gradient_.reset();
}

}  // namespace tandem::simulation
