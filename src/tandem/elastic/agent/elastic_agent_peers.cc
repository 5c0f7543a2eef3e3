// The other nodes of the job: their messages, their ends, and the lock outside of the job.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tandem/elastic/agent/elastic_agent.h"
#include "tandem/elastic/protocol/wire.h"

namespace tandem::elastic {
namespace {

constexpr std::size_t kMostMessages = 65536;  // questions and replies not yet taken

}  // namespace

// With all of its workers, or not at all: the others wait for this node's workers, and are in no
// view yet.
void ElasticAgent::report_cannot_begin(int code, const std::string& message) {
  for (const std::string& address : options_.endpoint->contacts)
    links_->send({0, address}, membership::Ended{code, message});
  for (const auto& [id, peer] : joining_nodes_)
    links_->send(peer, membership::Ended{code, message});
}

// ---- the other nodes ----

void ElasticAgent::handle_others() {
  if (!links_) return;
  AgentLinks::News news = links_->serve();
  for (const membership::NodeId node : news.dead) {
    membership_->peer_dead(now(), node);
    if (options_.endpoint->lock) options_.endpoint->lock->note_dead(node);
  }
  for (const std::string& address : news.nobody_at) membership_->nobody_at(now(), address);
  for (const AgentLinks::News::UnauthenticatedPeer& unauthenticated_peer :
       news.unauthenticated_peers)
    handle_unauthenticated_peer(unauthenticated_peer);
  for (net::PendingConnection& visitor : news.visitors)
    inbox_.visitors.push_back(std::move(visitor));
  for (const membership::Frame& frame : news.frames) {
    if (const auto* app_message = std::get_if<membership::AppMessage>(&frame.message)) {
      handle_app_message(frame.from, *app_message);
    } else {
      if (std::holds_alternative<membership::Ask>(frame.message)) welcome(frame.from);
      membership_->receive(now(), frame.from, frame.message);
    }
  }
  obey();
  // The deciding node may depend on the nodes that are there.
  if (decision_.made_or_under_way() || !decision_.is_any_waiting() || !may_decide()) return;
  if (const auto requester = decision_.take_first_waiting()) answer_requester(*requester);
}

// The leader has it, so that no node begins the job a second time.
void ElasticAgent::handle_lock() {
  if (!options_.endpoint || !options_.endpoint->lock) return;
  ExternalLock& lock = *options_.endpoint->lock;
  if (membership_->leads()) lock.want(true);
  membership_->lock(now(), lock.held());
  obey();
}

// An unauthenticated peer at the job's own address ends this agent, unless it has met the job.
void ElasticAgent::handle_unauthenticated_peer(
    const AgentLinks::News::UnauthenticatedPeer& unauthenticated_peer) {
  const auto& contacts = membership_->options().contacts;
  const bool wanted =
      std::find(contacts.begin(), contacts.end(), unauthenticated_peer.address) != contacts.end();
  if (!begun() && end() == nullptr && wanted)
    state_.end({1, fmt::format("the agent at {}: {}; give all agents of the job the same",
                               unauthenticated_peer.address, unauthenticated_peer.why)});
}

void ElasticAgent::handle_app_message(const membership::Peer& from,
                                      const membership::AppMessage& app_message) {
  switch (app_message.kind) {
    case membership::AppMessageKind::kHandshake:
      return;
    case membership::AppMessageKind::kDecision:
      if (decision_.made_or_under_way()) return;
      decision_.make(app_message.text);
      for (const int worker : decision_.take_waiting()) answer_requester(worker);
      return;
    case membership::AppMessageKind::kAddress:
      if (app_message.number != view_.number())
        return view_.note_address(app_message.number, app_message.text);
      return workers_.send_to_running(
          {.kind = PacketKind::kMeet, .view = view_.serial(), .text = app_message.text});
    case membership::AppMessageKind::kLearner:
      // By the worker that leads this node.
      if (app_message.text.size() <= kMostAddress && view_.keeping_worker() >= 0)
        workers_.send(view_.keeping_worker(),
                      {.kind = PacketKind::kServeState, .text = app_message.text});
      return;
    case membership::AppMessageKind::kQuestion:
    case membership::AppMessageKind::kReply:
      if (inbox_.messages.size() < kMostMessages) inbox_.messages.push_back({from, app_message});
  }
}

void ElasticAgent::send_to_agent(const membership::Peer& to,
                                 const membership::AppMessage& app_message) {
  if (links_) links_->send(to, app_message);
}

void ElasticAgent::share_address(const std::string& endpoint) {
  if (!links_ || state_.job() == AgentState::Job::kClosing) return;
  for (const membership::Member& member : view_.members())
    links_->send(member.peer, membership::AppMessage{membership::AppMessageKind::kAddress,
                                                     view_.number(), endpoint});
}

void ElasticAgent::welcome(const membership::Peer& joining_node) {
  if (!begun()) joining_nodes_[joining_node.id] = joining_node;
  share_decision(joining_node);
}

void ElasticAgent::share_decision(const membership::Peer& to) {
  if (!decision_.text()) return decision_.note_peer(to);
  links_->send(
      to, membership::AppMessage{membership::AppMessageKind::kDecision, {}, *decision_.text()});
}

}  // namespace tandem::elastic
