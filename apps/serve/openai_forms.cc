#include "apps/serve/openai_forms.h"

#include <chrono>

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

std::map<std::string, nlohmann::ordered_json> openai_models(const std::string& name) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const nlohmann::ordered_json card = {
      {"id", name},
      {"object", "model"},
      {"created", std::chrono::duration_cast<std::chrono::seconds>(now).count()},
      {"owned_by", "tandem"}};
  return {{"/v1/models", {{"object", "list"}, {"data", nlohmann::ordered_json::array({card})}}},
          {"/v1/models/" + name, card}};
}

}  // namespace tandem::apps
