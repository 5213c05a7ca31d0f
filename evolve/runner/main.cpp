// Runs untrusted code for `flashcore evolve`, and holds no secrets: no seed, no reference, no
// clock. Not for direct use.
//
//   flashcore_evolve_runner candidate INPUTS INPUT_BYTES OUTPUTS OUTPUT_BYTES MEMORY SECONDS FOLDER OBJECT
//     loads FOLDER/OBJECT and runs the commands from its standard input (commands.hpp)
//   flashcore_evolve_runner limited MEMORY SECONDS FILE_BYTES PROGRAM [ARGUMENT...]
//     executes the program, such as a compiler, with limits and without a network
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "evolve/runner/commands.hpp"
#include "evolve/runner/sandbox.hpp"

namespace flashcore::evolve {
namespace {

constexpr int kControl = 3;

void answer(AnswerKind kind, uint32_t detail, uint64_t nonce = 0) {
  const Answer text{kind, detail, nonce};
  (void)!::write(kControl, &text, sizeof text);
}

int fail(LoadFailure why) {
  answer(AnswerKind::failed, static_cast<uint32_t>(why));
  return 2;
}

uint64_t number(const char* text) { return std::strtoull(text, nullptr, 10); }

std::byte* map(int memory, uint64_t bytes, int protection) {
  void* const at = ::mmap(nullptr, bytes, protection, MAP_SHARED, memory, 0);
  return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}

bool read_command(RunCommand& command) {
  ssize_t got = 0;
  do {
    got = ::read(kControl, &command, sizeof command);
  } while (got < 0 && errno == EINTR);
  return got == sizeof command;
}

void call(EntryPoint entry, const RunCommand& command, std::byte* inputs, std::byte* outputs) {
  const auto* const list = reinterpret_cast<const CallTensors*>(inputs + command.list);
  const CallShape& s = command.shape;
  for (uint64_t i = 0; i < command.calls; ++i) {
    const CallTensors& one = list[i];
    entry(reinterpret_cast<const float*>(inputs + one.q),
          reinterpret_cast<const float*>(inputs + one.k),
          reinterpret_cast<const float*>(inputs + one.v), reinterpret_cast<float*>(outputs + one.o),
          reinterpret_cast<float*>(outputs + one.lse), s.batch, s.heads_q, s.heads_kv, s.seqlen_q,
          s.seqlen_kv, s.head_dim, s.scale);
  }
}

int run_candidate(char** words) {
  const int inputs_memory = static_cast<int>(number(words[0]));
  const int outputs_memory = static_cast<int>(number(words[2]));
  std::byte* const inputs = map(inputs_memory, number(words[1]), PROT_READ);
  std::byte* const outputs = map(outputs_memory, number(words[3]), PROT_READ | PROT_WRITE);
  // Moves the socket out of the way of code that prints; it may replace a memory's descriptor, since both are mapped.
  if (::dup2(STDIN_FILENO, kControl) != kControl) return 2;
  if (inputs == nullptr || outputs == nullptr) return fail(LoadFailure::memory);
  const int nothing = ::open("/dev/null", O_RDWR);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nothing, stream);
  for (int other = kControl + 1; other < 256; ++other) ::close(other);
  const std::string folder = words[6];
  if (::chdir(folder.c_str()) != 0 ||
      !set_limits({.memory_bytes = number(words[4]) + number(words[1]) + number(words[3]),
                   .processor_seconds = number(words[5]),
                   .file_bytes = 0,
                   .processes = 0})) {
    return fail(LoadFailure::folder);
  }
  uint32_t isolation = leave_network() ? isolated_network : 0u;
  std::string object = folder + "/" + words[7];
  if (enter_root(folder.c_str())) {
    isolation |= isolated_files;
    object = std::string("/") + words[7];
  }
  if (!allow_loading(kControl)) return fail(LoadFailure::filter);
  void* const handle = ::dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return fail(LoadFailure::object);
  const auto entry = reinterpret_cast<EntryPoint>(::dlsym(handle, kEntryPoint));
  if (entry == nullptr) return fail(LoadFailure::entry);
  if (!allow_computing(kControl)) return fail(LoadFailure::filter);
  answer(AnswerKind::ready, isolation);
  for (RunCommand command; read_command(command);) {
    call(entry, command, inputs, outputs);
    answer(AnswerKind::done, 0, command.nonce);
  }
  ::_exit(0);
}

int run_limited(char** words) {
  if (!set_limits({.memory_bytes = number(words[0]),
                   .processor_seconds = number(words[1]),
                   .file_bytes = number(words[2]),
                   .processes = 0})) {
    return 125;
  }
  (void)::unshare(CLONE_NEWNET);  // keeps users: the compiler writes files
  ::execvp(words[3], words + 3);
  return 127;
}

}  // namespace
}  // namespace flashcore::evolve

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "candidate" && argc == 10) return flashcore::evolve::run_candidate(argv + 2);
  if (mode == "limited" && argc >= 6) return flashcore::evolve::run_limited(argv + 2);
  return 2;
}
