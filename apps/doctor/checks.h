// The checks of `tandem doctor`, one function per subject. Each adds what it finds to the report
// and throws nothing that the world can cause.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/doctor/report.h"
#include "tandem/core/env.h"
#include "tandem/launch/mpirun/host_file.h"

namespace tandem::apps::doctor {

struct Hosts {
  std::vector<launch::HostfileEntry> entries;
  int port = 0;  // rank 0's; 0: any free one
  std::vector<std::string> ssh = {"ssh"};
  std::chrono::milliseconds timeout{10000};  // per host
  int ranks() const {
    int sum = 0;
    for (const launch::HostfileEntry& entry : entries) sum += entry.ranks;
    return sum;
  }
};

// The program's version and kernels, the CPU, where models and data sets come from.
void check_installation(const Environment& environment, Report& report);
// Cores, quota, SMT, NUMA, memory, huge pages, shared memory, limits.
void check_machine(const Environment& environment, int ranks_of_job, Report& report);
// Reports the workers that `tandem run` would start on this host, and their CPUs: `ranks_of_host`
// workers, or with 0 one for each memory domain.
void draw_plan(const Environment& environment, int ranks_of_host, Report& report);
// Free space and right to write.
void check_output_dir(const std::filesystem::path& directory, Report& report);
// Interfaces, this host's name.
void check_network(const Environment& environment, bool several_hosts, Report& report);
// Launchers and their versions; libraries that the plugins load.
void check_software(bool several_hosts, Report& report);
// Every host of the file: its name, ssh, tandem, clock, and a connection from it to rank 0's port
// here.
void check_hosts(const Environment& environment, const Hosts& hosts, Report& report);

}  // namespace tandem::apps::doctor
