#include "tandem/launch/host_file.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/rendezvous/address.h"

namespace tandem::launch {
namespace {

constexpr int kMaxRanks = 65536;

bool read_number(std::string_view text, int& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 1 &&
         value <= kMaxRanks;
}

// "2" of "slots=2"; other words of Open MPI's (max_slots=4) do not matter here.
bool read_attribute(std::string_view word, HostfileEntry& entry) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos) return false;
  if (word.substr(0, equals) != "slots") return true;
  return read_number(word.substr(equals + 1), entry.ranks);
}

bool read_entry(const std::vector<std::string>& words, HostfileEntry& entry) {
  const auto first = rendezvous::split_host(words.front());
  if (!first) return false;
  entry.host = first->host;
  entry.ranks = first->number.value_or(1);
  if (entry.ranks < 1 || entry.ranks > kMaxRanks) return false;
  constexpr std::string_view kNever = "=,;\"'";
  // A name that begins with '-' would be an option of whatever program it is given to: no host has
  // one.
  if (entry.host.front() == '-' || entry.host.find_first_of(kNever) != std::string::npos) {
    return false;
  }
  return std::all_of(words.begin() + 1, words.end(),
                     [&](const std::string& word) { return read_attribute(word, entry); });
}

}  // namespace

std::vector<HostfileEntry> read_hostfile(const std::filesystem::path& path) {
  std::istringstream lines(read_file(path));
  std::vector<HostfileEntry> entries;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream stream(line.substr(0, line.find('#')));
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);
    if (words.empty()) continue;
    HostfileEntry entry;
    if (!read_entry(words, entry)) {
      raise<ConfigError>(
          "{}:{}: '{}' is no line of a host file; expected 'host', 'host:ranks' or 'host "
          "slots=ranks'",
          path.native(), number, line);
    }
    const bool known = std::any_of(entries.begin(), entries.end(), [&](const HostfileEntry& other) {
      return other.host == entry.host;
    });
    if (known) {
      raise<ConfigError>("{}:{}: host '{}' comes twice; give it one line 'host:ranks'",
                         path.native(), number, entry.host);
    }
    entries.push_back(std::move(entry));
  }
  if (entries.empty()) {
    raise<ConfigError>("{}: no host in it; write one host name a line", path.native());
  }
  return entries;
}

std::vector<HostfileEntry> read_host_list(const std::string& list) {
  std::vector<HostfileEntry> entries;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string word = list.substr(begin, end - begin);
    HostfileEntry entry;
    if (word.find_first_of(" \t") != std::string::npos || !read_entry({word}, entry))
      raise<ConfigError>("'{}' is no list of hosts; expected host,host or host:ranks,host", list);
    entries.push_back(std::move(entry));
    begin = end + 1;
  }
  return entries;
}

}  // namespace tandem::launch
