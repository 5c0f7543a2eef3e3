// Tests of samples: those of TRL's SFTTrainer for every form of rows (parity/golden/sft.json), the
// same for any number of threads, and what is wrong with a file in words.
#include "tandem/tasks/supervised/sample_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/decoder_tokenizer.h"
#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"

namespace tandem::supervised {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class SampleReaderTest : public ::testing::Test {
 protected:
  SampleReaderTest()
      : golden_(
            json::parse(read_file(fs::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/sft.json"))),
        tokenizer_(load(golden_.at("chat_template"))) {}

  text::Tokenizer load(const std::string& chat_template) {
    testing::write_decoder_tokenizer(folder_.path(), chat_template);
    return text::Tokenizer::load(folder_.path());
  }

  fs::path file(const json& rows, const std::string& name = "rows.jsonl") {
    std::string lines;
    for (const json& row : rows) lines += row.dump() + "\n";
    write_file(folder_ / name, lines);
    return folder_ / name;
  }

  Samples read(const fs::path& path, const SampleOptions& options = {}, int num_threads = 2) {
    ThreadPool threads(num_threads);
    return read_samples(std::span(&path, 1), options, tokenizer_, threads);
  }

  std::string error(const json& rows, const SampleOptions& options = {}) {
    try {
      read(file(rows), options);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  static SampleOptions options_of(const json& given) {
    SampleOptions options;
    options.max_length = given.value("max_length", options.max_length);
    options.keep_end = given.value("truncation_mode", "") == "keep_end";
    if (given.contains("completion_only_loss"))
      options.completion_only = given.at("completion_only_loss").get<bool>();
    const bool splits = given.value("packing_strategy", "") == "bfd_split";
    if (given.value("packing", false))
      options.packing = splits ? Packing::kSplitFit : Packing::kBestFit;
    return options;
  }

  // As the trainer has them: a list of samples, each with its tokens and labels.
  static json samples_of(const causal_language::CausalSamples& samples) {
    json all = json::array();
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::size_t first = samples.begins.empty() ? i : samples.begins[i];
      const std::size_t end = samples.begins.empty() ? i + 1 : samples.begins[i + 1];
      std::vector<std::int32_t> ids, types;
      std::vector<std::uint8_t> is_label;
      json sample;
      for (std::size_t k = first; k < end; ++k) {
        samples.sequences->append_tokens(k, ids, types);
        samples.sequences->append_labels(k, is_label);
        if (!samples.begins.empty())
          sample["seq_lengths"].push_back(samples.sequences->num_real_tokens(k));
      }
      sample["input_ids"] = ids;
      for (std::size_t k = 0; k < ids.size(); ++k)
        sample["labels"].push_back(is_label[k] != 0 ? ids[k] : -100);
      all.push_back(std::move(sample));
    }
    return all;
  }

  testing::TemporaryFolder folder_;
  const json golden_;
  text::Tokenizer tokenizer_;
};

TEST_F(SampleReaderTest, SamplesOfTrl) {
  ASSERT_GE(golden_.at("cases").size(), 12u);
  for (const json& one : golden_.at("cases")) {
    SCOPED_TRACE(one.at("form").get<std::string>() + " " + one.at("options").dump());
    const fs::path rows = file(golden_.at("rows").at(one.at("form").get<std::string>()));
    for (const int threads : {1, 3}) {
      const Samples samples = read(rows, options_of(one.at("options")), threads);
      EXPECT_EQ(samples_of(samples.samples), one.at("samples"));
      EXPECT_EQ(samples.samples.counts_first, samples.samples.begins.empty());
    }
  }
}

TEST_F(SampleReaderTest, OtherNamesOfMessages) {
  const json messages = golden_.at("rows").at("messages");
  json conversations = json::array();
  for (const json& row : messages) {
    json turns = json::array();
    for (const json& message : row.at("messages"))
      turns.push_back({{"from", message.at("role")}, {"value", message.at("content")}});
    conversations.push_back({{"conversations", turns}, {"id", 7}});
  }
  EXPECT_EQ(samples_of(read(file(messages)).samples),
            samples_of(read(file(conversations, "b.jsonl")).samples));
}

TEST_F(SampleReaderTest, CountsOfRows) {
  const json rows = golden_.at("rows").at("completion");
  const Samples cut = read(file(rows), {.max_length = 24});
  EXPECT_EQ(cut.counts.rows, 14u);
  EXPECT_GT(cut.counts.cut_rows, 0u);
  EXPECT_GT(cut.counts.cut_tokens, cut.counts.cut_rows);
  EXPECT_GT(cut.counts.unlabelled_rows, 0u);
  EXPECT_EQ(cut.samples.size() + cut.counts.unlabelled_rows, 14u);
  EXPECT_EQ(read(file(rows), {.max_rows = 5}).counts.rows, 5u);
  EXPECT_EQ(read(file(rows), {.max_rows = 0}).samples.size(), 0u);
}

// "ab" and "c" have other tokens together.
TEST_F(SampleReaderTest, PromptsThatChangeAreCounted) {
  json rows = json::array();
  rows.push_back({{"prompt", "The boat sai"}, {"completion", "ls far"}});
  const Samples samples = read(file(rows));
  EXPECT_EQ(samples.counts.changed_prompts, 1u);
}

TEST_F(SampleReaderTest, AnotherTokenForEnds) {
  const json rows = json::array({{{"text", "boat"}}});
  const Samples samples = read(file(rows), {.eos_token = "[SEP]"});
  const json ids = samples_of(samples.samples).at(0).at("input_ids");
  EXPECT_EQ(tokenizer_.token(ids.back().get<std::int32_t>()), "[SEP]");
  EXPECT_THAT(error(rows, {.eos_token = "no token"}), HasSubstr("--eos_token: found 'no token'"));
}

TEST_F(SampleReaderTest, WhatIsWrong) {
  EXPECT_THAT(
      error({{{"question", "a"}, {"answer", "b"}}}),
      AllOf(HasSubstr("rows.jsonl"), HasSubstr("found the columns \"answer\", \"question\""),
            HasSubstr("--dataset_text_field")));
  EXPECT_THAT(error({{{"text", "a"}}, {{"text", nullptr}}}),
              AllOf(HasSubstr("row 2"), HasSubstr("column \"text\": the text is missing")));
  EXPECT_THAT(error({{{"text", 1}}}), HasSubstr("column \"text\" has the type integer"));
  EXPECT_THAT(error({{{"messages", {{{"content", "a"}}}}}}),
              HasSubstr("column \"messages\": found a message without \"role\""));
  EXPECT_THAT(error({{{"messages", json::array()}}, {{"messages", {{{"role", "user"}}}}}}),
              HasSubstr("found no message"));
  EXPECT_THAT(error({{{"messages", "hello"}}}), HasSubstr("expected a list of messages"));
  EXPECT_THAT(error({{{"prompt", "a"}, {"completion", {{{"role", "user"}}}}}}),
              HasSubstr("column \"completion\" has the type list, expected text"));
  EXPECT_THAT(error({{{"messages", {{{"role", "user"}, {"content", nullptr}}}}}}),
              HasSubstr("'+' of a text and none is not defined"));
  tokenizer_ = load("");
  EXPECT_THAT(error({{{"messages", {{{"role", "user"}, {"content", "a"}}}}}}),
              HasSubstr("the tokenizer has no chat template"));
  tokenizer_ = load("{% macro x() %}{% endmacro %}");
  EXPECT_THAT(error({{{"messages", {{{"role", "user"}, {"content", "a"}}}}}}),
              HasSubstr("the chat template: line 1: the statement 'macro'"));
}

}  // namespace
}  // namespace tandem::supervised
