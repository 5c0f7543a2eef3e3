#include "tandem/launch/agent_wire.h"

#include "tandem/core/error.h"

namespace tandem::launch::wire {
namespace {

constexpr int kMaxWorkers = 4096;
constexpr std::size_t kMaxText = 4096;
constexpr std::size_t kMaxFailures = 64;

void bound(const std::string& text) {
  if (text.size() > kMaxText) raise<DataError>("a text of {} bytes", text.size());
}

json place_json(const Place& place) {
  return {{"round", place.round},
          {"restart_count", place.restart_count},
          {"group_rank", place.group_rank},
          {"group_size", place.group_size},
          {"first_rank", place.first_rank},
          {"world_size", place.world_size},
          {"first_role_rank", place.first_role_rank},
          {"role_world_size", place.role_world_size},
          {"master_addr", place.master_addr},
          {"master_port", place.master_port}};
}

Place place_from(const json& data) {
  Place place;
  data.at("round").get_to(place.round);
  data.at("restart_count").get_to(place.restart_count);
  data.at("group_rank").get_to(place.group_rank);
  data.at("group_size").get_to(place.group_size);
  data.at("first_rank").get_to(place.first_rank);
  data.at("world_size").get_to(place.world_size);
  data.at("first_role_rank").get_to(place.first_role_rank);
  data.at("role_world_size").get_to(place.role_world_size);
  data.at("master_addr").get_to(place.master_addr);
  data.at("master_port").get_to(place.master_port);
  bound(place.master_addr);
  return place;
}

}  // namespace

std::string hex(std::span<const unsigned char> bytes) {
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

json to_json(const AgentCard& card) {
  return {{"run_id", card.run_id},   {"host", card.host}, {"pid", card.pid},
          {"workers", card.workers}, {"role", card.role}, {"node_rank", card.node_rank}};
}

AgentCard card_from(const json& data) {
  try {
    AgentCard card;
    data.at("run_id").get_to(card.run_id);
    data.at("host").get_to(card.host);
    data.at("pid").get_to(card.pid);
    data.at("workers").get_to(card.workers);
    data.at("role").get_to(card.role);
    data.at("node_rank").get_to(card.node_rank);
    for (const std::string* text : {&card.run_id, &card.host, &card.role}) bound(*text);
    if (card.workers < 1 || card.workers > kMaxWorkers)
      raise<DataError>("an agent of {} workers", card.workers);
    return card;
  } catch (const json::exception&) {
    raise<DataError>("an agent does not introduce itself as agents do");
  }
}

json to_json(const Order& order) {
  json data = {{"order", static_cast<int>(order.kind)},
               {"text", order.text},
               {"exit_code", order.exit_code},
               {"place", place_json(order.place)},
               {"failures", json::array()}};
  for (const Failure& failure : order.failures) {
    if (data["failures"].size() < kMaxFailures)
      data["failures"].push_back(launch::to_json(failure));
  }
  return data;
}

Order order_from(const json& data) {
  try {
    Order order;
    const int kind = data.at("order").get<int>();
    if (kind < 0 || kind > static_cast<int>(Order::Kind::kNote))
      raise<DataError>("an order of kind {}", kind);
    order.kind = static_cast<Order::Kind>(kind);
    data.at("text").get_to(order.text);
    data.at("exit_code").get_to(order.exit_code);
    order.place = place_from(data.at("place"));
    for (const json& failure : data.at("failures"))
      order.failures.push_back(failure_from_json(failure));
    return order;
  } catch (const json::exception&) {
    raise<DataError>("the host of the job gives orders that are none");
  }
}

json parse(const std::string& line) {
  json data = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!data.is_object()) raise<DataError>("a line that is no JSON object");
  return data;
}

std::string proof(const std::string& token, std::string_view who, const std::string& host_nonce,
                  const std::string& agent_nonce, const std::string& card) {
  return hex(rendezvous::prove(token, {"tandem run", who, host_nonce, agent_nonce, card}));
}

}  // namespace tandem::launch::wire
