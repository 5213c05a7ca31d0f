// One long sequence over several GPUs, with NCCL and without PyTorch: each GPU has a thread, some
// rows of Q, K and V, and computes O of its queries. K and V travel in a ring while it computes.
// The schedule is the library's (context_parallel.hpp); this program carries it out.
//
//   c++ -std=c++20 nccl_ring.cpp $(pkg-config --cflags --libs flashcore) -lnccl -lcudart -o nccl_ring
//   ./nccl_ring [ROWS]
//
// Prints the largest difference from one GPU's result, and the times of both.
#include <cuda_runtime.h>
#include <nccl.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <flashcore/context_parallel.hpp>
#include <flashcore/flashcore.hpp>
#include <flashcore/serving.hpp>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace flashcore;
using Bf16 = uint16_t;

constexpr int64_t kHeads = 32, kHeadsKv = 8, kHeadDim = 128;
constexpr int kRuns = 10;

// This is a program: it prints what failed, and ends.
[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(EXIT_FAILURE);
}
void check(cudaError_t error) {
  if (error != cudaSuccess) fail(cudaGetErrorString(error));
}
void check(ncclResult_t result) {
  if (result != ncclSuccess) fail(ncclGetErrorString(result));
}
void check(const Status& status) {
  if (!status.ok()) fail(status.message());
}
template <class T>
T need(Result<T> result) {
  check(result.status());
  return *std::move(result);
}

PlanOptions on_gpu(int index) {
  PlanOptions options;
  options.device = {DeviceKind::cuda, index};
  return options;
}

Bf16 to_bf16(float x) { return static_cast<Bf16>((std::bit_cast<uint32_t>(x) + 0x8000U) >> 16U); }
float to_float(Bf16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16U); }

// Heads of rows, [1, heads, rows, head_dim], on a GPU.
struct Rows {
  Bf16* data = nullptr;
  int64_t heads = 0;
  int64_t rows = 0;

  static Rows allocate(int64_t heads, int64_t rows) {
    Rows made{nullptr, heads, rows};
    check(cudaMalloc(reinterpret_cast<void**>(&made.data), made.size() * sizeof(Bf16)));
    return made;
  }
  size_t size() const { return static_cast<size_t>(heads * rows * kHeadDim); }
  Bf16* at(int64_t row) const { return data + row * kHeadDim; }
  TensorDesc part(int64_t count) const {
    const int64_t head = rows * kHeadDim;
    return TensorDesc::strided(DType::bf16, {1, heads, count, kHeadDim},
                               {heads * head, head, kHeadDim, 1});
  }
};

float* allocate_floats(int64_t count) {
  float* data = nullptr;
  check(cudaMalloc(reinterpret_cast<void**>(&data), static_cast<size_t>(count) * sizeof(float)));
  return data;
}
TensorDesc lse_part(int64_t rows, int64_t count) {
  return TensorDesc::strided(DType::f32, {1, kHeads, count}, {kHeads * rows, rows, 1});
}

// The whole sequence, on the host.
struct Host {
  int64_t heads;
  int64_t rows;
  std::vector<Bf16> values;

  Host(int64_t all_heads, int64_t all_rows, unsigned seed)
      : heads(all_heads),
        rows(all_rows),
        values(static_cast<size_t>(all_heads * all_rows * kHeadDim)) {
    std::minstd_rand bits(seed);
    std::uniform_real_distribution<float> draw(-1.7f, 1.7f);
    if (seed > 0) std::generate(values.begin(), values.end(), [&] { return to_bf16(draw(bits)); });
  }
  Bf16* at(int64_t row) { return values.data() + row * kHeadDim; }
};

// Copies a rank's pieces of rows from the host, or back.
void copy(Host& host, const Rows& shard, const std::vector<ContextPiece>& pieces, int64_t rank,
          bool back) {
  for (const ContextPiece& piece : pieces) {
    if (piece.rank != rank) continue;
    const size_t row = kHeadDim * sizeof(Bf16);
    const size_t width = static_cast<size_t>(piece.rows) * row;
    const size_t pitch = static_cast<size_t>(host.rows) * row;
    const size_t shard_pitch = static_cast<size_t>(shard.rows) * row;
    void* here = host.at(piece.begin);
    void* there = shard.at(piece.place);
    check(cudaMemcpy2D(back ? here : there, back ? pitch : shard_pitch, back ? there : here,
                       back ? shard_pitch : pitch, width, static_cast<size_t>(host.heads),
                       cudaMemcpyDefault));
  }
}

// A call of the schedule, planned: attention, and the merge of its result.
struct Call {
  Plan plan;
  Arguments arguments;
  bool merges = false;
  Merge merge;
  MergeArguments parts;
};

class Rank {
 public:
  Rank(int rank, int world, ncclComm_t comm, int64_t rows) : rank_(rank), comm_(comm) {
    problem_.world = world;
    problem_.rank = rank;
    problem_.algorithm = ContextAlgorithm::ring;
    problem_.seqlens_q = problem_.seqlens_kv = {rows};
    problem_.causal = true;
    plan_ = need(make_context_plan(problem_));
    check(cudaSetDevice(rank));
    check(cudaStreamCreate(&compute_));
    check(cudaStreamCreate(&link_));
    for (cudaEvent_t* event : {&computed_, &arrived_}) {
      check(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    }
    q_ = Rows::allocate(kHeads, plan_.rows_q);
    o_ = Rows::allocate(kHeads, plan_.rows_q);
    lse_ = allocate_floats(kHeads * plan_.rows_q);
    part_ = Rows::allocate(kHeads, plan_.rows_q);
    part_lse_ = allocate_floats(kHeads * plan_.rows_q);
    own_ = {Rows::allocate(kHeadsKv, plan_.rows_kv), Rows::allocate(kHeadsKv, plan_.rows_kv)};
    prepare();
  }

  void load(Host& q, Host& k, Host& v) {
    copy(q, q_, plan_.pieces_q, rank_, false);
    copy(k, own_[0], plan_.pieces_kv, rank_, false);
    copy(v, own_[1], plan_.pieces_kv, rank_, false);
  }
  void store(Host& o) { copy(o, o_, plan_.pieces_q, rank_, true); }

  // One forward pass. Transfers of a step run beside its calls, on a stream of their own.
  void run() {
    begin();
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      check(cudaEventRecord(computed_, compute_));  // the buffer to receive into is free
      check(cudaStreamWaitEvent(link_, computed_));
      if (i > 0) check(cudaStreamWaitEvent(compute_, arrived_));
      transfer(i);
      check(cudaEventRecord(arrived_, link_));
      for (const Call& call : calls_[i]) {
        check(call.plan.run(call.arguments, workspace_, workspace_bytes_, {compute_}));
        if (call.merges) check(merge(call.merge, call.parts, options(), {compute_}));
      }
    }
    check(cudaStreamSynchronize(compute_));
    check(cudaStreamSynchronize(link_));
  }

 private:
  using KeysAndValues = std::array<Rows, 2>;

  PlanOptions options() const { return on_gpu(rank_); }

  // The keys and values at hand in a step: its own in the first one, then what it received.
  const KeysAndValues& held(size_t step) const {
    return step == 0 ? own_ : buffers_[(step - 1) % 2];
  }

  void prepare() {
    int64_t most = 0;
    for (int64_t rank = 0; rank < problem_.world; ++rank) most = std::max(most, rows_of(rank));
    for (KeysAndValues& buffer : buffers_) {
      buffer = {Rows::allocate(kHeadsKv, most), Rows::allocate(kHeadsKv, most)};
    }
    bool writes = !plan_.initialise;
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      std::vector<Call>& calls = calls_.emplace_back();
      for (const ContextCall& call : plan_.steps[i].calls) {
        calls.push_back(planned(call, held_rows(i), !writes));
        writes = false;
        workspace_bytes_ = std::max(workspace_bytes_, calls.back().plan.workspace_bytes());
      }
    }
    check(cudaMalloc(&workspace_, std::max<size_t>(workspace_bytes_, 1)));
  }

  int64_t rows_of(int64_t rank) const {
    int64_t rows = 0;
    for (const ContextPiece& piece : plan_.pieces_kv) rows += piece.rank == rank ? piece.rows : 0;
    return rows;
  }

  // Received rows lie together, whatever the buffer has room for.
  KeysAndValues held_rows(size_t step) const {
    KeysAndValues found = held(step);
    if (plan_.steps[step].owner >= 0) {
      for (Rows& one : found) one.rows = rows_of(plan_.steps[step].owner);
    }
    return found;
  }

  Call planned(const ContextCall& call, const KeysAndValues& kv, bool merges) const {
    const ContextBlock& block = call.blocks.front();  // a dense batch: one document
    const int64_t queries = block.q_end - block.q_begin;
    const int64_t keys = block.kv_end - block.kv_begin;
    const Rows& o = merges ? part_ : o_;
    Problem problem;
    problem.q = q_.part(queries);
    problem.k = kv[0].part(keys);
    problem.v = kv[1].part(keys);
    problem.o = o.part(queries);
    problem.lse = lse_part(plan_.rows_q, queries);
    problem.causal = call.window_right == 0;
    problem.alignment = Alignment::given;
    problem.causal_offset = block.offset;
    problem.window_left = call.window_left;
    problem.window_right = call.window_right;
    Call made{need(make_plan(problem, options())), {}, merges, {}, {}};
    made.arguments = {.q = q_.at(block.q_begin),
                      .k = kv[0].at(block.kv_begin),
                      .v = kv[1].at(block.kv_begin),
                      .o = o.at(block.q_begin),
                      .lse = (merges ? part_lse_ : lse_) + block.q_begin};
    made.merge = {problem.o, problem.o, *problem.lse, *problem.lse, problem.o, problem.lse};
    made.parts = {o_.at(block.q_begin),      part_.at(block.q_begin), lse_ + block.q_begin,
                  part_lse_ + block.q_begin, o_.at(block.q_begin),    lse_ + block.q_begin};
    return made;
  }

  void begin() {
    if (!plan_.initialise) return;  // the first call writes all rows
    const std::vector<float> nothing(static_cast<size_t>(kHeads * plan_.rows_q),
                                     -std::numeric_limits<float>::infinity());
    check(cudaMemsetAsync(o_.data, 0, o_.size() * sizeof(Bf16), compute_));
    check(cudaMemcpyAsync(lse_, nothing.data(), nothing.size() * sizeof(float),
                          cudaMemcpyHostToDevice, compute_));
    check(cudaStreamSynchronize(compute_));
  }

  void transfer(size_t i) {
    const ContextStep& step = plan_.steps[i];
    const KeysAndValues sent = held_rows(i);
    check(ncclGroupStart());
    for (size_t n = 0; n < 2; ++n) {
      if (step.send_to >= 0) {
        check(ncclSend(sent[n].data, sent[n].size(), ncclBfloat16, step.send_to, comm_, link_));
      }
      if (step.send_own_to >= 0) {
        check(ncclSend(own_[n].data, own_[n].size(), ncclBfloat16, step.send_own_to, comm_, link_));
      }
      if (step.receive_from >= 0) {
        const Rows coming = held_rows(i + 1)[n];
        check(ncclRecv(coming.data, coming.size(), ncclBfloat16, step.receive_from, comm_, link_));
      }
    }
    check(ncclGroupEnd());
  }

  int rank_;
  ncclComm_t comm_;
  ContextProblem problem_;
  ContextPlan plan_;
  cudaStream_t compute_ = nullptr, link_ = nullptr;
  cudaEvent_t computed_ = nullptr, arrived_ = nullptr;
  Rows q_, o_, part_;
  float* lse_ = nullptr;
  float* part_lse_ = nullptr;
  KeysAndValues own_;
  std::array<KeysAndValues, 2> buffers_;
  std::vector<std::vector<Call>> calls_;  // by step
  void* workspace_ = nullptr;
  size_t workspace_bytes_ = 0;
};

double milliseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// One GPU's result, and its time in milliseconds.
double one_gpu(Host& q, Host& k, Host& v, Host& o) {
  check(cudaSetDevice(0));
  Rows on[4] = {Rows::allocate(kHeads, q.rows), Rows::allocate(kHeadsKv, q.rows),
                Rows::allocate(kHeadsKv, q.rows), Rows::allocate(kHeads, q.rows)};
  Host* const inputs[3] = {&q, &k, &v};
  const std::vector<ContextPiece> all = {{0, 0, 0, q.rows}};
  for (size_t i = 0; i < 3; ++i) copy(*inputs[i], on[i], all, 0, false);
  Problem problem;
  problem.q = problem.o = on[0].part(q.rows);
  problem.k = problem.v = on[1].part(q.rows);
  problem.causal = true;
  const Plan plan = need(make_plan(problem, on_gpu(0)));
  void* workspace = nullptr;
  check(cudaMalloc(&workspace, std::max<size_t>(plan.workspace_bytes(), 1)));
  Arguments arguments{.q = on[0].data, .k = on[1].data, .v = on[2].data, .o = on[3].data};
  std::vector<double> times;
  for (int run = 0; run < kRuns; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    check(plan.run(arguments, workspace, plan.workspace_bytes()));
    check(cudaDeviceSynchronize());
    times.push_back(milliseconds_since(begin));
  }
  copy(o, on[3], all, 0, true);
  for (Rows& one : on) check(cudaFree(one.data));
  check(cudaFree(workspace));
  return median(times);
}

}  // namespace

int main(int count, char** arguments) {
  const int64_t rows = count > 1 ? std::atoll(arguments[1]) : 8192;
  int world = 0;
  if (cudaGetDeviceCount(&world) != cudaSuccess || world < 1) {
    std::fprintf(stderr, "There is no GPU.\n");
    return 77;  // which CTest counts as skipped
  }
  if (rows < 2 * world) fail("rows: wanted two for each GPU");
  Host q(kHeads, rows, 1), k(kHeadsKv, rows, 2), v(kHeadsKv, rows, 3);
  Host found(kHeads, rows, 0), wanted(kHeads, rows, 0);
  const double alone = one_gpu(q, k, v, wanted);

  std::vector<ncclComm_t> comms(static_cast<size_t>(world));
  check(ncclCommInitAll(comms.data(), world, nullptr));
  std::barrier meet(world);
  std::vector<double> times;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      Rank one(rank, world, comms[static_cast<size_t>(rank)], rows);
      one.load(q, k, v);
      for (int run = 0; run < kRuns; ++run) {
        meet.arrive_and_wait();
        const auto begin = std::chrono::steady_clock::now();
        one.run();
        meet.arrive_and_wait();
        if (rank == 0) times.push_back(milliseconds_since(begin));
      }
      one.store(found);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (ncclComm_t comm : comms) check(ncclCommDestroy(comm));

  float largest = 0;
  for (size_t i = 0; i < found.values.size(); ++i) {
    const float difference = std::abs(to_float(found.values[i]) - to_float(wanted.values[i]));
    largest = std::isnan(difference) ? INFINITY : std::max(largest, difference);
  }
  std::printf("%lld rows on %d GPUs: largest difference %.1e\n", static_cast<long long>(rows),
              world, static_cast<double>(largest));
  std::printf("one GPU %.3f ms, %d GPUs %.3f ms\n", alone, world, median(times));
  return largest < 2e-2f ? EXIT_SUCCESS : EXIT_FAILURE;
}
