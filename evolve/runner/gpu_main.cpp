// Runs GPU candidates for `flashcore evolve`: only device code, which the driver loads and
// launches. The process has no seed, no reference and no verdict. Not for direct use.
//
//   flashcore_evolve_gpu_runner candidate    commands come on its standard input (gpu_commands.hpp)
//   flashcore_evolve_gpu_runner describe     prints the GPU's properties, one "name value" per line
//   flashcore_evolve_gpu_runner once B HQ HKV SQ SKV D SCALE < TEXT
//     one launch with small numbers as inputs: for compute-sanitizer and profilers
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "evolve/runner/commands.hpp"
#include "evolve/runner/gpu_commands.hpp"
#include "evolve/runner/gpu_kernel.hpp"

namespace flashcore::evolve {
namespace {

constexpr int kControl = 3;
std::byte* map(int memory, uint64_t bytes, int protection) {
  void* const at = ::mmap(nullptr, bytes, protection, MAP_SHARED, memory, 0);
  return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}

// --- the conversation ---

void answer(GpuAnswer text) { (void)!::send(kControl, &text, sizeof text, MSG_NOSIGNAL); }

bool read_all(void* to, size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::read(kControl, at, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

// Reads a load command with its two descriptors.
bool read_load(GpuLoad& load, int (&memories)[2]) {
  iovec piece{&load, sizeof load};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof memories)] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (::recvmsg(kControl, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL) != sizeof load) return false;
  const cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  if (rights == nullptr || rights->cmsg_len != CMSG_LEN(sizeof memories)) return false;
  std::memcpy(memories, CMSG_DATA(rights), sizeof memories);
  return load.text_bytes <= kLongestLoadText;
}

class Session {
 public:
  explicit Session(const Gpu& gpu) : gpu_(gpu) {}

  // Returns false if the evaluator has disconnected.
  bool load() {
    GpuLoad wanted{};
    int memories[2] = {-1, -1};
    if (!read_load(wanted, memories)) return false;
    std::string text(wanted.text_bytes, '\0');
    if (!read_all(text.data(), text.size())) return false;
    inputs_ = map(memories[0], wanted.input_bytes, PROT_READ);
    outputs_ = map(memories[1], wanted.output_bytes, PROT_READ | PROT_WRITE);
    ::close(memories[0]);
    ::close(memories[1]);
    if (inputs_ == nullptr || outputs_ == nullptr) {
      throw Refusal{GpuAnswerKind::broken, "the memories cannot be mapped"};
    }
    most_workspace_ = wanted.workspace_bytes;
    // Allocated before the candidate is loaded: fresh GPU memory is never what the candidate left.
    gpu_.check(gpu_.driver().allocate(&device_inputs_, wanted.input_bytes), "memory");
    gpu_.check(gpu_.driver().allocate(&device_outputs_, wanted.output_bytes), "memory");
    kernel_.emplace(gpu_, wanted.type, most_workspace_, text);
    GpuAnswer said{};
    said.kind = GpuAnswerKind::loaded;
    said.registers = kernel_->attribute(kRegisters);
    said.local_bytes = kernel_->attribute(kLocalBytes);
    said.shared_bytes = kernel_->attribute(kSharedBytes);
    answer(said);
    return true;
  }

  bool run() {
    RunCommand command{};
    if (!read_all(&command, sizeof command)) return false;
    const Geometry geometry = kernel_->geometry(command.shape);
    prepare(command, geometry);
    GpuAnswer said{};
    said.nonce = command.nonce;
    said.kind = GpuAnswerKind::prepared;
    said.blocks = int64_t{geometry.grid[0]} * geometry.grid[1] * geometry.grid[2];
    said.threads = int64_t{geometry.block[0]} * geometry.block[1] * geometry.block[2];
    said.dynamic_bytes = geometry.shared_bytes;
    answer(said);
    uint64_t nonce = 0;
    if (!read_all(&nonce, sizeof nonce)) return false;

    const GpuDriver& driver = gpu_.driver();
    gpu_.check(driver.event_record(gpu_.begin(), gpu_.stream()), "cuEventRecord");
    for (Call& call : calls_) kernel_->launch(geometry, call);
    gpu_.check(driver.synchronize(), "as it ran", GpuAnswerKind::fault);
    gpu_.check(driver.event_record(gpu_.end(), gpu_.stream()), "cuEventRecord");
    gpu_.check(driver.event_synchronize(gpu_.end()), "cuEventSynchronize");
    float milliseconds = 0;
    gpu_.check(driver.event_elapsed(&milliseconds, gpu_.begin(), gpu_.end()), "cuEventElapsedTime");
    said.kind = GpuAnswerKind::launched;
    said.seconds = 1e-3 * static_cast<double>(milliseconds);
    answer(said);

    gpu_.check(driver.copy_out(outputs_, device_outputs_, command.output_bytes), "a copy",
               GpuAnswerKind::fault);
    if (command.calls == 1) check_inputs(command);
    said.kind = GpuAnswerKind::done;
    answer(said);
    return true;
  }

 private:
  void prepare(const RunCommand& command, const Geometry& geometry) {
    const GpuDriver& driver = gpu_.driver();
    gpu_.check(driver.copy_in(device_inputs_, inputs_, command.input_bytes), "a copy");
    gpu_.check(driver.copy_in(device_outputs_, outputs_, command.output_bytes), "a copy");
    // One workspace per call, filled with poison: contents that no kernel wrote.
    const uint64_t each = (geometry.workspace_bytes + 255) / 256 * 256;
    const uint64_t all = each * command.calls;
    if (all > most_workspace_) {
      throw Refusal{GpuAnswerKind::too_large, "the workspace of " + std::to_string(command.calls) +
                                                  " calls has " + std::to_string(all) +
                                                  " bytes, the budget is " +
                                                  std::to_string(most_workspace_)};
    }
    if (all > 0 && workspace_ == 0) {
      gpu_.check(driver.allocate(&workspace_, most_workspace_), "memory");
    }
    if (all > 0) gpu_.check(driver.set_bytes(workspace_, kPoison, all), "cuMemsetD8");
    const auto* const list = reinterpret_cast<const CallTensors*>(inputs_ + command.list);
    calls_.resize(command.calls);
    for (uint64_t i = 0; i < command.calls; ++i) {
      const CallTensors& one = list[i];
      const GpuAddress pointers[kPointers] = {
          device_inputs_ + one.q,  device_inputs_ + one.k,    device_inputs_ + one.v,
          device_outputs_ + one.o, device_outputs_ + one.lse, each > 0 ? workspace_ + i * each : 0};
      std::copy(std::begin(pointers), std::end(pointers), calls_[i].pointers);
      kernel_->fill(calls_[i], command.shape);
    }
    kernel_->allow(geometry);
    gpu_.check(driver.reset_persisting_l2(), "cuCtxResetPersistingL2Cache");
    gpu_.check(driver.synchronize(), "cuCtxSynchronize", GpuAnswerKind::fault);
  }

  void check_inputs(const RunCommand& command) const {
    std::vector<std::byte> now(command.input_bytes);
    gpu_.check(gpu_.driver().copy_out(now.data(), device_inputs_, now.size()), "a copy",
               GpuAnswerKind::fault);
    if (std::memcmp(now.data(), inputs_, now.size()) == 0) return;
    throw Refusal{GpuAnswerKind::wrote_inputs, "the inputs were written"};
  }

  const Gpu& gpu_;
  std::optional<Kernel> kernel_;
  std::byte *inputs_ = nullptr, *outputs_ = nullptr;
  GpuAddress device_inputs_ = 0, device_outputs_ = 0, workspace_ = 0;
  uint64_t most_workspace_ = 0;
  std::vector<Call> calls_;
};

int run_candidate() {
  if (::dup2(STDIN_FILENO, kControl) != kControl) return 2;
  const int nothing = ::open("/dev/null", O_RDWR);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nothing, stream);
  for (int other = kControl + 1; other < 256; ++other) ::close(other);
  GpuAnswer said{};
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const rlimit none{0, 0};
  (void)::setrlimit(RLIMIT_CORE, &none);
  try {
    // No user namespace: the driver opens devices.
    said.isolation = ::unshare(CLONE_NEWNET) == 0 ? isolated_network : 0u;
    Gpu gpu;
    gpu.make_context();
    said.kind = GpuAnswerKind::ready;
    answer(said);
    Session session(gpu);
    if (session.load()) {
      while (session.run()) {
      }
    }
  } catch (const Refusal& refusal) {
    said.kind = refusal.kind;
    std::snprintf(said.text, sizeof said.text, "%s", refusal.text.c_str());
    answer(said);
  }
  ::_exit(0);  // the driver's shutdown may wait for a kernel
}

int describe() {
  try {
    const Gpu gpu;
    std::printf("name %s\n", gpu.name().c_str());
    for (const auto& [name, which] :
         {std::pair{"compute_major", GpuAttribute::compute_major},
          {"compute_minor", GpuAttribute::compute_minor},
          {"multiprocessors", GpuAttribute::multiprocessors},
          {"clock_khz", GpuAttribute::clock_khz},
          {"l2_bytes", GpuAttribute::l2_bytes},
          {"shared_bytes_per_block", GpuAttribute::max_shared_bytes_per_block}}) {
      std::printf("%s %d\n", name, gpu.attribute(which));
    }
    return 0;
  } catch (const Refusal& refusal) {
    std::printf("error %s\n", refusal.text.c_str());
    return 3;
  }
}

// Each tensor has its own allocation, so that compute-sanitizer detects its end. Inputs are f16.
int run_once(char** words) {
  const auto number = [&](int i) { return std::strtoll(words[i], nullptr, 10); };
  const CallShape shape{number(0),
                        number(1),
                        number(2),
                        number(3),
                        number(4),
                        number(5),
                        std::strtof(words[6], nullptr)};
  std::string text;
  char piece[4096];
  size_t got = 0;
  do {
    got = std::fread(piece, 1, sizeof piece, stdin);
    text.append(piece, got);
  } while (got > 0);
  try {
    Gpu gpu;
    gpu.make_context();
    constexpr uint64_t kWorkspace = uint64_t{256} << 20;
    Kernel kernel(gpu, 1, kWorkspace, text);
    const Geometry geometry = kernel.geometry(shape);
    const int64_t q = shape.batch * shape.heads_q * shape.seqlen_q;
    const int64_t kv = shape.batch * shape.heads_kv * shape.seqlen_kv;
    const int64_t elements[] = {q * shape.head_dim, kv * shape.head_dim, kv * shape.head_dim};
    Call call{};
    uint32_t random = 1;
    for (size_t i = 0; i < 3; ++i) {
      std::vector<uint16_t> halves(static_cast<size_t>(elements[i]));
      for (uint16_t& half : halves) {  // both signs, 0.25 to 2
        random = random * 1664525 + 1013904223;
        half = static_cast<uint16_t>(random >> 31 << 15 | (0x3400 + (random >> 8) % 0xC00));
      }
      gpu.check(gpu.driver().allocate(&call.pointers[i], 2 * halves.size()), "memory");
      gpu.check(gpu.driver().copy_in(call.pointers[i], halves.data(), 2 * halves.size()), "a copy");
    }
    gpu.check(gpu.driver().allocate(&call.pointers[3], static_cast<size_t>(2 * q * shape.head_dim)),
              "memory");
    gpu.check(gpu.driver().allocate(&call.pointers[4], static_cast<size_t>(4 * q)), "memory");
    if (geometry.workspace_bytes > 0) {
      gpu.check(gpu.driver().allocate(&call.pointers[5], geometry.workspace_bytes), "memory");
    }
    kernel.fill(call, shape);
    kernel.allow(geometry);
    kernel.launch(geometry, call);
    gpu.check(gpu.driver().synchronize(), "as it ran");
    return 0;
  } catch (const Refusal& refusal) {
    std::fprintf(stderr, "%s\n", refusal.text.c_str());
    return 3;
  }
}

}  // namespace
}  // namespace flashcore::evolve

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "candidate" && argc == 2) return flashcore::evolve::run_candidate();
  if (mode == "describe" && argc == 2) return flashcore::evolve::describe();
  if (mode == "once" && argc == 9) return flashcore::evolve::run_once(argv + 2);
  return 2;
}
