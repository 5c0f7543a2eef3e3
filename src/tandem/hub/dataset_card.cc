#include "tandem/hub/dataset_card.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <optional>
#include <span>

#include "tandem/core/error.h"
#include "tandem/formats/yaml.h"
#include "tandem/hub/split_names.h"

namespace tandem::hub {
namespace {

using formats::Field;
using formats::YamlNode;

// --- reading ---

[[noreturn]] void wrong(const std::string& where, int line, const std::string& problem) {
  raise<DataError>("{}, line {}: {}", where, line, problem);
}

// The line that begins at `at`, without its end.
std::string_view line_at(std::string_view text, std::size_t at) {
  std::string_view line = text.substr(at, std::min(text.find('\n', at), text.size()) - at);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// The text between the first line and the next one that is "---", if the first is one. An empty
// line in its front keeps the numbers of the lines.
std::string front_matter(std::string_view text) {
  if (line_at(text, 0) != "---") return "";
  for (std::size_t end = text.find('\n'); end != std::string_view::npos;
       end = text.find('\n', end + 1)) {
    if (line_at(text, end + 1) == "---")
      return std::string(text.substr(text.find('\n'), end + 1 - text.find('\n')));
  }
  return "";
}

bool is_true(const std::string& text) {
  return text == "true" || text == "True" || text == "TRUE" || text == "yes" || text == "on";
}

std::vector<std::string> texts_of(const YamlNode& node, const std::string& where) {
  if (node.kind == YamlNode::Kind::kScalar) return {node.text};
  std::vector<std::string> texts;
  for (const YamlNode& item : node.items) {
    if (item.kind != YamlNode::Kind::kScalar) wrong(where, item.line, "expected the path of files");
    texts.push_back(item.text);
  }
  if (node.kind == YamlNode::Kind::kMap)
    wrong(where, node.line, "expected a path or a list of paths");
  return texts;
}

// A text or a list of texts is the split "train"; a map has splits; a list of maps has
// {split, path}.
void read_data_files(const YamlNode& node, const std::string& where,
                     CardConfiguration& configuration) {
  const auto add = [&](const std::string& split, const YamlNode& paths) {
    configuration.patterns.emplace_back(split, texts_of(paths, where));
  };
  if (node.kind == YamlNode::Kind::kMap) {
    for (const Field& field : node.fields) add(field.name, field.value);
    return;
  }
  const bool has_maps = !node.items.empty() && node.items.front().kind == YamlNode::Kind::kMap;
  if (!has_maps) return add("train", node);
  for (const YamlNode& item : node.items) {
    const YamlNode* split = item.find("split");
    const YamlNode* path = item.find("path");
    if (split == nullptr || path == nullptr)
      wrong(where, item.line, "data_files: expected entries with split and path");
    add(split->text, *path);
  }
}

CardConfiguration read_configuration(const YamlNode& node, const std::string& where) {
  if (node.kind != YamlNode::Kind::kMap)
    wrong(where, node.line, "configs: expected entries with config_name and data_files");
  constexpr std::string_view kWithoutEffect[] = {"description", "version", "license", "citation"};
  CardConfiguration configuration;
  for (const Field& field : node.fields) {
    if (field.name == "config_name") {
      configuration.name = field.value.text;
    } else if (field.name == "data_dir") {
      configuration.directory = field.value.text;
    } else if (field.name == "default") {
      configuration.is_default = is_true(field.value.text);
    } else if (field.name == "data_files") {
      read_data_files(field.value, where, configuration);
    } else if (std::find(std::begin(kWithoutEffect), std::end(kWithoutEffect), field.name) ==
               std::end(kWithoutEffect)) {
      wrong(where, field.line,
            fmt::format("the configuration sets '{}', which tandem does not follow; pass the files "
                        "with --train_file and --validation_file",
                        field.name));
    }
  }
  while (configuration.directory.ends_with('/')) configuration.directory.pop_back();
  if (configuration.directory == ".") configuration.directory.clear();
  if (configuration.directory.starts_with("./")) configuration.directory.erase(0, 2);
  return configuration;
}

// --- names ---

std::vector<std::string_view> components(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    const std::size_t slash = std::min(path.find('/'), path.size());
    if (slash > 0 && path.substr(0, slash) != ".") parts.push_back(path.substr(0, slash));
    path.remove_prefix(std::min(slash + 1, path.size()));
  }
  return parts;
}

bool is_hidden(std::string_view component) {
  return component.starts_with('.') || component.starts_with("__");
}

// A hidden file or folder counts only if the pattern names one, too.
bool is_ignored(std::string_view path, std::string_view pattern) {
  constexpr std::string_view kFiles[] = {"README.md",         "config.json",
                                         "dataset_info.json", "dataset_infos.json",
                                         "dataset_dict.json", "dummy_data.zip"};
  const auto parts = components(path);
  if (parts.empty() ||
      std::find(std::begin(kFiles), std::end(kFiles), parts.back()) != std::end(kFiles))
    return true;
  const auto asked = components(pattern);
  return std::any_of(parts.begin(), parts.end(), is_hidden) &&
         std::none_of(asked.begin(), asked.end(), is_hidden);
}

bool match_components(std::span<const std::string_view> path,
                      std::span<const std::string_view> pattern) {
  if (pattern.empty()) return path.empty();
  if (pattern.front() == "**") {
    for (std::size_t skipped = 0; skipped <= path.size(); ++skipped) {
      if (match_components(path.subspan(skipped), pattern.subspan(1))) return true;
    }
    return false;
  }
  if (path.empty()) return false;
  const std::string name(path.front()), glob(pattern.front());
  return ::fnmatch(glob.c_str(), name.c_str(), FNM_NOESCAPE) == 0 &&
         match_components(path.subspan(1), pattern.subspan(1));
}

// `path` below `directory`; nothing if it lies elsewhere.
std::optional<std::string> below(const std::string& directory, const std::string& path) {
  if (directory.empty()) return path;
  if (!path.starts_with(directory + '/')) return std::nullopt;
  return path.substr(directory.size() + 1);
}

// The split whose word is in one of the names.
const char* split_in(std::span<const std::string_view> names) {
  for (const SplitWords& row : kSplitWords) {
    for (const std::string_view name : names) {
      for (const std::string_view word : row.words) {
        if (!word.empty() && has_word(name, word)) return row.split;
      }
    }
  }
  return nullptr;
}

// "test" of data/test-00000-of-00002.parquet.
std::string sharded_split(std::span<const std::string_view> parts) {
  if (parts.size() != 2 || parts[0] != "data") return "";
  const std::string_view name = parts[1];
  constexpr const char* kShard = "-[0-9][0-9][0-9][0-9][0-9]-of-[0-9][0-9][0-9][0-9][0-9]*.*";
  for (std::size_t dash = name.find('-'); dash != std::string_view::npos;
       dash = name.find('-', dash + 1)) {
    const std::string tail(name.substr(dash));
    if (::fnmatch(kShard, tail.c_str(), 0) == 0) return std::string(name.substr(0, dash));
  }
  return "";
}

}  // namespace

std::vector<CardConfiguration> read_card(std::string_view text, bool whole_text,
                                         const std::string& where) {
  const std::string matter = whole_text ? std::string(text) : front_matter(text);
  if (matter.empty()) return {};
  formats::Findings findings;
  const std::vector<YamlNode> documents = formats::read_yaml(matter, findings);
  if (!findings.empty()) wrong(where, findings.front().line, findings.front().problem);
  const YamlNode* configs = documents.empty() ? nullptr : documents.front().find("configs");
  std::vector<CardConfiguration> all;
  if (configs == nullptr || configs->is_null()) return all;
  if (configs->kind != YamlNode::Kind::kList)
    wrong(where, configs->line, "configs: expected a list");
  for (const YamlNode& node : configs->items) all.push_back(read_configuration(node, where));
  return all;
}

const CardConfiguration& choose_configuration(const std::vector<CardConfiguration>& all,
                                              const std::optional<std::string>& wanted,
                                              const std::string& where) {
  std::vector<std::string> names;
  for (const CardConfiguration& one : all) {
    if (wanted && one.name == *wanted) return one;
    names.push_back(one.name);
  }
  if (!wanted && all.size() == 1) return all.front();
  const auto by = [&](auto test) { return std::find_if(all.begin(), all.end(), test); };
  if (!wanted) {
    const auto is_marked = [](const CardConfiguration& one) { return one.is_default; };
    const auto marked = by(is_marked);
    if (std::count_if(all.begin(), all.end(), is_marked) == 1) return *marked;
    const auto named = by([](const CardConfiguration& one) { return one.name == "default"; });
    if (marked == all.end() && named != all.end()) return *named;
  }
  raise<DataError>("{} has the configurations {}; choose one with --dataset_config_name{}", where,
                   fmt::join(names, ", "),
                   wanted ? fmt::format(", '{}' is not among them", *wanted) : "");
}

bool has_word(std::string_view name, std::string_view word) {
  const auto is_separator = [&](std::size_t at) {
    return at >= name.size() ||
           std::string_view("-_. 0123456789").find(name[at]) != std::string_view::npos;
  };
  for (std::size_t at = name.find(word); at != std::string_view::npos;
       at = name.find(word, at + 1)) {
    if ((at == 0 || is_separator(at - 1)) && is_separator(at + word.size())) return true;
  }
  return false;
}

bool matches_pattern(std::string_view path, std::string_view pattern) {
  return match_components(components(path), components(pattern));
}

FilesOfSplits files_of_patterns(const std::vector<std::string>& names,
                                const CardConfiguration& configuration,
                                std::vector<std::string>& missing) {
  FilesOfSplits files;
  for (const auto& [split, patterns] : configuration.patterns) {
    std::vector<std::string>& found = files[split];
    for (const std::string& pattern : patterns) {
      std::vector<std::string> matching;
      for (const std::string& name : names) {
        const auto path = below(configuration.directory, name);
        if (path && matches_pattern(*path, pattern) && !is_ignored(*path, pattern) &&
            std::find(found.begin(), found.end(), name) == found.end())
          matching.push_back(name);
      }
      if (matching.empty() && pattern.find_first_of("*?[") == std::string::npos)
        missing.push_back(pattern);
      std::sort(matching.begin(), matching.end());
      found.insert(found.end(), matching.begin(), matching.end());
    }
    if (found.empty()) files.erase(split);
  }
  return files;
}

namespace {

// The first of them with any file, each list sorted.
FilesOfSplits first_with_files(std::initializer_list<FilesOfSplits*> candidates) {
  for (FilesOfSplits* found : candidates) {
    if (found->empty()) continue;
    for (auto& [split, files] : *found) std::sort(files.begin(), files.end());
    return std::move(*found);
  }
  return {};
}

}  // namespace

FilesOfSplits files_by_folder(const std::vector<std::string>& names, const std::string& directory) {
  FilesOfSplits sharded, in_folders;
  for (const std::string& name : names) {
    const auto path = below(directory, name);
    if (!path || is_ignored(*path, "")) continue;
    const auto parts = components(*path);
    const std::span<const std::string_view> folders(parts.data(), parts.size() - 1);
    const std::string shard = sharded_split(parts);
    if (!shard.empty()) sharded[shard].push_back(name);
    if (const char* split = split_in(folders)) in_folders[split].push_back(name);
  }
  return first_with_files({&sharded, &in_folders});
}

FilesOfSplits files_by_name(const std::vector<std::string>& names, const std::string& directory) {
  FilesOfSplits by_folder = files_by_folder(names, directory), in_names, all;
  for (const std::string& name : names) {
    const auto path = below(directory, name);
    if (!path || is_ignored(*path, "")) continue;
    const auto parts = components(*path);
    if (const char* split = split_in(std::span(parts).last(1))) in_names[split].push_back(name);
    all["train"].push_back(name);
  }
  return first_with_files({&by_folder, &in_names, &all});
}

}  // namespace tandem::hub
