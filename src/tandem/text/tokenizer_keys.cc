#include "tandem/text/tokenizer_keys.h"

#include <string_view>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/text/tokenizer_files.h"
#include "tandem/text/tokenizer_json.h"

namespace tandem::text {
namespace {

constexpr KeyUse kHonoured = KeyUse::kHonoured;
constexpr KeyUse kIrrelevant = KeyUse::kIrrelevant;
constexpr KeyUse kRefused = KeyUse::kRefused;

constexpr std::string_view kDecoding = "used only to turn ids into text";
constexpr std::string_view kPath = "where the files were when they were saved";
constexpr std::string_view kCall = "the scripts give their own value with every call";
constexpr std::string_view kLoading = "an option of loading or of other models";
constexpr std::string_view kPython = "only tokenizers written in Python read it";
constexpr std::string_view kSpecial = "the text of a special token, or the token with its flags";

constexpr std::string_view kPadding =
    "left is refused, as tandem pads on the right; tokenizers of decoders may have it";

constexpr KnownKey kConfigKeys[] = {
    {"tokenizer_class", "", kHonoured, "the class whose rules apply; others are refused"},
    {"model_max_length", "", kHonoured, "the longest sequence"},
    {"max_len", "", kHonoured, "the older name of model_max_length"},
    {"unk_token", "", kHonoured, kSpecial},
    {"sep_token", "", kHonoured, kSpecial},
    {"pad_token", "", kHonoured, kSpecial},
    {"cls_token", "", kHonoured, kSpecial},
    {"mask_token", "", kHonoured, kSpecial},
    {"bos_token", "", kHonoured, kSpecial},
    {"eos_token", "", kHonoured, kSpecial},
    {"additional_special_tokens", "", kHonoured, "further special tokens"},
    {"extra_special_tokens", "", kHonoured, "further special tokens, as a list or by name"},
    {"model_specific_special_tokens", "", kHonoured, "further special tokens by name"},
    {"added_tokens_decoder", "", kHonoured, "added tokens; their flags win over tokenizer.json's"},
    {"do_lower_case", "", kHonoured, "lower case; BERT's classes. DeBERTa's must not have it"},
    {"strip_accents", "", kHonoured, "removes accents; BERT's classes"},
    {"tokenize_chinese_chars", "", kHonoured, "splits ideographs; BERT's classes"},
    {"add_prefix_space", "", kHonoured, "a space in front of a text; RoBERTa's classes"},
    {"trim_offsets", "", kHonoured, "offsets without white space; RoBERTa's classes"},
    {"model_input_names", "", kHonoured, "whether a pair has two token types"},
    {"padding_side", "", kHonoured, kPadding},
    {"truncation_side", "", kRefused, "tandem truncates on the right", R"(["right"])"},
    {"split_special_tokens", "", kRefused, "special tokens in a text are always found", "[false]"},
    {"split_by_punct", "", kRefused, "DeBERTa-v3 splits at blanks only", "[false]"},
    {"from_slow", "", kRefused, "it discards tokenizer.json", "[false]"},
    {"fix_mistral_regex", "", kRefused, "it replaces the pre-tokenizer", "[false]"},
    {"sp_model_kwargs", "", kRefused, "SentencePiece options change the tokens", "[{}]"},
    {"fast_tokenizer_files", "", kRefused, "other files than tokenizer.json hold the tokens",
     R"([[], ["tokenizer.json"]])"},
    {"clean_up_tokenization_spaces", "", kIrrelevant, kDecoding},
    {"errors", "", kIrrelevant, kDecoding},
    {"wordpieces_prefix", "", kIrrelevant, kDecoding},
    {"chat_template", "", kHonoured, "how run_sft writes conversations"},
    {"processor_class", "", kIrrelevant, kLoading},
    {"auto_map", "", kIrrelevant, "code of the repository is not run"},
    {"use_fast", "", kIrrelevant, kLoading},
    {"backend", "", kIrrelevant, kLoading},
    {"is_local", "", kIrrelevant, kLoading},
    {"local_files_only", "", kIrrelevant, kLoading},
    {"files_loaded", "", kIrrelevant, kLoading},
    {"trust_remote_code", "", kIrrelevant, kLoading},
    {"legacy", "", kIrrelevant, kLoading},
    {"verbose", "", kIrrelevant, kLoading},
    {"add_bos_token", "", kIrrelevant, kLoading},
    {"vocab_type", "", kIrrelevant, kLoading},
    {"unk_id", "", kIrrelevant, "the model section of tokenizer.json has it"},
    {"add_eos_token", "", kIrrelevant, kLoading},
    {"name_or_path", "", kIrrelevant, kPath},
    {"special_tokens_map_file", "", kIrrelevant, kPath},
    {"tokenizer_file", "", kIrrelevant, kPath},
    {"vocab_file", "", kIrrelevant, kPath},
    {"merges_file", "", kIrrelevant, kPath},
    {"init_inputs", "", kIrrelevant, kPath},
    {"_commit_hash", "", kIrrelevant, kPath},
    {"do_basic_tokenize", "", kIrrelevant, kPython},
    {"never_split", "", kIrrelevant, kPython},
    {"clean_text", "", kIrrelevant, "transformers reads it nowhere"},
    {"max_length", "", kIrrelevant, kCall},
    {"stride", "", kIrrelevant, kCall},
    {"truncation", "", kIrrelevant, kCall},
    {"truncation_strategy", "", kIrrelevant, kCall},
    {"padding", "", kIrrelevant, kCall},
    {"pad_to_max_length", "", kIrrelevant, kCall},
    {"pad_to_multiple_of", "", kIrrelevant, kCall},
    {"pad_token_type_id", "", kIrrelevant, "padding is masked"},
};

constexpr KnownKey kMapKeys[] = {
    {"unk_token", "", kHonoured, kSpecial},
    {"sep_token", "", kHonoured, kSpecial},
    {"pad_token", "", kHonoured, kSpecial},
    {"cls_token", "", kHonoured, kSpecial},
    {"mask_token", "", kHonoured, kSpecial},
    {"bos_token", "", kHonoured, kSpecial},
    {"eos_token", "", kHonoured, kSpecial},
    {"additional_special_tokens", "", kHonoured, "further special tokens"},
};

constexpr std::string_view kFrame = "the special tokens around a text and a pair";
constexpr std::string_view kNormalizing = "how characters are normalized";
constexpr std::string_view kToken = "an added token and its flags";
constexpr std::string_view kPieces = "how words become tokens";
constexpr std::string_view kSplitsWords = "how a text is split into words";

constexpr KnownKey kJsonKeys[] = {
    {"version", "file", kIrrelevant, "the version of the format"},
    {"truncation", "file", kHonoured, "checked: the scripts truncate themselves"},
    {"padding", "file", kHonoured, "checked: the scripts pad themselves"},
    {"added_tokens", "file", kHonoured, kToken},
    {"normalizer", "file", kHonoured, "other types than those below are refused"},
    {"pre_tokenizer", "file", kHonoured, "other types than those below are refused"},
    {"post_processor", "file", kHonoured, "other types than those below are refused"},
    {"model", "file", kHonoured, "other types than those below are refused"},
    {"decoder", "file", kIrrelevant, kDecoding},
    {"direction", "truncation", kRefused,
     "tandem truncates on the right; truncation_side in tokenizer_config.json wins",
     R"(["Right"])"},
    {"direction", "padding", kHonoured, "as padding_side in tokenizer_config.json, which wins"},
    {"max_length", "truncation", kIrrelevant, kCall},
    {"strategy", "truncation padding", kIrrelevant, kCall},
    {"stride", "truncation", kIrrelevant, kCall},
    {"pad_to_multiple_of", "padding", kIrrelevant, kCall},
    {"pad_id", "padding", kIrrelevant, "padding is masked"},
    {"pad_type_id", "padding", kIrrelevant, "padding is masked"},
    {"pad_token", "padding", kIrrelevant, "padding is masked"},
    {"id", "added_tokens", kHonoured, kToken},
    {"content", "added_tokens", kHonoured, kToken},
    {"single_word", "added_tokens", kHonoured, kToken},
    {"lstrip", "added_tokens", kHonoured, kToken},
    {"rstrip", "added_tokens", kHonoured, kToken},
    {"normalized", "added_tokens", kHonoured, kToken},
    {"special", "added_tokens", kHonoured, kToken},
    {"type", "", kHonoured, "names the component"},
    {"clean_text", "BertNormalizer", kHonoured, kNormalizing},
    {"handle_chinese_chars", "BertNormalizer", kHonoured, kNormalizing},
    {"strip_accents", "BertNormalizer", kHonoured, kNormalizing},
    {"lowercase", "BertNormalizer", kHonoured, kNormalizing},
    {"precompiled_charsmap", "Precompiled", kHonoured, kNormalizing},
    {"strip_left", "Strip", kHonoured, kNormalizing},
    {"strip_right", "Strip", kHonoured, kNormalizing},
    {"pattern", "Replace", kHonoured, kNormalizing},
    {"content", "Replace", kHonoured, kNormalizing},
    {"normalizers", "Sequence", kHonoured, "the components in order"},
    {"pretokenizers", "Sequence", kHonoured, "the components in order"},
    {"processors", "Sequence", kHonoured, "the components in order"},
    {"add_prefix_space", "ByteLevel Metaspace RobertaProcessing", kHonoured, kSplitsWords},
    {"trim_offsets", "ByteLevel RobertaProcessing", kHonoured, "offsets without white space"},
    {"use_regex", "ByteLevel", kHonoured, kSplitsWords},
    {"individual_digits", "Digits", kHonoured, kSplitsWords},
    {"pattern", "Split", kHonoured, kSplitsWords},
    {"behavior", "Split", kHonoured, kSplitsWords},
    {"invert", "Split", kHonoured, kSplitsWords},
    {"replacement", "Metaspace", kHonoured, kSplitsWords},
    {"prepend_scheme", "Metaspace", kHonoured, kSplitsWords},
    {"split", "Metaspace", kHonoured, kSplitsWords},
    {"str_rep", "Metaspace", kIrrelevant, "a copy of replacement"},
    {"sep", "BertProcessing RobertaProcessing", kHonoured, kFrame},
    {"cls", "BertProcessing RobertaProcessing", kHonoured, kFrame},
    {"single", "TemplateProcessing", kHonoured, kFrame},
    {"pair", "TemplateProcessing", kHonoured, kFrame},
    {"special_tokens", "TemplateProcessing", kHonoured, kFrame},
    {"vocab", "WordPiece BPE Unigram", kHonoured, kPieces},
    {"unk_token", "WordPiece", kHonoured, kPieces},
    {"continuing_subword_prefix", "WordPiece", kHonoured, kPieces},
    {"max_input_chars_per_word", "WordPiece", kHonoured, kPieces},
    {"merges", "BPE", kHonoured, kPieces},
    {"ignore_merges", "BPE", kHonoured, kPieces},
    {"dropout", "BPE", kRefused, "the tokens would be random", "[0.0]"},
    {"continuing_subword_prefix", "BPE", kRefused, "byte-level BPE has none", R"(["", false])"},
    {"end_of_word_suffix", "BPE", kRefused, "byte-level BPE has none", R"(["", false])"},
    {"byte_fallback", "BPE Unigram", kRefused, "tandem does not have it", "[false]"},
    {"unk_token", "BPE", kIrrelevant, "byte-level BPE knows every text"},
    {"fuse_unk", "BPE", kIrrelevant, "byte-level BPE knows every text"},
    {"unk_id", "Unigram", kHonoured, kPieces},
};

void check(const Json& json, std::span<const KnownKey> table, std::string_view scope,
           const std::filesystem::path& path, std::vector<std::string>& notes) {
  if (!json.is_object()) return;
  const KeyFindings findings = check_keys(nlohmann::json(json), table, scope);
  const std::string where = path.string();
  if (!findings.refusal.empty()) raise<DataError>("'{}': {}", where, findings.refusal);
  std::string note = unknown_keys_note(findings, where);
  if (note.empty()) return;
  notes.push_back(scope.empty() || scope == "file" ? std::move(note)
                                                   : fmt::format("{} (in {})", note, scope));
}

// A component, and those inside a Sequence.
void check_component(const Json& component, std::string_view untyped,
                     const std::filesystem::path& path, std::vector<std::string>& notes) {
  const Json& type = member(component, "type");
  const std::string scope = type.is_string() ? type.get<std::string>() : std::string(untyped);
  check(component, kJsonKeys, scope, path, notes);
  for (const char* list : {"normalizers", "pretokenizers", "processors"}) {
    for (const Json& part : member(component, list)) check_component(part, scope, path, notes);
  }
}

void require_right(const Json& side, const char* key, const char* right,
                   const std::filesystem::path& path) {
  if (side.is_null() || side == right) return;
  raise<DataError>("'{}': {} is {}; expected \"{}\": tandem pads on the right", path.string(), key,
                   side.dump(), right);
}

}  // namespace

std::span<const KnownKey> tokenizer_config_keys() { return kConfigKeys; }
std::span<const KnownKey> special_tokens_map_keys() { return kMapKeys; }
std::span<const KnownKey> tokenizer_json_keys() { return kJsonKeys; }

void check_tokenizer_config(const Json& json, const std::filesystem::path& path,
                            std::vector<std::string>& notes) {
  check(json, kConfigKeys, "", path, notes);
}

void check_padding_side(const TokenizerDefinition& definition,
                        const std::filesystem::path& directory) {
  if (definition.open_frame) return;
  const Json& side = member(definition.tokenizer_config, "padding_side");
  if (!side.is_null())
    return require_right(side, "padding_side", "right", directory / "tokenizer_config.json");
  require_right(member(member(definition.tokenizer_json, "padding"), "direction"), "direction",
                "Right", directory / "tokenizer.json");
}

void check_special_tokens_map(const Json& json, const std::filesystem::path& path,
                              std::vector<std::string>& notes) {
  check(json, kMapKeys, "", path, notes);
}

void check_tokenizer_json(const Json& json, std::string_view model, const Json& config,
                          const std::filesystem::path& path, std::vector<std::string>& notes) {
  check(json, kJsonKeys, "file", path, notes);
  if (member(config, "truncation_side").is_null())
    check(member(json, "truncation"), kJsonKeys, "truncation", path, notes);
  check(member(json, "padding"), kJsonKeys, "padding", path, notes);
  const std::size_t before = notes.size();
  for (const Json& token : member(json, "added_tokens")) {
    if (notes.size() == before) check(token, kJsonKeys, "added_tokens", path, notes);
  }
  for (const char* section : {"normalizer", "pre_tokenizer", "post_processor"})
    check_component(member(json, section), section, path, notes);
  check_component(member(json, "model"), model, path, notes);
}

}  // namespace tandem::text
