// Rows on disk come back from any place, in any order of writing.
#include "tandem/tasks/ranking/row_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "support/test_support.h"
#include "tandem/core/error.h"

namespace tandem::tasks::ranking {
namespace {

TEST(RowFile, RowsComeBackFromAnyPlace) {
  RowFile file(3);
  file.write(4, std::vector<float>{12, 13, 14, 15, 16, 17});
  file.write(0, std::vector<float>{0, 1, 2});
  file.write(1, std::vector<float>{3, 4, 5, 6, 7, 8, 9, 10, 11});
  std::vector<float> values(18);
  file.read(0, values);
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<float>(i));
  std::vector<float> middle(6);
  file.read(3, middle);
  EXPECT_EQ(middle, (std::vector<float>{9, 10, 11, 12, 13, 14}));
  EXPECT_THROW(file.read(6, middle), IoError);
}

TEST(RowFile, LeavesNothing) {
  const testing::TemporaryFolder folder;
  const testing::ScopedEnvironment tmpdir("TMPDIR", folder.path().string());
  RowFile file(2);
  file.write(0, std::vector<float>{1, 2});
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace tandem::tasks::ranking
