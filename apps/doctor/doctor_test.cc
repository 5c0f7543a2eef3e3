// `tandem doctor` from outside, and the host files it reads. The hosts themselves are in
// tests/multihost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/doctor/program.h"
#include "apps/doctor/report.h"
#include "support/process.h"
#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/launch/mpirun/host_file.h"
#include "tandem/net/socket.h"

namespace tandem::apps::doctor {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class Doctor : public ::testing::Test {
 protected:
  std::string hostfile(const std::string& text) const {
    write_file(folder_ / "hostfile", text);
    return (folder_ / "hostfile").native();
  }
  testing::ProcessResult doctor(std::vector<std::string> words,
                                std::map<std::string, std::string> environment = {}) const {
    words.insert(words.begin(),
                 {(fs::path(TANDEM_BINARY_DIR) / "bin" / "tandem").native(), "doctor"});
    environment.try_emplace("OMP_NUM_THREADS", "1");
    if (!environment.contains("PATH"))
      environment["PATH"] = path_with_mpirun("HYDRA build details:");
    return testing::run(words, environment);
  }
  // The value of PATH with a program `mpirun` in front that prints `version`; which MPI this
  // machine has does not matter then.
  std::string path_with_mpirun(const std::string& version) const {
    const fs::path program = folder_ / "bin" / "mpirun";
    fs::create_directories(program.parent_path());
    write_file(program, "#!/bin/sh\necho '" + version + "'\n");
    fs::permissions(program, fs::perms::owner_all);
    return program.parent_path().native() + ":/usr/bin:/bin";
  }
  testing::TemporaryFolder folder_;
};

TEST_F(Doctor, ReadsTheFormsOfHostFiles) {
  const auto entries =
      launch::read_hostfile(hostfile("# the cluster\nnode0\n  node1:4  # with a comment\n\nnode2 "
                                     "slots=3 max_slots=5\nfe80::1\n[fe80::2]:5\n"));
  ASSERT_EQ(entries.size(), 5u);
  EXPECT_EQ(entries[0].host, "node0");
  EXPECT_EQ(entries[0].ranks, 1);
  EXPECT_EQ(entries[1].host, "node1");
  EXPECT_EQ(entries[1].ranks, 4);
  EXPECT_EQ(entries[2].ranks, 3);
  EXPECT_EQ(entries[3].host, "fe80::1");
  EXPECT_EQ(entries[4].host, "fe80::2");
  EXPECT_EQ(entries[4].ranks, 5);
}

// A host on several lines, as PBS and SGE write it, is one host with all of its slots.
TEST_F(Doctor, HostsOnSeveralLinesAreCheckedOnce) {
  const auto result =
      doctor({"--hostfile", hostfile("localhost\n127.0.0.1\nlocalhost\n"), "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("2 ranks, this host"));
  const auto first = result.out.find("host localhost");
  EXPECT_EQ(result.out.find("host localhost", first + 1), std::string::npos);
}

TEST_F(Doctor, BadHostFilesAreNamedWithTheirLine) {
  for (const auto& [text, expected] : std::vector<std::pair<std::string, std::string>>{
           {"node0\nnode1:two\n",
            "hostfile:2: 'node1:two' is not the name of a host; expected one host a line"},
           {"node0:0\n", "hostfile:1:"},
           {"node0 node1\n", "hostfile:1:"},
           {"node0 slots=x\n", "hostfile:1:"},
           {"node0,node1\n", "hostfile:1:"},
           {":4\n", "hostfile:1:"},
           {"node0\n-oProxyCommand:1\n",
            "hostfile:2: '-oProxyCommand:1' is not the name of a host"},
           {"node0 boards=2\n", "hostfile:1: the attribute 'boards=2' is not supported"},
           {"node0 cpu-set=0,1\n", "hostfile:1: the attribute 'cpu-set=0,1' is not supported"},
           {"node0 slots=3 max_slots=2\n", "hostfile:1: slots=3 is more than max_slots=2"},
           {"node0:2 slots=3\n", "hostfile:1: the number of slots is given twice"},
           {"a user=x\nb\na user=y\n", "hostfile:3: host 'a' has another user on an earlier"},
           {"a user=-oProxyCommand=x\n", "hostfile:1: '-oProxyCommand=x' is not the name of a us"},
           {"^node0\n", "hostfile:1: '^node0' is not the name of a host"},
           {"+n0\n", "hostfile:1: '+n0' is not the name of a host"},
           {"rank 0=node0 slot=1\n", "hostfile:1: the attribute '0=node0' is not supported"},
           {std::string("n\0o\0", 4), "found UTF-16LE, expected UTF-8"},
           {std::string("node0\n\0", 7), "found bytes 0"},
           {"# nothing\n\n", "no host in it"}}) {
    const auto result = doctor({"--hostfile", hostfile(text)});
    EXPECT_EQ(result.exit_code, 1) << text;
    EXPECT_THAT(result.err, AllOf(HasSubstr("tandem: error: "), HasSubstr(expected))) << text;
  }
  const auto missing = doctor({"--hostfile", "/no/such/hostfile"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("/no/such/hostfile"));
}

TEST_F(Doctor, AHealthyMachinePasses) {
  const auto result = doctor({"--output_dir", (folder_ / "not").native()});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  for (const auto* topic : {"cores ", "topology ", "memory ", "huge pages ", "/dev/shm ", "limits ",
                            "output ", "network ", "launcher ", "library "}) {
    EXPECT_THAT(result.out, HasSubstr(topic));
  }
  EXPECT_THAT(result.out, EndsWith("tandem doctor: no problems found\n"));
  EXPECT_FALSE(fs::exists(folder_ / "not"));  // it looks, it makes nothing
}

// The guides' line fails with an mpirun that is not Hydra's, so the verdict counts it.
TEST_F(Doctor, AnMpirunThatIsNotHydrasIsAProblem) {
  for (const char* const version : {"mpirun (Open MPI) 4.1.4", "mpirun (IBM Spectrum MPI) 10.3.1",
                                    "HPE MPT 2.25 01/20/21 03:57:28"}) {
    const auto result = doctor({}, {{"PATH", path_with_mpirun(version)}});
    EXPECT_EQ(result.exit_code, 1) << version;
    EXPECT_THAT(
        result.out,
        AllOf(HasSubstr(std::string("problem: launcher: mpirun is '") + version),
              HasSubstr("`tandem mpirun` in its place"), EndsWith("tandem doctor: 1 problem\n")));
  }
  for (const char* const version :
       {"HYDRA build details:\n    Version:                                 4.0.2",
        "Intel(R) MPI Library for Linux* OS, Version 2021.19 Build 20260101",
        "tandem mpirun 0.1, with Hydra'\\''s command line"}) {
    const auto result = doctor({}, {{"PATH", path_with_mpirun(version)}});
    EXPECT_EQ(result.exit_code, 0) << version << result.out;
  }
}

// `tandem mpirun` is an mpirun that doctor knows.
TEST_F(Doctor, TandemsMpirunTakesTheGuidesLine) {
  const auto version = testing::run(
      {(fs::path(TANDEM_BINARY_DIR) / "bin" / "tandem").native(), "mpirun", "--version"});
  EXPECT_EQ(version.exit_code, 0) << version.err;
  EXPECT_THAT(version.out, AllOf(HasSubstr("tandem mpirun "), HasSubstr("Hydra")));
}

TEST_F(Doctor, EveryProblemHasAFix) {
  const auto result = doctor({"--hostfile", hostfile("localhost\nno-such-host.invalid\n"),
                              "--output_dir", "/proc/no/such/folder", "--json", "--timeout", "2"},
                             {{"OMP_NUM_THREADS", "5000"}, {"TANDEM_IFNAME", "ib7"}});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  const auto report = nlohmann::json::parse(result.out);
  EXPECT_FALSE(report["healthy"].get<bool>());
  std::map<std::string, std::string> problems;
  for (const auto& problem : report["problems"]) {
    problems[problem["topic"]] = problem["problem"];
    EXPECT_NE(problem["fix"].get<std::string>(), "");
  }
  EXPECT_THAT(problems["cores"], HasSubstr("OMP_NUM_THREADS is 5000"));
  EXPECT_THAT(problems["network"], HasSubstr("no interface 'ib7'"));
  EXPECT_THAT(problems["host no-such-host.invalid"], HasSubstr("does not resolve"));
  EXPECT_TRUE(problems.contains("output")) << result.out;
}

TEST_F(Doctor, ATakenPort) {
  const auto listener = net::listen_tcp(false, 0);
  const int port = net::local_port(listener);
  const auto result =
      doctor({"--hostfile", hostfile("localhost\n"), "--port", std::to_string(port)});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, AllOf(HasSubstr("problem: port: "), HasSubstr("taken"),
                                HasSubstr("fix: "), EndsWith("tandem doctor: 1 problem\n")));
}

TEST_F(Doctor, UsageErrors) {
  EXPECT_EQ(doctor({"--no-such-flag"}).exit_code, 2);
  EXPECT_EQ(doctor({"--port", "70000"}).exit_code, 2);
  EXPECT_EQ(doctor({"--help"}).exit_code, 0);
}

TEST(Program, IsEndedAtTheLimit) {
  const auto slow =
      run_program({"sh", "-c", "echo begun; sleep 60"}, std::chrono::milliseconds(300));
  EXPECT_TRUE(slow.started);
  EXPECT_FALSE(slow.in_time);
  EXPECT_EQ(slow.out, "begun\n");
  const auto failing = run_program({"sh", "-c", "echo why >&2; exit 7"}, std::chrono::seconds(20));
  EXPECT_TRUE(failing.in_time);
  EXPECT_EQ(failing.exit_code, 7);
  EXPECT_EQ(failing.err, "why\n");
  EXPECT_FALSE(run_program({"no-such-program-anywhere"}, std::chrono::seconds(20)).started);
}

}  // namespace
}  // namespace tandem::apps::doctor
