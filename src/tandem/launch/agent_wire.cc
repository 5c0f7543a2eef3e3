#include "tandem/launch/agent_wire.h"

#include "tandem/core/error.h"
#include "tandem/core/whole_number.h"
#include "tandem/launch/json_fields.h"

namespace tandem::launch::wire {
namespace {

constexpr int kMaxWorkers = 4096;
constexpr std::size_t kMaxText = 4096;
constexpr std::size_t kMaxFailures = 64;

void bound(const std::string& text) {
  if (text.size() > kMaxText) raise<DataError>("a text of {} bytes", text.size());
}

template <class Fields, class M>
void each_field_of_place(Fields&& fields, M& place) {
  fields("round", place.round);
  fields("restart_count", place.restart_count);
  fields("group_rank", place.group_rank);
  fields("group_size", place.group_size);
  fields("first_rank", place.first_rank);
  fields("world_size", place.world_size);
  fields("first_role_rank", place.first_role_rank);
  fields("role_world_size", place.role_world_size);
  fields("master_addr", place.master_addr);
  fields("master_port", place.master_port);
}

template <class Fields, class M>
void each_field_of_card(Fields&& fields, M& card) {
  fields("run_id", card.run_id);
  fields("host", card.host);
  fields("pid", card.pid);
  fields("workers", card.workers);
  fields("role", card.role);
  fields("node_rank", card.node_rank);
}

json place_json(const Place& place) {
  JsonWriter writer;
  each_field_of_place(writer, place);
  return writer.data;
}

Place place_from(const json& data) {
  Place place;
  each_field_of_place(JsonReader{data}, place);
  bound(place.master_addr);
  return place;
}

}  // namespace

std::string hex(std::span<const unsigned char> bytes) {
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

json to_json(const AgentCard& card) {
  JsonWriter writer;
  each_field_of_card(writer, card);
  return writer.data;
}

AgentCard card_from(const json& data) {
  try {
    AgentCard card;
    each_field_of_card(JsonReader{data}, card);
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
    const int kind = whole_number<int>(data.at("order"));
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
  json data = try_parse_json(line);
  if (!data.is_object()) raise<DataError>("a line that is no JSON object");
  return data;
}

std::string proof(const std::string& token, std::string_view who, const std::string& host_nonce,
                  const std::string& agent_nonce, const std::string& card) {
  return hex(rendezvous::prove(token, {"tandem run", who, host_nonce, agent_nonce, card}));
}

}  // namespace tandem::launch::wire
