// Small caches whose tables, lengths and pointers are garbage, in memory with exactly the size that
// the tensors describe. Attention, append and both in one step either refuse with a message and
// write nothing, or return numbers.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "flashcore/serving.hpp"
#include "problem/dtype.hpp"

namespace flashcore::tests {

// draw(): the next 32 random bits.
template <class Draw>
class HostileCache {
 public:
  explicit HostileCache(const Draw& draw) : draw_(draw) {
    describe();
    fill();
  }

  // Returns what went wrong, or "".
  std::string run() {
    std::string wrong = attend();
    if (wrong.empty()) wrong = write(false);
    if (wrong.empty()) wrong = write(true);
    return wrong;
  }

 private:
  using Bytes = std::vector<unsigned char>;  // heap memory: the sanitizer sees its ends

  int64_t below(int64_t end) { return static_cast<int64_t>(draw_()) % end; }
  bool chance(int64_t one_in) { return below(one_in) == 0; }

  // Mostly valid values for a table or a length.
  int32_t entry(int64_t end) {
    constexpr int32_t kSmallest = std::numeric_limits<int32_t>::min();
    constexpr int32_t kLargest = std::numeric_limits<int32_t>::max();
    switch (garbage_ ? below(24) : 24) {
      case 0:
        return -1;
      case 1:
        return kSmallest;
      case 2:
        return kLargest;
      case 3:
        return static_cast<int32_t>(draw_());
      case 4:
        return static_cast<int32_t>(end + below(3));
      default:
        return static_cast<int32_t>(end > 0 ? below(end) : 0);
    }
  }

  Bytes memory(const TensorDesc& desc) {
    int64_t last = 0;
    for (size_t d = 0; d < static_cast<size_t>(desc.rank); ++d) {
      if (desc.shape[d] == 0) return {};
      last += (desc.shape[d] - 1) * desc.stride[d];
    }
    return Bytes(static_cast<size_t>(last + 1) * size_of(desc.dtype), 0xFF);
  }

  Bytes numbers(const TensorDesc& desc) {
    Bytes made = memory(desc);
    for (size_t n = 0; n < made.size() / size_of(desc.dtype); ++n) {
      store_element(desc.dtype, made.data(), static_cast<int64_t>(n),
                    static_cast<double>(below(256) - 128) / 64);
    }
    return made;
  }

  std::vector<int32_t> ints(int64_t count, int64_t end) {
    std::vector<int32_t> made(static_cast<size_t>(count));
    for (int32_t& one : made) one = entry(end);
    return made;
  }

  static TensorDesc vector(int64_t count) { return TensorDesc::contiguous(DType::i32, {count}); }

  // The rows of all entries.
  TensorDesc rows_of(DType dtype, int64_t heads, int64_t width) const {
    return packed_ ? TensorDesc::contiguous(dtype, {rows_ * batch_, heads, width})
                   : TensorDesc::contiguous(dtype, {batch_, heads, rows_, width});
  }

  void describe() {
    garbage_ = !chance(3);
    batch_ = below(4), heads_kv_ = 1 + below(2), rows_ = below(5), page_ = 1 + below(5);
    heads_ = heads_kv_ * (1 + below(2)), width_ = 1 + below(20), width_v_ = 1 + below(20);
    pages_ = below(7), columns_ = below(4);
    const DType dtypes[] = {DType::f32, DType::bf16, DType::f16};
    const DType dtype = dtypes[below(3)], kv = chance(3) ? DType::f8e4m3 : dtype;
    Problem& p = problem_;
    packed_ = chance(3);
    p.q = rows_of(dtype, heads_, width_);
    p.o = rows_of(dtype, heads_, width_v_);
    p.k = TensorDesc::contiguous(kv, {pages_, heads_kv_, page_, width_});
    p.v = TensorDesc::contiguous(kv, {pages_, heads_kv_, page_, width_v_});
    if (packed_) p.cu_seqlens_q = vector(batch_ + 1);
    flat_ = chance(2);
    if (flat_) {
      p.kv_indptr = vector(batch_ + 1);
      p.kv_indices = vector(batch_ * columns_);
      if (chance(2)) p.kv_last_page_len = vector(batch_);
    } else {
      p.page_table = TensorDesc::contiguous(DType::i32, {batch_, columns_});
    }
    if (!flat_ || chance(2)) p.seqlens_kv = vector(batch_);
    if (chance(3)) p.cache_leftpad = vector(batch_);
    if (!packed_ && chance(3)) p.seqlens_q = vector(batch_);
    if (chance(2)) p.page_status = vector(1);
    const int64_t words = below(3);
    if (chance(3)) {
      p.tree_mask = packed_ ? TensorDesc::contiguous(DType::i32, {rows_ * batch_, words})
                            : TensorDesc::contiguous(DType::i32, {batch_, rows_, words});
    }
    p.causal = chance(2);
    if (chance(3)) p.window_left = below(6);
    if (chance(4)) {
      p.alignment = Alignment::given;
      p.causal_offsets = vector(batch_);
    }
  }

  void fill() {
    const int64_t room = columns_ * page_ + 1;
    q_ = numbers(problem_.q), k_ = numbers(problem_.k), v_ = numbers(problem_.v);
    o_ = memory(problem_.o);
    table_ = ints(batch_ * columns_, pages_);
    starts_ = ints(batch_ + 1, rows_ + 1), listed_ = ints(batch_ + 1, columns_ + 1);
    for (int64_t b = 0; b <= batch_; ++b) {
      if (!garbage_ || !chance(6))
        starts_[static_cast<size_t>(b)] = static_cast<int32_t>(b * rows_);
      if (!garbage_ || !chance(6)) {
        listed_[static_cast<size_t>(b)] = static_cast<int32_t>(b * columns_);
      }
    }
    last_ = ints(batch_, page_), in_use_ = ints(batch_, room), padding_ = ints(batch_, room);
    for (int32_t& last : last_) last += last < page_ && last >= 0 ? 1 : 0;
    queries_ = ints(batch_, rows_ + 1), offsets_ = ints(batch_, room);
    after_ = in_use_;
    bits_.resize(memory_words());
    for (int32_t& word : bits_) word = static_cast<int32_t>(draw_());
  }

  size_t memory_words() const {
    if (!problem_.tree_mask) return 0;
    const auto& shape = problem_.tree_mask->shape;
    return static_cast<size_t>(problem_.tree_mask->rank == 2 ? shape[0] * shape[1]
                                                             : shape[0] * shape[1] * shape[2]);
  }

  Arguments attention() {
    return {.q = q_.data(),
            .k = k_.data(),
            .v = v_.data(),
            .o = o_.data(),
            .cu_seqlens_q = starts_.data(),
            .seqlens_q = queries_.data(),
            .seqlens_kv = after_.data(),
            .causal_offsets = offsets_.data(),
            .page_table = table_.data(),
            .kv_indptr = listed_.data(),
            .kv_indices = table_.data(),
            .kv_last_page_len = last_.data(),
            .cache_leftpad = padding_.data(),
            .page_status = &status_,
            .tree_mask = bits_.data()};
  }

  // Judges a call that wrote, or may write, these outputs.
  std::string judged(const Status& status, const std::vector<const Bytes*>& outputs,
                     const std::vector<Bytes>& before, const char* call) const {
    if (status.ok()) return {};
    if (status.message().empty()) return std::string(call) + ": refused without a sentence";
    for (size_t n = 0; n < outputs.size(); ++n) {
      if (*outputs[n] != before[n]) return std::string(call) + ": refused, and wrote";
    }
    return {};
  }

  std::string check_numbers() const {
    const size_t size = size_of(problem_.o.dtype);
    for (size_t n = 0; n < o_.size() / size; ++n) {
      if (std::isnan(load_element(problem_.o.dtype, o_.data(), static_cast<int64_t>(n)))) {
        return "attention: o has a NaN, or was not written";
      }
    }
    return {};
  }

  static PlanOptions on_one_thread() {
    PlanOptions options;
    options.threads = 1;
    return options;
  }

  Result<Plan> plan() {
    PlanOptions options = on_one_thread();
    options.kernel = chance(3) ? "reference" : "cpu_simd";
    return make_plan(problem_, options);
  }

  std::string attend() {
    const Result<Plan> made = plan();
    if (!made.ok())
      return made.status().message().empty() ? "plan: refused without a sentence" : "";
    const Bytes before = o_;
    const Status status = made->run(attention());
    return status.ok() ? check_numbers() : judged(status, {&o_}, {before}, "attention");
  }

  // Runs append, or append and attention.
  std::string write(bool attends) {
    Append what;
    const bool fp8 = size_of(problem_.k.dtype) == 1;
    const DType dtype = fp8 ? problem_.q.dtype : problem_.k.dtype;
    what.k_new = rows_of(dtype, heads_kv_, width_);
    what.v_new = rows_of(dtype, heads_kv_, width_v_);
    what.k = problem_.k;
    what.v = problem_.v;
    what.seqlens_kv = vector(batch_);
    what.seqlens_new = problem_.seqlens_q;
    what.cu_seqlens_new = problem_.cu_seqlens_q;
    what.page_table = problem_.page_table;
    what.kv_indptr = problem_.kv_indptr;
    what.kv_indices = problem_.kv_indices;
    what.cache_leftpad = problem_.cache_leftpad;
    what.page_status = problem_.page_status;
    if (width_ % 2 == 0 && chance(2)) {
      what.rope_base = 100;
      what.q = what.q_out = problem_.q;
    }
    const Bytes k_new = numbers(what.k_new), v_new = numbers(what.v_new);
    Bytes q_out = memory(problem_.q);
    for (size_t b = 0; b < after_.size() && attends; ++b) {
      after_[b] = garbage_ && chance(6)
                      ? entry(10)
                      : static_cast<int32_t>(static_cast<int64_t>(in_use_[b]) + below(rows_ + 1));
    }
    const AppendArguments rows{.k_new = k_new.data(),
                               .v_new = v_new.data(),
                               .k = k_.data(),
                               .v = v_.data(),
                               .seqlens_kv = in_use_.data(),
                               .seqlens_new = queries_.data(),
                               .cu_seqlens_new = starts_.data(),
                               .page_table = table_.data(),
                               .kv_indptr = listed_.data(),
                               .kv_indices = table_.data(),
                               .cache_leftpad = padding_.data(),
                               .page_status = &status_,
                               .q = q_.data(),
                               .q_out = q_out.data()};
    const std::vector<Bytes> before = {k_, v_, o_, q_out};
    Status status;
    if (attends) {
      const Result<Plan> made = plan();
      if (!made.ok()) return {};
      status = append_and_attend(what, rows, *made, attention(), on_one_thread());
    } else {
      status = append(what, rows, on_one_thread());
    }
    return judged(status, {&k_, &v_, &o_, &q_out}, before, attends ? "step" : "append");
  }

  const Draw& draw_;
  bool garbage_ = false, packed_ = false, flat_ = false;
  int64_t batch_ = 0, heads_ = 0, heads_kv_ = 0, rows_ = 0, width_ = 0, width_v_ = 0;
  int64_t page_ = 0, pages_ = 0, columns_ = 0;
  Problem problem_;
  Bytes q_, k_, v_, o_;
  std::vector<int32_t> table_, starts_, listed_, last_, in_use_, after_, padding_, queries_;
  std::vector<int32_t> offsets_, bits_;
  int32_t status_ = 0;
};

template <class Draw>
std::string run_hostile_cache(const Draw& draw) {
  return HostileCache<Draw>(draw).run();
}

}  // namespace flashcore::tests
