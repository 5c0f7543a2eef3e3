#include "tandem/text/tokenizer_class.h"

#include <utility>

#include "tandem/text/tokenizer_model.h"
#include "tandem/text/unigram_model.h"

namespace tandem::text {
namespace {

constexpr SpecialTokenDefaults kMpnetTokens = {.unk = "[UNK]",
                                               .sep = "</s>",
                                               .pad = "<pad>",
                                               .cls = "<s>",
                                               .mask = "<mask>",
                                               .bos = "<s>",
                                               .eos = "</s>",
                                               .mask_takes_blanks = true};

constexpr SpecialTokenDefaults kDebertaTokens = {.unk = "[UNK]",
                                                 .sep = "[SEP]",
                                                 .pad = "[PAD]",
                                                 .cls = "[CLS]",
                                                 .mask = "[MASK]",
                                                 .bos = "[CLS]",
                                                 .eos = "[SEP]"};

constexpr SpecialTokenDefaults kGpt2Tokens = {.unk = "<|endoftext|>",
                                              .sep = {},
                                              .pad = {},
                                              .cls = {},
                                              .mask = {},
                                              .bos = "<|endoftext|>",
                                              .eos = "<|endoftext|>"};
constexpr SpecialTokenDefaults kQwenTokens = {.unk = "<|endoftext|>",
                                              .sep = {},
                                              .pad = "<|endoftext|>",
                                              .cls = {},
                                              .mask = {},
                                              .bos = {},
                                              .eos = "<|endoftext|>"};

// Classes that transformers 4.57 and 5 define as copies or other names of BERT's and RoBERTa's are
// listed with them.
constexpr TokenizerClass kClasses[] = {
    {"PreTrainedTokenizerFast", "", true},
    {"TokenizersBackend", "", false},  // the name of the one above in transformers 5
    {"BertTokenizer", "WordPiece", true},
    {"DistilBertTokenizer", "WordPiece", false},
    {"ElectraTokenizer", "WordPiece", true},
    {"ConvBertTokenizer", "WordPiece", true},
    {"LayoutLMTokenizer", "WordPiece", true},
    {"MobileBertTokenizer", "WordPiece", true},
    {"SqueezeBertTokenizer", "WordPiece", true},
    {"MPNetTokenizer", "WordPiece", false, &kMpnetTokens},
    {"RobertaTokenizer", "BPE", false},
    {"BartTokenizer", "BPE", false},
    {"LongformerTokenizer", "BPE", false},
    {"XLMRobertaTokenizer", "Unigram", false},
    {"DebertaV2Tokenizer", "Unigram", true, &kDebertaTokens, false, kDebertaVocabulary},
    {"GPT2Tokenizer", "BPE", false, &kGpt2Tokens, true},
    {"Qwen2Tokenizer", "BPE", false, &kQwenTokens, true},
};

constexpr std::pair<std::string_view, std::string_view> kClassesOfModels[] = {
    {"bert", "BertTokenizer"},
    {"deberta-v2", "DebertaV2Tokenizer"},
    {"distilbert", "DistilBertTokenizer"},
    {"electra", "ElectraTokenizer"},
    {"gpt2", "GPT2Tokenizer"},
    {"modernbert", "PreTrainedTokenizerFast"},
    {"mpnet", "MPNetTokenizer"},
    {"qwen2", "Qwen2Tokenizer"},
    {"qwen3", "Qwen2Tokenizer"},
    {"roberta", "RobertaTokenizer"},
    {"xlm-roberta", "XLMRobertaTokenizer"}};

}  // namespace

const TokenizerClass* find_tokenizer_class(std::string_view name) {
  constexpr std::string_view kFast = "Fast";
  for (const TokenizerClass& entry : kClasses) {
    if (name == entry.name || (!entry.model.empty() && name.ends_with(kFast) &&
                               name.substr(0, name.size() - kFast.size()) == entry.name)) {
      return &entry;
    }
  }
  return nullptr;
}

const TokenizerClass* tokenizer_class_of_model(std::string_view model_type) {
  for (const auto& [type, name] : kClassesOfModels) {
    if (type == model_type) return find_tokenizer_class(name);
  }
  return nullptr;
}

std::vector<std::string_view> tokenizer_class_names() {
  std::vector<std::string_view> names;
  for (const TokenizerClass& entry : kClasses) names.push_back(entry.name);
  return names;
}

}  // namespace tandem::text
