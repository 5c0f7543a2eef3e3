// What agents of `tandem run` say to the agent that hosts their job: lines of JSON, never pickle.
// The agent opens with its version and a nonce; the host answers with a nonce and the proof that it
// knows the job's token; then the agent sends its card with its own proof, and is welcomed or
// refused. After that agents send words and the host sends orders.
#pragma once

#include <string>

#include "tandem/core/json.h"
#include "tandem/launch/coordinator.h"
#include "tandem/rendezvous/job_token.h"

namespace tandem::launch::wire {

constexpr int kVersion = 1;

using nlohmann::json;

std::string hex(std::span<const unsigned char> bytes);

json to_json(const AgentCard& card);
json to_json(const Order& order);
// Throw DataError for what no agent says.
AgentCard card_from(const json& data);
Order order_from(const json& data);
// A line as an object; throws DataError.
json parse(const std::string& line);

// "host": the host's proof to the agent, "agent": the reverse, which covers its card.
std::string proof(const std::string& token, std::string_view who, const std::string& host_nonce,
                  const std::string& agent_nonce, const std::string& card);

}  // namespace tandem::launch::wire
