// Descriptions of the embeddings in a file, for commands that resume or reuse it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "apps/answering/embedding.h"

namespace tandem::apps {

// Identifies the contents of a file: "300 bytes of 1700000000.5", its size and time. Throws
// IoError.
std::string file_version(const std::filesystem::path& path);

// The parameters of an embedder that decide its embeddings of texts behind `prompt`, in lines
// "name=value".
std::string embedder_job(const FoundModel& found, const Embedder& embedder, std::string_view prompt,
                         bool bf16);

}  // namespace tandem::apps
