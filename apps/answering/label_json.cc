#include "apps/answering/label_json.h"

#include <algorithm>

#include "tandem/core/json.h"
#include "tandem/text/utf8.h"

namespace tandem::apps {

using nlohmann::ordered_json;

ordered_json labels_json(std::span<const LabelScore> scores, std::span<const std::string> labels,
                         std::size_t top_k) {
  auto list = ordered_json::array();
  for (const LabelScore& score : scores.first(std::min(top_k, scores.size()))) {
    list.push_back({{"label", labels[score.label]}, {"score", score.score}});
  }
  return list;
}

ordered_json entities_json(std::string_view text, std::span<const Entity> entities,
                           Aggregation aggregation) {
  auto list = ordered_json::array();
  // Entities stand in the order of the text, so one walk through it finds all of them.
  std::size_t passed = 0;
  for (const Entity& entity : entities) {
    text.remove_prefix(text::slice_code_points(text, 0, entity.begin - passed).size());
    passed = entity.begin;
    const bool alone = aggregation == Aggregation::kNone;
    ordered_json json = {{alone ? "entity" : "entity_group", entity.label},
                         {"score", entity.score}};
    if (alone) json["index"] = entity.token + 1;
    json["word"] = text::slice_code_points(text, 0, entity.end - entity.begin);
    json["start"] = entity.begin;
    json["end"] = entity.end;
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace tandem::apps
