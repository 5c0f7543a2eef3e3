#include "tandem/text/post_processor.h"

#include "tandem/core/json.h"
#include "tandem/text/tokenizer_files.h"
#include "tandem/text/tokenizer_json.h"

namespace tandem::text {
namespace {

void read_pair_of_tokens(const Json& section, PostProcessor& out) {
  out.cls = section.at("cls").at(0).get<std::string>();
  out.sep = section.at("sep").at(0).get<std::string>();
}

bool is_sequence(const Json& item, const char* name, int type) {
  const Json& sequence = member(item, "Sequence");
  return member(sequence, "id") == name && member(sequence, "type_id") == type;
}

// The name of a special token of this type, or "".
std::string special_name(const Json& item, int type) {
  const Json& token = member(item, "SpecialToken");
  if (member(token, "type_id") != type) return {};
  return token.at("id").get<std::string>();
}

// [CLS] A [SEP] and [CLS] A [SEP] B [SEP], with one or two [SEP] between A and B. False: neither.
bool read_template(const Json& section, PostProcessor& out) {
  const Json& single = section.at("single");
  const Json& pair = section.at("pair");
  if (single.size() != 3 || pair.size() < 5 || pair.size() > 6) return false;
  out.num_separators = static_cast<std::uint32_t>(pair.size()) - 4;
  out.cls = special_name(single.at(0), 0);
  out.sep = special_name(single.at(2), 0);
  const Json& second = pair.at(pair.size() - 2);
  out.second_type_id = is_sequence(second, "B", 1) ? 1 : 0;
  bool fits = is_sequence(single.at(1), "A", 0) && is_sequence(pair.at(1), "A", 0) &&
              is_sequence(second, "B", out.second_type_id) &&
              special_name(pair.at(0), 0) == out.cls &&
              special_name(pair.back(), out.second_type_id) == out.sep;
  for (std::uint32_t i = 0; i < out.num_separators; ++i)
    fits = fits && special_name(pair.at(2 + i), 0) == out.sep;
  return fits;
}

// The name of a special token of any type, or "".
std::string special_name(const Json& item) {
  const Json& id = member(member(item, "SpecialToken"), "id");
  return id.is_string() ? id.get<std::string>() : std::string();
}

bool is_text(const Json& item, const char* name) {
  return member(member(item, "Sequence"), "id") == name;
}

// The template of a pair: the tokens of one text around it, and equal ones between the texts.
std::optional<OpenFrame::Separators> read_separators(const Json& pair, const OpenFrame& frame) {
  if (!pair.is_array()) return std::nullopt;
  std::size_t begin = 0, end = pair.size();
  if (!frame.begin.empty() && begin < end && special_name(pair.at(begin)) == frame.begin) ++begin;
  if (!frame.end.empty() && begin < end && special_name(pair.at(end - 1)) == frame.end) --end;
  const std::size_t own = std::size_t{!frame.begin.empty()} + std::size_t{!frame.end.empty()};
  if (pair.size() - (end - begin) != own || end - begin < 2) return std::nullopt;
  if (!is_text(pair.at(begin), "A") || !is_text(pair.at(end - 1), "B")) return std::nullopt;
  OpenFrame::Separators found;
  for (std::size_t i = begin + 1; i + 1 < end; ++i, ++found.count) {
    const std::string token = special_name(pair.at(i));
    if (token.empty() || (found.count > 0 && token != found.token)) return std::nullopt;
    found.token = token;
  }
  return found;
}

// A template of one text with at most one special token. Nothing: it has others.
std::optional<OpenFrame> read_open_template(const Json& section) {
  const Json& single = section.at("single");
  if (!single.is_array() || single.empty() || single.size() > 2) return std::nullopt;
  OpenFrame frame;
  if (is_sequence(single.at(0), "A", 0)) {
    if (single.size() == 2) frame.end = special_name(single.at(1), 0);
  } else {
    frame.begin = special_name(single.at(0), 0);
    if (single.size() != 2 || !is_sequence(single.at(1), "A", 0)) return std::nullopt;
  }
  const bool has_token = !frame.begin.empty() || !frame.end.empty();
  if (has_token != (single.size() == 2)) return std::nullopt;
  frame.separators = read_separators(member(section, "pair"), frame);
  return frame;
}

// The frame of a section that leaves out a token of [CLS] A [SEP]; nothing where it has both.
// Throws as read_section() below.
std::optional<OpenFrame> read_open_frame(const Json& section) {
  if (section.is_null() || member(section, "type") == "ByteLevel") return OpenFrame{};
  if (member(section, "type") == "TemplateProcessing") return read_open_template(section);
  if (member(section, "type") != "Sequence") return std::nullopt;
  std::optional<OpenFrame> frame = OpenFrame{};
  for (const Json& part : section.at("processors"))
    if (member(part, "type") != "ByteLevel") frame = read_open_frame(part);
  return frame;
}

void read_trimming(const Json& section, const std::filesystem::path& path, PostProcessor& out) {
  if (value_or(section, "trim_offsets", true, path))
    out.trims_with_prefix_space = value_or(section, "add_prefix_space", true, path);
}

// False: not understood. Throws Json::exception for a member that is missing or of another type.
bool read_section(const Json& section, const std::filesystem::path& path, PostProcessor& out) {
  const auto type = value_or<std::string>(section, "type", "none", path);
  if (type == "BertProcessing") {
    read_pair_of_tokens(section, out);
    return true;
  }
  if (type == "RobertaProcessing") {
    read_pair_of_tokens(section, out);
    out.num_separators = 2;
    out.second_type_id = 0;
    read_trimming(section, path, out);
    return true;
  }
  if (type == "ByteLevel") {
    read_trimming(section, path, out);
    return true;
  }
  if (type == "TemplateProcessing") return read_template(section, out);
  if (type != "Sequence") return false;
  const Json& parts = section.at("processors");
  for (const Json& part : parts) {
    if (value_or<std::string>(part, "type", "none", path) == "Sequence") return false;
    if (!read_section(part, path, out)) return false;
  }
  return parts.is_array();
}

PostProcessor read_post_processor(const Json& section, const std::filesystem::path& path) {
  PostProcessor out;
  bool understood = false;
  try {
    understood = read_section(section, path, out);
  } catch (const Json::exception&) {
  }
  if (!understood || out.cls.empty() || out.sep.empty()) {
    raise<DataError>(
        "'{}': the post_processor (type \"{}\") does not make [CLS] A [SEP] B [SEP], with one or "
        "two [SEP] between the texts, which models of the BERT and RoBERTa families expect",
        path.string(), value_or<std::string>(section, "type", "none", path));
  }
  return out;
}

}  // namespace

PostProcessor apply_post_processor(const std::filesystem::path& path,
                                   TokenizerDefinition& definition) {
  PostProcessor read =
      read_post_processor(member(definition.tokenizer_json, "post_processor"), path);
  definition.cls_token = read.cls;
  definition.sep_token = read.sep;
  definition.frame.num_separators = read.num_separators;
  definition.frame.second_type_id = read.second_type_id;
  return read;
}

PostProcessor apply_open_post_processor(const std::filesystem::path& path,
                                        TokenizerDefinition& definition) {
  const Json& section = member(definition.tokenizer_json, "post_processor");
  try {
    definition.open_frame = read_open_frame(section);
  } catch (const Json::exception&) {  // reported below
  }
  if (!definition.open_frame) return apply_post_processor(path, definition);
  PostProcessor out;
  const bool is_list = member(section, "type") == "Sequence";
  for (const Json& part : is_list ? section.at("processors") : Json::array({section}))
    if (member(part, "type") == "ByteLevel") read_trimming(part, path, out);
  return out;
}

void find_ids(const std::filesystem::path& path, const TokenIds& ids, OpenFrame& frame) {
  const auto find = [&](const std::string& token) -> std::optional<std::int32_t> {
    if (token.empty()) return std::nullopt;
    const auto found = ids.find(token);
    if (found != ids.end()) return found->second;
    raise<DataError>("'{}': the post_processor has the token \"{}\", which the vocabulary lacks",
                     path.string(), token);
  };
  frame.ids = {find(frame.begin), find(frame.end)};
  if (frame.separators) frame.separators->id = find(frame.separators->token);
}

Json template_processing(const std::string& cls, std::int32_t cls_id, const std::string& sep,
                         std::int32_t sep_id, std::uint32_t num_separators,
                         std::int32_t second_type_id) {
  const auto special = [](const std::string& name, int type) {
    return Json{{"SpecialToken", {{"id", name}, {"type_id", type}}}};
  };
  const auto sequence = [](const char* name, int type) {
    return Json{{"Sequence", {{"id", name}, {"type_id", type}}}};
  };
  const auto entry = [](const std::string& name, std::int32_t id) {
    return Json{{"id", name}, {"ids", {id}}, {"tokens", {name}}};
  };
  const Json begin = special(cls, 0), end = special(sep, 0);
  Json pair = Json::array({begin, sequence("A", 0), end});
  if (num_separators == 2) pair.push_back(end);
  pair.push_back(sequence("B", second_type_id));
  pair.push_back(special(sep, second_type_id));
  Json tokens = Json::object();
  tokens[std::min(cls, sep)] = cls < sep ? entry(cls, cls_id) : entry(sep, sep_id);
  tokens[std::max(cls, sep)] = cls < sep ? entry(sep, sep_id) : entry(cls, cls_id);
  return {{"type", "TemplateProcessing"},
          {"single", Json::array({begin, sequence("A", 0), end})},
          {"pair", std::move(pair)},
          {"special_tokens", std::move(tokens)}};
}

}  // namespace tandem::text
