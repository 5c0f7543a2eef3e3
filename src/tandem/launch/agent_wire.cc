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
void each_field_of_assignment(Fields&& fields, M& assignment) {
  fields("round", assignment.round);
  fields("restart_count", assignment.restart_count);
  fields("group_rank", assignment.group_rank);
  fields("group_size", assignment.group_size);
  fields("first_rank", assignment.first_rank);
  fields("world_size", assignment.world_size);
  fields("first_role_rank", assignment.first_role_rank);
  fields("role_world_size", assignment.role_world_size);
  fields("master_addr", assignment.master_addr);
  fields("master_port", assignment.master_port);
}

template <class Fields, class M>
void each_field_of_info(Fields&& fields, M& info) {
  fields("run_id", info.run_id);
  fields("host", info.host);
  fields("pid", info.pid);
  fields("workers", info.workers);
  fields("role", info.role);
  fields("node_rank", info.node_rank);
}

json assignment_json(const RankAssignment& assignment) {
  JsonWriter writer;
  each_field_of_assignment(writer, assignment);
  return writer.data;
}

RankAssignment assignment_from(const json& data) {
  RankAssignment assignment;
  each_field_of_assignment(JsonReader{data}, assignment);
  bound(assignment.master_addr);
  return assignment;
}

}  // namespace

std::string hex(std::span<const unsigned char> bytes) {
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

json to_json(const AgentInfo& info) {
  JsonWriter writer;
  each_field_of_info(writer, info);
  return writer.data;
}

AgentInfo info_from(const json& data) {
  try {
    AgentInfo info;
    each_field_of_info(JsonReader{data}, info);
    for (const std::string* text : {&info.run_id, &info.host, &info.role}) bound(*text);
    if (info.workers < 1 || info.workers > kMaxWorkers)
      raise<DataError>("an agent of {} workers", info.workers);
    return info;
  } catch (const json::exception&) {
    raise<DataError>("an agent does not introduce itself as agents do");
  }
}

json to_json(const Order& order) {
  json data = {{"order", static_cast<int>(order.kind)},
               {"text", order.text},
               {"exit_code", order.exit_code},
               {"assignment", assignment_json(order.assignment)},
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
    order.assignment = assignment_from(data.at("assignment"));
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
                  const std::string& agent_nonce, const std::string& info) {
  return hex(rendezvous::prove(token, {"tandem run", who, host_nonce, agent_nonce, info}));
}

}  // namespace tandem::launch::wire
