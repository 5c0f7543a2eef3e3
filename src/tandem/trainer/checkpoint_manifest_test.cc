// The reader and writer of a checkpoint's manifest. tests/e2e/damaged_checkpoint_test.cc tests what
// a job does with it.
#include "tandem/trainer/checkpoint_manifest.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/test_support.h"
#include "tandem/core/file.h"

namespace tandem::trainer {
namespace {

using ::testing::HasSubstr;

std::optional<Manifest> with_name(std::string_view name) {
  return parse_manifest(
      fmt::format(R"({{"files": {{"{}": {{"bytes": 1, "crc32": "1b0f34a2"}}}}}})", name));
}

TEST(CheckpointManifest, ReadsWhatItWrites) {
  const Manifest manifest = {{"a.json", {0, "00000000"}}, {"b", {std::uint64_t(-1), "ffffffff"}}};
  EXPECT_EQ(parse_manifest(to_json(manifest)), manifest);
  EXPECT_EQ(parse_manifest(to_json(Manifest{})), Manifest{});
}

TEST(CheckpointManifest, NamesAreOfTheDirectoryItself) {
  EXPECT_TRUE(with_name("model.safetensors"));
  EXPECT_TRUE(with_name("..."));
  for (const char* name : {"", ".", "..", "/", "a/b", "../a", "a/", R"(a\u0000b)", R"(..\u0000)"})
    EXPECT_FALSE(with_name(name)) << name;
}

TEST(CheckpointManifest, ChecksumsAreWellFormed) {
  for (const char* entry :
       {R"({"bytes": 1, "crc32": "1B0F34A2"})", R"({"bytes": 1, "crc32": "1b0f34a"})",
        R"({"bytes": 1, "crc32": "1b0f34a2 "})", R"({"bytes": 1, "crc32": 7})", R"({"bytes": 1})",
        R"({"bytes": -1, "crc32": "1b0f34a2"})", R"({"bytes": 1.5, "crc32": "1b0f34a2"})",
        R"({"crc32": "1b0f34a2"})", "[]", "null"})
    EXPECT_FALSE(parse_manifest(fmt::format(R"({{"files": {{"a": {}}}}})", entry))) << entry;
  for (const char* text : {"", "[]", "{}", R"({"files": []})"})
    EXPECT_FALSE(parse_manifest(text)) << text;
}

TEST(CheckpointManifest, FindsWhatChanged) {
  const testing::TemporaryFolder folder;
  write_file(folder / "a", "content");
  write_manifest(folder.path());
  EXPECT_EQ(find_change(folder.path()), std::nullopt);
  write_file(folder / "a", "cantent");
  EXPECT_THAT(find_change(folder.path()).value_or(""), HasSubstr("its CRC-32 is"));
  write_file(folder / "manifest.json", R"({"files": {"..": {"bytes": 1, "crc32": "1b0f34a2"}}})");
  EXPECT_THAT(find_change(folder.path()).value_or(""), HasSubstr("it is not a list of files"));
}

}  // namespace
}  // namespace tandem::trainer
