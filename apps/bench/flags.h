// The flags of a bench. CLI11 is in flags.cc: each source that includes it takes ten seconds more
// to compile.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tandem::apps::bench {

// All references must be valid until the command line has been parsed.
class Flags {
 public:
  // A subcommand of `parent`.
  Flags(CLI::App& parent, const std::string& name, const std::string& help);
  CLI::App& app() const { return app_; }

  enum class Need { kOptional, kRequired };
  // Names begin with dashes; one without them is a word's. Several have commas between them.
  void text(const std::string& names, std::string& value, const std::string& help,
            Need need = Need::kOptional);
  void choice(const std::string& names, std::string& value, const std::string& help,
              const std::vector<std::string>& choices);
  // From `least` to `most`.
  void number(const std::string& names, int& value, const std::string& help, int least, int most);
  void number(const std::string& names, std::size_t& value, const std::string& help, int least,
              int most);
  void number(const std::string& names, double& value, const std::string& help, double least,
              double most);
  // Separated by commas.
  void numbers(const std::string& names, std::vector<std::size_t>& values, const std::string& help,
               int least, int most);
  // "8", "4K", "256M".
  void bytes(const std::string& names, std::size_t& value, const std::string& help);
  void boolean(const std::string& names, bool& value, const std::string& help);
  // Text below the list of flags.
  void footer(const std::string& text);

 private:
  CLI::App& app_;
};

}  // namespace tandem::apps::bench
