// `tandem doctor`: will a job run here, and on the hosts of a host file? Reports missing
// requirements and how to fix them.
#include <algorithm>
#include <cstdio>
#include <sstream>

#include "apps/command/command_line.h"
#include "apps/command/commands.h"
#include "apps/doctor/checks.h"
#include "tandem/rendezvous/identity.h"

namespace tandem::apps {
namespace {

struct Options {
  std::string hostfile;
  std::string output_dir = ".";
  std::string ssh = "ssh";
  int port = 0;
  double timeout = 10;
  bool json = false;
};

bool parse_options(const std::vector<std::string>& words, Options& options) {
  CLI::App app(
      "Checks this machine, and the hosts of a host file, for what a training job needs. The last "
      "lines name each "
      "problem and its fix; exits 0 without one and 1 otherwise.",
      "tandem doctor");
  app.add_option("-f,--hostfile", options.hostfile,
                 "the hosts of the job, as for mpirun -f; each is reached by ssh");
  app.add_option("--output_dir", options.output_dir, "where the job will write")
      ->capture_default_str();
  app.add_option("--port", options.port,
                 "rank 0's port (default: MASTER_PORT, else any free one, as under Hydra)")
      ->check(whole_number_in(1, 65535));
  app.add_option("--ssh", options.ssh, "ssh and its options, separated by blanks")
      ->capture_default_str();
  app.add_option("--timeout", options.timeout, "seconds for each host")
      ->capture_default_str()
      ->check(number_in(0.1, 3600.0));
  app.add_flag("--json", options.json, "one JSON object instead of lines");
  return parse_command(app, words);
}

std::vector<std::string> split_words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words.empty() ? std::vector<std::string>{"ssh"} : words;
}

}  // namespace

int run_doctor(const Invocation& invocation) {
  Options options;
  if (!parse_options(invocation.words, options)) return 0;
  const Environment& environment = invocation.environment;
  doctor::Hosts hosts;
  if (!options.hostfile.empty()) {
    hosts.entries = launch::each_host_once(launch::read_hostfile(options.hostfile));
  }
  hosts.port = options.port != 0
                   ? options.port
                   : static_cast<int>(environment.get_int("MASTER_PORT", 1, 65535).value_or(0));
  hosts.ssh = split_words(options.ssh);
  hosts.timeout = std::chrono::milliseconds(static_cast<long>(options.timeout * 1000));
  const bool several = hosts.entries.size() > 1;

  doctor::Report report;
  doctor::check_installation(environment, report);
  doctor::check_machine(environment, std::max(1, hosts.ranks()), report);
  doctor::draw_plan(environment, hosts.entries.empty() ? 0 : hosts.entries.front().ranks, report);
  doctor::check_output_dir(options.output_dir, report);
  doctor::check_network(environment, several, report);
  doctor::check_software(several, report);
  doctor::check_hosts(environment, hosts, report);
  std::fputs((options.json ? report.json() : report.text()).c_str(), stdout);
  return report.healthy() ? 0 : 1;
}

}  // namespace tandem::apps
