// Which files are mapped where, for a handler of SIGBUS: reading a mapping raises it when the
// file's volume has gone, or the file has shrunk.
#pragma once

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

}  // namespace tandem
