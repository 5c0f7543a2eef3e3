// Questions to the Hub, with redirects, retries and errors that state what to do.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/hub/download_observer.h"
#include "tandem/hub/hub_protocol.h"
#include "tandem/hub/hub_settings.h"

namespace tandem::hub {

// A repository on the Hub.
struct RemoteRepository {
  std::string name;  // "name" or "org/name"
  RepositoryType type = RepositoryType::kModel;
};

// The Hub has no repository of this name, or does not show it.
class RepositoryNotFound : public DataError {
 public:
  using DataError::DataError;
};

class HubClient {
 public:
  // `tick` is called at least once a second while a request or a pause lasts.
  HubClient(HubSettings settings, DownloadObserver& observer, std::function<void()> tick);

  const HubSettings& settings() const { return settings_; }

  // The Hub's answer about a file; `commit` is filled also if the Hub answers that the file does
  // not exist.
  struct FileAnswer {
    bool exists = false;
    RemoteFile file;  // without commit: the Hub did not name it
  };
  // Throws RepositoryNotFound; DataError when there is no such revision, or no right to it; IoError
  // when the Hub cannot be reached. A file that does not exist is an answer, not an error.
  FileAnswer ask(const RemoteRepository& repository, const std::string& revision,
                 const std::string& file);

  // Appends to the file `destination` until it has file.size bytes. Throws IoError: no progress
  // over the retries, more bytes than promised or than max_bytes, no space. Temporary addresses are
  // asked for again by the caller when this fails with a DataError (403 of an expired link).
  void download(const RemoteFile& file, const std::string& name,
                const std::filesystem::path& destination, std::uint64_t max_bytes);

  // All files of a revision.
  RepositoryListing list(const RemoteRepository& repository, const std::string& revision);

  std::string file_url(const RemoteRepository& repository, const std::string& revision,
                       const std::string& file) const;

 private:
  class AppendedFile;  // written at its end
  struct Piece;

  std::vector<std::string> headers_for(const std::string& url) const;
  // Performs a request again while its failure may go away; the last answer otherwise.
  HttpAnswer persist(HttpRequest request);
  void pause(std::chrono::milliseconds duration);
  // The value of Retry-After, else twice the previous wait. Throws IoError when the server asks for
  // too much.
  std::chrono::milliseconds wait_before_retry(const HttpAnswer& answer, int attempt,
                                              const std::string& url) const;
  Piece fetch_piece(const std::string& url, const RemoteFile& file, AppendedFile& output,
                    std::uint64_t max_bytes) const;
  void wait_to_continue(const std::string& url, const RemoteFile& file, const std::string& name,
                        std::uint64_t position, const HttpAnswer& answer, bool ended_well,
                        int attempt);
  std::string api_url(const RemoteRepository& repository) const;
  [[noreturn]] void refuse(const RemoteRepository& repository, const std::string& revision,
                           HubProblem problem, const HttpAnswer& answer, const std::string& url);
  std::string suggestions(const RemoteRepository& repository);

  HubSettings settings_;
  DownloadObserver& observer_;
  std::function<void()> tick_;
};

}  // namespace tandem::hub
