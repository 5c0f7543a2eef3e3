// The list of models and the form of errors, which clients of OpenAI expect of every server.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

namespace tandem::apps {

// {"error": {"message": …, "type": …, "param": …, "code": …}}. param: the one of these names with
// which the message begins ("stop[1] is 3, …"), else null.
nlohmann::ordered_json openai_error(int status, const std::string& message,
                                    std::span<const char* const> names);

// The documents of GET /v1/models and /v1/models/NAME, by path: the one model `name`, created now.
std::map<std::string, nlohmann::ordered_json> openai_models(const std::string& name);

}  // namespace tandem::apps
