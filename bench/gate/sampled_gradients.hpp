// The gate for backward problems whose whole fp64 reference would take minutes: judges rows of dQ,
// dK and dV of some heads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/gate/gradient_gates.hpp"
#include "bench/gate/part.hpp"
#include "bench/gate/sampled_gate.hpp"
#include "bench/tensors/backward_set.hpp"

namespace flashcore::bench {

// The inputs of a backward run: its tensors except O and LSE, and its dropout.
struct BackwardInputs {
  ReadElements read;
  uint64_t dropout_seed = 0;
  uint64_t dropout_offset = 0;
};

// The reference of blocks of 16 rows of dQ, dK and dV. KV heads are spread evenly, including the
// first and the last, and so are the rows in each head. With dropout, whose mask depends on the
// head, all blocks are in the first head. A gradient's rows together must meet its limits, and each
// block alone the limit of the relative error, so that rows with small gradients count, too.
class SampledGradients final : public JudgedRows {
 public:
  // Returns why these gradients cannot be judged by rows; empty if they can.
  static std::string refusal(const Problem& problem, const Gradients& gradients);

  // The problem must not have such a refusal.
  static Result<SampledGradients> compute(const Problem& problem, const Gradients& gradients,
                                          const BackwardInputs& inputs, int threads = 0);

  // Writes the right O and LSE, rounded, of the judged heads: the inputs of the kernels.
  void write_forward(const WriteElements& write) const;

  // The judged rows of dQ, and of dK and dV, where `head` is a KV head.
  std::vector<RowBlock> blocks_q() const { return blocks_of("dq"); }
  std::vector<RowBlock> blocks_kv() const { return blocks_of("dk"); }
  std::string judged() const override;  // "512 of 16384 rows of dQ, 256 of 4096 of dK and dV"

  // Judges these rows of "dq", "dk" and "dv".
  Verdict judge(const ReadElements& gradients) const;

  // Judges only these rows: dQ's in the order of the blocks, then dK's, then dV's.
  Result<Verdict> judge_rows(std::span<const std::byte> rows) const override;
  nlohmann::ordered_json request() const override;

 private:
  struct Block {
    std::string name;  // gradient
    RowBlock rows;
    Part part;
    GradientReference reference;
  };
  struct Forward {
    Part part;  // a KV head with all of its queries
    HostTensor o, lse;
  };
  class Sampler;

  const TensorDesc& desc_of(std::string_view gradient) const;
  std::vector<RowBlock> blocks_of(std::string_view gradient) const;
  GradientReference together(std::string_view gradient) const;

  Problem problem_;
  Gradients gradients_;
  std::vector<Forward> forward_;
  std::vector<Block> blocks_;  // dQ's, then dK's, then dV's
};

}  // namespace flashcore::bench
