// Interpretation of the Hub's answers. Pure functions; everything in an answer is checked before a
// path or a request is made of it. Source: huggingface_hub's file_download.py and utils/_http.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/hub/hub_settings.h"

namespace tandem::hub {

// A file of a repository at a revision, as the answer to a request without a body describes it.
struct RemoteFile {
  std::string commit;  // 40 hexadecimal digits
  std::string etag;    // the name of the blob
  std::optional<std::uint64_t> size;
  std::string url;  // where its bytes are: the Hub, or the store of large files it points to
};

// Where a redirect from `url` leads: resolve_location() of http_headers.h. Throws IoError that
// states why it is not followed.
std::string redirect_target(const std::string& url, std::string_view location);

// `url` is what was asked. Throws DataError when the answer is not one of a Hub, IoError for a
// redirect that is not followed.
RemoteFile parse_remote_file(const HttpHeaders& headers, const std::string& url);

enum class HubProblem {
  kNone,
  kNoFile,
  kNoRevision,
  kNoRepository,  // or a private one, without a token
  kGated,         // the licence must be accepted
  kUnauthorized,  // the token is wrong
  kForbidden,
  kTemporary,  // 408, 429 and 5xx: may go away
  kOther,
};

// `has_token`: the request had one.
HubProblem classify(const HttpHeaders& headers, bool has_token);

// The names of a repository's files at a revision ("siblings" of the Hub's API) and its commit.
struct RepositoryListing {
  std::string commit;
  std::vector<std::string> files;
};

// Leaves out names that are not paths inside the repository. Throws DataError for another text.
RepositoryListing parse_listing(std::string_view json, const std::string& url);

// The branches and tags of the Hub's answer about references; empty for another text.
std::vector<std::string> parse_references(std::string_view json);

// The files that the index of sharded weights ("weight_map") names, each once. Throws DataError for
// another text and for names that are not paths inside the repository.
std::vector<std::string> parse_shard_names(std::string_view json, const std::string& where);

// The directories that modules.json of sentence-transformers names, without the repository's root.
// Throws DataError for another text and for names that are not paths inside the repository.
std::vector<std::string> parse_module_paths(std::string_view json, const std::string& where);

// Whether a name of the Hub's is a relative path that stays inside its folder.
bool is_repository_path(std::string_view name);
bool is_commit_id(std::string_view text);

// Text for a URL's path; '/' stays.
std::string escape_path(std::string_view text);

}  // namespace tandem::hub
