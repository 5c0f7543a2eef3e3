#include "tandem/membership/catch_up.h"

#include <algorithm>
#include <utility>

#include "tandem/core/error.h"

namespace tandem::membership {

CatchUp::CatchUp(const CatchUpOptions& options) : chunks_(options.chunks), options_(options) {
  if (options.chunks == 0 || options.window == 0) {
    raise<InvalidArgument>("CatchUp: {} chunks, {} at a time; expected at least one each",
                           options.chunks, options.window);
  }
}

void CatchUp::job_at(ViewNumber view, std::uint64_t step, std::vector<Peer> senders) {
  if (view != view_) {
    for (State& chunk : chunks_) {
      if (chunk.step > step) chunk = State();
    }
    job_step_ = step;
  }
  view_ = view;
  job_step_ = std::max(job_step_, step);
  senders_ = std::move(senders);
}

bool CatchUp::needs(const State& chunk, Time now) const {
  if (!chunk.there || chunk.missed || chunk.step + 2 < job_step_) return true;
  return chunk.step < job_step_ && chunk.touched + options_.patience <= now;
}

std::vector<CatchUp::Request> CatchUp::requests(Time now) {
  next_wake_ = now + options_.renewal;
  std::vector<Request> result;
  if (senders_.empty()) return result;
  for (const Peer& sender : senders_) result.push_back({sender, {}});
  std::vector<std::uint32_t> under_way(senders_.size());
  const auto sender_of = [&](std::size_t index) {
    return (index + chunks_[index].attempts) % senders_.size();
  };
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    State& chunk = chunks_[i];
    if (chunk.asked < Time{0}) continue;
    if (chunk.asked + options_.patience <= now) {
      chunk.asked = Time{-1};
      ++chunk.attempts;
    } else {
      ++under_way[sender_of(i)];
    }
  }
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    State& chunk = chunks_[i];
    const std::size_t sender = sender_of(i);
    result[sender].fetch.subscribed.push_back(static_cast<std::uint32_t>(i));
    if (chunk.asked >= Time{0} || !needs(chunk, now)) continue;
    if (under_way[sender] == options_.window) continue;
    ++under_way[sender];
    chunk.asked = now;
    result[sender].fetch.chunks.push_back(static_cast<std::uint32_t>(i));
  }
  const bool renew = now >= next_renewal_;
  if (renew) next_renewal_ = now + options_.renewal;
  std::erase_if(result, [&](const Request& r) {
    return r.fetch.chunks.empty() && (!renew || r.fetch.subscribed.empty());
  });
  return result;
}

bool CatchUp::take_chunk(Time now, std::uint32_t index, std::uint64_t step) {
  if (index >= chunks_.size()) return false;
  State& chunk = chunks_[index];
  chunk.asked = Time{-1};
  if (chunk.there && step <= chunk.step) return false;
  chunk = {.there = true, .step = step, .attempts = chunk.attempts, .touched = now};
  return true;
}

bool CatchUp::take_gradient(Time now, std::uint32_t index, std::uint64_t step) {
  if (index >= chunks_.size()) return false;
  State& chunk = chunks_[index];
  if (!chunk.there || step <= chunk.step) return false;
  if (step != chunk.step + 1) {
    chunk.missed = true;
    return false;
  }
  chunk.step = step;
  chunk.touched = now;
  return true;
}

bool CatchUp::whole() const {
  return std::all_of(chunks_.begin(), chunks_.end(), [&](const State& chunk) {
    return chunk.there && chunk.step == chunks_.front().step;
  });
}

std::uint64_t CatchUp::step() const {
  std::uint64_t least = chunks_.front().step;
  for (const State& chunk : chunks_) least = chunk.there ? std::min(least, chunk.step) : 0;
  return least;
}

}  // namespace tandem::membership
