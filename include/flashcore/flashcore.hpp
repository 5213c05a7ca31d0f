// FlashCore: softmax(Q K^T) V, one operator with one meaning on every backend.
//
// Describe a problem once (shapes, strides, dtypes, options), plan it once, run it many times:
//
//   using namespace flashcore;
//   Problem problem;
//   problem.q = problem.k = problem.v = problem.o =
//       TensorDesc::contiguous(DType::f16, {2, 8, 512, 64});
//   problem.causal = true;
//   Result<Plan> plan = make_plan(problem);
//   if (!plan.ok()) return fail(plan.status().message());
//   Arguments args{.q = q, .k = k, .v = v, .o = o};
//   Status status = plan->run(args);
//
// Training: make_backward_plan(problem, gradients), run with BackwardArguments.
//
// docs/semantics.md says what is computed. Nothing here throws anything but std::bad_alloc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#if defined(FLASHCORE_SHARED)
#define FLASHCORE_API __attribute__((visibility("default")))
#else
#define FLASHCORE_API
#endif

namespace flashcore {

// ---------------------------------------------------------------------------------------------
// Errors

enum class StatusCode : int32_t {
  ok = 0,
  invalid_argument = 1,  // malformed: the message names argument, value and what is wanted
  unsupported = 2,       // well-formed, but no kernel here computes it
  out_of_memory = 3,
  device_error = 4,  // the GPU or its driver reported an error
  internal = 5,
};

FLASHCORE_API std::string_view to_string(StatusCode code);

// A code and one message. Default: ok.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::ok; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::ok;
  std::string message_;
};

// A value, or a status that says why there is no value.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : state_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return std::holds_alternative<T>(state_); }
  Status status() const { return ok() ? Status() : std::get<Status>(state_); }
  T& operator*() { return std::get<T>(state_); }
  const T& operator*() const { return std::get<T>(state_); }
  T* operator->() { return &std::get<T>(state_); }
  const T* operator->() const { return &std::get<T>(state_); }

 private:
  std::variant<T, Status> state_;
};

// ---------------------------------------------------------------------------------------------
// Tensors

enum class DType : int32_t {
  f32 = 0,
  f16 = 1,
  bf16 = 2,
  f8e4m3 = 3,   // the "fn" variant: no infinity, largest value 448
  f8e5m2 = 4,   // IEEE-like: infinity, largest finite value 57344
  boolean = 5,  // one byte; zero is false, anything else is true
  i32 = 6,
  f64 = 7,  // only for O, LSE and gradients, and only the reference computes it
  i64 = 8,  // only for dropout_state
};

FLASHCORE_API std::string_view to_string(DType dtype);
FLASHCORE_API std::optional<DType> dtype_from_string(std::string_view name);
FLASHCORE_API size_t size_of(DType dtype);  // bytes per element

// Shape and strides of a tensor, without its data. Strides are in elements and may be zero or
// negative on inputs (a broadcast, a reversed view).
struct FLASHCORE_API TensorDesc {
  static constexpr int kMaxRank = 4;

  DType dtype = DType::f32;
  int32_t rank = 0;
  std::array<int64_t, kMaxRank> shape{};
  std::array<int64_t, kMaxRank> stride{};

  // Row-major. More than kMaxRank dimensions are cut off, and make_plan refuses the tensor.
  static TensorDesc contiguous(DType dtype, std::initializer_list<int64_t> shape);
  static TensorDesc strided(DType dtype, std::initializer_list<int64_t> shape,
                            std::initializer_list<int64_t> stride);
};

// ---------------------------------------------------------------------------------------------
// The problem

// The position of the diagonal: query i is aligned with key i + offset.
enum class Alignment : int32_t {
  top_left = 0,      // offset 0
  bottom_right = 1,  // offset len_kv - len_q of the sequence: the last query sees the last key
  given = 2,         // Problem::causal_offset, or one per sequence in Problem::causal_offsets
};

// A problem without its data: shapes, strides, dtypes and options. Names as in docs/semantics.md.
// B batch, Hq query heads, Hkv key/value heads (Hq a multiple of Hkv), Sq queries, Skv keys.
struct Problem {
  TensorDesc q;  // [B, Hq, Sq, Dqk]; packed: [total_q, Hq, Dqk]. f32, f16, bf16, f8e4m3, f8e5m2
  // [B, Hkv, Skv, Dqk]; packed: [total_kv, Hkv, Dqk]; in pages: [num_pages, Hkv, page_size, Dqk].
  // dtype of q, or fp8
  TensorDesc k;
  TensorDesc v;  // as k with Dv; dtype of k, or fp8 where k is fp8; or see v_transposed
  TensorDesc o;  // [B, Hq, Sq, Dv]; packed: [total_q, Hq, Dv]. One of q's types, or f64
  std::optional<TensorDesc> lse;  // [B, Hq, Sq]; packed: [total_q, Hq]. f32 (f64: reference)

  // Optional inputs. "x|1": the dimension has extent x, or 1 and is broadcast.
  std::optional<TensorDesc> bias;           // [B|1, Hq|1, Sq|1, Skv|1], f32, f16 or bf16
  std::optional<TensorDesc> mask;           // [B|1, Hq|1, Sq|1, Skv|1], boolean, true = attend
  std::optional<TensorDesc> alibi_slopes;   // [Hq] or [B|1, Hq], f32
  std::optional<TensorDesc> sinks;          // [Hq], f32: one logit per head
  std::optional<TensorDesc> q_scale;        // [B|1, Hq|1], f32, for fp8
  std::optional<TensorDesc> k_scale;        // [B|1, Hkv|1, blocks|1], f32, for fp8; num_pages for B
  std::optional<TensorDesc> v_scale;        // as k_scale
  std::optional<TensorDesc> cu_seqlens_q;   // [B + 1], i32: makes the problem a packed one
  std::optional<TensorDesc> cu_seqlens_kv;  // [B + 1], i32: with cu_seqlens_q, unless in pages
  std::optional<TensorDesc> seqlens_q;      // [B], i32: number of queries in use
  std::optional<TensorDesc> seqlens_kv;     // [B], i32: number of keys in use
  std::optional<TensorDesc> causal_offsets;  // [B], i32: with Alignment::given
  // [2], i64: a run reads the dropout seed and offset from memory on the plan's device, so that
  // each replay of a captured run can use another mask. Not read if the problem has no dropout.
  std::optional<TensorDesc> dropout_state;
  // Caches (docs/semantics.md): k and v in pages, listed by a table or by one flat list, and left padding.
  std::optional<TensorDesc> page_table;        // [B, max_pages], i32
  std::optional<TensorDesc> kv_indptr;         // [B + 1], i32: the flat list, instead of a table
  std::optional<TensorDesc> kv_indices;        // [total_pages], i32
  std::optional<TensorDesc> kv_last_page_len;  // [B], i32: rows in use on a sequence's last page
  std::optional<TensorDesc> cache_leftpad;     // [B], i32: rows before a sequence's first key
  // [1], i32, output: set to 1 when a page index was out of range and was clamped.
  std::optional<TensorDesc> page_status;
  // Speculative trees (docs/semantics.md): [B|1, Sq, words]; packed: [total_q, words]. i32: bit t
  // of a query's words is set if the query sees key offset + t. Earlier keys are not affected.
  std::optional<TensorDesc> tree_mask;
  // [B|1, Hq|1], f32, for an fp8 o: the run stores O divided by this scale, rounded and saturated.
  std::optional<TensorDesc> o_scale;
  // [B|1, Hq|1], f32, outputs: the largest |O| before scaling and rounding, the largest probability
  // before dropout, and the largest score, over all rows that the element covers (docs/semantics.md).
  std::optional<TensorDesc> amax_o;
  std::optional<TensorDesc> amax_s;
  std::optional<TensorDesc> max_logit;

  std::optional<float> softmax_scale;  // default 1 / sqrt(Dqk)
  float softcap = 0;                   // > 0: s = softcap * tanh(s / softcap)
  bool causal = false;                 // key j is seen when j <= i + offset
  Alignment alignment = Alignment::bottom_right;
  int64_t causal_offset = 0;   // with Alignment::given and no causal_offsets
  int64_t window_left = -1;    // key j is seen when j >= i + offset - window_left; -1: no limit
  int64_t window_right = -1;   // key j is seen when j <= i + offset + window_right; -1: no limit
  float dropout_p = 0;         // in [0, 1]
  int64_t kv_scale_block = 0;  // keys per block of k_scale and v_scale; 0: one block
  int64_t max_seqlen_q = 0;    // packed: most queries per sequence; 0: not known (at most total_q)
  int64_t max_seqlen_kv = 0;   // also in pages: most rows per sequence; 0: not known (at most all)
  // v is [B, Hkv, Dv, columns], as transpose_v makes it (quantize.hpp). Only for fp8 in one piece;
  // columns is a multiple of 128, at least Skv.
  bool v_transposed = false;
};

// The data of one run: pointers to element [0, 0, ...] of the problem's tensors, on the plan's
// device. Pointers to tensors that the problem does not have are ignored. A run is refused if an
// output shares an element's memory with another tensor (interleaved views of one buffer share none).
struct Arguments {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* o = nullptr;
  void* lse = nullptr;
  const void* bias = nullptr;
  const void* mask = nullptr;
  const float* alibi_slopes = nullptr;
  const float* sinks = nullptr;
  const float* q_scale = nullptr;
  const float* k_scale = nullptr;
  const float* v_scale = nullptr;
  const int32_t* cu_seqlens_q = nullptr;
  const int32_t* cu_seqlens_kv = nullptr;
  const int32_t* seqlens_q = nullptr;
  const int32_t* seqlens_kv = nullptr;
  const int32_t* causal_offsets = nullptr;
  uint64_t dropout_seed = 0;  // seed and offset: used if the problem has no dropout_state
  uint64_t dropout_offset = 0;
  const int64_t* dropout_state = nullptr;  // seed and offset, bit for bit
  const int32_t* page_table = nullptr;
  const int32_t* kv_indptr = nullptr;
  const int32_t* kv_indices = nullptr;
  const int32_t* kv_last_page_len = nullptr;
  const int32_t* cache_leftpad = nullptr;
  int32_t* page_status = nullptr;
  const int32_t* tree_mask = nullptr;
  const float* o_scale = nullptr;
  float* amax_o = nullptr;
  float* amax_s = nullptr;
  float* max_logit = nullptr;
};

// ---------------------------------------------------------------------------------------------
// Gradients

// The tensors that the backward pass reads and writes in addition to the problem's own. It reads
// all of the problem's tensors, O and LSE included, so the problem must have an LSE. Each gradient
// has the shape of its tensor. If the bias or the slopes have extent 1, so has the gradient, and it
// is the sum over that dimension. fp8 problems have no backward pass.
struct Gradients {
  TensorDesc d_o;  // input, shape and dtype of o; strides may be zero or negative
  TensorDesc dq;   // dtype of q, or f32 (f64: reference); dk and dv likewise
  TensorDesc dk;
  TensorDesc dv;
  std::optional<TensorDesc> d_lse;           // input: a gradient that flows into LSE, f32 (or f64)
  std::optional<TensorDesc> d_bias;          // dtype of the bias, or f32 (f64: reference)
  std::optional<TensorDesc> d_sinks;         // f32 (f64: reference)
  std::optional<TensorDesc> d_alibi_slopes;  // f32 (f64: reference)
};

// The data of one backward run. Pointers to tensors that the gradients do not have are ignored. The
// rules for outputs of Arguments hold here, too.
struct BackwardArguments {
  // The arguments of the forward pass. Its o and lse hold what that pass wrote, and are only read.
  // An equal seed and offset give the same dropout mask.
  Arguments forward;
  const void* d_o = nullptr;
  const void* d_lse = nullptr;
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  void* d_bias = nullptr;
  void* d_sinks = nullptr;
  void* d_alibi_slopes = nullptr;
};

// ---------------------------------------------------------------------------------------------
// Devices

// sim: simulated GPUs, in a build with the simulator (docs/simulator.md); for kernel tests.
enum class DeviceKind : int32_t { cpu = 0, cuda = 1, sim = 2 };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int32_t index = 0;
};

struct DeviceInfo {
  Device device;
  std::string name;
  int32_t compute_capability = 0;  // CUDA: 80, 89, 90, ...
  int32_t multiprocessors = 0;     // CUDA: SMs; CPU: hardware threads
  union {
    int64_t shared_memory_per_block = 0;  // CUDA: bytes per block, the opt-in limit
    [[deprecated("it is shared_memory_per_block now")]] int64_t shared_memory_a_block;
  };
  int64_t memory_bytes = 0;
};

// Returns every device that plans can be made for. The CPU is always the first.
FLASHCORE_API std::vector<DeviceInfo> devices();

// ---------------------------------------------------------------------------------------------
// Plans

struct PlanOptions {
  Device device;
  // "KERNEL" or "KERNEL:VARIANT", as explain() says, or either with ":CONFIG" (`flashcore tune`); or
  // a former name. Empty: the kernel in FLASHCORE_KERNEL, if it has the planned pass (forward or
  // backward); otherwise the best that computes the problem.
  std::string kernel;
  int32_t threads = 0;           // CPU: 0 means all hardware threads
  bool batch_invariant = false;  // a row's bits do not depend on the rest of the batch
  // CUDA: a run may start before earlier work in its stream has ended. It waits for that work
  // before it touches memory. Kernels that cannot do this ignore the option.
  bool early_start = false;
  // Backward: true gives the same bits in every run; false allows atomic sums, which may be faster.
  bool deterministic = true;
};

// One line of explain(): a variant of a kernel and its verdict on the problem.
struct KernelVerdict {
  std::string kernel;     // "KERNEL", or "KERNEL:VARIANT"
  std::string refusal;    // why it cannot compute the problem; empty: it can
  bool automatic = true;  // false: runs only when asked for by name
  // Why an automatic kernel leaves a problem that it could compute to another kernel; empty: it
  // does not. A kernel that is asked for by name never declines.
  std::string declines = {};
  std::string note = {};  // a remark for callers about the kernel here; usually empty
};

// A stream of the plan's device: a cudaStream_t, or null for the default stream. Ignored on CPU.
struct Stream {
  void* handle = nullptr;
};

// A problem bound to a kernel and its launch geometry. A plan is cheap to copy. Any number of
// threads may run one plan at once, each with its own outputs and workspace. A plan may be
// destroyed as soon as run() has returned, even if the work is still queued on a GPU or captured in
// a graph. The tensors and the workspace must live on until that work is done.
class FLASHCORE_API Plan {
 public:
  struct Impl;
  explicit Plan(std::shared_ptr<const Impl> impl);

  std::string_view kernel() const;  // name in the table of kernels
  std::string_view reason() const;  // one sentence: why this kernel was chosen
  size_t workspace_bytes() const;   // workspace that run() needs

  // Computes O (and LSE, and the largest values). For a plan of make_plan. On an error nothing is launched or written.
  //
  // `workspace` is memory on the plan's device, aligned to 256 bytes. It needs no initialisation,
  // and its contents mean nothing afterwards. On the CPU it may be left out: then each run
  // allocates and frees its own. On a GPU a workspace that is missing or too small is an error.
  //
  // On a GPU the call is asynchronous in `stream`, allocates nothing and does not synchronise. The
  // thread's current GPU stays the same, unless that GPU has no context yet: then the call does not
  // create one, and the plan's GPU becomes the current one.
  Status run(const Arguments& arguments, void* workspace = nullptr, size_t workspace_bytes = 0,
             Stream stream = {}) const;

  // Computes the gradients. Needs a plan of make_backward_plan; everything else is as above.
  Status run(const BackwardArguments& arguments, void* workspace = nullptr,
             size_t workspace_bytes = 0, Stream stream = {}) const;

 private:
  friend struct PlanChecks;  // internal
  std::shared_ptr<const Impl> impl_;
};

// Checks the problem and chooses the kernel.
FLASHCORE_API Result<Plan> make_plan(const Problem& problem, const PlanOptions& options = {});

// Same as make_plan, for the problem's backward pass.
FLASHCORE_API Result<Plan> make_backward_plan(const Problem& problem, const Gradients& gradients,
                                              const PlanOptions& options = {});

// Returns the verdict of every kernel for the device, best first. make_plan chooses the kernel that a
// tuning table names (docs/tuning.md; its note says so), otherwise the first automatic one that
// neither refuses nor declines, otherwise the first that only declines. Fails only for a bad problem.
FLASHCORE_API Result<std::vector<KernelVerdict>> explain(const Problem& problem,
                                                         const PlanOptions& options = {});

// Same as explain, for make_backward_plan.
FLASHCORE_API Result<std::vector<KernelVerdict>> explain_backward(const Problem& problem,
                                                                  const Gradients& gradients,
                                                                  const PlanOptions& options = {});

// Drops the loaded tuning tables; later plans load them again. A device's table is loaded once,
// when the first plan for the device is made.
FLASHCORE_API void reload_tuning();

// ---------------------------------------------------------------------------------------------
// Dropout

// Returns whether dropout keeps the pair (query, key) of a sequence and query head; false for an
// index outside [0, 2^31), which no problem has. The mask is a pure function of the arguments, the
// same on every backend: Philox4x32-10 (Salmon et al., SC 2011).
FLASHCORE_API bool dropout_keeps(uint64_t seed, uint64_t offset, float dropout_p, int64_t batch,
                                 int64_t head, int64_t query, int64_t key);

// ---------------------------------------------------------------------------------------------
// Build

struct BuildInfo {
  std::string version;       // library version, such as "0.1.0"
  std::string compiler;      // "GCC 12.2.0"
  std::string build_type;    // "Release"
  bool cuda = false;         // CUDA kernels are compiled in
  std::string cuda_targets;  // "80+ptx;89;90a"; +ptx: later GPUs can run some of the kernels
  std::string cpu_target;    // the SIMD target that runs here: "AVX3_ZEN4", "AVX2", ...
};

FLASHCORE_API BuildInfo build_info();

}  // namespace flashcore
