// "Did you mean …?"
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tandem::flags {

// Number of single-character insertions, deletions, replacements and swaps of neighbours that turn
// a into b (optimal string alignment distance).
std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate with the smallest edit distance, the first of equals; nothing when even that one
// differs in more than about a third of its characters, because such a suggestion only distracts.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace tandem::flags
