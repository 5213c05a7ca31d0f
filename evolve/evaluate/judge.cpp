#include "evolve/evaluate/judge.hpp"

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "bench/gate/sampled_gate.hpp"
#include "evolve/task/task.hpp"

namespace flashcore::evolve {
namespace {

constexpr int64_t kBlockRows = 16;

void copy(std::span<const std::byte> from, std::span<std::byte> to) {
  std::copy(from.begin(), from.end(), to.begin());
}

}  // namespace

void put_inputs(const bench::HostProblem& host, CallMemory& memory, uint64_t call) {
  copy(host.at("q").bytes(), memory.q(call));
  copy(host.at("k").bytes(), memory.k(call));
  copy(host.at("v").bytes(), memory.v(call));
}

void take_outputs(CallMemory& memory, uint64_t call, bench::HostProblem& host) {
  copy(memory.o(call), host.at("o").bytes());
  copy(memory.lse(call), host.at("lse").bytes());
}

Result<bench::Verdict> judge_rows(const Task& task, const CallShape& shape, CallMemory& memory,
                                  uint64_t call, double flop, bench::Random& secret) {
  const int64_t rows = std::min(kBlockRows, shape.seqlen_q);
  const double block_flop = 4.0 * static_cast<double>(rows * shape.seqlen_kv * shape.head_dim);
  const int64_t in_head = (shape.seqlen_q + rows - 1) / rows;
  const int64_t all = shape.batch * shape.heads_q * in_head;
  const auto affordable = std::max<int64_t>(1, static_cast<int64_t>(flop / block_flop));
  const bool whole = affordable >= all;  // then every row, in order
  std::vector<bench::RowBlock> blocks;
  for (int64_t n = 0; n < std::min(affordable, all); ++n) {
    const int64_t last = shape.seqlen_q - rows;  // last possible start of a block
    const int64_t pair = whole ? n / in_head : secret.integer(0, shape.batch * shape.heads_q - 1);
    // The first and the last rows are as likely as the others.
    const int64_t begin = whole ? n % in_head * rows : secret.integer(1 - rows, shape.seqlen_q - 1);
    blocks.push_back(
        {pair / shape.heads_q, pair % shape.heads_q, std::clamp<int64_t>(begin, 0, last), rows});
  }
  const auto elements = [&](std::string_view name, int64_t begin, bench::HostTensor& to) {
    const std::span<const std::byte> all_of = name == "q"   ? memory.q(call)
                                              : name == "k" ? memory.k(call)
                                              : name == "v" ? memory.v(call)
                                              : name == "o" ? memory.o(call)
                                                            : memory.lse(call);
    const size_t first = static_cast<size_t>(begin) * size_of(to.desc().dtype);
    copy(all_of.subspan(first, to.bytes().size()), to.bytes());
  };
  const Result<bench::SampledReference> reference =
      bench::SampledReference::compute(problem_of(shape, task), elements, blocks, 1);
  if (!reference.ok()) return reference.status();
  return reference->judge(elements, true);
}

}  // namespace flashcore::evolve
