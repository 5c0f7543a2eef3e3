// Which files are mapped where, for a handler of SIGBUS: reading a mapping raises it when the
// file's volume has gone, or the file has shrunk.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>

namespace tandem {

// Called by MappedFile. Once some hundred files are mapped, further ones are not recorded.
void note_mapping(const std::byte* begin, std::size_t size, const std::string& path);
void forget_mapping(const std::byte* begin);

// Whether the address is in the mapping of a file. For signal handlers, too.
bool is_in_mapped_file(const void* address) noexcept;

// The file that is mapped there; empty for none.
std::string file_mapped_at(const void* address);

// Gives up the memory of the whole pages of a part of a mapped file that was read. Reading them
// again reads the file. Leaves other memory alone.
void release_pages(std::span<const std::byte> bytes);

// Calls visit(piece) for the pieces of `bytes` in their order and releases the pages of each: a
// mapped file of any size takes the memory of a piece.
template <class Visit>
void visit_and_release(std::span<const std::byte> bytes, Visit&& visit) {
  constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(kPieceBytes, bytes.size()))) {
    const auto piece = bytes.first(std::min(kPieceBytes, bytes.size()));
    visit(piece);
    release_pages(piece);
  }
}

}  // namespace tandem
