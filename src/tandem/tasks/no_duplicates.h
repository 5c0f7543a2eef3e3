// Batches in which no text occurs twice, in the order of sentence-transformers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tandem/tasks/sampler.h"

namespace tandem::tasks {

// Equal numbers for equal texts.
class TextNumbers {
 public:
  std::uint32_t of(std::string_view text) {
    const auto next = static_cast<std::uint32_t>(numbers_.size());
    return numbers_.emplace(text, next).first->second;
  }

 private:
  std::unordered_map<std::string, std::uint32_t> numbers_;
};

// `values` [columns, rows] has equal numbers for equal texts. The permutation is torch's for the
// seed 0 + epoch: the seed of the run changes nothing, as in sentence-transformers. A batch takes,
// in that order, the rows that have no text of the batch; rows that were passed over keep their
// place. over_shards: no text occurs twice in the batches of all shards together, which are the
// parts of one batch.
Sampler no_duplicates(std::vector<std::uint32_t> values, std::size_t columns, bool over_shards);

}  // namespace tandem::tasks
