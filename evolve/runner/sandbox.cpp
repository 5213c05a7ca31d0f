#include "evolve/runner/sandbox.hpp"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <vector>

#include "evolve/runner/commands.hpp"

namespace flashcore::evolve {
namespace {

int answers_to = -1;

// Signal handler: reports the refused system call and exits.
void refuse(int, siginfo_t* info, void*) {
  const Answer answer{AnswerKind::forbidden, static_cast<uint32_t>(info->si_syscall), 0};
  (void)!::write(answers_to, &answer, sizeof answer);
  ::_exit(3);
}

bool limit(int resource, uint64_t most) {
  const rlimit both{most, most};
  return ::setrlimit(static_cast<__rlimit_resource_t>(resource), &both) == 0;
}

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "the filter of system calls knows x86-64 and aarch64"
#endif

class Filter {
 public:
  Filter() {
    load(offsetof(seccomp_data, arch));
    skip_unless(kArchitecture, 1);
    code_.push_back(BPF_STMT(BPF_JMP | BPF_JA, 1));
    code_.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
    load(offsetof(seccomp_data, nr));
  }

  void allow(long call) {
    skip_unless(static_cast<uint32_t>(call), 1);
    code_.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  }

  // Allows a call only if the low half of an argument, under a mask, has a value.
  void allow_if(long call, int argument, uint32_t mask, uint32_t value) {
    skip_unless(static_cast<uint32_t>(call), 5);
    load(static_cast<uint32_t>(offsetof(seccomp_data, args)) + 8 * static_cast<uint32_t>(argument));
    code_.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask));
    skip_unless(value, 1);
    code_.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    load(offsetof(seccomp_data, nr));
  }

  bool install() {
    code_.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP));
    const sock_fprog program{static_cast<unsigned short>(code_.size()), code_.data()};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
  }

 private:
  void load(size_t offset) {
    code_.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)));
  }
  void skip_unless(uint32_t value, uint8_t count) {
    code_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, count));
  }

  std::vector<sock_filter> code_;
};

// Memory, reading the clock, the runner's own socket, and exiting.
void allow_the_least(Filter& filter, int control) {
  for (const long call :
       {__NR_mmap, __NR_munmap, __NR_mremap, __NR_mprotect, __NR_madvise, __NR_brk,
        __NR_rt_sigreturn, __NR_restart_syscall, __NR_clock_gettime, __NR_exit_group, __NR_futex}) {
    filter.allow(call);
  }
  filter.allow_if(__NR_read, 0, ~0u, static_cast<uint32_t>(control));
  filter.allow_if(__NR_write, 0, ~0u, static_cast<uint32_t>(control));
}

}  // namespace

bool set_limits(const SandboxLimits& limits) {
  return ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && limit(RLIMIT_CORE, 0) &&
         limit(RLIMIT_AS, limits.memory_bytes) && limit(RLIMIT_CPU, limits.processor_seconds) &&
         limit(RLIMIT_FSIZE, limits.file_bytes) && limit(RLIMIT_NOFILE, 64) &&
         (limits.processes == 0 || limit(RLIMIT_NPROC, limits.processes));
}

bool leave_network() {
  return ::unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC) == 0 ||
         ::unshare(CLONE_NEWNET | CLONE_NEWIPC) == 0;
}

bool enter_root(const char* folder) { return ::chroot(folder) == 0 && ::chdir("/") == 0; }

bool allow_loading(int control) {
  answers_to = control;
  struct sigaction action {};
  action.sa_sigaction = refuse;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  if (::sigaction(SIGSYS, &action, nullptr) != 0) return false;
  Filter filter;
  allow_the_least(filter, control);
  for (const long call : {__NR_read, __NR_pread64, __NR_fstat, __NR_newfstatat, __NR_close,
                          __NR_lseek, __NR_getrandom, __NR_prctl, __NR_sched_getaffinity}) {
    filter.allow(call);
  }
  filter.allow_if(__NR_openat, 2, static_cast<uint32_t>(O_ACCMODE | O_CREAT | O_TRUNC), O_RDONLY);
  return filter.install();
}

bool allow_computing(int control) {
  Filter filter;
  allow_the_least(filter, control);
  return filter.install();
}

}  // namespace flashcore::evolve
