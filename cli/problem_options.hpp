// The options that describe a problem: tensors from files or of a given shape, and the operator's
// options. Shared by every command that takes a problem.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/io/problem_inputs.hpp"
#include "cli/options.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::cli {

// The problem's [B, H, S, D] descriptor for memory in the order of `layout`.
TensorDesc in_layout(DType dtype, const std::vector<int64_t>& bhsd, const std::string& layout);

bool is_float(DType dtype);

class ProblemOptions {
 public:
  void declare(OptionSet& options);

  bool given() const;  // files or a shape were given
  // `gradients`: incoming gradients of a backward pass, by name, with the options' values.
  Result<bench::ProblemInputs> read(const std::map<std::string, std::string>& gradients = {}) const;
  bool draws_d_lse() const;  // --with includes it
  const std::string& layout() const { return layout_; }

 private:
  bool has_files() const;
  Result<Problem> from_shape(bool with_d_lse) const;
  Status apply_paging(Problem& problem) const;
  Result<Problem> from_sources(const bench::TensorSources& sources) const;
  Status apply_options(Problem& problem) const;
  Result<std::optional<DType>> dtype_option(const std::string& option,
                                            const std::string& name) const;
  struct Types {
    std::optional<DType> q, k, v;  // if given
  };
  Result<Types> types() const;

  std::string file_;
  std::map<std::string, std::string> chosen_;
  std::string without_;
  std::string layout_ = "bhsd";

  std::string shape_;
  std::optional<int64_t> heads_kv_, seqlen_kv_, head_dim_v_, page_size_;
  std::string with_;
  uint64_t seed_ = 0;
  std::string dtype_, kv_dtype_, v_dtype_, o_dtype_;
  bool no_lse_ = false;
  std::map<std::string, bool> largest_;  // by the flags of kLargestOutputs

  bool causal_ = false;
  std::string alignment_ = "bottom_right";
  int64_t causal_offset_ = 0;
  std::string window_;
  double softcap_ = 0;
  std::optional<double> scale_;
  double dropout_ = 0;
  uint64_t dropout_seed_ = 0, dropout_offset_ = 0;
  int64_t kv_scale_block_ = 0, max_seqlen_q_ = 0, max_seqlen_kv_ = 0;
  bool v_transposed_ = false;
  bool v_in_k_ = false;
};

}  // namespace flashcore::cli
