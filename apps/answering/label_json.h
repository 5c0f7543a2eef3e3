// Labels and entities as the Hub's APIs for text and token classification write them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "apps/answering/labeling.h"

namespace tandem::apps {

// [{"label": …, "score": …}, …], the best `top_k` of them.
nlohmann::ordered_json labels_json(std::span<const LabelScore> scores,
                                   std::span<const std::string> labels, std::size_t top_k);

// [{"entity_group": …, "score": …, "word": …, "start": …, "end": …}, …]; with Aggregation::kNone
// {"entity": …, "score": …, "index": …, …}, where index counts the first special token as 0. word
// is the text itself; start and end count its code points.
nlohmann::ordered_json entities_json(std::string_view text, std::span<const Entity> entities,
                                     Aggregation aggregation);

}  // namespace tandem::apps
