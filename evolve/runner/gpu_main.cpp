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

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "evolve/runner/commands.hpp"
#include "evolve/runner/gpu_commands.hpp"
#include "evolve/runner/gpu_driver.hpp"
#include "evolve/runner/launch_lines.hpp"

namespace flashcore::evolve {
namespace {

constexpr int kControl = 3;
constexpr size_t kPointers = 6;  // q, k, v, o, lse, workspace
constexpr size_t kNumbers = 7;   // batch to head_dim, scale
constexpr int kMaxDynamicShared = 8, kSharedBytes = 1, kLocalBytes = 3, kRegisters = 4;
constexpr unsigned char kPoison = 0xFF;

// Ends the process's work: an answer with a sentence.
struct Refusal {
  GpuAnswerKind kind;
  std::string text;
};

std::byte* map(int memory, uint64_t bytes, int protection) {
  void* const at = ::mmap(nullptr, bytes, protection, MAP_SHARED, memory, 0);
  return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}

class Gpu {
 public:
  Gpu() {
    std::string error;
    if (!load_gpu_driver(driver_, error)) throw Refusal{GpuAnswerKind::broken, error};
    check(driver_.init(0), "cuInit");
    check(driver_.device_get(&device_, 0), "cuDeviceGet");
  }

  void make_context() {
    GpuContext* context = nullptr;
    check(driver_.primary_retain(&context, device_), "cuDevicePrimaryCtxRetain");
    check(driver_.context_set(context), "cuCtxSetCurrent");
    check(driver_.stream_create(&stream_, 1),
          "cuStreamCreate");  // not ordered with the default stream
    check(driver_.event_create(&begin_, 0), "cuEventCreate");
    check(driver_.event_create(&end_, 0), "cuEventCreate");
  }

  int attribute(GpuAttribute which) const {
    int value = 0;
    check(driver_.device_attribute(&value, which, device_), "cuDeviceGetAttribute");
    return value;
  }

  std::string name() const {
    char text[100] = {};
    check(driver_.device_name(text, sizeof text, device_), "cuDeviceGetName");
    return text;
  }

  std::string failed(GpuStatus status, const char* what) const {
    const char* name = nullptr;
    if (driver_.error_name(status, &name) != 0 || name == nullptr) name = "an unknown error";
    return std::string(what) + ": " + name;
  }
  void check(GpuStatus status, const char* what, GpuAnswerKind kind = GpuAnswerKind::broken) const {
    if (status != 0) throw Refusal{kind, failed(status, what)};
  }

  const GpuDriver& driver() const { return driver_; }
  GpuStream* stream() const { return stream_; }
  GpuEvent* begin() const { return begin_; }
  GpuEvent* end() const { return end_; }

 private:
  GpuDriver driver_{};
  int device_ = 0;
  GpuStream* stream_ = nullptr;
  GpuEvent *begin_ = nullptr, *end_ = nullptr;
};

// One argument list of the kernel. A tensor map takes the place of a pointer.
struct Call {
  GpuTensorMap maps[4];
  GpuAddress pointers[kPointers];
  int32_t numbers[kNumbers - 1];
  float scale;
  void* arguments[kPointers + kNumbers + 1];
};

struct Geometry {
  unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
  uint64_t workspace_bytes = 0;  // per call
};

class Kernel {
 public:
  Kernel(const Gpu& gpu, uint32_t type, uint64_t most_workspace, const std::string& text)
      : gpu_(gpu), type_(type), most_workspace_(most_workspace) {
    std::istringstream lines(text);
    std::string object;
    std::getline(lines, object);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string kind, name;
      int64_t number = 0;
      if (words >> kind >> name >> number && kind == "value") values_[name] = number;
    }
    std::string error;
    if (!read_launch_lines(text, lines_, error)) throw Refusal{GpuAnswerKind::wrong_launch, error};
    const GpuDriver& driver = gpu.driver();
    gpu.check(driver.module_load(&module_, object.c_str()), "the object cannot be loaded",
              GpuAnswerKind::fault);
    gpu.check(driver.module_function(&function_, module_, kEntryPoint),
              "there is no extern \"C\" __global__ function 'attention'", GpuAnswerKind::no_entry);
    check_signature();
  }

  int64_t attribute(int which) const {
    int value = 0;
    gpu_.check(gpu_.driver().function_attribute(&value, which, function_), "cuFuncGetAttribute");
    return value;
  }

  Geometry geometry(const CallShape& shape) {
    Geometry found;
    const Names names = [&](const std::string& name) { return value_of(name, shape); };
    const auto number = [&](const std::string& text, int64_t low, int64_t high, const char* what) {
      std::string error;
      const std::optional<int64_t> value = evaluate(text, names, error);
      if (!value) throw Refusal{GpuAnswerKind::wrong_launch, error};
      if (*value >= low && *value <= high) return *value;
      throw Refusal{GpuAnswerKind::too_large, std::string(what) + " is " + std::to_string(*value) +
                                                  ", wanted " + std::to_string(low) + " to " +
                                                  std::to_string(high)};
    };
    for (size_t i = 0; i < lines_.grid.size(); ++i) {
      found.grid[i] =
          static_cast<unsigned>(number(lines_.grid[i], 1, i == 0 ? INT32_MAX : 65535, "the grid"));
    }
    uint64_t threads = 1;
    for (size_t i = 0; i < lines_.block.size(); ++i) {
      found.block[i] = static_cast<unsigned>(number(lines_.block[i], 1, 1024, "the block"));
      threads *= found.block[i];
    }
    if (threads > 1024) {
      throw Refusal{GpuAnswerKind::too_large,
                    "the block has " + std::to_string(threads) + " threads, wanted at most 1024"};
    }
    if (!lines_.shared.empty()) {
      const int64_t most =
          gpu_.attribute(GpuAttribute::max_shared_bytes_per_block) - attribute(kSharedBytes);
      found.shared_bytes =
          static_cast<unsigned>(number(lines_.shared, 0, most, "the shared memory"));
    }
    if (!lines_.workspace.empty()) {
      found.workspace_bytes = static_cast<uint64_t>(
          number(lines_.workspace, 0, static_cast<int64_t>(most_workspace_), "the workspace"));
    }
    return found;
  }

  // `where` holds the addresses of the pointers.
  void fill(Call& call, const CallShape& shape) {
    const int64_t numbers[] = {shape.batch,    shape.heads_q,   shape.heads_kv,
                               shape.seqlen_q, shape.seqlen_kv, shape.head_dim};
    for (size_t i = 0; i < kNumbers - 1; ++i) {
      call.numbers[i] = static_cast<int32_t>(numbers[i]);
    }
    call.scale = shape.scale;
    for (size_t i = 0; i < kPointers; ++i) call.arguments[i] = &call.pointers[i];
    for (size_t i = 0; i < lines_.maps.size(); ++i) {
      if (!lines_.maps[i]) continue;
      encode(call.maps[i], *lines_.maps[i], call.pointers[i], shape, i == 0 || i == 3);
      call.arguments[i] = &call.maps[i];
    }
    for (size_t i = 0; i < kNumbers - 1; ++i) call.arguments[kPointers + i] = &call.numbers[i];
    call.arguments[kPointers + kNumbers - 1] = &call.scale;
    call.arguments[kPointers + kNumbers] = nullptr;
  }

  void allow(const Geometry& geometry) {
    if (geometry.shared_bytes == 0) return;
    gpu_.check(gpu_.driver().function_set(function_, kMaxDynamicShared,
                                          static_cast<int>(geometry.shared_bytes)),
               "the shared memory", GpuAnswerKind::too_large);
  }

  void launch(const Geometry& g, Call& call) {
    gpu_.check(
        gpu_.driver().launch(function_, g.grid[0], g.grid[1], g.grid[2], g.block[0], g.block[1],
                             g.block[2], g.shared_bytes, gpu_.stream(), call.arguments, nullptr),
        "the launch", GpuAnswerKind::too_large);
  }

 private:
  // Checks sizes only: the parameters' offsets are an agreement between compiler and driver.
  void check_signature() const {
    for (size_t i = 0; i <= kPointers + kNumbers; ++i) {
      size_t offset = 0, bytes = 0;
      const bool is_there = gpu_.driver().function_parameter(function_, i, &offset, &bytes) == 0;
      if (i == kPointers + kNumbers) {
        if (is_there) throw Refusal{GpuAnswerKind::wrong_signature, wrong("it has more arguments")};
        return;
      }
      const bool is_map = i < lines_.maps.size() && lines_.maps[i].has_value();
      const size_t size = is_map ? sizeof(GpuTensorMap) : i < kPointers ? 8 : 4;
      if (is_there && bytes == size) continue;
      throw Refusal{GpuAnswerKind::wrong_signature,
                    wrong("argument " + std::to_string(i + 1) + " has " + std::to_string(bytes) +
                          " bytes, wanted " + std::to_string(size))};
    }
  }
  static std::string wrong(const std::string& what) {
    return "the signature is not the task's: " + what;
  }

  std::optional<int64_t> value_of(const std::string& name, const CallShape& s) {
    const std::pair<const char*, int64_t> arguments[] = {
        {"batch", s.batch},       {"heads_q", s.heads_q},     {"heads_kv", s.heads_kv},
        {"seqlen_q", s.seqlen_q}, {"seqlen_kv", s.seqlen_kv}, {"head_dim", s.head_dim}};
    for (const auto& [known, value] : arguments) {
      if (name == known) return value;
    }
    if (name == "multiprocessors") return gpu_.attribute(GpuAttribute::multiprocessors);
    if (const auto found = values_.find(name); found != values_.end()) return found->second;
    GpuAddress at = 0;
    size_t bytes = 0;
    if (gpu_.driver().module_global(&at, &bytes, module_, name.c_str()) != 0) return std::nullopt;
    int32_t value = 0;
    if (bytes != sizeof value) return std::nullopt;
    gpu_.check(gpu_.driver().copy_out(&value, at, bytes), "a variable", GpuAnswerKind::fault);
    return value;
  }

  int64_t evaluated(const std::string& text, const CallShape& shape) {
    std::string error;
    const std::optional<int64_t> value = evaluate(
        text, [&](const std::string& name) { return value_of(name, shape); }, error);
    if (!value) throw Refusal{GpuAnswerKind::wrong_launch, error};
    return *value;
  }

  // [batch, heads, rows, columns], dense.
  void encode(GpuTensorMap& map, const TensorMapLine& line, GpuAddress base, const CallShape& shape,
              bool is_q) {
    const auto heads = static_cast<uint64_t>(is_q ? shape.heads_q : shape.heads_kv);
    const auto rows = static_cast<uint64_t>(is_q ? shape.seqlen_q : shape.seqlen_kv);
    const auto columns = static_cast<uint64_t>(shape.head_dim);
    const uint64_t extents[4] = {columns, rows, heads, static_cast<uint64_t>(shape.batch)};
    const uint64_t row_bytes = columns * (type_ == 0 ? 4 : 2);
    const uint64_t strides[3] = {row_bytes, row_bytes * rows, row_bytes * rows * heads};
    const uint32_t box[4] = {static_cast<uint32_t>(evaluated(line.columns, shape)),
                             static_cast<uint32_t>(evaluated(line.rows, shape)), 1, 1};
    const uint32_t ones[4] = {1, 1, 1, 1};
    const int types[] = {7, 6, 9};  // FLOAT32, FLOAT16, BFLOAT16, by DType
    const int swizzle = line.swizzle == 128  ? 3
                        : line.swizzle == 64 ? 2
                        : line.swizzle == 32 ? 1
                                             : 0;
    gpu_.check(gpu_.driver().encode_tiled(&map, types[type_], 4, reinterpret_cast<void*>(base),
                                          extents, strides, box, ones, 0, swizzle, 3, 0),
               "a tensor map", GpuAnswerKind::wrong_launch);
  }

  const Gpu& gpu_;
  uint32_t type_;
  uint64_t most_workspace_;
  std::map<std::string, int64_t> values_;
  LaunchLines lines_;
  GpuModule* module_ = nullptr;
  GpuFunction* function_ = nullptr;
};

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
