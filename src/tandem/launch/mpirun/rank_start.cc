#include "tandem/launch/mpirun/rank_start.h"

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/core/whole_number.h"

namespace tandem::launch {
namespace {

using nlohmann::json;

// Words of a command line and of an environment are bytes, JSON's texts are UTF-8: each byte is
// written as the character with its number.
std::string widened(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      text += c;
    } else {
      text += static_cast<char>(0xC0 | (byte >> 6));
      text += static_cast<char>(0x80 | (byte & 0x3F));
    }
  }
  return text;
}

std::string narrowed(const std::string& text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x80) {
      bytes += text[i];
    } else if (byte <= 0xC3 && i + 1 < text.size()) {
      bytes += static_cast<char>((byte << 6) | (static_cast<unsigned char>(text[++i]) & 0x3F));
    } else {
      raise<DataError>("mpirun's daemon received text that is not a list of bytes");
    }
  }
  return bytes;
}

json to_json(const RankStart::Program& program) {
  json data = {{"directory", widened(program.directory)},
               {"command", json::array()},
               {"environment", json::object()}};
  for (const std::string& word : program.command) data["command"].push_back(widened(word));
  for (const auto& [name, value] : program.environment)
    data["environment"][widened(name)] = widened(value);
  return data;
}

RankStart::Program program_from(const json& data) {
  RankStart::Program program;
  program.directory = narrowed(data.at("directory").get<std::string>());
  for (const json& word : data.at("command"))
    program.command.push_back(narrowed(word.get<std::string>()));
  if (program.command.empty()) raise<DataError>("mpirun's daemon received no program to start");
  for (const auto& [name, value] : data.at("environment").items())
    program.environment[narrowed(name)] = narrowed(value.get<std::string>());
  return program;
}

}  // namespace

std::string to_text(const RankStart& start) {
  json data = {
      {"size", start.size},       {"own_job", start.own_job},       {"bind_to", start.bind_to},
      {"map_by", start.map_by},   {"input_rank", start.input_rank}, {"ranks", json::array()},
      {"programs", json::array()}};
  for (const auto& rank : start.ranks) data["ranks"].push_back({rank.rank, rank.program});
  for (const auto& program : start.programs) data["programs"].push_back(to_json(program));
  return data.dump();
}

RankStart rank_start_from(const std::string& text) {
  try {
    const json data = parse_json(text);
    RankStart start;
    data.at("size").get_to(start.size);
    data.at("own_job").get_to(start.own_job);
    data.at("bind_to").get_to(start.bind_to);
    data.at("map_by").get_to(start.map_by);
    data.at("input_rank").get_to(start.input_rank);
    for (const json& program : data.at("programs")) start.programs.push_back(program_from(program));
    for (const json& rank : data.at("ranks")) {
      start.ranks.push_back({whole_number<int>(rank.at(0)), whole_number<int>(rank.at(1))});
      const auto& added = start.ranks.back();
      if (added.rank < 0 || added.rank >= start.size || added.program < 0 ||
          added.program >= static_cast<int>(start.programs.size())) {
        raise<DataError>("mpirun's daemon received rank {} of {} to start", added.rank, start.size);
      }
    }
    return start;
  } catch (const json::exception& error) {
    raise<DataError>("mpirun's daemon received a message that it cannot parse");
  }
}

}  // namespace tandem::launch
