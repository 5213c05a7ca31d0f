// GGML_OP_FLASH_ATTN_EXT as problems of FlashCore.
//
// ggml computes softmax(softcap(scale q k^T) + slope mask) v, with a mask of numbers in f16 that all heads share, slopes
// of ALiBi that multiply it, and sinks. FlashCore knows the mask as a bias. Queries are f32 there; keys and values are
// of any type that ggml can convert.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "flashcore/flashcore.hpp"
#include "ggml.h"

namespace flashcore::ggml {

// How one operation is computed, whatever its tensors hold.
struct Method {
  Plan plan;
  DType keys = DType::f32;   // the type of q, k and v in the problem
  bool converts_kv = false;  // k and v are converted to f32, for one head of theirs after the other
  bool by_head = false;      // slopes: a bias for one head after the other
};

class Attention {
 public:
  void set_threads(int threads);

  // Whether FlashCore computes this operation; `op` needs no data yet.
  bool supports(const ggml_tensor& op);
  // Computes it.
  Status run(const ggml_tensor& op);
  int64_t runs() const { return runs_; }

 private:
  using Key = std::vector<int64_t>;

  const Method* method_of(const ggml_tensor& op);
  Status run_at_once(const ggml_tensor& op, const Method& method);
  Status run_by_head(const ggml_tensor& op, const Method& method);
  Status run_plan(const Plan& plan, const Arguments& arguments);

  std::mutex mutex_;
  int threads_ = 0;  // 0: all
  int64_t runs_ = 0;
  std::map<Key, std::optional<Method>> methods_;
  // Memory that operations use one after the other.
  std::vector<std::byte> workspace_, q_, k_, v_, bias_;
};

}  // namespace flashcore::ggml
