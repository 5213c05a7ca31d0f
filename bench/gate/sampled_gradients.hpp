// The gate for backward problems whose whole fp64 reference would take minutes: rows of dQ, dK and
// dV of some heads are judged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/gate/gradient_gates.hpp"
#include "bench/gate/sampled_gate.hpp"
#include "bench/tensors/backward_set.hpp"

namespace flashcore::bench {

// Writes `from` to elements [begin, begin + from.elements()) of a tensor, in row-major order of its
// indices.
using WriteElements =
    std::function<void(std::string_view name, int64_t begin, const HostTensor& from)>;

// What a backward run reads: its tensors but O and LSE, and its dropout.
struct BackwardInputs {
  ReadElements read;
  uint64_t dropout_seed = 0;
  uint64_t dropout_offset = 0;
};

// Reference of blocks of 16 rows of dQ, dK and dV. Heads of keys are spread evenly, with the first
// and the last among them, and so are the rows in each head. With dropout, whose draw depends on
// the head, they are all of the first one. The rows of a gradient are held to its limits together,
// and each block to that of the relative error by itself: rows with small gradients count, too.
class SampledGradients {
 public:
  // Why these gradients cannot be judged by rows; empty where they can.
  static std::string refusal(const Problem& problem, const Gradients& gradients);

  // For a problem without such a refusal.
  static Result<SampledGradients> compute(const Problem& problem, const Gradients& gradients,
                                          const BackwardInputs& inputs, int threads = 0);

  // O and LSE of the heads that are judged, right and rounded: what kernels are to read.
  void write_forward(const WriteElements& write) const;

  // Rows of dQ, and of dK and dV, where `head` is one of keys.
  std::vector<RowBlock> blocks_q() const { return blocks_of("dq"); }
  std::vector<RowBlock> blocks_kv() const { return blocks_of("dk"); }
  std::string judged() const;  // "512 of 16384 rows of dQ, 256 of 4096 of dK and dV"

  // Judges those rows of "dq", "dk" and "dv".
  Verdict judge(const ReadElements& gradients) const;

  // The same of the rows alone: those of dQ in the order of the blocks, then of dK, then of dV.
  Result<Verdict> judge_rows(std::span<const std::byte> rows) const;

 private:
  struct Block {
    std::string name;  // of the gradient
    RowBlock rows;
    int64_t entry_begin;  // where the entry's rows begin in a packed tensor
    GradientReference reference;
  };
  struct Forward {
    RowBlock rows;  // all queries of a head
    int64_t entry_begin;
    HostTensor o, lse;  // dense
  };
  class Sampler;
  using ReadBlock = std::function<void(const Block& block, HostTensor& to)>;

  const TensorDesc& desc_of(std::string_view gradient) const;
  std::vector<RowBlock> blocks_of(std::string_view gradient) const;
  Verdict judge_blocks(const ReadBlock& read) const;
  GradientReference together(std::string_view gradient) const;

  Problem problem_;
  Gradients gradients_;
  std::vector<Forward> forward_;
  std::vector<Block> blocks_;  // of dQ, then of dK, then of dV
};

}  // namespace flashcore::bench
