#include "tandem/nn/packed_batch.h"

#include "tandem/core/error.h"

namespace tandem::nn {

void PackedBatch::clear() {
  input_ids.clear();
  token_type_ids.clear();
  row_begin.assign(1, 0);
  key_count.clear();
  sample.clear();
  unpooled.clear();
}

void PackedBatch::reserve(std::size_t max_rows, std::size_t max_sequences) {
  input_ids.reserve(max_rows);
  token_type_ids.reserve(max_rows);
  row_begin.reserve(max_sequences + 1);
  key_count.reserve(max_sequences);
  sample.reserve(max_sequences);
}

void PackedBatch::append(std::span<const std::int32_t> ids, std::span<const std::int32_t> types,
                         std::uint64_t global_sample, std::size_t padded_rows,
                         std::int32_t pad_id) {
  const std::size_t length = padded_rows == 0 ? ids.size() : padded_rows;
  if (ids.empty() || ids.size() > length) {
    raise<InvalidArgument>("sequence {} of the batch has {} tokens; expected 1 to {}",
                           num_sequences(), ids.size(), length);
  }
  if (!types.empty() && types.size() != ids.size()) {
    raise<InvalidArgument>("sequence {} of the batch has {} tokens but {} token types",
                           num_sequences(), ids.size(), types.size());
  }
  for (std::size_t position = 0; position < length; ++position) {
    const bool is_token = position < ids.size();
    input_ids.push_back(is_token ? ids[position] : pad_id);
    token_type_ids.push_back(is_token && !types.empty() ? types[position] : 0);
  }
  row_begin.push_back(static_cast<std::uint32_t>(input_ids.size()));
  key_count.push_back(static_cast<std::uint32_t>(ids.size()));
  sample.push_back(global_sample);
}

}  // namespace tandem::nn
