#include "tandem/hub/snapshot_download.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/volume.h"
#include "tandem/hub/file_hash.h"
#include "tandem/hub/hub_cache.h"

namespace tandem::hub {
namespace {

namespace fs = std::filesystem;

std::uint64_t size_of(const fs::path& path) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  return error ? 0 : size;
}

// A revision as part of a file name.
std::string flat(std::string text) {
  std::replace(text.begin(), text.end(), '/', '-');
  return text;
}

void check_room(const fs::path& folder, std::uint64_t bytes, const std::string& file) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (!error && space.available < bytes) {
    raise<IoError>(
        "{} takes {} bytes, but '{}' has only {} left; free some, or set HF_HOME or --cache_dir to "
        "another disk",
        file, bytes, folder.string(), space.available);
  }
}

}  // namespace

void download_under_any_name(std::string_view name, RepositoryType type,
                             const std::function<void(const std::string& name)>& download) {
  std::string problem;
  for (const std::string& form : aliases(name, type)) {
    try {
      return download(form);
    } catch (const RepositoryNotFound& error) {
      problem += problem.empty() ? error.what() : fmt::format("; there is no '{}' either", form);
    }
  }
  throw DataError(problem);
}

SnapshotDownload::SnapshotDownload(const fs::path& cache_root, const RemoteRepository& repository,
                                   const std::string& revision,
                                   std::optional<std::string> known_commit,
                                   const HubSettings& settings, DownloadObserver& observer)
    : folder_(cache_root, cache_folder_name(repository.name, repository.type)),
      repository_(repository),
      revision_(revision),
      commit_(std::move(known_commit)),
      observer_(observer),
      client_(settings, observer,
              [this] {
                if (lock_) lock_->heartbeat(progress_);
              }),
      room_(settings.max_download_bytes) {
  LockOptions options;
  options.timeout = settings.lock_timeout;
  options.waiting = [&](const std::string& holder) { observer_.waiting(repository.name, holder); };
  lock_.emplace(folder_.lock("tandem-" + flat(revision)), options);
}

std::string SnapshotDownload::url(const std::string& file) const {
  return client_.file_url(repository_, commit_.value_or(revision_), file);
}

void SnapshotDownload::pin(const std::string& commit) {
  if (commit_ == commit) return;
  if (commit_) {
    raise<DataError>("{}: the Hub answers with commit {}; expected {}", repository_.name, commit,
                     *commit_);
  }
  commit_ = commit;
  folder_.set_reference(revision_, commit);
}

bool SnapshotDownload::fetch(const std::string& file) {
  if (commit_ && is_there(directory() / file)) return true;
  const auto etag = fetch_bytes(file);
  if (etag) folder_.link(*commit_, file, *etag);
  return etag.has_value();
}

void SnapshotDownload::fetch_all(const std::vector<std::string>& files) {
  std::vector<std::pair<std::string, std::string>> links;
  for (const std::string& file : files) {
    const auto etag = fetch_bytes(file);
    if (!etag) raise<DataError>("the Hub lists {}, but does not have it", url(file));
    links.emplace_back(file, *etag);
  }
  for (const auto& [file, etag] : links) folder_.link(*commit_, file, etag);
}

std::optional<std::string> SnapshotDownload::fetch_bytes(const std::string& file) {
  progress_ = file;
  const HubClient::FileAnswer answer = client_.ask(repository_, commit_.value_or(revision_), file);
  if (!answer.file.commit.empty()) pin(answer.file.commit);
  if (!answer.exists) {
    if (commit_) folder_.mark_absent(*commit_, file);
    return std::nullopt;
  }
  fetch_blob(answer.file, file);
  return answer.file.etag;
}

void SnapshotDownload::fetch_blob(const RemoteFile& remote, const std::string& file) {
  const fs::path blob = folder_.blob(remote.etag);
  const fs::path incomplete = folder_.incomplete(remote.etag);
  const auto complete = [&](bool there) {
    return there && (!remote.size || size_of(blob) == *remote.size);
  };
  if (complete(is_there(blob))) return;
  folder_.make_blob_folder();
  LockOptions options;
  options.timeout = client_.settings().lock_timeout;
  options.waiting = [&](const std::string& holder) { observer_.waiting(file, holder); };
  options.sign_of_life = [&] {
    lock_->heartbeat(fmt::format("waiting for {}", file));
    return fmt::format("{}", size_of(incomplete));
  };
  FileLock blob_lock(folder_.lock(remote.etag), options);
  if (complete(is_there_now(blob))) return;
  if (remote.size && *remote.size > room_) {
    raise<IoError>(
        "{} takes {} bytes, but of {} only {} more may be downloaded; set TANDEM_MAX_DOWNLOAD_GIB "
        "if you trust it",
        file, *remote.size, repository_.name, room_);
  }
  if (remote.size)
    check_room(blob.parent_path(), *remote.size - std::min(*remote.size, size_of(incomplete)),
               file);
  std::string found;
  // The earlier part may be wrong: retry from the beginning.
  if (!download_once(remote, file, found) && !download_once(remote, file, found)) {
    raise<IoError>(
        "{}: the bytes that came have the hash {}; expected {}, which the Hub names (perhaps a "
        "proxy changes files)",
        remote.url, found, remote.etag);
  }
  room_ -= std::min(room_, size_of(incomplete));
  folder_.keep_blob(remote.etag);
}

// Whether the bytes have the Hub's hash; removes them otherwise.
bool SnapshotDownload::download_once(const RemoteFile& remote, const std::string& file,
                                     std::string& found) {
  const fs::path incomplete = folder_.incomplete(remote.etag);
  try {
    client_.download(remote, file, incomplete, room_);
  } catch (const DataError&) {
    // Addresses of large files expire; the Hub gives a new one.
    const HubClient::FileAnswer again = client_.ask(repository_, *commit_, file);
    if (!again.exists || again.file.etag != remote.etag) throw;
    client_.download(again.file, file, incomplete, room_);
  }
  if (matches_etag(incomplete, remote.etag, found)) return true;
  fs::remove(incomplete);
  observer_.note(fmt::format("{}: hash {}, expected {}: removed", file, found, remote.etag));
  return false;
}

RepositoryListing SnapshotDownload::list() {
  RepositoryListing listing = client_.list(repository_, commit_.value_or(revision_));
  pin(listing.commit);
  return listing;
}

}  // namespace tandem::hub
