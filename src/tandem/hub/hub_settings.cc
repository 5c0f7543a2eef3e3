#include "tandem/hub/hub_settings.h"

#include <algorithm>

#include "tandem/core/error.h"
#include "tandem/core/file.h"

namespace tandem::hub {
namespace {

std::string without_blanks(std::string text) {
  const auto is_space = [](char c) { return static_cast<unsigned char>(c) <= ' '; };
  while (!text.empty() && is_space(text.back())) text.pop_back();
  text.erase(text.begin(), std::find_if_not(text.begin(), text.end(), is_space));
  return text;
}

// A token goes into a header: a text that would end the header or is not a token is refused without
// printing it.
std::string checked_token(const std::string& text, const std::string& source) {
  std::string token = without_blanks(text);
  const bool clean = std::all_of(token.begin(), token.end(), [](char c) {
    return static_cast<unsigned char>(c) > ' ' && static_cast<unsigned char>(c) < 0x7f;
  });
  if (!clean) raise<ConfigError>("the token of {} has characters that no token has", source);
  return token;
}

std::optional<std::string> find_token(const Environment& environment,
                                      const std::optional<std::string>& given) {
  // `--token True` and `False` are forms of Hugging Face's: use the stored one, or none.
  if (given && (*given == "False" || *given == "false")) return std::nullopt;
  if (given && *given != "True" && *given != "true") return checked_token(*given, "--token");
  if (!given && environment.get_flag("HF_HUB_DISABLE_IMPLICIT_TOKEN")) return std::nullopt;
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    if (const auto value = environment.get(name)) return checked_token(*value, name);
  }
  std::optional<std::string> file = environment.get("HF_TOKEN_PATH");
  if (!file) {
    const auto home = huggingface_home(environment);
    if (home) file = *home + "/token";
  }
  if (!file) return std::nullopt;
  const auto text = read_file_if_exists(expand_home(*file, environment));
  if (!text || without_blanks(*text).empty()) return std::nullopt;
  return checked_token(*text, "'" + *file + "'");
}

std::optional<std::string> forbidden_by(const Environment& environment, RepositoryType type) {
  const char* other =
      type == RepositoryType::kModel ? "TRANSFORMERS_OFFLINE" : "HF_DATASETS_OFFLINE";
  for (const char* name : {"HF_HUB_OFFLINE", other}) {
    if (environment.get_flag(name)) return name;
  }
  return std::nullopt;
}

}  // namespace

std::string expand_home(const std::string& path, const Environment& environment) {
  if (path != "~" && !path.starts_with("~/")) return path;
  const auto home = environment.get("HOME");
  if (!home) raise<ConfigError>("{}: ~ cannot be expanded because HOME is not set", path);
  return *home + path.substr(1);
}

std::optional<std::string> huggingface_home(const Environment& environment) {
  if (const auto path = environment.get("HF_HOME")) return expand_home(*path, environment);
  if (const auto path = environment.get("XDG_CACHE_HOME"))
    return expand_home(*path, environment) + "/huggingface";
  if (const auto path = environment.get("HOME")) return *path + "/.cache/huggingface";
  return std::nullopt;
}

HubSettings hub_settings(const Environment& environment, const std::optional<std::string>& token,
                         RepositoryType type) {
  HubSettings settings;
  settings.offline = forbidden_by(environment, type);
  if (const auto endpoint = environment.get("HF_ENDPOINT"))
    settings.endpoint = without_blanks(*endpoint);
  while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
  if (!origin_of(settings.endpoint)) {
    raise<ConfigError>(
        "the environment variable HF_ENDPOINT is '{}', expected a URL such as "
        "https://huggingface.co",
        settings.endpoint);
  }
  settings.token = find_token(environment, token);
  settings.http = http_options(environment);
  if (const auto seconds = environment.get_int("HF_HUB_ETAG_TIMEOUT", 1, 86400)) {
    settings.metadata_timeout = std::chrono::seconds(*seconds);
    settings.http.connect_timeout = settings.metadata_timeout;
  }
  if (const auto gib = environment.get_int("TANDEM_MAX_DOWNLOAD_GIB", 0, 1 << 20))
    settings.max_download_bytes = static_cast<std::uint64_t>(*gib) << 30;
  return settings;
}

}  // namespace tandem::hub
