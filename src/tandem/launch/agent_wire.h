// Messages of agents of `tandem run` to the agent that hosts their job: lines of JSON, never
// pickle. The agent opens with its version and a nonce. The host answers with a nonce and the proof
// that it has the job's token. Then the agent sends its card with its own proof, and is accepted or
// refused. After that agents send reports and the host sends orders.
#pragma once

#include <string>

#include "tandem/core/json.h"
#include "tandem/launch/coordinator.h"
#include "tandem/rendezvous/job_token.h"

namespace tandem::launch::wire {

constexpr int kVersion = 2;

using nlohmann::json;

std::string hex(std::span<const unsigned char> bytes);

json to_json(const AgentInfo& info);
json to_json(const Order& order);
// Throw DataError for an invalid message.
AgentInfo info_from(const json& data);
Order order_from(const json& data);
// Parses a line as an object; throws DataError.
json parse(const std::string& line);

// "host": the host's proof to the agent, "agent": the reverse, which covers its card.
std::string proof(const std::string& token, std::string_view who, const std::string& host_nonce,
                  const std::string& agent_nonce, const std::string& info);

}  // namespace tandem::launch::wire
