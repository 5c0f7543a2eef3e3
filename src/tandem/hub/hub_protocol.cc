#include "tandem/hub/hub_protocol.h"

#include <algorithm>
#include <set>

#include "tandem/core/error.h"
#include "tandem/core/json.h"

namespace tandem::hub {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxFiles = 100'000;

// For messages: server text, made harmless and short.
std::string shown(std::string_view text) {
  std::string result;
  for (const char c : text.substr(0, 200))
    result += static_cast<unsigned char>(c) < ' ' || c == '\x7f' ? ' ' : c;
  return result;
}

}  // namespace

bool is_commit_id(std::string_view text) {
  return text.size() == 40 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool is_repository_path(std::string_view name) {
  if (name.empty() || name.size() > 1000 || name.back() == '/') return false;
  const bool clean = std::all_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) >= ' ' && c != '\\' && c != '\x7f';
  });
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return clean;
}

std::string escape_path(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-._~/").find(c) != std::string_view::npos;
    escaped += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return escaped;
}

std::string redirect_target(const std::string& url, std::string_view location) {
  if (auto target = resolve_location(url, location)) return *target;
  if (origin_of(location).value_or("").starts_with("http:"))
    raise<IoError>(
        "{}: a redirect from https to '{}', where any host in between could change the data; "
        "expected https; check HF_ENDPOINT and proxies in between",
        url, shown(location));
  raise<IoError>("{}: a redirect to '{}'; expected an address of http or https", url,
                 shown(location));
}

RemoteFile parse_remote_file(const HttpHeaders& headers, const std::string& url) {
  const auto not_a_hub = [&](std::string_view what) {
    raise<DataError>(
        "{} answered with {}; expected the Hub's headers X-Repo-Commit and ETag; check HF_ENDPOINT "
        "and proxies in between",
        url, what);
  };
  RemoteFile file;
  file.commit = headers.find("x-repo-commit").value_or("");
  if (!is_commit_id(file.commit))
    not_a_hub(file.commit.empty() ? "no commit" : "the commit '" + shown(file.commit) + "'");
  const auto linked_etag = headers.find("x-linked-etag");
  const auto etag = linked_etag ? linked_etag : headers.find("etag");
  if (!etag) not_a_hub("no ETag");
  const auto name = parse_etag(*etag);
  if (!name) not_a_hub("the ETag '" + shown(*etag) + "'");
  file.etag = *name;
  // The Content-Length of a redirect is the size of its unused page.
  const auto location = headers.find("location");
  auto size = headers.find("x-linked-size");
  if (!size && !location) size = headers.find("content-length");
  if (size) {
    file.size = parse_size(*size);
    if (!file.size) not_a_hub("the size '" + shown(*size) + "'");
  }
  file.url = url;
  if (location) file.url = redirect_target(url, *location);
  return file;
}

HubProblem classify(const HttpHeaders& headers, bool has_token) {
  const int status = headers.status;
  if (status >= 200 && status < 400) return HubProblem::kNone;
  const std::string code = headers.find("x-error-code").value_or("");
  if (code == "EntryNotFound") return HubProblem::kNoFile;
  if (code == "RevisionNotFound") return HubProblem::kNoRevision;
  if (code == "GatedRepo") return HubProblem::kGated;
  if (code == "RepoNotFound") return HubProblem::kNoRepository;
  if (status == 401) return has_token ? HubProblem::kUnauthorized : HubProblem::kNoRepository;
  if (status == 403) return HubProblem::kForbidden;
  // A server without error codes, such as a mirror of files: its answer is about this file.
  if (status == 404) return HubProblem::kNoFile;
  if (status == 408 || status == 429 || (status >= 500 && status != 501))
    return HubProblem::kTemporary;
  return HubProblem::kOther;
}

RepositoryListing parse_listing(std::string_view text, const std::string& url) {
  const Json json = try_parse_json(text);
  RepositoryListing listing;
  const bool complete = json.is_object() && json.contains("sha") && json["sha"].is_string() &&
                        json.contains("siblings") && json["siblings"].is_array();
  if (complete) listing.commit = json["sha"].get<std::string>();
  if (!complete || !is_commit_id(listing.commit) || json["siblings"].size() > kMaxFiles) {
    raise<DataError>("{} answered with '{}'; expected a JSON object with a commit and its files",
                     url, shown(text));
  }
  for (const Json& local_process : json["siblings"]) {
    if (!local_process.is_object() || !local_process.contains("rfilename") ||
        !local_process["rfilename"].is_string())
      continue;
    const auto& name = local_process["rfilename"].get_ref<const std::string&>();
    if (is_repository_path(name)) listing.files.push_back(name);
  }
  std::sort(listing.files.begin(), listing.files.end());
  return listing;
}

std::vector<std::string> parse_references(std::string_view text) {
  std::vector<std::string> names;
  const Json json = try_parse_json(text);
  if (!json.is_object()) return names;
  for (const char* kind : {"branches", "tags"}) {
    const auto list = json.find(kind);
    if (list == json.end() || !list->is_array()) continue;
    for (const Json& entry : *list) {
      if (entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
          names.size() < 100)
        names.push_back(shown(entry["name"].get<std::string>()));
    }
  }
  return names;
}

std::vector<std::string> parse_shard_names(std::string_view text, const std::string& where) {
  const Json json = try_parse_json(text);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object())
    raise<DataError>("{}: no object 'weight_map'; expected an index of sharded weights", where);
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !is_repository_path(file.get_ref<const std::string&>())) {
      raise<DataError>("{}: the file of a tensor is '{}'; expected a path in the repository", where,
                       shown(file.dump(-1, ' ', true, Json::error_handler_t::replace)));
    }
    names.insert(file.get<std::string>());
  }
  return {names.begin(), names.end()};
}

std::vector<std::string> parse_module_paths(std::string_view text, const std::string& where) {
  const Json json = try_parse_json(text);
  if (!json.is_array()) raise<DataError>("{}: expected a list of modules", where);
  std::vector<std::string> paths;
  for (const auto& module : json) {
    const auto path = module.is_object() ? module.find("path") : module.end();
    if (path == module.end() || !path->is_string())
      raise<DataError>("{}: a module without a path", where);
    const auto& name = path->get_ref<const std::string&>();
    if (name.empty() || name == ".") continue;
    if (!is_repository_path(name))
      raise<DataError>("{}: the path of a module is '{}'; expected a path in the repository", where,
                       shown(name));
    paths.push_back(name);
  }
  return paths;
}

}  // namespace tandem::hub
