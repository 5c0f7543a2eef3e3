// The prediction file of run_ner.py, byte for byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tandem::token_classification {

inline constexpr std::string_view kPredictionsFile = "predictions.txt";

// One line per sentence with the names of its labels, one blank between them. tags: ids of all
// positions; begins: where those of each sentence begin, [sentences + 1]. A sentence without any is
// an empty line.
std::string predictions_text(std::span<const std::string> labels,
                             std::span<const std::uint32_t> tags,
                             std::span<const std::size_t> begins);

}  // namespace tandem::token_classification
