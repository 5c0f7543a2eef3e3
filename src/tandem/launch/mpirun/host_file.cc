#include "tandem/launch/mpirun/host_file.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "tandem/core/error.h"
#include "tandem/core/text_file.h"
#include "tandem/net/address.h"

namespace tandem::launch {
namespace {

constexpr int kMaxPort = 65535;
constexpr std::string_view kSupported =
    "slots, max_slots, user, port, binding, map and ifname; user@host names the user, too";

int read_number(std::string_view text, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > most)
    raise<ConfigError>("'{}' is not a number from 1 to {}", text, most);
  return value;
}

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](char digit) { return digit >= '0' && digit <= '9'; });
}

// A word that begins with '-' would be an option of the program that receives it.
bool is_name(std::string_view text) {
  return !text.empty() && text.front() != '-' &&
         text.find_first_of("=,;\"'/@^+\\") == std::string_view::npos;
}

// One entry while its line is read.
struct Line {
  HostfileEntry entry;
  std::optional<int> slots;
};

void set_user(Line& line, std::string_view value) {
  if (!is_name(value)) raise<ConfigError>("'{}' is not the name of a user", value);
  line.entry.settings.user = value;
}

void set_slots(Line& line, std::string_view value) {
  if (line.slots) raise<ConfigError>("the number of slots is given twice");
  line.slots = read_number(value, kMaxRanks);
}

struct Attribute {
  std::vector<std::string_view> names;  // with '-' written as '_'
  void (*apply)(Line& line, std::string_view value);
};

// slots and user names of Open MPI, user and binding of Hydra; map and ifname are the flags of
// mpirun for one host.
const std::vector<Attribute>& attributes() {
  static const std::vector<Attribute> all = {
      {{"slots", "cpu", "count"}, set_slots},
      {{"max_slots", "slots_max", "max_cpu", "cpu_max", "max_count", "count_max"},
       [](Line& line, std::string_view value) {
         line.entry.settings.max_ranks = read_number(value, kMaxRanks);
       }},
      {{"user", "username", "user_name"}, set_user},
      {{"port"},
       [](Line& line, std::string_view value) {
         line.entry.settings.port = read_number(value, kMaxPort);
       }},
      {{"binding"},
       [](Line& line, std::string_view value) { line.entry.settings.bind_to = value; }},
      {{"map"}, [](Line& line, std::string_view value) { line.entry.settings.map_by = value; }},
      {{"ifname"},
       [](Line& line, std::string_view value) { line.entry.settings.interface = value; }},
  };
  return all;
}

void read_attribute(Line& line, const std::string& word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos || equals == 0) {
    raise<ConfigError>("'{}' is not an attribute NAME=VALUE", word);
  }
  std::string name = word.substr(0, equals);
  std::replace(name.begin(), name.end(), '-', '_');
  const std::string_view value = std::string_view(word).substr(equals + 1);
  if (value.empty()) raise<ConfigError>("{} has no value", name);
  for (const Attribute& attribute : attributes()) {
    if (std::find(attribute.names.begin(), attribute.names.end(), name) != attribute.names.end())
      return attribute.apply(line, value);
  }
  raise<ConfigError>("the attribute '{}' is not supported; remove it, or use {}", word, kSupported);
}

void read_name(Line& line, std::string word) {
  const std::size_t at = word.find('@');
  if (at != std::string::npos) {
    set_user(line, std::string_view(word).substr(0, at));
    word.erase(0, at + 1);
  }
  const auto first = net::split_host(word);
  if (!first || !is_name(first->host)) raise<ConfigError>("'{}' is not the name of a host", word);
  line.entry.host = first->host;
  if (first->number) set_slots(line, std::to_string(*first->number));
}

// "node0 2 all.q@node0 UNDEFINED": host, slots, queue, processors.
bool is_line_of_sge(const std::vector<std::string>& words) {
  return words.size() == 4 && is_number(words[1]) && words[2].find('=') == std::string::npos &&
         words[3].find('=') == std::string::npos;
}

HostfileEntry read_entry(const std::vector<std::string>& words) {
  Line line;
  read_name(line, words.front());
  if (is_line_of_sge(words)) {
    set_slots(line, words[1]);
  } else {
    for (std::size_t i = 1; i < words.size(); ++i) read_attribute(line, words[i]);
  }
  const std::optional<int>& most = line.entry.settings.max_ranks;
  if (line.slots && most && *line.slots > *most)
    raise<ConfigError>("slots={} is more than max_slots={}", *line.slots, *most);
  line.entry.ranks = line.slots.value_or(most.value_or(1));
  return line.entry;
}

template <class Value>
void join_setting(Value& known, const Value& more, std::string_view what, std::string_view host) {
  if (more == Value{}) return;
  if (known != Value{} && known != more)
    raise<ConfigError>("host '{}' has another {} on an earlier line", host, what);
  known = more;
}

void join_settings(HostSettings& known, const HostSettings& more, std::string_view host) {
  join_setting(known.user, more.user, "user", host);
  join_setting(known.port, more.port, "port", host);
  join_setting(known.bind_to, more.bind_to, "binding", host);
  join_setting(known.map_by, more.map_by, "map", host);
  join_setting(known.interface, more.interface, "ifname", host);
  join_setting(known.max_ranks, more.max_ranks, "max_slots", host);
}

// Settings of a host hold for all of its entries; lines that follow each other are one.
void add_entry(std::vector<HostfileEntry>& entries, HostfileEntry entry) {
  for (const HostfileEntry& other : entries) {
    if (other.host != entry.host) continue;
    HostSettings joined = other.settings;
    join_settings(joined, entry.settings, entry.host);
    entry.settings = std::move(joined);
  }
  for (HostfileEntry& other : entries) {
    if (other.host == entry.host) other.settings = entry.settings;
  }
  if (entries.empty() || entries.back().host != entry.host)
    return entries.push_back(std::move(entry));
  if (entry.ranks > kMaxRanks - entries.back().ranks)
    raise<ConfigError>("host '{}' has more than {} slots", entry.host, kMaxRanks);
  entries.back().ranks += entry.ranks;
}

std::vector<std::string> words_of_line(const std::string& line) {
  std::istringstream stream(line.substr(0, std::min(line.find('#'), line.find("//"))));
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

}  // namespace

std::vector<HostfileEntry> read_hostfile(const std::filesystem::path& path) {
  std::string text = read_text_file(path);
  if (text.find('\0') != std::string::npos)
    raise<ConfigError>("{}: found bytes 0, expected text in UTF-8", path.native());
  std::istringstream lines(std::move(text));
  std::vector<HostfileEntry> entries;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::vector<std::string> words = words_of_line(line);
    if (words.empty()) continue;
    try {
      add_entry(entries, read_entry(words));
    } catch (const ConfigError& error) {
      raise<ConfigError>(
          "{}:{}: {}; expected one host a line: 'host', 'host:ranks' or 'host slots=ranks'",
          path.native(), number, error.what());
    }
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
    const std::vector<std::string> words = words_of_line(list.substr(begin, end - begin));
    try {
      if (words.size() != 1) raise<ConfigError>("a name is missing");
      add_entry(entries, read_entry(words));
    } catch (const ConfigError& error) {
      raise<ConfigError>("'{}' is not a list of hosts: {}; expected host,host or host:ranks,host",
                         list, error.what());
    }
    begin = end + 1;
  }
  return entries;
}

std::vector<HostfileEntry> each_host_once(const std::vector<HostfileEntry>& entries) {
  std::vector<HostfileEntry> hosts;
  for (const HostfileEntry& entry : entries) {
    const auto known = std::find_if(hosts.begin(), hosts.end(), [&](const HostfileEntry& other) {
      return other.host == entry.host;
    });
    known == hosts.end() ? hosts.push_back(entry) : void(known->ranks += entry.ranks);
  }
  return hosts;
}

}  // namespace tandem::launch
