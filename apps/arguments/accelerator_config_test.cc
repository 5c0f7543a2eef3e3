#include "apps/arguments/accelerator_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::apps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class AcceleratorConfig : public ::testing::Test {
 protected:
  void apply(const char* text) {
    training_ = {};
    notes_.clear();
    apply_accelerator_config(Json::parse(text), training_, notes_);
  }

  std::string error_of(const char* text) {
    try {
      apply(text);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no error";
  }

  trainer::TrainingArguments training_;
  std::vector<std::string> notes_;
};

TEST_F(AcceleratorConfig, KeysThatWorkAreNotNoted) {
  apply(R"({"split_batches": true, "even_batches": false, "use_seedable_sampler": true,
            "gradient_accumulation_kwargs": {"num_steps": 4}})");
  EXPECT_TRUE(training_.split_batches);
  EXPECT_FALSE(training_.even_batches);
  EXPECT_EQ(training_.gradient_accumulation_steps, 4);
  EXPECT_THAT(notes_, IsEmpty());
  apply(R"({"split_batches": 1, "even_batches": 0})");
  EXPECT_TRUE(training_.split_batches);
  EXPECT_FALSE(training_.even_batches);
}

// The values that transformers prints and saves for a run without the flag.
TEST_F(AcceleratorConfig, DefaultsAskForNothing) {
  apply(R"({"split_batches": false, "dispatch_batches": null, "even_batches": true,
            "use_seedable_sampler": true, "non_blocking": false,
            "gradient_accumulation_kwargs": null, "use_configured_state": false})");
  EXPECT_THAT(notes_, IsEmpty());
  const trainer::TrainingArguments defaults;
  EXPECT_EQ(training_.split_batches, defaults.split_batches);
  EXPECT_EQ(training_.even_batches, defaults.even_batches);
  EXPECT_EQ(training_.gradient_accumulation_steps, defaults.gradient_accumulation_steps);
}

TEST_F(AcceleratorConfig, EachKeyWithoutEffectIsNoted) {
  apply(R"({"dispatch_batches": true, "non_blocking": true, "split_batches": true,
            "gradient_accumulation_kwargs": {"sync_each_batch": true, "adjust_scheduler": true}})");
  EXPECT_THAT(notes_,
              ElementsAre("--accelerator_config: dispatch_batches has no effect: every rank reads "
                          "its own batches",
                          HasSubstr("non_blocking has no effect"),
                          HasSubstr("sync_each_batch has no effect")));
}

TEST_F(AcceleratorConfig, MisspeltKeysAndWrongValuesAreErrors) {
  EXPECT_THAT(error_of(R"({"split_batch": true})"),
              HasSubstr("unknown key 'split_batch' (did you mean split_batches?); its keys are "));
  EXPECT_THAT(error_of(R"({"gradient_accumulation_kwargs": {"steps": 2}})"),
              HasSubstr("unknown key 'steps'"));
  EXPECT_THAT(error_of(R"({"even_batches": "no"})"),
              HasSubstr("even_batches \"no\": expected true or false"));
  EXPECT_THAT(error_of(R"({"gradient_accumulation_kwargs": 2})"), HasSubstr("a JSON object"));
  EXPECT_THAT(error_of(R"({"gradient_accumulation_kwargs": {"num_steps": 0}})"),
              HasSubstr("num_steps 0: expected a whole number above 0"));
}

TEST_F(AcceleratorConfig, TwoCountsOfMicroBatchesAreAContradiction) {
  training_.gradient_accumulation_steps = 2;
  EXPECT_THROW(
      apply_accelerator_config(Json::parse(R"({"gradient_accumulation_kwargs": {"num_steps": 4}})"),
                               training_, notes_),
      ConfigError);
}

}  // namespace
}  // namespace tandem::apps
