#include "tandem/elastic/agent/job_control.h"

#include <algorithm>

#include "tandem/core/error.h"
#include "tandem/core/json.h"

namespace tandem::elastic {
namespace {

using membership::AppMessage;
using membership::AppMessageKind;
using membership::Peer;
using nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds kOthers{3000};  // timeout of other agents' answers
constexpr std::size_t kMostOpen = 64;

std::string text_of(const json& object) {
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string answer_to(const launch::ControlRequest& request, const JobControl::Answer& answer) {
  try {
    const std::string text = answer(request);
    if (request.kind == launch::ControlRequest::Kind::kStatus) return R"({"status":)" + text + "}";
    return text_of({{"done", text}});
  } catch (const Error& error) {
    return text_of({{"error", error.what()}});
  }
}

}  // namespace

void JobControl::add_to(net::EventLoop& loop) const {
  desk_.add_to(loop);
  for (const auto& [number, open] : open_) loop.until(open.until);
}

void JobControl::serve(const Answer& answer) {
  for (net::PendingConnection& visitor : elastic_agent_.take_visitors())
    desk_.welcome(std::move(visitor));
  for (const launch::ControlDesk::Question& question : desk_.serve()) take(question, answer);
  for (const ElasticAgent::AppMessageFrom& message : elastic_agent_.take_messages())
    handle(message, answer);
  give_up_late();
}

void JobControl::take(const launch::ControlDesk::Question& question, const Answer& answer) {
  const launch::ControlRequest& request = question.request;
  std::vector<Peer> others = elastic_agent_.others();
  if (request.node.empty() || request.node == elastic_agent_.address()) {
    desk_.answer(question.client, answer_to(request, answer));
    if (request.kind != launch::ControlRequest::Kind::kStatus || !request.node.empty())
      others.clear();
    return pass_on(question, others);
  }
  std::erase_if(others, [&](const Peer& peer) { return peer.address != request.node; });
  if (others.empty()) {
    desk_.answer(question.client,
                 text_of({{"error", fmt::format("no agent of this job computes at {}; `tandem "
                                                "status` shows where they are",
                                                request.node)}}));
  }
  pass_on(question, others);
}

void JobControl::pass_on(const launch::ControlDesk::Question& question,
                         const std::vector<Peer>& to) {
  if (to.empty() || open_.size() >= kMostOpen) return desk_.finish(question.client);
  const membership::ViewNumber number{next_++, 0};
  Open& open = open_[number.counter];
  open.client = question.client;
  open.until = Clock::now() + kOthers;
  launch::ControlRequest own = question.request;
  own.node.clear();
  for (const Peer& peer : to) {
    open.awaited[peer.id] = peer;
    elastic_agent_.send_to_agent(peer, AppMessage{AppMessageKind::kQuestion, number, to_line(own)});
  }
}

void JobControl::handle(const ElasticAgent::AppMessageFrom& message, const Answer& answer) {
  if (message.app_message.kind == AppMessageKind::kQuestion) {
    std::string reply;
    try {
      reply = answer_to(launch::control_request_from(message.app_message.text), answer);
    } catch (const DataError& error) {
      reply = text_of({{"error", error.what()}});
    }
    return elastic_agent_.send_to_agent(
        message.from,
        AppMessage{AppMessageKind::kReply, message.app_message.number, std::move(reply)});
  }
  const auto found = open_.find(message.app_message.number.counter);
  if (found == open_.end() || found->second.awaited.erase(message.from.id) == 0) return;
  std::string line = message.app_message.text;  // line of another agent, whose version may differ
  std::replace(line.begin(), line.end(), '\n', ' ');
  desk_.answer(found->second.client, line);
  if (!found->second.awaited.empty()) return;
  desk_.finish(found->second.client);
  open_.erase(found);
}

void JobControl::give_up_late() {
  const auto now = Clock::now();
  std::erase_if(open_, [&](const auto& entry) {
    const Open& open = entry.second;
    if (now < open.until) return false;
    for (const auto& [id, peer] : open.awaited)
      desk_.answer(open.client, text_of({{"silent", peer.address}}));
    desk_.finish(open.client);
    return true;
  });
}

}  // namespace tandem::elastic
