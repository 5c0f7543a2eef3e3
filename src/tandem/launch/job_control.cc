#include "tandem/launch/job_control.h"

#include <algorithm>

#include "tandem/core/error.h"
#include "tandem/core/json.h"

namespace tandem::launch {
namespace {

using membership::Fact;
using membership::FactKind;
using membership::Peer;
using nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds kOthers{3000};  // timeout of other agents' answers
constexpr std::size_t kMostOpen = 64;

std::string text_of(const json& object) {
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string answer_to(const ControlRequest& request, const JobControl::Answer& answer) {
  try {
    const std::string text = answer(request);
    if (request.kind == ControlRequest::Kind::kStatus) return R"({"status":)" + text + "}";
    return text_of({{"done", text}});
  } catch (const Error& error) {
    return text_of({{"error", error.what()}});
  }
}

}  // namespace

milliseconds JobControl::nap() const {
  milliseconds nap = desk_.nap();
  for (const auto& [number, open] : open_)
    nap = std::min(nap, std::chrono::ceil<milliseconds>(open.until - Clock::now()));
  return std::max(nap, milliseconds(0));
}

void JobControl::serve(const Answer& answer) {
  for (rendezvous::Guest& visitor : node_.take_visitors()) desk_.welcome(std::move(visitor));
  for (const ControlDesk::Question& question : desk_.serve()) take(question, answer);
  for (const elastic::Node::Said& said : node_.take_said()) hear(said, answer);
  give_up_late();
}

void JobControl::take(const ControlDesk::Question& question, const Answer& answer) {
  const ControlRequest& request = question.request;
  std::vector<Peer> others = node_.others();
  if (request.node.empty() || request.node == node_.address()) {
    desk_.answer(question.guest, answer_to(request, answer));
    if (request.kind != ControlRequest::Kind::kStatus || !request.node.empty()) others.clear();
    return pass_on(question, others);
  }
  std::erase_if(others, [&](const Peer& peer) { return peer.address != request.node; });
  if (others.empty()) {
    desk_.answer(question.guest,
                 text_of({{"error", fmt::format("no agent of this job computes at {}; `tandem "
                                                "status` shows where they are",
                                                request.node)}}));
  }
  pass_on(question, others);
}

void JobControl::pass_on(const ControlDesk::Question& question, const std::vector<Peer>& to) {
  if (to.empty() || open_.size() >= kMostOpen) return desk_.finish(question.guest);
  const membership::ViewNumber number{next_++, 0};
  Open& open = open_[number.counter];
  open.guest = question.guest;
  open.until = Clock::now() + kOthers;
  ControlRequest own = question.request;
  own.node.clear();
  for (const Peer& peer : to) {
    open.awaited[peer.id] = peer;
    node_.tell(peer, Fact{FactKind::kQuestion, number, to_line(own)});
  }
}

void JobControl::hear(const elastic::Node::Said& said, const Answer& answer) {
  if (said.fact.kind == FactKind::kQuestion) {
    std::string reply;
    try {
      reply = answer_to(control_request_from(said.fact.text), answer);
    } catch (const DataError& error) {
      reply = text_of({{"error", error.what()}});
    }
    return node_.tell(said.from, Fact{FactKind::kReply, said.fact.number, std::move(reply)});
  }
  const auto found = open_.find(said.fact.number.counter);
  if (found == open_.end() || found->second.awaited.erase(said.from.id) == 0) return;
  std::string line = said.fact.text;  // of another agent, which may be of another version
  std::replace(line.begin(), line.end(), '\n', ' ');
  desk_.answer(found->second.guest, line);
  if (!found->second.awaited.empty()) return;
  desk_.finish(found->second.guest);
  open_.erase(found);
}

void JobControl::give_up_late() {
  const auto now = Clock::now();
  std::erase_if(open_, [&](const auto& entry) {
    const Open& open = entry.second;
    if (now < open.until) return false;
    for (const auto& [id, peer] : open.awaited)
      desk_.answer(open.guest, text_of({{"silent", peer.address}}));
    desk_.finish(open.guest);
    return true;
  });
}

}  // namespace tandem::launch
