// Brings files of a repository at a revision into the cache, one after another.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/hub/cache_folder.h"
#include "tandem/hub/file_lock.h"
#include "tandem/hub/hub_client.h"

namespace tandem::hub {

// Calls download(name), and where that throws RepositoryNotFound, download() with the other
// canonical form of the name (hub_cache.h, aliases): mirrors may have either. Throws what the first
// call threw, as a DataError that names all forms, when none is there.
void download_under_any_name(std::string_view name, RepositoryType type,
                             const std::function<void(const std::string& name)>& download);

class SnapshotDownload {
 public:
  // Waits until no other process downloads the same revision; after that the cache may have what is
  // wanted. `known_commit`: that of a snapshot that is there in part, which is completed. Throws
  // IoError (see FileLock).
  SnapshotDownload(const std::filesystem::path& cache_root, const RemoteRepository& repository,
                   const std::string& revision, std::optional<std::string> known_commit,
                   const HubSettings& settings, DownloadObserver& observer);

  // Makes the file part of the snapshot; false when the repository has none of this name. The first
  // file decides on the commit, all others come from it. Throws DataError and IoError
  // (hub_client.h), and IoError when the disk has no room for it, or when a file came twice with
  // another hash than the Hub's.
  bool fetch(const std::string& file);

  // All of these, which must exist; they get their names in the snapshot after the last one came.
  void fetch_all(const std::vector<std::string>& files);

  // The names of the snapshot's files on the Hub; nothing fetched yet: those of the revision.
  RepositoryListing list();

  // Where the files are; the commit is known after the first fetch() or list().
  const std::optional<std::string>& commit() const { return commit_; }
  std::filesystem::path directory() const { return folder_.snapshot(commit_.value_or("unknown")); }
  HubClient& client() { return client_; }
  // The address of a file, for messages.
  std::string url(const std::string& file) const;

 private:
  // The file's blob is there afterwards; nothing when the repository has no such file.
  std::optional<std::string> fetch_bytes(const std::string& file);
  void pin(const std::string& commit);
  void fetch_blob(const RemoteFile& remote, const std::string& file);
  bool download_once(const RemoteFile& remote, const std::string& file, std::string& found_hash);

  CacheFolder folder_;
  RemoteRepository repository_;
  std::string revision_;
  std::optional<std::string> commit_;
  DownloadObserver& observer_;
  std::optional<FileLock> lock_;
  HubClient client_;
  std::string progress_;  // the file that is being fetched
  std::uint64_t room_;    // bytes that may still be downloaded
};

}  // namespace tandem::hub
