#include "apps/bench/flags.h"

#include <CLI/CLI.hpp>

#include "apps/command/command_line.h"

namespace tandem::apps::bench {

Flags::Flags(CLI::App& parent, const std::string& name, const std::string& help)
    : app_(*parent.add_subcommand(name, help)) {}

void Flags::text(const std::string& names, std::string& value, const std::string& help, Need need) {
  app_.add_option(names, value, help)->required(need == Need::kRequired);
}

void Flags::choice(const std::string& names, std::string& value, const std::string& help,
                   const std::vector<std::string>& choices) {
  app_.add_option(names, value, help)->check(CLI::IsMember(choices));
}

void Flags::number(const std::string& names, int& value, const std::string& help, int least,
                   int most) {
  app_.add_option(names, value, help)->check(whole_number_in(least, most));
}

void Flags::number(const std::string& names, std::size_t& value, const std::string& help, int least,
                   int most) {
  app_.add_option(names, value, help)->check(whole_number_in(least, most));
}

void Flags::number(const std::string& names, double& value, const std::string& help, double least,
                   double most) {
  app_.add_option(names, value, help)->check(number_in(least, most));
}

void Flags::numbers(const std::string& names, std::vector<std::size_t>& values,
                    const std::string& help, int least, int most) {
  app_.add_option(names, values, help)->delimiter(',')->check(whole_number_in(least, most));
}

void Flags::bytes(const std::string& names, std::size_t& value, const std::string& help) {
  app_.add_option(names, value, help)->transform(CLI::AsSizeValue(/*kb_is_1000=*/false));
}

void Flags::boolean(const std::string& names, bool& value, const std::string& help) {
  app_.add_flag(names, value, help);
}

void Flags::footer(const std::string& text) { app_.footer(text); }

}  // namespace tandem::apps::bench
