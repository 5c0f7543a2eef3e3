// The command line of torchrun, word by word, and the workers' command that results.
#include "tandem/launch/run/run_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <set>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/launch/run/endpoint_plan.h"
#include "tandem/launch/run/program.h"

namespace tandem::launch {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Variables = std::map<std::string, std::string, std::less<>>;

RunOptions parse(const std::vector<std::string>& words, const Variables& variables = {}) {
  return parse_run_line(words, Environment(variables));
}

std::string refusal(const std::vector<std::string>& words, const Variables& variables = {}) {
  try {
    parse(words, variables);
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.exit_code(), 2);
    return error.what();
  }
  return "nothing was refused";
}

TEST(RunFlags, TheGuidesLine) {
  const RunOptions options =
      parse({"--nnodes=1:4", "--nproc_per_node", "2", "--rdzv-backend=c10d", "--rdzv_endpoint",
             "job-worker-0:23456", "--max-restarts", "3", "-m", "--rdzv-conf",
             "join_timeout=5,is_host=1", "pkg.train", "--nnodes", "7", "-r", "x"});
  EXPECT_EQ(options.min_nodes, 1);
  EXPECT_EQ(options.max_nodes, 4);
  EXPECT_EQ(options.nproc_per_node, "2");
  EXPECT_EQ(options.backend, Backend::kC10d);
  EXPECT_EQ(options.rdzv_endpoint, "job-worker-0:23456");
  EXPECT_EQ(options.max_restarts, 3);
  EXPECT_TRUE(options.module);
  EXPECT_EQ(options.rdzv_conf.at("join_timeout"), "5");
  EXPECT_EQ(options.script, "pkg.train");
  EXPECT_THAT(options.script_arguments, ElementsAre("--nnodes", "7", "-r", "x"));
  EXPECT_THAT(options.signals, ElementsAre(SIGTERM, SIGINT, SIGHUP, SIGQUIT));
}

// As under torchrun "static" is the default, and has no use for a least number of nodes.
TEST(RunFlags, ALeastNumberOfNodesWantsC10d) {
  const auto notes = [](std::vector<std::string> words) {
    words.emplace_back("x.py");
    return parse(words).notes;
  };
  EXPECT_THAT(notes({"--nnodes", "1:2"}),
              ElementsAre(HasSubstr("waits for all 2 nodes; c10d begins with 1")));
  EXPECT_THAT(notes({"--nnodes", "2"}), IsEmpty());
  EXPECT_THAT(notes({"--nnodes", "1:2", "--standalone"}), Not(Contains(HasSubstr("static"))));
  EXPECT_THAT(notes({"--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "a:1"}),
              IsEmpty());
}

TEST(RunFlags, LettersPrefixesAndTheEndOfFlags) {
  const RunOptions options = parse({"-r3", "-t", "0:1,1:2", "--max", "1", "--", "--odd.py"});
  EXPECT_TRUE(options.redirects.of(7).out);
  EXPECT_TRUE(options.redirects.of(7).err);
  EXPECT_TRUE(options.tee.of(0).out);
  EXPECT_FALSE(options.tee.of(0).err);
  EXPECT_FALSE(options.tee.of(2).err);
  EXPECT_EQ(options.max_restarts, 1);
  EXPECT_EQ(options.script, "--odd.py");
}

// Result of get_args_parser() of torch 2.15 under Python 3.11, whose argparse.REMAINDER drops the
// first "--" of a line if it is in front of the script or right behind it.
TEST(RunFlags, TheFirstDoubleDashIsTorchruns) {
  struct Line {
    std::vector<std::string> words;
    std::string script;
    std::vector<std::string> arguments;
  };
  for (const Line& line : std::vector<Line>{
           {{"p.py", "--", "--y"}, "p.py", {"--y"}},
           {{"p.py", "--"}, "p.py", {}},
           {{"p.py", "--", "--", "b"}, "p.py", {"--", "b"}},
           {{"p.py", "a", "--", "b", "--", "c"}, "p.py", {"a", "--", "b", "--", "c"}},
           {{"p.py", "--y", "--", "z"}, "p.py", {"--y", "--", "z"}},
           {{"--", "p.py", "x"}, "p.py", {"x"}},
           {{"--", "p.py", "--", "x"}, "p.py", {"--", "x"}},
           {{"--", "--", "p.py"}, "--", {"p.py"}},
           {{"-m", "mod", "--", "x"}, "mod", {"x"}},
           {{"-m", "--", "mod", "x"}, "mod", {"x"}},
           {{"-m", "mod", "--a", "--", "x", "--"}, "mod", {"--a", "--", "x", "--"}},
           {{"--no-python", "sh", "-c", "x", "--", "y"}, "sh", {"-c", "x", "--", "y"}}}) {
    const RunOptions options = parse(line.words);
    EXPECT_EQ(options.script, line.script);
    EXPECT_EQ(options.script_arguments, line.arguments) << line.words.front();
  }
}

constexpr std::string_view kOwnFlag = "log-format";  // that torchrun does not have

TEST(RunFlags, EveryVariableCountsAndTheFlagCountsMore) {
  const RunOptions options =
      parse({"--nproc-per-node", "3", "x.py"}, {{"PET_NNODES", "2"},
                                                {"PET_NPROC_PER_NODE", "auto"},
                                                {"PET_STANDALONE", "0"},
                                                {"PET_RDZV_BACKEND", "c10d"},
                                                {"PET_RDZV_ENDPOINT", "a:1"},
                                                {"PET_NO_PYTHON", "1"},
                                                {"PET_SHUTDOWN_TIMEOUT", "7"},
                                                {"PET_DUPLICATE_STDOUT_FILTERS", "a,,b,c"}});
  EXPECT_EQ(options.min_nodes, 2);
  EXPECT_EQ(options.nproc_per_node, "3");
  EXPECT_FALSE(options.standalone);
  EXPECT_TRUE(options.no_python);
  EXPECT_EQ(options.shutdown_timeout_s, 7);
  EXPECT_THAT(options.duplicate_stdout_filters, ElementsAre("a,b", "c"));
  for (const RunFlag& flag : run_flags()) {
    if (flag.variable.empty()) continue;
    std::string expected = (flag.name == kOwnFlag ? "TANDEM_" : "PET_") + std::string(flag.name);
    for (char& c : expected) c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
    EXPECT_EQ(flag.variable, expected);
  }
}

// torch 2.15, torch/distributed/run.py: this test fails if a flag added there is missing here.
TEST(RunFlags, AreTorchruns) {
  std::set<std::string> names;
  for (const RunFlag& flag : run_flags()) names.emplace(flag.name);
  for (const char* name : {"nnodes",
                           "nproc-per-node",
                           "rdzv-backend",
                           "rdzv-endpoint",
                           "rdzv-id",
                           "rdzv-conf",
                           "standalone",
                           "max-restarts",
                           "monitor-interval",
                           "start-method",
                           "event-log-handler",
                           "role",
                           "module",
                           "no-python",
                           "run-path",
                           "log-dir",
                           "redirects",
                           "tee",
                           "log-line-prefix-template",
                           "local-ranks-filter",
                           "duplicate-stdout-filters",
                           "duplicate-stderr-filters",
                           "node-rank",
                           "master-addr",
                           "master-port",
                           "local-addr",
                           "logs-specs",
                           "numa-binding",
                           "signals-to-handle",
                           "shutdown-timeout",
                           "virtual-local-rank",
                           "print-completion"}) {
    EXPECT_TRUE(names.erase(name)) << name;
  }
  EXPECT_THAT(names, ElementsAre(kOwnFlag));
}

TEST(RunFlags, RefusalsGiveTheReason) {
  EXPECT_THAT(refusal({"--nnodes", "4:2", "x.py"}), HasSubstr("MIN must not exceed MAX"));
  EXPECT_THAT(refusal({"--nproc-per-node", "gpu", "x.py"}), HasSubstr("devices that tandem does"));
  EXPECT_THAT(refusal({"--nproc", "2", "x"}, {{"PET_MAX_RESTARTS", "many"}}),
              HasSubstr("PET_MAX_RESTARTS: 'many'"));
  EXPECT_THAT(refusal({"--rdzv-backend", "etcd-v2", "x.py"}), HasSubstr("use c10d"));
  EXPECT_THAT(refusal({"--rdzv", "c10d", "x.py"}), HasSubstr("ambiguous"));
  EXPECT_THAT(refusal({"--max-restart=2", "--mx-restarts", "x.py"}),
              HasSubstr("did you mean --max-restarts?"));
  EXPECT_THAT(refusal({"--nnodes"}), HasSubstr("--nnodes expects N|MIN:MAX"));
  EXPECT_THAT(refusal({"--standalone"}), HasSubstr("no script"));
  EXPECT_THAT(refusal({"--standalone=1", "x.py"}), HasSubstr("takes no value"));
  EXPECT_THAT(refusal({"-m", "--no-python", "x"}), HasSubstr("contradict"));
  EXPECT_THAT(refusal({"--nnodes", "2", "--rdzv-backend", "c10d", "x.py"}),
              HasSubstr("needs --rdzv-endpoint"));
  EXPECT_THAT(refusal({"--redirects", "5", "x.py"}), HasSubstr("--redirects: '5'"));
  EXPECT_THAT(refusal({"--logs-specs", "mine", "x.py"}), HasSubstr("Python package"));
}

const ProgramPaths kPaths{"/opt/tandem", {"run_qa", "run_glue"}};

TEST(Programs, ScriptsOfTheGuidesAreTandemsJobs) {
  for (const char* script : {"run_qa.py", "examples/question-answering/run_qa.py", "run_qa"}) {
    EXPECT_THAT(job_command(parse({script, "--seed", "${local_rank}"}), kPaths),
                ElementsAre("/opt/tandem", "run_qa", "--seed", "${local_rank}"));
  }
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"--no-python", "bin/tandem", "run_glue", "-x"}, {"tandem", "run_glue", "-x"}})
    EXPECT_THAT(job_command(parse(words), kPaths), ElementsAre("/opt/tandem", "run_glue", "-x"));
}

TEST(Programs, OthersAreNot) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"train.py", "run_qa.py"},
                                             {"-m", "run_qa"},
                                             {"--no-python", "sh", "-c", "true"},
                                             {"--no-python", "tandem", "bench"},
                                             {"--no-python", "run_qa.py"},
                                             {"--run-path", "train.py"},
                                             {"run_qa.sh"}})
    EXPECT_TRUE(job_command(parse(words), kPaths).empty()) << words.back();
  // A file of that name without an extension is a program of another package.
  const testing::TemporaryFolder folder;
  write_file(folder / "run_qa", "");
  EXPECT_TRUE(job_command(parse({(folder / "run_qa").string()}), kPaths).empty());
}

TEST(Templates, AreThoseOfPython) {
  EXPECT_EQ(substitute("[${role}$rank]$$ $nobody ${rank", {{"role", "t"}, {"rank", "3"}}),
            "[t3]$ $nobody ${rank");
}

TEST(EndpointPlan, TheNodeThatHosts) {
  const std::vector<std::string> own = {"10.0.0.5", "job-worker-0"};
  const auto plan = [&](std::vector<std::string> words) {
    words.emplace_back("x.py");
    return plan_endpoint(parse(words), own);
  };
  EXPECT_TRUE(plan({}).local);
  EXPECT_EQ(plan({"--standalone", "--rdzv-endpoint", "else:1"}).where.port, 0);
  EXPECT_EQ(plan({"--master-port", "777"}).where.port, 777);
  const EndpointPlan first = plan({"--nnodes", "2"});
  EXPECT_TRUE(first.hosts);
  EXPECT_EQ(first.where.port, 29500);
  EXPECT_FALSE(plan({"--nnodes", "2", "--node-rank", "1"}).hosts);
  const auto c10d = [&](const std::string& endpoint) {
    return plan({"--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint});
  };
  EXPECT_TRUE(c10d("job-worker-0:23456").hosts);
  EXPECT_TRUE(c10d("job-worker-0.jobs.svc:23456").hosts);
  EXPECT_TRUE(c10d("10.0.0.5").hosts);
  EXPECT_EQ(c10d("10.0.0.5").where.port, 29400);
  EXPECT_FALSE(c10d("job-worker-1:23456").hosts);
  EXPECT_EQ(c10d("[fe80::1]:9").where.host, "fe80::1");
  EXPECT_EQ(c10d("fe80::1").where.host, "fe80::1");
  for (const auto* wrong : {"host:x", "host:65536", ":9", "[fe80::1"})
    EXPECT_THROW(c10d(wrong), ConfigError) << wrong;
}

}  // namespace
}  // namespace tandem::launch
