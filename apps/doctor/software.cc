#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "apps/doctor/checks.h"
#include "apps/doctor/program.h"

namespace tandem::apps::doctor {
namespace {

constexpr std::chrono::milliseconds kTimeout{5000};

struct Launcher {
  const char* program;
  const char* package;
};
constexpr Launcher kLaunchers[] = {{"mpirun", "mpich"},
                                   {"mpiexec.hydra", "mpich"},
                                   {"mpirun.openmpi", "openmpi-bin"},
                                   {"torchrun", "torch from PyPI"},
                                   {"srun", "slurm-client"}};

// Launchers that take the guides' line: Hydra of MPICH, MVAPICH and Intel MPI, and `tandem mpirun`
// under that name.
bool takes_guides_line(const std::string& version) {
  return version.find("Hydra") != std::string::npos || version.find("HYDRA") != std::string::npos ||
         version.find("Intel") != std::string::npos;
}

// A library that a plugin loads at run time; any of the names will do.
struct Library {
  const char* what;
  std::vector<const char*> names;
  const char* package;
};

// "mpirun (Open MPI) 4.1.4", "HYDRA build details: Version: 4.0.2", "Intel(R) MPI Library for
// Linux* OS, Version 2021.19".
std::string version_of(const std::string& output) {
  std::string text = first_line(output);
  const std::size_t at = output.find("Version:");
  if (text.find("HYDRA") != std::string::npos && at != std::string::npos) {
    const std::string version = first_line(output.substr(at + 8));
    text =
        "MPICH's Hydra " + version.substr(std::min(version.size(), version.find_first_not_of(' ')));
  }
  return text;
}

// The command to type where `mpirun` belongs to another program.
std::string instead_of_mpirun(bool hydra) {
  if (!hydra) return "write `tandem mpirun` in its place, which needs no MPI, or apt install mpich";
  return "write mpiexec.hydra or `tandem mpirun` in its place, or make MPICH's the default: "
         "update-alternatives --set mpirun /usr/bin/mpirun.mpich";
}

void check_launchers(bool several_hosts, Report& report) {
  bool hydra = false;
  std::string mpirun;
  for (const Launcher& launcher : kLaunchers) {
    const ProgramOutput found = run_program({launcher.program, "--version"}, kTimeout);
    if (!found.started || !found.in_time || found.exit_code != 0) {
      report.fact("launcher",
                  fmt::format("{}: not found (package {})", launcher.program, launcher.package));
      continue;
    }
    const std::string version = version_of(found.out + found.err);
    report.fact("launcher", fmt::format("{}: {}", launcher.program, version));
    hydra = hydra || takes_guides_line(version);
    if (std::string_view(launcher.program) == "mpirun") mpirun = version;
  }
  if (!mpirun.empty() && !takes_guides_line(mpirun)) {
    return report.problem(
        "launcher",
        fmt::format("mpirun is '{}', which does not take -f, -ppn and -genv of the "
                    "guides' line",
                    mpirun),
        instead_of_mpirun(hydra));
  }
  if (mpirun.empty() && several_hosts) {
    report.problem("launcher", "no mpirun, which the guides' line begins with",
                   instead_of_mpirun(hydra));
  } else if (mpirun.empty()) {
    report.note("launcher", "no mpirun: the guides' line works with `tandem mpirun` in its place");
  }
}

// In a process of its own: what a library does while it is loaded (start threads, print, crash) is
// not the doctor's.
bool loads(const char* name) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::dlopen(name, RTLD_NOW | RTLD_LOCAL) == nullptr ? 1 : 0);
  int status = 1;
  return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
}

void check_libraries(Report& report) {
  const Library libraries[] = {
      {"libfabric (fabrics)", {"libfabric.so.1"}, "libfabric1"},
      {"MPICH or Intel MPI (--ddp_backend mpi)", {"libmpi.so.12", "libmpich.so.12"}, "libmpich12"},
      {"Open MPI (--ddp_backend mpi)", {"libmpi.so.40"}, "libopenmpi3"},
      {"Gloo (--ddp_backend gloo)", {"libgloo.so.0", "libgloo.so"}, "libgloo0"},
  };
  for (const Library& library : libraries) {
    std::string found;
    for (const char* name : library.names) {
      if (found.empty() && loads(name)) found = name;
    }
    report.fact("library", found.empty() ? fmt::format("{}: not found (package {})", library.what,
                                                       library.package)
                                         : fmt::format("{}: {}", library.what, found));
  }
}

}  // namespace

void check_software(bool several_hosts, Report& report) {
  check_launchers(several_hosts, report);
  check_libraries(report);
}

}  // namespace tandem::apps::doctor
