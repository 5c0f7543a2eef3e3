// Errors in OpenAI's form.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

namespace tandem::apps {

// {"error": {"message": …, "type": …, "param": …, "code": …}}. param: the one of these names with
// which the message begins ("stop[1] is 3, …"), else null.
nlohmann::ordered_json openai_error(int status, const std::string& message,
                                    std::span<const char* const> names);

}  // namespace tandem::apps
