// One repository in the cache that huggingface_hub and tandem share: writing into it.
//   blobs/<etag>                       the bytes
//   snapshots/<commit>/<file>          relative links to them
//   refs/<revision>                    a commit id
//   .no_exist/<commit>/<file>          files known not to exist
// Every change is one rename, so readers never see half of one, and writers may race: the result is
// the same.
#pragma once

#include <filesystem>
#include <string>

namespace tandem::hub {

class CacheFolder {
 public:
  // `root` of the cache and "models--org--name".
  CacheFolder(const std::filesystem::path& root, const std::string& folder);

  std::filesystem::path blob(const std::string& etag) const { return folder_ / "blobs" / etag; }
  std::filesystem::path incomplete(const std::string& etag) const {
    return folder_ / "blobs" / (etag + ".incomplete");
  }
  std::filesystem::path snapshot(const std::string& commit) const {
    return folder_ / "snapshots" / commit;
  }
  // <root>/.locks/<folder>/<name>.lock, as huggingface_hub has it for blobs.
  std::filesystem::path lock(const std::string& name) const { return locks_ / (name + ".lock"); }

  void make_blob_folder() const;
  // Renames the finished file over the blob and makes it durable.
  void keep_blob(const std::string& etag) const;
  // Links snapshots/<commit>/<file> to the blob; copies it where links are not possible.
  void link(const std::string& commit, const std::string& file, const std::string& etag) const;
  void set_reference(const std::string& revision, const std::string& commit) const;
  void mark_absent(const std::string& commit, const std::string& file) const;

 private:
  std::filesystem::path folder_;
  std::filesystem::path locks_;
};

}  // namespace tandem::hub
