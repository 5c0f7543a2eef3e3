// Shared by the tests of run_qa's arguments: command lines as people write them.
#pragma once

#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "apps/arguments/job_command_line.h"
#include "apps/arguments/job_commands.h"
#include "tandem/tasks/question_answering/command_line.h"

namespace tandem::apps {

struct RunQaArguments : job::Arguments {
  tasks::QaArguments data;
};

struct ParsedRunQa : CommandLineRemarks {
  RunQaArguments arguments;
};

// parse_job() with the flags of question answering.
inline ParsedRunQa parse_run_qa(std::span<const std::string> words,
                                const std::filesystem::path& directory,
                                const Environment& environment) {
  ParsedRunQa parsed;
  question_answering::CommandLine task;
  static_cast<CommandLineRemarks&>(parsed) =
      parse_job(words, directory, environment, task, parsed.arguments);
  parsed.arguments.data = task.arguments();
  return parsed;
}

inline job::Request job_request(ParsedRunQa parsed, std::span<const std::string> words) {
  question_answering::CommandLine task(parsed.arguments.data);
  return {.command = shown_command(words, task),
          .program = {},
          .families = {},
          .arguments = parsed.arguments,
          .values = to_json(parsed.arguments, task),
          .notes = parsed.notes};
}

inline FlagTable run_qa_flags() { return find_job_command("run_qa")->flags(); }

inline std::vector<std::string> split(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

inline const Environment kEnvironment(std::map<std::string, std::string, std::less<>>{
    {"HOME", "/home/ada"}});
inline const std::string kMinimum = "--model_name_or_path m --validation_file v.json";

inline ParsedRunQa parse(const std::vector<std::string>& words) {
  return parse_run_qa(words, "/nonexistent-directory", kEnvironment);
}
inline ParsedRunQa parse(const std::string& line) { return parse(split(line)); }
inline ParsedRunQa parse_more(const std::string& line) { return parse(kMinimum + " " + line); }

struct Failure {
  std::string message = "no error";
  int exit_code = 0;
};

inline Failure failure_of(const std::vector<std::string>& words) {
  try {
    parse(words);
  } catch (const Error& error) {
    return {error.what(), error.exit_code()};
  }
  return {};
}
inline Failure failure(const std::string& line) { return failure_of(split(line)); }
inline Failure failure_more(const std::string& line) { return failure(kMinimum + " " + line); }

}  // namespace tandem::apps
