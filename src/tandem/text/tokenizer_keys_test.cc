#include "tandem/text/tokenizer_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/test_support.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/text/tokenizer.h"
#include "tandem/text/tokenizer_json.h"

namespace tandem::text {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// tokenizer_config.json of popular models, written down by hand; "{}" where a model has none.
struct PopularTokenizer {
  const char* name;
  const char* config;
};

constexpr const char* kBertNow = R"({"added_tokens_decoder": {}, "clean_up_tokenization_spaces":
    true, "cls_token": "[CLS]", "do_basic_tokenize": true, "do_lower_case": true,
    "mask_token": "[MASK]", "model_max_length": 512, "never_split": null, "pad_token": "[PAD]",
    "sep_token": "[SEP]", "strip_accents": null, "tokenize_chinese_chars": true,
    "tokenizer_class": "BertTokenizer", "unk_token": "[UNK]"})";
constexpr const char* kBertPadded = R"({"cls_token": "[CLS]", "do_basic_tokenize": true,
    "do_lower_case": true, "mask_token": "[MASK]", "max_length": 128, "model_max_length": 512,
    "name_or_path": "x", "never_split": null, "pad_to_multiple_of": null, "pad_token": "[PAD]",
    "pad_token_type_id": 0, "padding_side": "right", "sep_token": "[SEP]",
    "special_tokens_map_file": "y", "stride": 0, "strip_accents": null,
    "tokenize_chinese_chars": true, "tokenizer_class": "BertTokenizer", "truncation_side": "right",
    "truncation_strategy": "longest_first", "unk_token": "[UNK]"})";
constexpr const char* kRoberta = R"({"unk_token": {"content": "<unk>", "single_word": false,
    "lstrip": false, "rstrip": false, "normalized": true, "__type": "AddedToken"},
    "bos_token": "<s>", "eos_token": "</s>", "add_prefix_space": false, "errors": "replace",
    "sep_token": "</s>", "cls_token": "<s>", "pad_token": "<pad>", "mask_token": "<mask>",
    "model_max_length": 512, "special_tokens_map_file": "x", "name_or_path": "y",
    "tokenizer_class": "RobertaTokenizer", "trim_offsets": true})";
constexpr const char* kXlmRoberta = R"({"bos_token": "<s>", "eos_token": "</s>",
    "sep_token": "</s>", "cls_token": "<s>", "unk_token": "<unk>", "pad_token": "<pad>",
    "mask_token": {"content": "<mask>", "lstrip": true}, "model_max_length": 512,
    "special_tokens_map_file": "x", "name_or_path": "y", "sp_model_kwargs": {},
    "tokenizer_class": "XLMRobertaTokenizer"})";

constexpr PopularTokenizer kPopular[] = {
    {"bert-base-uncased", R"({"do_lower_case": true, "model_max_length": 512})"},
    {"bert-large-cased", R"({"do_lower_case": false, "model_max_length": 512})"},
    {"distilbert-base-uncased", R"({"do_lower_case": true, "model_max_length": 512})"},
    {"distilbert sst-2", R"({"model_max_length": 512, "do_lower_case": true})"},
    {"roberta-base", R"({"model_max_length": 512})"},
    {"xlm-roberta-base", R"({"model_max_length": 512})"},
    {"electra-small", R"({"do_lower_case": true, "model_max_length": 512})"},
    {"all-MiniLM-L6-v2", kBertPadded},
    {"all-mpnet-base-v2", R"({"do_lower_case": true, "bos_token": "<s>", "eos_token": "</s>",
      "sep_token": "</s>", "cls_token": "<s>", "unk_token": "[UNK]", "pad_token": "<pad>",
      "mask_token": "<mask>", "tokenize_chinese_chars": true, "strip_accents": null,
      "model_max_length": 512, "special_tokens_map_file": null,
      "name_or_path": "microsoft/mpnet-base", "tokenizer_class": "MPNetTokenizer"})"},
    {"deberta-v3-base", R"({"do_lower_case": false, "vocab_type": "spm"})"},
    {"bge-small", kBertNow},
    {"e5-small-v2", kBertNow},
    {"multilingual-e5-small", kXlmRoberta},
    {"gte-small", kBertPadded},
    {"finbert", R"({"model_max_length": 512, "do_lower_case": true, "name_or_path": "x"})"},
    {"bert-base-NER", R"({"do_lower_case": false, "max_len": 512, "init_inputs": []})"},
    {"twitter-roberta", kRoberta},
    {"roberta-base-squad2", kRoberta},
    {"ms-marco-MiniLM", kBertNow},
    {"BiomedBERT", R"({"do_lower_case": true})"},
    {"legal-bert", "{}"},
    {"nli-roberta-base", kRoberta},
    {"saved by transformers 5", R"({"backend": "tokenizers", "clean_up_tokenization_spaces": true,
      "cls_token": "[CLS]", "is_local": true, "local_files_only": false,
      "extra_special_tokens": {}, "mask_token": "[MASK]", "model_max_length": 128,
      "pad_token": "[PAD]", "sep_token": "[SEP]", "tokenizer_class": "TokenizersBackend",
      "unk_token": "[UNK]"})"},
};

TEST(TokenizerKeys, PopularModelsHaveNoUnknownKey) {
  EXPECT_GE(std::size(kPopular), 20u);
  for (const PopularTokenizer& popular : kPopular) {
    std::vector<std::string> notes;
    check_tokenizer_config(parse_ordered_json(popular.config), "tokenizer_config.json", notes);
    EXPECT_THAT(notes, IsEmpty()) << popular.name;
  }
}

TEST(TokenizerKeys, RealTokenizerFilesHaveNoUnknownKey) {
  const std::filesystem::path source = TANDEM_SOURCE_DIR;
  for (const char* name :
       {"examples/demo/model", "tests/parity/golden/tokenizers/mpnet",
        "tests/parity/golden/tokenizers/roberta", "tests/parity/golden/tokenizers/xlmr",
        "tests/parity/golden/tokenizers/xlmr_older"}) {
    EXPECT_THAT(Tokenizer::load(source / name).notes(), IsEmpty()) << name;
  }
}

TEST(TokenizerKeys, ThePageHasTheTables) {
  const std::string page =
      read_file(std::filesystem::path(TANDEM_SOURCE_DIR) / "docs" / "model_keys.md");
  EXPECT_THAT(page, HasSubstr(key_rows(tokenizer_config_keys())));
  EXPECT_THAT(page, HasSubstr(key_rows(special_tokens_map_keys())));
  EXPECT_THAT(page, HasSubstr(key_rows(tokenizer_json_keys())));
}

}  // namespace
}  // namespace tandem::text
