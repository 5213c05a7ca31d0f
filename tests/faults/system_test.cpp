// What the system may refuse: threads, memory for each command, the time to finish a file.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/io/atomic_file.hpp"
#include "bench/tune/table_file.hpp"
#include "tests/api/c_problem.hpp"
#include "tests/cli/process.hpp"
#include "tests/cli/scratch.hpp"

namespace {
std::atomic<int> threads_left{-1};  // that the system still makes; below 0: as many as are wanted
}

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*start)(void*), void* argument) {
  if (threads_left >= 0 && threads_left.fetch_sub(1) <= 0) {
    threads_left = 0;
    return EAGAIN;
  }
  static const auto real =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return real(thread, attributes, start, argument);
}

namespace flashcore::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using tests::Outcome;
using tests::run_process;
using tests::Scratch;

// In a process of its own: another one has its threads already. Exits with 0 if O is as wanted.
[[noreturn]] void run_with_threads(int available, const std::vector<float>& wanted) {
  threads_left = available;
  const flashcore_problem problem = small_problem();
  flashcore_plan_options options = default_options();
  options.threads = 4;
  SmallData data;
  const flashcore_arguments arguments = data.arguments();
  flashcore_plan* plan = nullptr;
  const bool ran = flashcore_plan_create(&problem, &options, &plan) == FLASHCORE_OK &&
                   flashcore_plan_run(plan, &arguments, nullptr, 0, nullptr) == FLASHCORE_OK;
  const bool was_refused = available >= 3 || threads_left == 0;
  ::_exit(ran && was_refused && data.o == wanted ? 0 : 1);
}

TEST(Threads, ThatCannotBeMadeAreDoneWithout) {
  const flashcore_problem problem = small_problem();
  SmallData data;
  const flashcore_arguments arguments = data.arguments();
  flashcore_plan* plan = nullptr;
  ASSERT_EQ(flashcore_plan_create(&problem, nullptr, &plan), FLASHCORE_OK);
  ASSERT_EQ(flashcore_plan_run(plan, &arguments, nullptr, 0, nullptr), FLASHCORE_OK);
  flashcore_plan_destroy(plan);
  for (const int available : {0, 1, 3}) {
    const pid_t child = ::fork();
    if (child == 0) run_with_threads(available, data.o);
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << available << " threads";
  }
}

// Under --long every allocation of each command fails once, otherwise the first ones and a share of the others.
TEST(Commands, WithoutMemorySayThatNoneIsLeft) {
  const char* const run = std::getenv("FLASHCORE_TEST_RUN");
  const bool is_long = run != nullptr && std::string(run) == "long";
  const Scratch scratch;
  const std::string out = scratch.path("out.npy");
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"info"},
           {"explain", "--shape", "1,1,8,8", "--device", "cpu"},
           {"run", "--shape", "1,1,8,8", "--device", "cpu", "--check", "--out", out},
           {"verify", "--shapes", "none", "--random", "1", "--device", "cpu"},
           {"bench", "--shape", "1,1,8,8", "--device", "cpu", "--deadline", "0"}}) {
    std::vector<std::string> all = {FLASHCORE_FAILING_COMMAND};
    all.insert(all.end(), words.begin(), words.end());
    int64_t n = 1, runs = 0;
    for (;; n += is_long || n < 8 ? 1 : n / 3) {
      const Outcome outcome = run_process(all, {"FAIL_AT=" + std::to_string(n)});
      if (outcome.exit_code == 100) break;
      ++runs;
      const std::string where = words[0] + ", allocation " + std::to_string(n) + ": " + outcome.err;
      // A report goes on after a kernel that failed, and says so.
      const bool is_report = words[0] == "bench" || words[0] == "verify";
      ASSERT_TRUE(outcome.exit_code == 4 || (is_report && outcome.exit_code == 1)) << where;
      EXPECT_THAT(outcome.out + outcome.err,
                  AnyOf(HasSubstr("memory"), HasSubstr("the host has no")))
          << where << outcome.out;
      EXPECT_TRUE(scratch.names().empty()) << words[0] << ", allocation " << n;
    }
    EXPECT_GT(runs, 12) << words[0];
    std::filesystem::remove(out);
  }
}

// Kills a child that does this again and again, after a while.
template <class Write>
void kill_while(const Write& write, useconds_t microseconds) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (int i = 0;; ++i) write(i);
  }
  ::usleep(microseconds);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(Files, OfAKilledWriterAreWhole) {
  const Scratch scratch;
  const std::string path = scratch.path("whole");
  const std::string texts[] = {std::string(1 << 20, 'a'), std::string(1 << 19, 'b')};
  ASSERT_TRUE(io::write_text(path, texts[0]).ok());
  for (useconds_t round = 0; round < 12; ++round) {
    kill_while([&](int i) { (void)io::write_text(path, texts[i % 2]); }, 1000 + 1777 * round);
    const std::string now = scratch.read("whole");
    EXPECT_TRUE(now == texts[0] || now == texts[1]) << now.size() << " bytes";
  }
}

TEST(Files, OfAKilledTunerKeepWhatWasWritten) {
  const Scratch scratch;
  const std::string path = scratch.path("table.json");
  const tuning::TunedDevice device{
      .name = "Test CPU", .compute_capability = 0, .multiprocessors = 2};
  const tuning::TunedEntry entry{.kernel = "cpu_simd",
                                 .config = "",
                                 .fingerprint = "0123456789abcdef",
                                 .compiler = "GNU 12.2.0",
                                 .us = 1,
                                 .default_us = 1,
                                 .default_kernel = "cpu_simd",
                                 .measured = "2026-11-24",
                                 .problems = {"one"}};
  size_t before = 0;
  for (useconds_t round = 0; round < 6; ++round) {
    kill_while(
        [&](int) {
          (void)bench::update_table(path, device, [&entry](tuning::TunedTable& table) {
            table.entries.try_emplace("key " + std::to_string(table.entries.size()), entry);
          });
        },
        10'000 + 3777 * round);
    const Result<tuning::TunedTable> table =
        bench::open_table(path, device);  // and no lock is left
    ASSERT_TRUE(table.ok()) << table.status().message();
    EXPECT_GE(table->entries.size(), before);
    before = table->entries.size();
  }
  EXPECT_GT(before, 3U);
}

// Its user's folders may be anything: nothing of them is needed to compute.
TEST(Home, ThatCannotBeWrittenIsSaidByWhatWrites) {
  for (const std::string home : {"/proc/nowhere", "/dev/null"}) {
    const std::vector<std::string> environment = {"FLASHCORE_TUNING=", "XDG_CACHE_HOME=" + home,
                                                  "HOME=" + home};
    const Outcome run = run_process(
        {FLASHCORE_COMMAND, "run", "--shape", "1,1,8,8", "--device", "cpu"}, environment);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    const Outcome tune =
        run_process({FLASHCORE_COMMAND, "tune", "--device", "cpu", "--seconds", "1"}, environment);
    EXPECT_EQ(tune.exit_code, 2) << tune.err;
    EXPECT_THAT(tune.err, HasSubstr(home)) << tune.err;
  }
}

}  // namespace
}  // namespace flashcore::testing
