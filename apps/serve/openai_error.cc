#include "apps/serve/openai_error.h"

#include "tandem/core/json.h"

namespace tandem::apps {

nlohmann::ordered_json openai_error(int status, const std::string& message,
                                    std::span<const char* const> names) {
  nlohmann::ordered_json param;
  for (const std::string name : names) {
    if (message.starts_with(name) && message.size() > name.size() &&
        std::string(" [.").find(message[name.size()]) != std::string::npos)
      param = name;
  }
  const char* type = "invalid_request_error";
  if (status == 429) type = "rate_limit_error";
  if (status >= 500) type = "server_error";
  return {{"error", {{"message", message}, {"type", type}, {"param", param}, {"code", nullptr}}}};
}

}  // namespace tandem::apps
