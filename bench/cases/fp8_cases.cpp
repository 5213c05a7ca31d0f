#include "bench/cases/fp8_cases.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <functional>

#include "bench/tensors/random.hpp"

namespace flashcore::bench {
namespace {

struct Data {
  const char* name;
  double max_scaled_error, relative_error;
  std::function<void(HostProblem&)> bend;  // transforms N(0, 1) data
};

constexpr double kLseError = 1e-2;

// All queries are equal, and one key in the middle is 1.5 times their vector.
void hide_needle(HostProblem& host) {
  HostTensor &q = host.at("q"), &k = host.at("k");
  const int64_t width = q.desc().shape[3], hidden = k.desc().shape[2] / 2;
  change_rows(q, [&](int64_t, int64_t d, double) { return q.get(d); });
  change_rows(k, [&](int64_t row, int64_t d, double x) {
    return row == hidden ? 1.5 * q.get(d % width) : x;
  });
}

std::vector<Data> all_data() {
  return {
      {"normal", 6e-2, 3e-2, [](HostProblem&) {}},
      {"outliers", 8e-2, 1.5e-2,
       [](HostProblem& host) {
         change_rows(host.at("k"), [](int64_t row, int64_t, double x) {
           return x * (row % 97 == 5 ? 6 : 1) * (row < 64 ? 2 : 1);
         });
       }},
      {"growing", 9e-2, 1.5e-2,
       [](HostProblem& host) {
         HostTensor& k = host.at("k");
         const auto rows = static_cast<double>(k.desc().shape[2]);
         change_rows(k, [=](int64_t row, int64_t, double x) {
           return x * (0.5 + 8 * static_cast<double>(row) / rows);
         });
       }},
      {"sink", 3e-2, 1e-2,
       [](HostProblem& host) {
         change_rows(host.at("k"),
                     [](int64_t row, int64_t, double x) { return row == 0 ? 8 * x : x; });
       }},
      {"sigma3", 7e-2, 2.5e-2,
       [](HostProblem& host) {
         change_rows(host.at("q"), [](int64_t, int64_t, double x) { return 3 * x; });
       }},
      {"mean1", 1.5e-2, 5e-3,
       [](HostProblem& host) {
         change_rows(host.at("v"), [](int64_t, int64_t, double x) { return x + 1; });
       }},
      {"equal", 1e-2, 5e-3,
       [](HostProblem& host) {
         change_rows(host.at("q"), [](int64_t row, int64_t d, double) {
           return static_cast<double>((row + d) % 3);
         });
         change_rows(host.at("k"),
                     [](int64_t, int64_t d, double) { return static_cast<double>(d % 3 - 1); });
         change_rows(host.at("v"), [](int64_t, int64_t, double x) { return x + 1; });
       }},
      {"needle", 3e-2, 2.5e-2, hide_needle},
  };
}

struct Shape {
  int64_t seqlen_q, seqlen_kv, head_dim;
};

}  // namespace

void change_rows(HostTensor& tensor,
                 const std::function<double(int64_t, int64_t, double)>& change) {
  const int64_t rows = tensor.desc().shape[2], width = tensor.desc().shape[3];
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    tensor.set(i, change(i / width % rows, i % width, tensor.get(i)));
  }
}

std::vector<Fp8Data> fp8_data() {
  std::vector<Fp8Data> all;
  for (const Data& data : all_data()) all.push_back({data.name, data.bend});
  return all;
}

HostProblem draw(const Fp8Data& data, std::initializer_list<int64_t> q,
                 std::initializer_list<int64_t> k, uint64_t seed) {
  Problem problem;
  problem.q = problem.o = TensorDesc::contiguous(DType::f32, q);
  problem.k = problem.v = TensorDesc::contiguous(DType::f32, k);
  problem.lse = TensorDesc::contiguous(DType::f32, {q.begin()[0], q.begin()[1], q.begin()[2]});
  HostProblem host = make_host_problem(problem, seed);
  data.bend(host);
  return host;
}

std::vector<ScoreCase> fp8_cases() {
  std::vector<ScoreCase> cases;
  for (const Data& data : all_data()) {
    for (const auto& [seqlen_q, seqlen_kv, head_dim] :
         {Shape{64, 1000, 128}, Shape{64, 1000, 64}, Shape{40, 4096, 64}}) {
      Problem problem;
      problem.q = TensorDesc::contiguous(DType::f8e4m3, {1, 2, seqlen_q, head_dim});
      problem.k = problem.v = TensorDesc::contiguous(DType::f8e4m3, {1, 1, seqlen_kv, head_dim});
      problem.o = TensorDesc::contiguous(DType::f32, {1, 2, seqlen_q, head_dim});
      problem.lse = TensorDesc::contiguous(DType::f32, {1, 2, seqlen_q});
      const GateLimits limits{.max_scaled_error = data.max_scaled_error,
                              .relative_error = data.relative_error,
                              .lse_error = kLseError,
                              .naive_allowance = std::nullopt,
                              .outlier_error = std::nullopt};
      const auto bend = [bend = data.bend](HostProblem& host) {
        Random random(3);
        host.at("v").fill([&] { return random.normal(); });
        bend(host);
      };
      cases.push_back({fmt::format("fp8/{}/{}x{}x{}", data.name, seqlen_q, seqlen_kv, head_dim),
                       problem, bend, false, limits});
    }
  }
  return cases;
}

}  // namespace flashcore::bench
