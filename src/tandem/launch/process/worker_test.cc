// A process that is to become a worker.
#include "tandem/launch/process/worker.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>

#include "tandem/core/error.h"

namespace tandem::launch {
namespace {

constexpr int kNoFilter = 77;

// From here on execve() waits for an answer to the seccomp notification, which never arrives.
bool hold_programs_back() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_execve, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(code), code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
                   &program) >= 0;
}

// In a separate process, because the filter is permanent: 0 if a worker that never runs its program
// is killed.
int start_what_never_runs() {
  if (!hold_programs_back()) return kNoFilter;
  WorkerStart start;
  start.command = {"/bin/true"};
  start.timeout = std::chrono::milliseconds(100);
  Worker worker(start);
  pollfd end{worker.end_signal().get(), POLLIN, 0};
  if (::poll(&end, 1, 20000) != 1) return 1;
  const auto& ending = worker.poll();
  return ending && ending->signal == SIGKILL ? 0 : 2;
}

TEST(WorkerStart, TheWaitForAWorkerStoppedBeforeItsProgramIsBounded) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::_exit(start_what_never_runs());
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoFilter)
    GTEST_SKIP() << "no filter of system calls that asks can be had here";
  EXPECT_TRUE(WIFEXITED(status)) << "by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(WorkerStart, AFileThatIsNoProgramIsReportedAtOnce) {
  WorkerStart start;
  start.command = {"/dev/null"};
  EXPECT_THROW(Worker{start}, ConfigError);
  start.command = {"/bin/sh", "-c", "exit 3"};
  Worker worker(start);
  pollfd end{worker.end_signal().get(), POLLIN, 0};
  ASSERT_EQ(::poll(&end, 1, 20000), 1);
  ASSERT_TRUE(worker.poll());
  EXPECT_EQ(worker.poll()->code, 3);
}

}  // namespace
}  // namespace tandem::launch
