#include "tandem/hub/hub_client.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <thread>
#include <utility>

#include "tandem/core/error.h"

namespace tandem::hub {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr int kMaxRedirects = 10;
constexpr std::uint64_t kProgress = 1 << 20;  // bytes between two failures that justify another
                                              // attempt

std::string_view kind(RepositoryType type) {
  return type == RepositoryType::kModel ? "model" : "data set";
}

// A branch such as refs/pr/1 is one part of the path.
std::string escape_revision(const std::string& revision) {
  std::string escaped = escape_path(revision);
  for (std::size_t at = 0; (at = escaped.find('/', at)) != std::string::npos;)
    escaped.replace(at, 1, "%2F");
  return escaped;
}

std::string describe(const HttpAnswer& answer) {
  return answer.problem.empty() ? fmt::format("HTTP status {}", answer.headers.status)
                                : answer.problem;
}

// Whether an answer with status 206 is the rest of a file from `begin` on.
bool continues(const HttpHeaders& headers, std::uint64_t begin, std::optional<std::uint64_t> size) {
  const auto range = parse_content_range(headers.find("content-range").value_or(""));
  return range && range->first == begin && (!range->total || !size || *range->total == *size);
}

[[noreturn]] void refuse_to_retry(const std::string& url, const HttpAnswer& answer) {
  raise<IoError>(
      "{}: {}; name the certificates of your proxy or mirror in SSL_CERT_FILE or "
      "REQUESTS_CA_BUNDLE, check HF_ENDPOINT, or pass a directory",
      url, describe(answer));
}

[[noreturn]] void too_many_redirects(const std::string& url) {
  raise<IoError>("{}: more than {} redirects", url, kMaxRedirects);
}

// Where the answer redirects to, if it does; counts them in `redirects`.
std::optional<std::string> redirected(const std::string& url, const HttpAnswer& answer,
                                      int& redirects) {
  const int status = answer.headers.status;
  if (!answer.problem.empty() || status < 300 || status >= 400) return std::nullopt;
  if (++redirects > kMaxRedirects) too_many_redirects(url);
  return redirect_target(url, answer.headers.find("location").value_or(""));
}

}  // namespace

// A file that is written at its end, with its size.
class HubClient::AppendedFile {
 public:
  explicit AppendedFile(const fs::path& path) : path_(path) {
    descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    struct stat info {};
    if (descriptor_ < 0 || ::fstat(descriptor_, &info) != 0)
      throw io_error("cannot open", path_.native(), errno);
    size_ = static_cast<std::uint64_t>(info.st_size);
  }
  ~AppendedFile() { ::close(descriptor_); }
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  std::uint64_t size() const { return size_; }
  void truncate() {
    if (::ftruncate(descriptor_, 0) != 0) throw io_error("cannot shorten", path_.native(), errno);
    size_ = 0;
  }
  void append(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t n =
          ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(size_));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw io_error("cannot write", path_.native(), errno);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
      size_ += static_cast<std::uint64_t>(n);
    }
  }
  void sync() {
    if (::fsync(descriptor_) != 0) throw io_error("cannot sync", path_.native(), errno);
  }

 private:
  fs::path path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

HubClient::HubClient(HubSettings settings, DownloadObserver& observer, std::function<void()> tick)
    : settings_(std::move(settings)), observer_(observer), tick_(std::move(tick)) {}

std::string HubClient::file_url(const RemoteRepository& repository, const std::string& revision,
                                const std::string& file) const {
  // A branch such as refs/pr/1 is one part of the path.
  std::string escaped = escape_path(revision);
  for (std::size_t at = 0; (at = escaped.find('/', at)) != std::string::npos;)
    escaped.replace(at, 1, "%2F");
  return fmt::format("{}/{}{}/resolve/{}/{}", settings_.endpoint,
                     repository.type == RepositoryType::kDataset ? "datasets/" : "",
                     escape_path(repository.name), escape_revision(revision), escape_path(file));
}

// The token goes to the Hub alone: an address that a redirect led to gets it only if scheme, host
// and port are the Hub's.
std::vector<std::string> HubClient::headers_for(const std::string& url) const {
  std::vector<std::string> headers = {"Accept-Encoding: identity"};
  if (settings_.token && origin_of(url) == origin_of(settings_.endpoint))
    headers.push_back("Authorization: Bearer " + *settings_.token);
  return headers;
}

void HubClient::pause(milliseconds duration) {
  constexpr milliseconds kPiece(200);
  for (; duration.count() > 0; duration -= kPiece) {
    if (tick_) tick_();
    std::this_thread::sleep_for(std::min(duration, kPiece));
  }
}

milliseconds HubClient::wait_before_retry(const HttpAnswer& answer, int attempt,
                                          const std::string& url) const {
  const auto asked = answer.headers.find("retry-after");
  const auto seconds = asked ? parse_retry_after(*asked, std::time(nullptr)) : std::nullopt;
  if (!seconds) return settings_.first_backoff * (1 << std::min(attempt, 3));
  if (*seconds > settings_.longest_wait) {
    raise<IoError>("{}: {}, and the server asks to wait {} s; try again then, or pass a directory",
                   url, describe(answer), seconds->count());
  }
  return *seconds;
}

HttpAnswer HubClient::persist(HttpRequest request) {
  request.tick = tick_;
  for (int attempt = 0;; ++attempt) {
    request.headers = headers_for(request.url);
    HttpAnswer answer = perform(request, settings_.http);
    const bool temporary =
        !answer.problem.empty() ||
        classify(answer.headers, settings_.token.has_value()) == HubProblem::kTemporary;
    if (!temporary) return answer;
    if (answer.permanent) refuse_to_retry(request.url, answer);
    // A host that is not there is hardly there after a minute.
    const int retries = answer.unreachable ? std::min(settings_.retries, 2) : settings_.retries;
    const milliseconds wait = wait_before_retry(answer, attempt, request.url);
    if (attempt >= retries) {
      raise<IoError>(
          "{}: {}, after {} attempts; check the connection and the proxy variables, or set "
          "HF_ENDPOINT to a mirror, or pass a directory",
          request.url, describe(answer), attempt + 1);
    }
    observer_.note(fmt::format("{}: {}; attempt {} of {} in {} s", request.url, describe(answer),
                               attempt + 2, retries + 1, wait.count() / 1000.0));
    pause(wait);
  }
}

HubClient::FileAnswer HubClient::ask(const RemoteRepository& repository,
                                     const std::string& revision, const std::string& file) {
  HttpRequest request;
  request.url = file_url(repository, revision, file);
  request.head = true;
  request.total_timeout = settings_.metadata_timeout;
  const std::string hub = origin_of(settings_.endpoint).value_or("");
  for (int redirects = 0; redirects < kMaxRedirects; ++redirects) {
    const HttpAnswer answer = persist(request);
    const HubProblem problem = classify(answer.headers, settings_.token.has_value());
    if (problem == HubProblem::kNoFile) {
      FileAnswer result;
      const std::string commit = answer.headers.find("x-repo-commit").value_or("");
      if (is_commit_id(commit)) result.file.commit = commit;
      return result;
    }
    if (problem != HubProblem::kNone) refuse(repository, revision, problem, answer, request.url);
    // A renamed repository redirects within the Hub, without any information about the file yet.
    const auto location = answer.headers.find("location");
    if (location && !answer.headers.find("x-repo-commit")) {
      const std::string target = redirect_target(request.url, *location);
      if (origin_of(target) == hub) {
        request.url = target;
        continue;
      }
    }
    return {true, parse_remote_file(answer.headers, request.url)};
  }
  too_many_redirects(request.url);
}

// One request for what is missing of a file.
struct HubClient::Piece {
  HttpAnswer answer;
  std::string refused;  // an answer that must not be used, in words
};

HubClient::Piece HubClient::fetch_piece(const std::string& url, const RemoteFile& file,
                                        AppendedFile& output, std::uint64_t max_bytes) const {
  const std::uint64_t begin = output.size();
  Piece piece;
  HttpRequest request;
  request.url = url;
  request.headers = headers_for(url);
  request.tick = tick_;
  if (begin > 0) request.headers.push_back(fmt::format("Range: bytes={}-", begin));
  bool first = true;
  request.sink = [&](const HttpHeaders& headers, std::span<const std::byte> bytes) {
    if (std::exchange(first, false) && begin > 0) {
      if (headers.status == 206 && !continues(headers, begin, file.size))
        piece.refused = "it sent another part than was asked for";
      if (headers.status != 206) output.truncate();  // the whole file, from its beginning
    }
    if (file.size && bytes.size() > *file.size - output.size())
      piece.refused = fmt::format("it sent more than the {} bytes it had promised", *file.size);
    if (bytes.size() > max_bytes - std::min(max_bytes, output.size()))
      piece.refused = fmt::format("it is larger than the {} bytes that may be kept", max_bytes);
    if (!piece.refused.empty()) return false;
    output.append(bytes);
    observer_.file_progress(output.size(), file.size);
    if (tick_) tick_();
    return true;
  };
  piece.answer = perform(request, settings_.http);
  return piece;
}

void HubClient::download(const RemoteFile& file, const std::string& name,
                         const fs::path& destination, std::uint64_t max_bytes) {
  AppendedFile output(destination);
  if (file.size && output.size() > *file.size) output.truncate();
  observer_.file_begin(name, file.size, output.size());
  std::string url = file.url;
  int redirects = 0;
  for (int attempt = 0; !file.size || output.size() < *file.size;) {
    const std::uint64_t begin = output.size();
    const auto [answer, refused] = fetch_piece(url, file, output, max_bytes);
    if (!refused.empty()) {
      fs::remove(destination);
      raise<IoError>("{}: {}; the file was removed, try again", url, refused);
    }
    if (const auto target = redirected(url, answer, redirects)) {
      url = *target;
      continue;
    }
    const int status = answer.headers.status;
    const bool ended_well = answer.problem.empty() && status >= 200 && status < 300;
    if (ended_well && output.size() == file.size.value_or(output.size())) break;
    if (status == 416) output.truncate();  // there is nothing behind what we have
    const bool may_go_away = !answer.problem.empty() || ended_well || status == 416 ||
                             classify(answer.headers, false) == HubProblem::kTemporary;
    if (!may_go_away) raise<DataError>("{}: HTTP status {} instead of the file", url, status);
    // Progress since the last failure earns all retries anew.
    attempt = output.size() > begin + kProgress ? 1 : attempt + 1;
    wait_to_continue(url, file, name, output.size(), answer, ended_well, attempt);
    url = file.url;
    redirects = 0;
  }
  output.sync();
  observer_.file_end();
}

// Waits before `attempt` to get what is missing, or throws when that was the last one.
void HubClient::wait_to_continue(const std::string& url, const RemoteFile& file,
                                 const std::string& name, std::uint64_t position,
                                 const HttpAnswer& answer, bool ended_well, int attempt) {
  if (answer.permanent) refuse_to_retry(url, answer);
  const std::string what = ended_well ? "the transfer ended early" : describe(answer);
  if (attempt > settings_.retries) {
    raise<IoError>(
        "{}: {} ({} of {} bytes are kept and will be continued); check the connection and try "
        "again",
        url, what, position, file.size ? fmt::format("{}", *file.size) : "unknown");
  }
  const milliseconds wait = wait_before_retry(answer, attempt - 1, url);
  observer_.note(fmt::format("{}: {}; continuing at byte {} in {} s", name, what, position,
                             wait.count() / 1000.0));
  pause(wait);
}

// "…/api/models/org/name"
std::string HubClient::api_url(const RemoteRepository& repository) const {
  return fmt::format("{}/api/{}/{}", settings_.endpoint,
                     repository.type == RepositoryType::kDataset ? "datasets" : "models",
                     escape_path(repository.name));
}

RepositoryListing HubClient::list(const RemoteRepository& repository, const std::string& revision) {
  HttpRequest request;
  request.max_body = 32 << 20;
  request.url = fmt::format("{}/revision/{}", api_url(repository), escape_revision(revision));
  const std::string hub = origin_of(settings_.endpoint).value_or("");
  for (int redirects = 0; redirects < kMaxRedirects; ++redirects) {
    const HttpAnswer answer = persist(request);
    const HubProblem problem = classify(answer.headers, settings_.token.has_value());
    if (problem != HubProblem::kNone)
      refuse(repository, revision,
             problem == HubProblem::kNoFile ? HubProblem::kNoRepository : problem, answer,
             request.url);
    const auto location = answer.headers.find("location");
    if (!location) return parse_listing(answer.body, request.url);
    const std::string target = redirect_target(request.url, *location);
    if (origin_of(target) != hub) raise<IoError>("{}: a redirect away from the Hub", request.url);
    request.url = target;
  }
  too_many_redirects(request.url);
}

// The existing branches and tags, for the error about an unknown one.
std::string HubClient::suggestions(const RemoteRepository& repository) {
  HttpRequest request;
  request.url = api_url(repository) + "/refs";
  request.headers = headers_for(request.url);
  request.total_timeout = settings_.metadata_timeout;
  const HttpAnswer answer = perform(request, settings_.http);  // once: it is only for a message
  const auto names = parse_references(answer.body);
  return names.empty() ? "" : fmt::format("; it has {}", fmt::join(names, ", "));
}

void HubClient::refuse(const RemoteRepository& repository, const std::string& revision,
                       HubProblem problem, const HttpAnswer& answer, const std::string& url) {
  const std::string_view what = kind(repository.type);
  const std::string page =
      fmt::format("{}/{}{}", settings_.endpoint,
                  repository.type == RepositoryType::kDataset ? "datasets/" : "", repository.name);
  switch (problem) {
    case HubProblem::kNoRepository:
      raise<RepositoryNotFound>(
          "the Hub at {} has no {} '{}' (HTTP status {}), or it is private; check the spelling at "
          "{}{}",
          settings_.endpoint, what, repository.name, answer.headers.status, page,
          settings_.token ? ", and that your token may read it"
                          : ", and for a private one set HF_TOKEN or pass --token");
    case HubProblem::kNoRevision:
      raise<DataError>("the {} '{}' has no revision '{}'{}", what, repository.name, revision,
                       suggestions(repository));
    case HubProblem::kGated:
      raise<DataError>(
          "the {} '{}' is gated: accept its conditions at {} and {}", what, repository.name, page,
          settings_.token ? "use a token of that account"
                          : "set HF_TOKEN or pass --token with a token of that account");
    case HubProblem::kUnauthorized:
      raise<DataError>(
          "the Hub at {} does not accept the token (HTTP status 401); make a new one at "
          "{}/settings/"
          "tokens, or unset HF_TOKEN for public repositories",
          settings_.endpoint, settings_.endpoint);
    case HubProblem::kForbidden:
      raise<DataError>("the Hub at {} forbids '{}' (HTTP status 403){}", settings_.endpoint,
                       repository.name,
                       settings_.token ? "; the token lacks the right to read this repository"
                                       : "; set HF_TOKEN or pass --token if it needs an account");
    default:
      raise<IoError>("{}: HTTP status {}", url, answer.headers.status);
  }
}

}  // namespace tandem::hub
