#include "apps/answering/embedding_job.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>

#include "tandem/core/error.h"
#include "tandem/core/json.h"

namespace tandem::apps {

std::string file_version(const std::filesystem::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) throw io_error("cannot read", path.native(), errno);
  return fmt::format("{} bytes of {}.{}", info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
}

std::string embedder_job(const FoundModel& found, const Embedder& embedder, std::string_view prompt,
                         bool bf16) {
  const auto weights = found.weights();
  return fmt::format("model={}, {}\nprompt={}{}\nmax_seq_length={}\nbf16={}\n",
                     std::filesystem::absolute(weights).string(), file_version(weights),
                     nlohmann::json(prompt).dump(),
                     embedder.files().include_prompt || prompt.empty() ? "" : ", not pooled",
                     embedder.max_tokens(), bf16);
}

}  // namespace tandem::apps
