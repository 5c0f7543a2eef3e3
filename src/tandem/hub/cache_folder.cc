#include "tandem/hub/cache_folder.h"

#include <unistd.h>

#include <system_error>

#include "tandem/core/error.h"
#include "tandem/core/file.h"

namespace tandem::hub {
namespace {

namespace fs = std::filesystem;

void make_folders(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw io_error("cannot create directory", directory.native(), error.value());
}

void move_to(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) throw io_error("cannot rename to", to.native(), error.value());
}

}  // namespace

CacheFolder::CacheFolder(const fs::path& root, const std::string& folder)
    : folder_(root / folder), locks_(root / ".locks" / folder) {}

void CacheFolder::make_blob_folder() const { make_folders(folder_ / "blobs"); }

void CacheFolder::keep_blob(const std::string& etag) const {
  move_to(incomplete(etag), blob(etag));
  sync_directory(folder_ / "blobs");
}

void CacheFolder::link(const std::string& commit, const std::string& file,
                       const std::string& etag) const {
  const fs::path path = snapshot(commit) / file;
  make_folders(path.parent_path());
  const fs::path target = blob(etag).lexically_relative(path.parent_path());
  std::error_code error;
  if (fs::read_symlink(path, error) == target && !error) return;
  const fs::path temporary =
      path.parent_path() / fmt::format(".{}.tmp-{}", path.filename().string(), ::getpid());
  fs::remove(temporary, error);
  fs::create_symlink(target, temporary, error);
  if (error) {  // a file system without links
    fs::copy_file(blob(etag), temporary, fs::copy_options::overwrite_existing, error);
    if (error) throw io_error("cannot copy to", temporary.native(), error.value());
  }
  move_to(temporary, path);
}

void CacheFolder::set_reference(const std::string& revision, const std::string& commit) const {
  if (revision == commit) return;
  const fs::path path = folder_ / "refs" / revision;
  make_folders(path.parent_path());
  write_file(path, commit);
}

void CacheFolder::mark_absent(const std::string& commit, const std::string& file) const {
  const fs::path path = folder_ / ".no_exist" / commit / file;
  make_folders(path.parent_path());
  if (!fs::exists(path)) write_file(path, "");
}

}  // namespace tandem::hub
