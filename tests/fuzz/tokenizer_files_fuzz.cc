// tokenizer.json: an accepted tokenizer encodes texts with ids of its vocabulary and offsets inside
// of the text. Files are read from a folder, so each input goes through one.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "fuzz/require.h"
#include "tandem/core/error.h"
#include "tandem/text/tokenizer.h"

namespace {

namespace fs = std::filesystem;
using namespace tandem;

// Removed at the end of the process.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "tandem-fuzz-XXXXXX").native();
    fuzz::require(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder;
  {
    const fs::path path = folder.path() / "tokenizer.json";
    fs::remove(path);  // a new file costs less than one that is cut and written again
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  }
  constexpr std::string_view kText = "The [MASK] captain's caf\u00e9, \u4e2d\u6587! unaffable";
  constexpr std::uint32_t kCodePoints = 40;
  try {
    const text::Tokenizer tokenizer = text::Tokenizer::load(folder.path());
    text::Encoding encoding;
    tokenizer.encode(kText, encoding);
    fuzz::require(encoding.ids.size() == encoding.offsets.size());
    for (std::size_t i = 0; i < encoding.ids.size(); ++i) {
      fuzz::require(encoding.ids[i] >= 0 &&
                    static_cast<std::size_t>(encoding.ids[i]) < tokenizer.vocab_size());
      fuzz::require(encoding.offsets[i].begin <= encoding.offsets[i].end &&
                    encoding.offsets[i].end <= kCodePoints);
    }
  } catch (const DataError&) {
  }
  return 0;
}
