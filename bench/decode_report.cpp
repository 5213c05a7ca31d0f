// Decode on the CPU: one query per sequence over caches that come from memory, compared with the
// read bandwidth of the same threads in the same process.
//
//   flashcore_decode_report [--threads N] [--rounds N] [--megabytes N] [--cpu-time]
//
// Caches are rotated: between two runs over one, at least --megabytes of others are read. Read,
// contiguous and paged are timed in turns, so that other programs hit all of them; the best and the
// median time of each count. Every run is judged against the fp64 reference once. --cpu-time: same
// as in flashcore_cpu_report.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bench/gate/gates.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "bench/time/timing.hpp"
#include "cpu/parallel.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {
namespace {

struct Settings {
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  int rounds = 15;
  int64_t megabytes = 256;
  bool cpu_time = false;
} settings;

[[noreturn]] void fail(const std::string& sentence) {
  fmt::print(stderr, "flashcore_decode_report: {}\n", sentence);
  std::exit(1);
}

double seconds_now() {
  if (!settings.cpu_time) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(now).count();
  }
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec)) /
         settings.threads;
}

struct Shape {
  int64_t batch, heads_q, heads_kv, keys;
  DType dtype, kv_dtype;
};

// A problem over a cache; page 0: in one piece.
Problem problem_of(const Shape& s, int64_t page) {
  constexpr int64_t kWidth = 128;
  Problem p;
  p.q = p.o = TensorDesc::contiguous(s.dtype, {s.batch, s.heads_q, 1, kWidth});
  p.seqlens_kv = TensorDesc::contiguous(DType::i32, {s.batch});
  if (page == 0) {
    p.k = p.v = TensorDesc::contiguous(s.kv_dtype, {s.batch, s.heads_kv, s.keys, kWidth});
    return p;
  }
  const int64_t pages = s.keys / page;
  // [pages, page, Hkv, D] in memory, like most servers.
  p.k = p.v = TensorDesc::strided(s.kv_dtype, {s.batch * pages, s.heads_kv, page, kWidth},
                                  {page * s.heads_kv * kWidth, kWidth, s.heads_kv * kWidth, 1});
  p.page_table = TensorDesc::contiguous(DType::i32, {s.batch, pages});
  return p;
}

// Copies of one problem; each run takes the next.
class Decode {
 public:
  Decode(const Shape& shape, int64_t page) : problem_(problem_of(shape, page)) {
    PlanOptions options;
    options.threads = settings.threads;
    Result<Plan> plan = make_plan(problem_, options);
    if (!plan.ok()) fail(plan.status().message());
    plan_.emplace(std::move(*plan));
    memory_.resize(plan_->workspace_bytes() + 256);
    bytes_ = 2 * element_bytes(problem_.k);
    const auto copies =
        1 + static_cast<int64_t>(static_cast<double>(settings.megabytes) * 1e6 / bytes_);
    copies_.push_back(make_host_problem(problem_, 1));
    judge_first();
    for (int64_t n = 1; n < copies; ++n) copies_.push_back(copies_.front());
  }

  double bytes() const { return bytes_; }

  void run() {
    const Status status = run_on(copies_[next_++ % copies_.size()]);
    if (!status.ok()) fail(status.message());
  }

  // Reads every byte of K and V once, with all threads.
  void read() {
    HostProblem& host = copies_[next_++ % copies_.size()];
    std::atomic<uint64_t> all{0};
    constexpr int64_t kParts = 64;
    cpu::parallel_for(2 * kParts, settings.threads, [&](int64_t part) {
      const std::span<const std::byte> memory = host.at(part % 2 == 0 ? "k" : "v").memory();
      const auto words = static_cast<int64_t>(memory.size() / sizeof(uint64_t));
      const int64_t n = part / 2;
      const auto* const data = reinterpret_cast<const uint64_t*>(memory.data());
      uint64_t sums[8] = {};
      int64_t i = words * n / kParts;
      const int64_t end = words * (n + 1) / kParts;
      for (; i + 8 <= end; i += 8) {
        for (int64_t lane = 0; lane < 8; ++lane) sums[lane] ^= data[i + lane];
      }
      for (; i < end; ++i) sums[0] ^= data[i];
      for (const uint64_t sum : sums) all ^= sum;
    });
    if (all.load() == 1) fail("the sum of all bits is 1");  // prevents dead-code elimination
  }

 private:
  Status run_on(HostProblem& host) {
    const auto at = reinterpret_cast<uintptr_t>(memory_.data());
    return plan_->run(host.arguments(), memory_.data() + (256 - at % 256) % 256,
                      plan_->workspace_bytes());
  }

  void judge_first() {
    HostProblem& host = copies_.front();
    const Result<Reference> reference = compute_reference(host, settings.threads);
    if (!reference.ok()) fail(reference.status().message());
    if (const Status status = run_on(host); !status.ok()) fail(status.message());
    const Verdict verdict = judge(host, *reference);
    if (!verdict.passed) fail(verdict.failure);
  }

  Problem problem_;
  std::optional<Plan> plan_;
  std::vector<std::byte> memory_;
  std::vector<HostProblem> copies_;
  size_t next_ = 0;
  double bytes_ = 0;
};

void report(const Shape& shape) {
  struct Row {
    std::string name;
    std::vector<double> seconds;
  };
  std::vector<Row> rows;
  const auto timed = [&](size_t row, auto&& body) {
    const double start = seconds_now();
    body();
    rows[row].seconds.push_back(seconds_now() - start);
  };
  std::vector<std::unique_ptr<Decode>> subjects;
  for (const int64_t page : {0, 64, 16, 1}) {
    subjects.push_back(std::make_unique<Decode>(shape, page));
    rows.push_back({page == 0 ? "contiguous" : fmt::format("pages of {}", page), {}});
  }
  rows.push_back({"read", {}});
  for (int round = 0; round < settings.rounds; ++round) {
    for (size_t n = 0; n < subjects.size(); ++n) timed(n, [&] { subjects[n]->run(); });
    timed(subjects.size(), [&] { subjects[0]->read(); });
  }
  const double bytes = subjects[0]->bytes();
  fmt::print("b{} {} over {} heads, {} keys, q {}, cache {}, {:.0f} MB\n", shape.batch,
             shape.heads_q, shape.heads_kv, shape.keys, to_string(shape.dtype),
             to_string(shape.kv_dtype), bytes * 1e-6);
  const auto best = [](const Row& row) {
    return *std::min_element(row.seconds.begin(), row.seconds.end());
  };
  const double read = best(rows.back()), whole = best(rows.front());
  for (const Row& row : rows) {
    fmt::print("  {:12} best {:9.3f} ms, median {:9.3f} ms, {:6.1f} GB/s, {:3.0f}% of read",
               row.name, best(row) * 1e3, quantile(row.seconds, 0.5) * 1e3,
               bytes / best(row) * 1e-9, 100 * read / best(row));
    if (row.name.starts_with("pages")) fmt::print(", {:.2f}x contiguous", best(row) / whole);
    fmt::print("\n");
  }
}

void parse(int count, char** arguments) {
  for (int n = 1; n < count; ++n) {
    const std::string_view name = arguments[n];
    if (name == "--cpu-time") {
      settings.cpu_time = true;
      continue;
    }
    const bool known = name == "--threads" || name == "--rounds" || name == "--megabytes";
    if (!known || n + 1 == count) fail(fmt::format("'{}' is no option, or has no number", name));
    const int value = std::atoi(arguments[++n]);
    if (value < 1) fail(fmt::format("{}: is '{}', wanted 1 or more", name, arguments[n]));
    if (name == "--threads") settings.threads = value;
    if (name == "--rounds") settings.rounds = value;
    if (name == "--megabytes") settings.megabytes = value;
  }
}

}  // namespace
}  // namespace flashcore::bench

int main(int count, char** arguments) {
  using flashcore::DType;
  flashcore::bench::parse(count, arguments);
  for (const auto& [dtype, kv] : {std::pair{DType::f32, DType::f32},
                                  {DType::bf16, DType::bf16},
                                  {DType::f16, DType::f16},
                                  {DType::bf16, DType::f8e4m3}}) {
    flashcore::bench::report({1, 32, 8, 8192, dtype, kv});
    flashcore::bench::report({16, 32, 8, 2048, dtype, kv});
  }
  return 0;
}
