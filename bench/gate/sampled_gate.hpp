// The gate for problems whose whole fp64 reference would take minutes: judges blocks of rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "bench/gate/gates.hpp"
#include "bench/gate/part.hpp"

namespace flashcore::bench {

// Query rows [first, first + count) of one head.
struct RowBlock {
  int64_t batch, head, first, count;
};

// Rows of outputs with their reference, for results that another program computed, too.
class JudgedRows {
 public:
  virtual std::string judged() const = 0;  // "all rows", "1024 of 131072 rows"
  // The members of a request for these rows: "blocks" of O; or "pass", "blocks_q" and "blocks_kv".
  virtual nlohmann::ordered_json request() const = 0;
  // Judges the rows alone, one after the other.
  virtual Result<Verdict> judge_rows(std::span<const std::byte> rows) const = 0;

 protected:
  ~JudgedRows() = default;
};

nlohmann::ordered_json blocks_json(const std::vector<RowBlock>& blocks);

// The reference of a few blocks of query rows, spread over batch entries, heads and positions,
// always including the first and the last rows; with dropout, whose mask depends on the position,
// only the first rows of the first head. Supports contiguous q, k, v, o, lse, bias, mask, ALiBi
// slopes, sinks, KV lengths, a tree mask without another mask, and every numeric option.
class SampledReference final : public JudgedRows {
 public:
  // Stays below about `flop` operations, but takes at least two blocks if there are two.
  static Result<SampledReference> compute(const Problem& problem, const ReadElements& inputs,
                                          double flop, int threads = 0);
  static Result<SampledReference> compute(const HostProblem& host, double flop, int threads = 0);
  // The reference of given blocks.
  static Result<SampledReference> compute(const Problem& problem, const ReadElements& inputs,
                                          const std::vector<RowBlock>& blocks, int threads = 0);

  std::vector<RowBlock> blocks() const;
  int64_t rows() const;
  std::string judged() const override;
  nlohmann::ordered_json request() const override;

  // Judges these rows of the tensors that `outputs` reads: "o", and "lse" if present.
  Verdict judge(const ReadElements& outputs, bool has_lse) const;

  // Judges only O, given its rows in the order of the blocks: [rows(), head_dim] of O's type.
  Result<Verdict> judge_rows(std::span<const std::byte> rows) const override;

  // Judges these rows of the outputs, and that every element of O was written and none is NaN.
  Verdict judge(const HostProblem& host) const;

 private:
  struct Block {
    RowBlock rows;
    Part part;
    HostProblem outputs;  // O and LSE of one head and `count` queries
    Reference reference;
  };
  Problem problem_;
  std::vector<Block> blocks_;
};

}  // namespace flashcore::bench
