#include "evolve/evaluate/judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "evolve/task/task.hpp"

namespace flashcore::evolve {
namespace {

constexpr int64_t kBlockRows = 16;

void copy_in(std::span<const std::byte> from, bench::HostTensor& to) {
  std::memcpy(to.data(), from.data(), from.size());
}

void copy_out(const bench::HostTensor& from, std::span<std::byte> to) {
  std::memcpy(to.data(), from.data(), to.size());
}

}  // namespace

void put_inputs(const bench::HostProblem& host, CallMemory& memory, uint64_t call) {
  copy_out(host.at("q"), memory.q(call));
  copy_out(host.at("k"), memory.k(call));
  copy_out(host.at("v"), memory.v(call));
}

void take_outputs(CallMemory& memory, uint64_t call, bench::HostProblem& host) {
  copy_in(memory.o(call), host.at("o"));
  copy_in(memory.lse(call), host.at("lse"));
}

Result<bench::Verdict> judge_rows(const Task& task, const CallShape& shape, CallMemory& memory,
                                  uint64_t call, double flop, bench::Random& secret) {
  CallShape one = shape;
  one.batch = one.heads_q = one.heads_kv = 1;
  one.seqlen_q = std::min(kBlockRows, shape.seqlen_q);
  Problem problem = problem_of(one, task);
  problem.alignment = Alignment::given;
  const double block_flop = 4.0 * static_cast<double>(one.seqlen_q * one.seqlen_kv * one.head_dim);
  const int64_t in_head = (shape.seqlen_q + one.seqlen_q - 1) / one.seqlen_q;
  const int64_t all = shape.batch * shape.heads_q * in_head;
  const auto blocks = std::max<int64_t>(1, static_cast<int64_t>(flop / block_flop));
  const bool whole = blocks >= all;  // then every row, in order
  bench::Verdict verdict;
  for (int64_t n = 0; n < std::min(blocks, all); ++n) {
    const int64_t last = shape.seqlen_q - one.seqlen_q;  // last possible start of a block
    const int64_t pair = whole ? n / in_head : secret.integer(0, shape.batch * shape.heads_q - 1);
    const int64_t batch = pair / shape.heads_q, head = pair % shape.heads_q;
    // The first and the last rows are as likely as the others.
    const int64_t begin =
        whole ? n % in_head * one.seqlen_q : secret.integer(1 - one.seqlen_q, shape.seqlen_q - 1);
    const int64_t first = std::clamp<int64_t>(begin, 0, last);
    problem.causal_offset = shape.seqlen_kv - shape.seqlen_q + first;
    bench::HostProblem host = bench::allocate(problem);
    const int64_t row = (batch * shape.heads_q + head) * shape.seqlen_q + first;
    const int64_t head_kv = head / (shape.heads_q / shape.heads_kv);
    const int64_t key = (batch * shape.heads_kv + head_kv) * shape.seqlen_kv;
    const auto rows_of = [](std::span<std::byte> tensor, int64_t at, int64_t count, size_t bytes) {
      return tensor.subspan(static_cast<size_t>(at) * bytes, static_cast<size_t>(count) * bytes);
    };
    const size_t d = static_cast<size_t>(shape.head_dim) * size_of(task.dtype);
    copy_in(rows_of(memory.q(call), row, one.seqlen_q, d), host.at("q"));
    copy_in(rows_of(memory.k(call), key, one.seqlen_kv, d), host.at("k"));
    copy_in(rows_of(memory.v(call), key, one.seqlen_kv, d), host.at("v"));
    copy_in(rows_of(memory.o(call), row, one.seqlen_q, d), host.at("o"));
    copy_in(rows_of(memory.lse(call), row, one.seqlen_q, sizeof(float)), host.at("lse"));
    const Result<bench::Reference> reference = bench::compute_reference(host, 1);
    if (!reference.ok()) return reference.status();
    const bench::Verdict block = bench::judge(host, *reference);
    verdict.max_scaled_error = std::max(verdict.max_scaled_error, block.max_scaled_error);
    verdict.relative_error = std::max(verdict.relative_error, block.relative_error);
    verdict.lse_error = std::max(verdict.lse_error, block.lse_error);
    if (!block.passed) {
      verdict.failure = fmt::format("in rows {} to {} of sequence {}, head {}: {}", first,
                                    first + one.seqlen_q - 1, batch, head, block.failure);
      return verdict;
    }
  }
  verdict.passed = true;
  return verdict;
}

}  // namespace flashcore::evolve
