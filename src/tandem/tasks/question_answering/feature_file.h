// A FeatureSet in a file: written once, mapped by every process that needs it, so that the ranks of
// a node share its memory.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "tandem/tasks/question_answering/features.h"

namespace tandem::question_answering {

// Writes the features under a temporary name and renames it. It is not synced: what a crash leaves
// of it is noticed by its checksum. `key` names what they were made of, see read_feature_file().
// Throws IoError.
void write_feature_file(const std::filesystem::path& path, std::string_view key,
                        const FeatureSet& features);

// The features of the file, which stays mapped while a copy of them lives; nothing when there is no
// file. Throws DataError for a file of another format or key, and one that is cut off or changed,
// and IoError.
std::optional<FeatureSet> read_feature_file(const std::filesystem::path& path,
                                            std::string_view key);

}  // namespace tandem::question_answering
