// A candidate's kernel as gpu_main.cpp loads and launches it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "evolve/runner/commands.hpp"
#include "evolve/runner/gpu_commands.hpp"
#include "evolve/runner/gpu_driver.hpp"
#include "evolve/runner/launch_lines.hpp"

namespace flashcore::evolve {

inline constexpr size_t kPointers = 6;  // q, k, v, o, lse, workspace
inline constexpr size_t kNumbers = 7;   // batch to head_dim, scale
inline constexpr int kMaxDynamicShared = 8, kSharedBytes = 1, kLocalBytes = 3, kRegisters = 4;
inline constexpr unsigned char kPoison = 0xFF;

// Ends the process's work: an answer with a sentence.
struct Refusal {
  GpuAnswerKind kind;
  std::string text;
};

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

}  // namespace flashcore::evolve
