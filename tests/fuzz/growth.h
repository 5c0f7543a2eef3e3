// Large inputs made of small ones: a piece of an input many times, as it is, with a number in it
// that is never the same, or inside of itself. A reader takes time and memory in proportion to
// their size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::fuzz {

struct Growth {
  std::string head, middle, tail;              // there once
  std::string open, close;                     // many times before and behind the middle
  std::size_t number_at = 0, number_size = 0;  // in `open`: the part that a number replaces
  bool only_digits = false;                    // it may stand where JSON expects a number
};

// Number i is always the same one. Pieces are members of lists, lines or words as a rule.
Growth make_growth(std::uint64_t number, const std::vector<std::string_view>& inputs);

// A text of about `bytes`, with at least one piece.
std::string grown(const Growth& growth, std::size_t bytes);

}  // namespace tandem::fuzz
