// `tandem mpirun` from outside: its ranks, their failures, and programs of other projects, which an
// MPI's own mpiexec starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "e2e/job.h"
#include "support/mpi_program.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;
using namespace std::chrono_literals;

class TandemMpirun : public JobTest {
 protected:
  static Words mpirun(const Words& words) {
    Words all = {kProgram, "mpirun"};
    all.insert(all.end(), words.begin(), words.end());
    return all;
  }
  // A shell instead of tandem, with a text that names tandem: the launcher starts it itself.
  static Words shell(const Words& flags, const std::string& script) {
    return mpirun(with(flags, {"sh", "-c", ": tandem; " + script}));
  }
};

// With a program of MPI, compiled with MPICH's compiler; skipped where it is absent. A shell starts
// it, so it uses tandem's PMI-1 server, as the library of a job with --ddp_backend mpi does.
class TandemMpirunOfMpich : public TandemMpirun {
 protected:
  void SetUp() override {
    pi_ = build_mpi_program(path("").native());
    if (pi_.empty()) GTEST_SKIP() << "needs mpicc.mpich (packages mpich, libmpich-dev)";
  }
  std::string pi_;
};

TEST_F(TandemMpirunOfMpich, RunsItsPrograms) {
  const auto result = run(shell({"-n", "3", "-l"}, "exec " + pi_));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(lines_of(result.out), UnorderedElementsAre(HasSubstr("[0] rank 0 of 3: pi 3.1416"),
                                                         HasSubstr("[1] rank 1 of 3: pi 3.1416"),
                                                         HasSubstr("[2] rank 2 of 3: pi 3.1416")));
  const auto two = run(mpirun({"-n", "1", "sh", "-c", ": tandem; exec " + pi_ + " code", ":", "-n",
                               "1", "sh", "-c", "exec " + pi_}));
  EXPECT_EQ(two.exit_code, 3) << two.err;
  EXPECT_THAT(two.out, HasSubstr("rank 1 of 2: pi 3.1416"));
}

// The job does not wait for a dead rank, and the last line names it.
TEST_F(TandemMpirunOfMpich, ADeadRankEndsTheJob) {
  for (const auto& [how, code, words] :
       {std::tuple{"abort", 7, "asked to end the job with exit code 7"},
        {"crash", 134, "root failure: rank 1 (local rank 1"},
        {"leave", 1, "left without MPI_Finalize"},
        {"before", 1, "waits for it in PMI's barrier"}}) {
    const auto result = run(shell({"-n", "3"}, "exec " + pi_ + ' ' + how), {}, 60s);
    EXPECT_EQ(result.exit_code, code) << how << '\n' << result.err;
    EXPECT_THAT(last_line(result.err), HasSubstr(words));
  }
}

TEST_F(TandemMpirun, RanksHaveHydrasVariables) {
  const auto result = run(
      shell({"-n", "2", "-ppn", "2", "-genv", "A", "1", "-genv", "B=2", "-genvlist", "PATH,KEPT"},
            "echo $PMI_RANK $PMI_SIZE $MPI_LOCALRANKID $MPI_LOCALNRANKS $A$B$KEPT$LOST"),
      {{"KEPT", "k"}, {"LOST", "l"}, {"PMI_RANK", "9"}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(lines_of(result.out), UnorderedElementsAre("0 2 0 2 12k", "1 2 1 2 12k"));
}

// As PBS and SGE write it: a line for each slot.
TEST_F(TandemMpirun, AHostMayBeOnSeveralLines) {
  const std::filesystem::path reported = std::filesystem::path(TANDEM_SOURCE_DIR) /
                                         "../shared/data/reported/F05_hostfile_repeated_hosts";
  write_file(path("hosts"), "localhost\nlocalhost\n");
  std::vector<std::string> files = {path("hosts").native()};
  for (const char* const name : {"hosts", "pbs_nodefile"})
    if (std::filesystem::exists(reported / name)) files.push_back((reported / name).native());
  if (files.size() == 1) std::cerr << "not tried, for they are absent: " << reported << '\n';
  for (const std::string& file : files) {
    const Words echo = {"-n", "2", "sh", "-c", ": tandem; echo $PMI_RANK/$MPI_LOCALRANKID"};
    for (const char* const flag : {"-f", "-machinefile"}) {
      const auto result = run(mpirun(with({flag, file}, echo)));
      EXPECT_EQ(result.exit_code, 0) << result.err;
      EXPECT_THAT(lines_of(result.out), ::testing::UnorderedElementsAre("0/0", "1/1"));
    }
    for (const char* const variable : {"HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE"}) {
      const auto result = run(mpirun(echo), {{variable, file}});
      EXPECT_THAT(lines_of(result.out), ::testing::UnorderedElementsAre("0/0", "1/1"));
    }
  }
}

TEST_F(TandemMpirun, StreamsGoWhereTheyAreSent) {
  write_file(path("input"), "for rank 1\n");
  const auto result =
      run({"/bin/sh", "-c",
           fmt::format("{} mpirun -n 2 -s 1 -outfile-pattern {}/out.%r -prepend-pattern "
                       "'<%r>' sh -c ': tandem; cat; printf unfinished; echo e >&2' < {}",
                       kProgram, path("").native(), path("input").native())});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(read_file(path("out.0")), "<0>unfinished\n");
  EXPECT_EQ(read_file(path("out.1")), "<1>for rank 1\n<1>unfinished\n");
  EXPECT_THAT(lines_of(result.err), UnorderedElementsAre("<0>e", "<1>e"));
}

// Input that no rank has asked for yet must not keep mpirun busy: here its rank never comes.
TEST_F(TandemMpirun, WaitsForTheRankThatReadsItsInput) {
  const auto result = run({"/bin/bash", "-c",
                           fmt::format("TIMEFORMAT='%U %S'; time {} mpirun -s 9 -n 1 sh -c "
                                       "': tandem; exec sleep 3' < /dev/null",
                                       kProgram)});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  double user = 0, system = 3;
  std::istringstream(result.err) >> user >> system;
  EXPECT_LT(user + system, 1.5) << result.err;
}

TEST_F(TandemMpirun, SignalsReachAllRanks) {
  Process job(shell({"-n", "2"}, "trap 'echo saved; exit 0' TERM; echo up; sleep 300 & wait"));
  ASSERT_TRUE(prints(job, "up\nup\n"));
  job.signal(SIGTERM);
  const auto result = job.wait(60s);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "up\nup\nsaved\nsaved\n");
}

TEST_F(TandemMpirun, EveryWaitEnds) {
  const auto late = run(shell({"-n", "2"}, "exec sleep 300"), {{"MPIEXEC_TIMEOUT", "1"}}, 60s);
  EXPECT_EQ(late.exit_code, 124) << late.err;
  EXPECT_THAT(late.err, HasSubstr("longer than MPIEXEC_TIMEOUT=1"));
  const auto stubborn =
      run(shell({"-n", "2"}, "trap '' TERM; [ $PMI_RANK = 0 ] && kill -9 $$; sleep 300"), {}, 60s);
  EXPECT_EQ(stubborn.exit_code, 137) << stubborn.err;
  // An ssh that cannot reach its host.
  write_file(path("ssh"), "#!/bin/sh\necho 'Host key verification failed.' >&2\nexit 255\n");
  std::filesystem::permissions(path("ssh"), std::filesystem::perms::owner_all);
  const auto unreachable = run(
      mpirun({"-hosts", "far.invalid", "-launcher-exec", path("ssh").native(), "tandem", "run_qa"}),
      {}, 60s);
  EXPECT_EQ(unreachable.exit_code, 200);
  EXPECT_THAT(unreachable.err, AllOf(HasSubstr("host far.invalid with ranks 0 is lost"),
                                     HasSubstr("Host key verification failed.")));
}

// Ranks start from the same path everywhere, which a host may lack.
TEST_F(TandemMpirun, AHostWithoutTheProgramIsNamed) {
  write_file(path("ssh"), fmt::format("#!/bin/sh\nfor words; do :; done\nexec sh -c \"$(echo "
                                      "\"$words\" | sed 's|{}|/not/here/tandem|g')\"\n",
                                      kProgram));
  std::filesystem::permissions(path("ssh"), std::filesystem::perms::owner_all);
  const auto lacking = run(
      mpirun({"-hosts", "far.invalid", "-launcher-exec", path("ssh").native(), "tandem", "run_qa"}),
      {}, 60s);
  EXPECT_EQ(lacking.exit_code, 200) << lacking.out;
  EXPECT_THAT(lacking.err, AllOf(HasSubstr("host far.invalid with ranks 0 is lost"),
                                 HasSubstr("/not/here/tandem")));
}

// Which process of a job is stopped before another one is killed.
struct Killed {
  const char* name;
  bool stop_daemon, stop_rank;
  bool kill_daemon;  // or mpirun
};

void PrintTo(const Killed& one, std::ostream* out) { *out << one.name; }

class KilledMpirun : public TandemMpirun, public ::testing::WithParamInterface<Killed> {};

// Ranks write their process ids; a moment after mpirun or its daemon is killed none is there.
TEST_P(KilledMpirun, NothingIsLeftBehind) {
  const std::string ids = path("rank").native();
  Process job(shell({"-n", "2"}, fmt::format("echo $$ > {}.$PMI_RANK; exec sleep 300", ids)));
  const auto rank = [&](int number) {
    const auto text = read_file_if_exists(fmt::format("{}.{}", ids, number)).value_or("");
    return text.ends_with('\n') ? std::stoi(text) : 0;
  };
  for (int i = 0; i < 3000 && (rank(0) == 0 || rank(1) == 0); ++i)
    std::this_thread::sleep_for(20ms);
  ASSERT_TRUE(rank(0) > 0 && rank(1) > 0);
  const std::string children =
      read_file_if_exists(fmt::format("/proc/{0}/task/{0}/children", job.pid())).value_or("");
  ASSERT_FALSE(children.empty());
  const std::vector<pid_t> processes = {std::stoi(children), rank(0), rank(1)};
  if (GetParam().stop_daemon) ::kill(processes[0], SIGSTOP);
  if (GetParam().stop_rank) ::kill(processes[1], SIGSTOP);
  ::kill(GetParam().kill_daemon ? processes[0] : job.pid(), SIGKILL);
  const auto result = job.wait(30s);
  EXPECT_EQ(result.exit_code, GetParam().kill_daemon ? 200 : 137) << result.err;
  for (const pid_t process : processes) {
    for (int i = 0; i < 500 && ::kill(process, 0) == 0; ++i) std::this_thread::sleep_for(20ms);
    EXPECT_NE(::kill(process, 0), 0) << process;
    ::kill(process, SIGKILL);
  }
}

INSTANTIATE_TEST_SUITE_P(Mpirun, KilledMpirun,
                         ::testing::Values(Killed{"Mpirun", false, false, false},
                                           Killed{"Daemon", false, false, true},
                                           Killed{"MpirunWithAStoppedRank", false, true, false},
                                           Killed{"DaemonWithAStoppedRank", false, true, true},
                                           Killed{"MpirunWithAStoppedDaemon", true, false, false},
                                           Killed{"StoppedDaemon", true, true, true}),
                         [](const auto& test) { return test.param.name; });

// One line names the hosts that have not answered after 4 s, and the output of ssh.
TEST_F(TandemMpirun, LogsWhatItWaitsFor) {
  for (const auto& [script, logged] : std::vector<std::pair<std::string, std::string>>{
           {"sleep 300", "its daemon has not answered yet;"},
           {"echo 'Warning: added b to the known hosts' >&2; sleep 300",
            "its daemon has not answered yet (Warning: added b to the known hosts)"},
           {"echo 'connect to host b port 22: Connection refused' >&2; exit 255",
            "(connect to host b port 22: Connection refused)"}}) {
    write_file(path("ssh"), fmt::format("#!/bin/sh\n{}\n", script));
    std::filesystem::permissions(path("ssh"), std::filesystem::perms::owner_all);
    const auto start = std::chrono::steady_clock::now();
    Process job(mpirun({"-hosts", "a.invalid,b.invalid", "-n", "3", "-ppn", "2", "-launcher-exec",
                        path("ssh").native(), "tandem", "run_qa"}));
    for (int i = 0; i < 600 && job.err_so_far().find('\n') == std::string::npos; ++i)
      std::this_thread::sleep_for(20ms);
    EXPECT_LT(std::chrono::steady_clock::now() - start, 5s + 2s) << "5 s, and a busy machine";
    const std::string err = unwrapped(job.err_so_far());
    EXPECT_THAT(err, HasSubstr("waiting for host a.invalid with ranks 0, 1: "));
    EXPECT_THAT(err, HasSubstr("; host b.invalid with ranks 2: "));
    EXPECT_THAT(err, HasSubstr(logged));
    job.signal(SIGKILL);
    job.wait(30s);
  }
}

// A daemon that has not started its ranks, here because it is stopped.
TEST_F(TandemMpirun, LogsThatADaemonDoesNotStartItsRanks) {
  write_file(path("ssh"), "#!/bin/sh\nkill -STOP $$\n");
  std::filesystem::permissions(path("ssh"), std::filesystem::perms::owner_all);
  Process job(shell({"-hosts", "localhost,b.invalid", "-n", "2", "-ppn", "1", "-launcher-exec",
                     path("ssh").native()},
                    "exec sleep 300"));
  ASSERT_TRUE(prints(job, "waiting for host b.invalid with ranks 1: its daemon"));
  EXPECT_THAT(job.err_so_far(), Not(HasSubstr("localhost")));
  job.signal(SIGKILL);
  job.wait(30s);
}

TEST_F(TandemMpirun, OthersContinueWhereThatIsRequested) {
  const auto result = run(shell({"-n", "3", "-disable-auto-cleanup", "-print-all-exitcodes"},
                                "[ $PMI_RANK = 1 ] && kill -9 $$; sleep 0.5; echo done $PMI_RANK"));
  EXPECT_EQ(result.exit_code, 137) << result.err;
  EXPECT_THAT(lines_of(result.out), UnorderedElementsAre("done 0", "done 2"));
  EXPECT_THAT(result.err, HasSubstr("exit codes: 0=0 1=137 2=0"));
}

TEST_F(TandemMpirun, RefusesWithTheReason) {
  EXPECT_EQ(run(mpirun({"-n", "x", "tandem", "run_qa"})).exit_code, 2);
  const auto missing = run(mpirun({"-n", "2", "/no/such/tandem", "run_qa"}));
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("localhost: there is no program '/no/such/tandem'"));
  const auto folder = run(mpirun({"-n", "2", "-wdir", "/no/such", "tandem", "run_qa"}));
  EXPECT_THAT(folder.err, HasSubstr("the working directory '/no/such' is not there"));
}

// The first mpiexec of an MPI in PATH gets the same words; tandem under that name is skipped.
TEST_F(TandemMpirun, OtherProgramsRunUnderTheMpiexecOfAnMpi) {
  for (const char* const folder : {"ours", "script", "mpi"})
    std::filesystem::create_directory(path(folder));
  std::filesystem::create_symlink(kProgram, path("ours/mpirun"));
  write_file(path("script/mpirun"), "#!/bin/sh\nexec tandem mpirun \"$@\"\n");
  const std::string without = fmt::format("{}:{}", path("ours").native(), path("script").native());
  const Words words = {"-f", "hosts", "-launcher", "slurm", "-n", "2", "./a.out", "x"};
  std::filesystem::permissions(path("script/mpirun"), std::filesystem::perms::owner_all);
  const auto missing = run(mpirun({"-n", "2", "./a.out"}), {{"PATH", without}});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(unwrapped(missing.err),
              AllOf(HasSubstr("found no mpiexec.hydra, mpirun or mpiexec of an MPI in PATH"),
                    HasSubstr("install the MPI"), HasSubstr("tandem run_qa")));
  for (const char* const name : {"mpirun", "mpiexec.hydra"}) {
    write_file(path("mpi") / name, fmt::format("#!/bin/sh\necho {} \"$@\"\nexit 5\n", name));
    std::filesystem::permissions(path("mpi") / name, std::filesystem::perms::owner_all);
    const auto result = run(mpirun(words), {{"PATH", without + ":" + path("mpi").native()}});
    EXPECT_EQ(result.exit_code, 5) << result.err;
    EXPECT_EQ(result.out, fmt::format("{} {}\n", name, fmt::join(words, " ")));
  }
}

TEST_F(TandemMpirun, OwnJobsTrainAsElsewhere) {
  run_reference(train_command("reference", {"--logical_shards", "2"}), "reference");
  const auto result = train_under(mpirun({"-n", "2", kProgram, "run_qa"}), "job");
  EXPECT_THAT(result.out, HasSubstr("2 ranks on 1 node"));
  EXPECT_TRUE(weights("reference") == weights("job"));
  const auto usage = run(mpirun({"-n", "2", "tandem", "run_qa", "--no_such_flag"}), {}, 60s);
  EXPECT_EQ(usage.exit_code, 2) << usage.err;
}

}  // namespace
}  // namespace tandem::testing
