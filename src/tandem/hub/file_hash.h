// Hashes by which the Hub names files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace tandem::hub {

// 64 hexadecimal digits.
std::string sha256(std::span<const std::byte> bytes);
// The same of a regular file, which may be larger than memory. Throws IoError.
std::string sha256_of(const std::filesystem::path& file);
// The output of `git hash-object`, 40 digits: the SHA-1 of "blob <size>\0" and the bytes.
std::string git_blob_sha1(std::span<const std::byte> bytes);

// Whether the content of a file has the hash that its etag is: 64 digits are its SHA-256 (large
// files), 40 its git blob SHA-1 (small ones). An etag of another form cannot be checked: true.
// `found` is the file's hash then, or empty.
bool matches_etag(const std::filesystem::path& file, const std::string& etag, std::string& found);

}  // namespace tandem::hub
