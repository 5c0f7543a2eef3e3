// Sequences that begin alike: the pairs of one query, texts behind one prompt. A row of a decoder
// depends on the rows before it alone, so the common ones are computed once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "tandem/models/encoder/key_values.h"
#include "tandem/tasks/token_sequences.h"

namespace tandem::apps {

// Rows of keys and values that sequences side by side have room for, and as many for the begins of
// all requests. Qwen3-0.6B has 224 KiB for each in f32.
inline constexpr std::size_t kMostKeptRows = 4096;

struct CommonBegin {
  std::vector<std::int32_t> tokens;
  std::shared_ptr<const models::KeyValues> kept;  // of these tokens; null before their pass
};

// The tokens that all sequences begin with, less than the shortest one has. Nothing where they are
// not worth their keys and values: they save less than an eighth of all tokens, or a sequence has
// more than kMostKeptRows.
std::optional<CommonBegin> common_begin(const tasks::TokenSequences& sequences);

// Room for a sequence of so many tokens: few sizes, so that memory is seldom made anew.
std::size_t lane_rows(std::size_t tokens);

// The keys and values of sequences that are computed side by side.
class Lanes {
 public:
  using Make = std::function<models::KeyValues(std::size_t capacity)>;
  explicit Lanes(Make make) : make_(std::move(make)) {}

  // `count` lanes with the rows of `begin`, and room for lane_rows(longest) rows each. Valid until
  // the next call.
  std::vector<models::KeyValues*> behind(const std::shared_ptr<const models::KeyValues>& begin,
                                         std::size_t count, std::size_t longest);

 private:
  Make make_;
  std::size_t capacity_ = 0;
  std::vector<models::KeyValues> lanes_;
  std::shared_ptr<const models::KeyValues> begin_;  // of all lanes
};

}  // namespace tandem::apps
