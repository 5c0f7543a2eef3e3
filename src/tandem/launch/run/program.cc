#include "tandem/launch/run/program.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

namespace tandem::launch {
namespace {

namespace fs = std::filesystem;

bool is_executable(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

}  // namespace

std::string find_executable(const std::string& name, const std::string& search_path) {
  if (name.find('/') != std::string::npos) return is_executable(name) ? name : "";
  for (std::size_t begin = 0; begin <= search_path.size();) {
    const std::size_t end = std::min(search_path.find(':', begin), search_path.size());
    const fs::path folder = search_path.substr(begin, end - begin);
    const fs::path path = (folder.empty() ? fs::path(".") : folder) / name;
    if (is_executable(path)) return path.string();
    begin = end + 1;
  }
  return "";
}

bool names_job(const std::string& word, const std::vector<std::string>& job_commands) {
  const fs::path script(word);
  if (!contains(job_commands, script.stem().string())) return false;
  return script.extension() == ".py" || (script.extension().empty() && !fs::exists(script));
}

std::vector<std::string> job_command(const RunOptions& options, const ProgramPaths& paths) {
  std::vector<std::string> command = {paths.self};
  if (options.module) return {};
  const auto& words = options.script_arguments;
  const bool is_tandem = fs::path(options.script).filename() == "tandem" && !words.empty() &&
                         contains(paths.job_commands, words.front());
  if (!is_tandem) {
    if (options.no_python || !names_job(options.script, paths.job_commands)) return {};
    command.push_back(fs::path(options.script).stem().string());
  }
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

std::string substitute(std::string_view text,
                       const std::map<std::string, std::string, std::less<>>& values) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] != '$') {
      result += text[at++];
      continue;
    }
    if (text.substr(at, 2) == "$$") {
      result += '$';
      at += 2;
      continue;
    }
    const bool braces = text.substr(at, 2) == "${";
    const std::size_t begin = at + (braces ? 2 : 1);
    std::size_t end = begin;
    while (end < text.size() && is_name(text[end])) ++end;
    const auto found = values.find(text.substr(begin, end - begin));
    const bool closed = !braces || text.substr(end, 1) == "}";
    if (found == values.end() || !closed) {
      result += text[at++];
      continue;
    }
    result += found->second;
    at = end + (braces ? 1 : 0);
  }
  return result;
}

}  // namespace tandem::launch
