// How to reach the Hub: the settings of the environment and --token.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "tandem/core/env.h"
#include "tandem/hub/http.h"

namespace tandem::hub {

enum class RepositoryType { kModel, kDataset };

struct HubSettings {
  std::string endpoint = "https://huggingface.co";  // without a slash at the end
  std::optional<std::string> token;                 // never printed
  std::optional<std::string> offline;  // the variable that forbids connections, or nothing
  HttpOptions http;
  std::uint64_t max_download_bytes = std::uint64_t{100} << 30;  // per repository and run
  std::chrono::milliseconds metadata_timeout{10'000};           // for requests without a body
  int retries = 5;                                              // per request, without progress
  std::chrono::milliseconds first_backoff{1'000};               // doubles up to 8 times itself
  std::chrono::seconds longest_wait{300};                       // a longer Retry-After is an error
  std::chrono::milliseconds lock_timeout{120'000};              // see LockOptions
};

// HF_ENDPOINT; `token` (--token), HF_TOKEN, HUGGING_FACE_HUB_TOKEN, the file HF_TOKEN_PATH or
// $HF_HOME/token, unless HF_HUB_DISABLE_IMPLICIT_TOKEN; HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE
// (models) and HF_DATASETS_OFFLINE (data sets); HF_HUB_ETAG_TIMEOUT; TANDEM_MAX_DOWNLOAD_GIB;
// http_options(). Throws ConfigError for an endpoint that is not a URL and a token with characters
// that no token has.
HubSettings hub_settings(const Environment& environment, const std::optional<std::string>& token,
                         RepositoryType type);

// $HF_HOME, $XDG_CACHE_HOME/huggingface or ~/.cache/huggingface; nothing when not even HOME is set.
std::optional<std::string> huggingface_home(const Environment& environment);

// `path` with a leading ~ replaced by HOME; ConfigError when HOME is not set.
std::string expand_home(const std::string& path, const Environment& environment);

}  // namespace tandem::hub
