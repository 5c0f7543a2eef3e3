// A headless browser, when the machine has one: what a page is after its scripts have run.
#pragma once

#include <fmt/format.h>

#include <string>

#include "support/process.h"
#include "support/test_support.h"

namespace tandem::testing {

// The browser's program, or empty. Debian's chromium-headless-shell is the smallest.
inline std::string find_browser() {
  for (const char* name : {"chromium-headless-shell", "chromium", "google-chrome"}) {
    if (const std::string found = find_program(name); !found.empty()) return found;
  }
  return "";
}

// The document tree of a page as HTML when its scripts and requests are done. The browser's clock
// runs ahead while nothing is under way, so timers do not take their time. `width`: that of the
// window, in CSS pixels.
inline std::string dump_dom(const std::string& url, int width = 1280) {
  const TemporaryFolder profile;
  const ProcessResult result =
      run({find_browser(), "--headless", "--no-sandbox", "--disable-gpu", "--no-proxy-server",
           "--user-data-dir=" + (profile / "profile").native(), "--virtual-time-budget=20000",
           fmt::format("--window-size={},900", width), "--dump-dom", url},
          {{"HOME", profile.path().native()}}, std::chrono::seconds(100));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return result.out;
}

// Why a test that needs a browser is skipped.
inline constexpr const char* kNoBrowser =
    "needs a headless browser, which is absent: apt install chromium-headless-shell (60 MB to "
    "download, 220 MB installed)";

// A test that looks at a page in a browser.
class BrowserTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (find_browser().empty()) GTEST_SKIP() << kNoBrowser;
  }
};

}  // namespace tandem::testing
