// Tests of the order of labels and of what a word's tag becomes.
#include "tandem/tasks/token_classification/labels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/core/error.h"
#include "tandem/tasks/token_classification/test_data.h"

namespace tandem::token_classification {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::sentences;

TEST(Labels, AreSortedByCodePoint) {
  EXPECT_THAT(label_names(sentences({{"a/O", "b/I-x", "c/B-y"}, {"d/B-x", "e/ä", "f/O"}})),
              ElementsAre("B-x", "B-y", "I-x", "O", "ä"));
}

TEST(Labels, TakeTheOrderOfAModelWithTheSameOnes) {
  const std::vector<std::string> own{"B-x", "O"};
  EXPECT_THAT(in_order_of_model(own, std::vector<std::string>{"O", "B-x"}),
              ElementsAre("O", "B-x"));
  EXPECT_THAT(in_order_of_model(own, std::vector<std::string>{"o", "b-x"}),
              ElementsAre("B-x", "O"));
  EXPECT_THAT(in_order_of_model(own, std::vector<std::string>{"O", "B-x", "I-x"}),
              ElementsAre("B-x", "O"));
}

TEST(Labels, InsideOfAWordBBecomesIWhereThereIsOne) {
  const std::vector<std::string> names{"B-x", "B-y", "I-x", "O", "B"};
  EXPECT_THAT(inside_labels(names), ElementsAre(2u, 1u, 2u, 3u, 4u));
}

TEST(Labels, NameTheFirstUnknownTag) {
  const auto set = sentences({{"a/O"}, {"b/O", "c/B-new"}, {"d/B-new"}});
  try {
    label_ids(set, std::vector<std::string>{"B-x", "O"});
    FAIL() << "accepted";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("row 2 (line 2): word 1 ('c') has the tag 'B-new'"));
    EXPECT_THAT(error.what(), HasSubstr("B-x, O"));
  }
}

}  // namespace
}  // namespace tandem::token_classification
