// Reads and writes byte-level BPE in the files of a tokenizer.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/text/bpe.h"
#include "tandem/text/bpe_model.h"
#include "tandem/text/json_text.h"
#include "tandem/text/post_processor.h"
#include "tandem/text/tokenizer_json.h"
#include "tandem/text/utf8.h"

namespace tandem::text {
namespace {

namespace dom = simdjson::dom;
using Path = std::filesystem::path;

// A vocabulary by token. (A map: a file cannot make it slow, as it can a table of known hashes.)
std::map<std::string_view, std::int32_t> ids_of(const std::vector<std::string>& vocabulary) {
  std::map<std::string_view, std::int32_t> ids;
  for (std::size_t id = 0; id < vocabulary.size(); ++id)
    if (!vocabulary[id].empty()) ids[vocabulary[id]] = static_cast<std::int32_t>(id);
  return ids;
}

// Collects merges and looks up their tokens.
class MergeReader {
 public:
  MergeReader(const Path& path, TokenizerDefinition& d)
      : path_(path), d_(d), ids_(ids_of(d.vocabulary)) {}

  void add(std::string_view left, std::string_view right) {
    Bpe::Merge merge{};
    merge.left = find(left);
    merge.right = find(right);
    merge.result = find(std::string(left) += right);
    d_.bpe.merges.push_back(merge);
  }

  // "left right"
  void add(std::string_view line) {
    const std::size_t space = line.find(' ');
    if (space == line.npos || line.find(' ', space + 1) != line.npos) {
      raise<DataError>("'{}': merge {} is \"{}\", expected two tokens with one blank between them",
                       path_.string(), d_.bpe.merges.size(), line);
    }
    add(line.substr(0, space), line.substr(space + 1));
  }

 private:
  std::int32_t find(std::string_view token) const {
    const auto found = ids_.find(token);
    if (found == ids_.end()) {
      raise<DataError>("'{}': merge {} needs the token \"{}\", which the vocabulary does not have",
                       path_.string(), d_.bpe.merges.size(), token);
    }
    return found->second;
  }

  const Path& path_;
  TokenizerDefinition& d_;
  const std::map<std::string_view, std::int32_t> ids_;
};

void find_byte_tokens(const Path& path, TokenizerDefinition& d) {
  const auto ids = ids_of(d.vocabulary);
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::string symbol;
    append_utf8(byte_symbol(static_cast<unsigned char>(byte)), symbol);
    const auto found = ids.find(symbol);
    if (found == ids.end()) {
      raise<DataError>(
          "'{}': the vocabulary has no token \"{}\" for byte {}; byte-level BPE needs one for each "
          "of the 256 bytes",
          path.string(), symbol, byte);
    }
    d.bpe.byte_ids[byte] = found->second;
  }
}

void read_merges(const dom::object& model, const Path& path, TokenizerDefinition& d) {
  dom::array merges;
  if (model["merges"].get(merges)) raise<DataError>("'{}': the model has no merges", path.string());
  MergeReader reader(path, d);
  for (const dom::element merge : merges) {
    std::string_view line, left, right;
    dom::array pair;
    if (!merge.get(line)) {
      reader.add(line);
    } else if (!merge.get(pair) && pair.size() == 2 && !pair.at(0).get(left) &&
               !pair.at(1).get(right)) {
      reader.add(left, right);
    } else {
      raise<DataError>("'{}': merge {} is neither \"left right\" nor [\"left\", \"right\"]",
                       path.string(), d.bpe.merges.size());
    }
  }
}

void expect_absent(const Json& settings, const char* key, const Path& path) {
  const Json& value = member(settings, key);
  if (value.is_null() || value == "" || value == false) return;
  raise<DataError>("'{}': the BPE model has {} = {}, which is not supported", path.string(), key,
                   value.dump());
}

void read_model(const TokenizerJsonSource& source, TokenizerDefinition& d) {
  const Json& settings = member(d.tokenizer_json, "model");
  for (const char* key :
       {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"})
    expect_absent(settings, key, source.path);
  d.bpe.ignore_merges = value_or(settings, "ignore_merges", false, source.path);
  read_vocabulary_object(dom::object(source.model["vocab"]), source.path, d);
  find_byte_tokens(source.path, d);
  read_merges(source.model, source.path, d);
}

bool is_sequence(const Json& pre_tokenizer) { return member(pre_tokenizer, "type") == "Sequence"; }

[[noreturn]] void unknown_steps(const Json& section, const Path& path) {
  raise<DataError>(
      "'{}': the steps of the pre_tokenizer are {}, expected ByteLevel, Digits and ByteLevel (one "
      "digit at a time, no space in front), or Split and ByteLevel with the expression of Qwen or "
      "Llama 3",
      path.string(), member(section, "pretokenizers").dump());
}

void read_byte_level(const Json& section, const Path& path, TokenizerDefinition& d) {
  const auto type = value_or<std::string>(section, "type", "none", path);
  if (type != "ByteLevel") {
    raise<DataError>("'{}': the pre_tokenizer is \"{}\", expected \"ByteLevel\" with BPE",
                     path.string(), type);
  }
  d.bpe.add_prefix_space = value_or(section, "add_prefix_space", true, path);
  d.bpe.words = value_or(section, "use_regex", true, path) ? WordRule::kGpt2 : WordRule::kNone;
}

// SmolLM2's digits, or the words of Qwen and Llama 3.
void read_first_step(const Json& step, const Path& path, TokenizerDefinition& d) {
  const auto type = value_or<std::string>(step, "type", "none", path);
  if (type == "Digits" && value_or(step, "individual_digits", false, path)) {
    d.bpe.single_digits = true;
    return;
  }
  const auto rule = word_rule_of(value_or<std::string>(member(step, "pattern"), "Regex", "", path));
  if (type != "Split" || !rule || value_or<std::string>(step, "behavior", "", path) != "Isolated" ||
      value_or(step, "invert", false, path)) {
    unknown_steps(member(d.tokenizer_json, "pre_tokenizer"), path);
  }
  d.bpe.words = *rule;
}

void read_pre_tokenizer(const Path& path, TokenizerDefinition& d) {
  if (const Json& normalizer = member(d.tokenizer_json, "normalizer"); !normalizer.is_null()) {
    d.bpe.nfc = member(normalizer, "type") == "NFC";
    if (!d.bpe.nfc) {
      raise<DataError>("'{}': the normalizer is {}, expected \"NFC\" or none with byte-level BPE",
                       path.string(), member(normalizer, "type").dump());
    }
  }
  const Json& section = member(d.tokenizer_json, "pre_tokenizer");
  if (!is_sequence(section)) return read_byte_level(section, path, d);
  const Json& steps = member(section, "pretokenizers");
  if (!steps.is_array() || steps.size() != 2) unknown_steps(section, path);
  read_first_step(steps.at(0), path, d);
  const WordRule of_split = d.bpe.words;
  read_byte_level(steps.at(1), path, d);
  const bool splits = of_split != WordRule::kGpt2;
  if (d.bpe.add_prefix_space || (splits && d.bpe.words != WordRule::kNone))
    unknown_steps(section, path);
  if (splits) d.bpe.words = of_split;
}

void read_trimming(const Path& path, TokenizerDefinition& d) {
  const PostProcessor read = apply_open_post_processor(path, d);
  d.bpe.trim_offsets = read.trims_with_prefix_space.has_value();
  d.bpe.trim_with_prefix_space = read.trims_with_prefix_space.value_or(false);
}

bool has_roberta_processing(const TokenizerDefinition& d) {
  return d.tokenizer_json.is_null() ||
         member(member(d.tokenizer_json, "post_processor"), "type") == "RobertaProcessing";
}

Json model_section(const TokenizerDefinition& d) {
  Json model = member(d.tokenizer_json, "model");
  if (model.is_null()) {
    model = {{"type", "BPE"},
             {"dropout", nullptr},
             {"unk_token", nullptr},
             {"continuing_subword_prefix", ""},
             {"end_of_word_suffix", ""},
             {"fuse_unk", false},
             {"byte_fallback", false},
             {"ignore_merges", false}};
  }
  append_entry(model, "vocab", vocabulary_json(d));
  Json merges = Json::array();
  for (const Bpe::Merge& merge : d.bpe.merges) {
    merges.push_back({d.vocabulary[static_cast<std::size_t>(merge.left)],
                      d.vocabulary[static_cast<std::size_t>(merge.right)]});
  }
  append_entry(model, "merges", std::move(merges));
  return model;
}

}  // namespace

// Files written before "type" existed are recognised by their merges.
bool is_bpe(std::string_view named, const Json&, const dom::object& model) {
  dom::object vocabulary;
  dom::element merges;
  if (model["vocab"].get(vocabulary)) return false;
  return named == "BPE" || (named == "none" && !model["merges"].get(merges));
}

void read_bpe_json(const TokenizerJsonSource& source, TokenizerDefinition& definition) {
  read_model(source, definition);
  read_pre_tokenizer(source.path, definition);
  read_trimming(source.path, definition);
}

void read_vocab_json(std::string_view text, const Path& path, TokenizerDefinition& d) {
  dom::parser parser;
  dom::object vocabulary;
  const simdjson::padded_string padded(text);
  if (parser.parse(padded).get(vocabulary)) {
    const std::string where = describe_json_error(text);
    raise<DataError>("'{}': expected a JSON object of tokens and ids{}{}", path.string(),
                     where.empty() ? "" : ": ", where);
  }
  read_vocabulary_object(vocabulary, path, d);
  find_byte_tokens(path, d);
  const Path merges_path = path.parent_path() / "merges.txt";
  const auto merges = read_text_if_exists(merges_path);
  if (!merges) {
    raise<DataError>("no '{}', which byte-level BPE needs in addition to vocab.json",
                     merges_path.string());
  }
  MergeReader reader(merges_path, d);
  std::string_view rest = *merges;
  for (bool first = true; !rest.empty(); first = false) {
    const std::size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest = end == rest.npos ? std::string_view() : rest.substr(end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (first && line.starts_with("#version"))) continue;
    reader.add(line);
  }
  d.frame.num_separators = 2;
  d.frame.second_type_id = 0;
}

namespace {

void follow_file(const TokenizerDefinition& d, std::string_view what,
                 std::vector<std::string>& notes) {
  notes.push_back(fmt::format(
      "tokenizer.json has {}; tandem follows it, as transformers 4 (transformers 5 builds {} anew)",
      what, d.tokenizer_class));
}

// The general class: tokenizer.json alone counts, unless the caller asks for something else.
void apply_to_exact(const Json& config, const Path& path, TokenizerDefinition& d) {
  const bool file = d.bpe.add_prefix_space;
  const bool configured = value_or(config, "add_prefix_space", false, path);
  if (is_sequence(member(d.tokenizer_json, "pre_tokenizer"))) {
    if (!configured) return;
    raise<DataError>(
        "'{}': add_prefix_space is true, but the pre_tokenizer of tokenizer.json has several "
        "steps, "
        "where versions of transformers differ; expected false",
        path.string());
  }
  d.bpe.add_prefix_space = d.options.add_prefix_space.value_or(file);
  if (d.options.add_prefix_space.has_value() || configured == file) return;
  d.notes.push_back(fmt::format(
      "'{}': add_prefix_space is {}, and {} in tokenizer.json, which tandem follows, as "
      "transformers 5 (transformers 4 does not)",
      path.string(), configured, file));
}

}  // namespace

// RobertaTokenizerFast sets its two settings (with defaults for those that tokenizer_config.json
// lacks) over the sections that it has read.
void apply_bpe_config(const Json& config, const Path& path, TokenizerDefinition& d) {
  if (d.exact) return apply_to_exact(config, path, d);
  d.bpe.add_prefix_space =
      d.options.add_prefix_space.value_or(value_or(config, "add_prefix_space", false, path));
  if (d.bpe.ignore_merges) follow_file(d, "ignore_merges = true", d.notes);
  if (d.bpe.nfc) follow_file(d, "the normalizer NFC", d.notes);
  if (d.bpe.words == WordRule::kNone) follow_file(d, "use_regex = false", d.notes);
  if (!has_roberta_processing(d)) {
    follow_file(d, "another post_processor than RobertaProcessing", d.notes);
    return;
  }
  d.bpe.trim_offsets = value_or(config, "trim_offsets", true, path);
  d.bpe.trim_with_prefix_space = d.bpe.add_prefix_space;
}

Json bpe_sections(const TokenizerDefinition& d) {
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", true},
                           {"trim_offsets", true},
                           {"use_regex", true}};
  const auto read_or = [&](const char* key, const Json& otherwise) {
    const Json& read = member(d.tokenizer_json, key);
    return read.is_null() ? otherwise : read;
  };
  Json pre_tokenizer = read_or("pre_tokenizer", byte_level);
  if (!is_sequence(pre_tokenizer)) pre_tokenizer["add_prefix_space"] = d.bpe.add_prefix_space;
  const Json roberta_processing = {{"type", "RobertaProcessing"},
                                   {"sep", {d.sep_token, d.frame.sep_id}},
                                   {"cls", {d.cls_token, d.frame.cls_id}},
                                   {"trim_offsets", d.bpe.trim_offsets},
                                   {"add_prefix_space", d.bpe.trim_with_prefix_space}};
  return {
      {"normalizer", d.bpe.nfc ? Json({{"type", "NFC"}}) : Json()},
      {"pre_tokenizer", std::move(pre_tokenizer)},
      {"post_processor",
       has_roberta_processing(d) ? roberta_processing : member(d.tokenizer_json, "post_processor")},
      {"decoder", read_or("decoder", byte_level)},
      {"model", model_section(d)}};
}

void write_bpe_config(const TokenizerDefinition& d, Json& config) {
  if (!d.open_frame || !member(config, "add_prefix_space").is_null())
    config["add_prefix_space"] = d.bpe.add_prefix_space;
  if (has_roberta_processing(d)) config["trim_offsets"] = d.bpe.trim_offsets;
}

std::vector<VocabularyFile> bpe_vocabulary_files(const TokenizerDefinition& d) {
  std::string merges = "#version: 0.2\n";
  for (const Bpe::Merge& merge : d.bpe.merges) {
    merges += d.vocabulary[static_cast<std::size_t>(merge.left)] + ' ' +
              d.vocabulary[static_cast<std::size_t>(merge.right)] + '\n';
  }
  return {{std::string(kBpeType.vocabulary_file), vocabulary_json(d).dump()},
          {"merges.txt", std::move(merges)}};
}

}  // namespace tandem::text
