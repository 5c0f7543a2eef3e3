// Answers of a server: headers and what is made of them, and the JSON of the Hub. Names of files
// and blobs that come out must not lead out of their folder.
#include <cstdint>
#include <string_view>

#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "tandem/core/error.h"
#include "tandem/hub/hub_protocol.h"

namespace {

using namespace tandem;

void check_path(const std::string& name) {
  fuzz::require(!name.empty() && name.front() != '/' && name.find("/../") == std::string::npos &&
                !name.starts_with("../") && !name.ends_with("/..") && name != "..");
}

void read_headers(std::string_view text) {
  hub::HttpHeaders headers;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    headers.add_line(text.substr(begin, end - begin));
    begin = end + 1;
  }
  for (const auto& [name, value] : headers.fields) {
    (void)hub::parse_content_range(value);
    (void)hub::parse_retry_after(value, 1'700'000'000);
    const auto location = hub::resolve_location("https://hub.example/a", value);
    if (location) fuzz::require(hub::origin_of(*location).has_value());
  }
  (void)hub::classify(headers, false);
  const hub::RemoteFile file = hub::parse_remote_file(headers, "https://hub.example/a");
  fuzz::require(hub::is_commit_id(file.commit) && hub::origin_of(file.url).has_value());
  fuzz::require(file.etag.find('/') == std::string::npos && file.etag.front() != '.');
}

void read_json(std::string_view text) {
  (void)hub::parse_references(text);
  try {
    for (const std::string& name : hub::parse_shard_names(text, "input")) check_path(name);
  } catch (const DataError&) {
  }
  for (const std::string& name : hub::parse_listing(text, "input").files) check_path(name);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // An empty object of JSON takes 35 bytes for each of its text, and names are kept once more.
  const fuzz::MemoryLimit limit(64 * size + 65536);
  try {
    text.starts_with("HTTP") ? read_headers(text) : read_json(text);
  } catch (const DataError&) {
  } catch (const IoError&) {  // a redirect that is not followed
  }
  return 0;
}
