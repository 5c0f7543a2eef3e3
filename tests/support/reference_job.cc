#include "support/reference_job.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <sstream>

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

// FNV-1a, of 64 bits.
class Digest {
 public:
  void add(std::string_view text) {
    for (const char c : text) step(static_cast<unsigned char>(c));
    step(0);
  }
  void add(std::uint64_t number) { add(std::to_string(number)); }
  std::string text() const { return fmt::format("{:016x}", value_); }

 private:
  void step(unsigned char byte) { value_ = (value_ ^ byte) * 0x100000001b3; }
  std::uint64_t value_ = 0xcbf29ce484222325;
};

std::string text_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

void add_time(Digest& digest, const fs::path& file) {
  digest.add(fs::file_size(file));
  digest.add(static_cast<std::uint64_t>(fs::last_write_time(file).time_since_epoch().count()));
}

// A test's own small file has another name in each test.
void add_word(Digest& digest, const std::string& word) {
  constexpr std::uintmax_t kSmall = 1 << 20;
  std::error_code ignored;
  if (fs::is_regular_file(word, ignored)) {
    if (fs::file_size(word) <= kSmall) return digest.add(text_of(word));
    digest.add(word);
    return add_time(digest, word);
  }
  digest.add(word);
  if (!word.starts_with('/') || !fs::is_directory(word, ignored)) return;
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(word))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    digest.add(file.native());
    add_time(digest, file);
  }
}

// One process at a time, and its end gives the lock back.
class FileLock {
 public:
  explicit FileLock(const fs::path& path)
      : descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    EXPECT_EQ(::flock(descriptor_, LOCK_EX), 0) << path;
  }
  ~FileLock() { ::close(descriptor_); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int descriptor_;
};

// Those of programs that have been built anew since.
void remove_old_jobs(const fs::path& jobs) {
  constexpr std::chrono::hours kOld{24};
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(jobs, ignored)) {
    if (fs::file_time_type::clock::now() - entry.last_write_time(ignored) > kOld)
      fs::remove_all(entry.path(), ignored);
  }
}

fs::path folder_of_program(const std::string& program) {
  const fs::path jobs = fs::path(TANDEM_BINARY_DIR) / "reference-jobs";
  Digest digest;
  digest.add(program);
  if (fs::exists(program)) add_time(digest, program);
  const fs::path folder = jobs / digest.text();
  if (!fs::exists(folder)) remove_old_jobs(jobs);
  fs::create_directories(folder);
  return folder;
}

}  // namespace

ReferenceJob reference_job(std::vector<std::string> command, const std::string& output,
                           const std::map<std::string, std::string>& variables) {
  Digest digest;
  for (const std::string& word : command) {
    if (word != output) add_word(digest, word);
  }
  for (const auto& [name, value] : variables) digest.add(name + "=" + value);
  const fs::path base = folder_of_program(command.at(0)) / digest.text();
  const auto with_suffix = [&](const char* suffix) { return fs::path(base.native() + suffix); };

  const FileLock lock(with_suffix(".lock"));
  if (!fs::exists(with_suffix(".done"))) {
    fs::remove_all(base);
    std::replace(command.begin(), command.end(), output, base.native());
    const ProcessResult result = run(command, variables);
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    if (result.exit_code != 0) return {base, result};
    std::ofstream(with_suffix(".out")) << result.out;
    std::ofstream(with_suffix(".err")) << result.err;
    std::ofstream(with_suffix(".done")) << "\n";
  }
  return {
      base,
      {.exit_code = 0, .out = text_of(with_suffix(".out")), .err = text_of(with_suffix(".err"))}};
}

}  // namespace tandem::testing
