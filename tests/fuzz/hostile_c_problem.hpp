// Problems of the C interface for fuzzers: small valid ones, changes to them, raw bytes, and memory
// with exactly the size that their tensors describe.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <string_view>
#include <tuple>
#include <vector>

#include "flashcore/flashcore.h"
#include "problem/operands.hpp"

namespace flashcore::tests {

// Draws from the fuzzer's bytes; returns zeros when they are used up.
class Source {
 public:
  Source(const uint8_t* data, size_t size) : data_(data), left_(size) {}

  size_t left() const { return left_; }

  template <class T>
  T draw() {
    T value{};
    take(&value, sizeof value);
    return value;
  }

  void take(void* to, size_t size) {
    const size_t count = std::min(size, left_);
    if (size == 0) return;
    std::memset(to, 0, size);
    if (count > 0) std::memcpy(to, data_, count);
    data_ += count;
    left_ -= count;
  }

  // Mostly small numbers, sometimes the limits of their types.
  int64_t draw_extent() {
    constexpr int64_t kHostile[] = {-1,        INT64_MIN, INT64_MAX, int64_t{1} << 31,
                                    1ll << 32, 1ll << 40, 0,         INT32_MAX};
    const auto choice = draw<uint8_t>();
    if (choice < 224) return choice % 24;
    return kHostile[choice % std::size(kHostile)];
  }

 private:
  const uint8_t* data_;
  size_t left_;
};

inline void require(bool condition) {
  if (!condition) std::abort();
}

inline void check_status(flashcore_status status) {
  require(status >= FLASHCORE_OK && status <= FLASHCORE_OUT_OF_MEMORY);  // never FLASHCORE_INTERNAL
  require((status == FLASHCORE_OK) == (flashcore_last_error()[0] == '\0'));
}

// A struct of some bytes at the very end of its allocation, so that reading past it is detected.
// Usually has one of `sizes`.
inline std::vector<uint64_t> raw_struct(Source& source, const std::vector<size_t>& sizes) {
  auto size = source.draw<size_t>();
  if (source.draw<uint8_t>() % 4 != 0) size = sizes[size % sizes.size()];
  // A size that must be refused unread: only the size itself exists.
  std::vector<uint64_t> bytes(size > 8192 || size < 8 ? 1 : (size + 7) / 8);
  source.take(bytes.data(), bytes.size() * sizeof(uint64_t));
  bytes[0] = size;
  return bytes;
}

// The tensors of C's structs that a fuzzer changes, by their lines in the table of operands.
template <class What>
flashcore_tensor& tensor_of(typename StructsOf<What>::CProblem& problem, const Line& line) {
  return *reinterpret_cast<flashcore_tensor*>(reinterpret_cast<std::byte*>(&problem) +
                                              line.c_tensor);
}

struct Dimensions {
  int64_t batch, heads_q, heads_kv, seqlen_q, seqlen_kv, dim_qk, dim_v;
};

inline void set(flashcore_tensor& tensor, int32_t dtype, std::initializer_list<int64_t> shape) {
  flashcore_tensor_contiguous(&tensor, dtype, static_cast<int32_t>(shape.size()), shape.begin());
}

inline flashcore_problem valid_problem(Source& source) {
  Dimensions d{};
  d.batch = source.draw<uint8_t>() % 4;
  d.heads_kv = source.draw<uint8_t>() % 3 + 1;
  d.heads_q = d.heads_kv * (source.draw<uint8_t>() % 3 + 1);
  d.seqlen_q = source.draw<uint8_t>() % 20;
  d.seqlen_kv = source.draw<uint8_t>() % 20;
  d.dim_qk = source.draw<uint8_t>() % 20 + 1;
  d.dim_v = source.draw<uint8_t>() % 20 + 1;
  const int32_t dtype = source.draw<uint8_t>() % 5;
  const auto present = source.draw<uint16_t>();
  const bool packed = (present & 1) != 0;

  flashcore_problem p;
  flashcore_problem_init(&p, sizeof p);
  if (packed) {
    const int64_t total_q = d.batch * d.seqlen_q;
    const int64_t total_kv = d.batch * d.seqlen_kv;
    set(p.q, dtype, {total_q, d.heads_q, d.dim_qk});
    set(p.k, dtype, {total_kv, d.heads_kv, d.dim_qk});
    set(p.v, dtype, {total_kv, d.heads_kv, d.dim_v});
    set(p.o, FLASHCORE_F32, {total_q, d.heads_q, d.dim_v});
    set(p.cu_seqlens_q, FLASHCORE_I32, {d.batch + 1});
    set(p.cu_seqlens_kv, FLASHCORE_I32, {d.batch + 1});
    d.seqlen_q = total_q;
    d.seqlen_kv = total_kv;
    if ((present & 2) != 0) set(p.lse, FLASHCORE_F32, {total_q, d.heads_q});
  } else {
    set(p.q, dtype, {d.batch, d.heads_q, d.seqlen_q, d.dim_qk});
    set(p.k, dtype, {d.batch, d.heads_kv, d.seqlen_kv, d.dim_qk});
    set(p.v, dtype, {d.batch, d.heads_kv, d.seqlen_kv, d.dim_v});
    set(p.o, FLASHCORE_F32, {d.batch, d.heads_q, d.seqlen_q, d.dim_v});
    if ((present & 2) != 0) set(p.lse, FLASHCORE_F32, {d.batch, d.heads_q, d.seqlen_q});
  }
  const auto broadcast = [&](int64_t extent) { return source.draw<uint8_t>() % 2 ? extent : 1; };
  if ((present & 4) != 0) {
    set(p.bias, source.draw<uint8_t>() % 3,
        {broadcast(d.batch), broadcast(d.heads_q), broadcast(d.seqlen_q), broadcast(d.seqlen_kv)});
  }
  if ((present & 8) != 0) {
    set(p.mask, FLASHCORE_BOOLEAN,
        {broadcast(d.batch), broadcast(d.heads_q), broadcast(d.seqlen_q), broadcast(d.seqlen_kv)});
  }
  if ((present & 16) != 0) set(p.alibi_slopes, FLASHCORE_F32, {broadcast(d.batch), d.heads_q});
  if ((present & 32) != 0) set(p.sinks, FLASHCORE_F32, {d.heads_q});
  if ((present & 64) != 0 && dtype >= FLASHCORE_F8E4M3) {
    p.kv_scale_block = source.draw<uint8_t>() % 9;
    const int64_t block =
        p.kv_scale_block == 0 ? std::max<int64_t>(d.seqlen_kv, 1) : p.kv_scale_block;
    const int64_t blocks = (d.seqlen_kv + block - 1) / block;
    set(p.q_scale, FLASHCORE_F32, {broadcast(d.batch), broadcast(d.heads_q)});
    set(p.k_scale, FLASHCORE_F32, {broadcast(d.batch), broadcast(d.heads_kv), broadcast(blocks)});
    set(p.v_scale, FLASHCORE_F32, {broadcast(d.batch), broadcast(d.heads_kv), broadcast(blocks)});
  }
  if ((present & 128) != 0) set(p.seqlens_q, FLASHCORE_I32, {d.batch});
  if ((present & 256) != 0) set(p.seqlens_kv, FLASHCORE_I32, {d.batch});
  if ((present & 512) != 0) {
    p.alignment = FLASHCORE_GIVEN;
    set(p.causal_offsets, FLASHCORE_I32, {d.batch});
  }
  p.causal = (present >> 10) & 1;
  if ((present & 2048) != 0) p.softcap = 30;
  if ((present & 4096) != 0) p.dropout_p = 0.25f;
  if ((present & 8192) != 0) p.window_left = source.draw<uint8_t>() % 24;
  if ((present & 16384) != 0) p.window_right = source.draw<uint8_t>() % 24;
  if ((present & 32768) != 0) set(p.dropout_state, FLASHCORE_I64, {2});
  const auto more = source.draw<uint8_t>();
  if ((more & 1) != 0) p.o.dtype = (more & 2) != 0 ? FLASHCORE_F8E4M3 : FLASHCORE_F8E5M2;
  if ((more & 5) == 5) set(p.o_scale, FLASHCORE_F32, {broadcast(d.batch), broadcast(d.heads_q)});
  if ((more & 8) != 0) set(p.amax_o, FLASHCORE_F32, {broadcast(d.batch), broadcast(d.heads_q)});
  if ((more & 128) != 0)
    set(p.max_logit, FLASHCORE_F32, {broadcast(d.batch), broadcast(d.heads_q)});
  if ((more & 16) != 0) set(p.amax_s, FLASHCORE_F32, {broadcast(d.batch), broadcast(d.heads_q)});
  if ((more & 32) != 0 && !packed && dtype >= FLASHCORE_F8E4M3) {
    p.v_transposed = 1;
    const int64_t columns = 128 * (1 + source.draw<uint8_t>() % 2);
    set(p.v, dtype, {d.batch, d.heads_kv, d.dim_v, columns});
  }
  return p;
}

// Changes one member of a tensor; returns false for a `choice` that is not a tensor's.
inline bool change_tensor(flashcore_tensor& tensor, int choice, Source& source) {
  const size_t dimension = source.draw<uint8_t>() % 4;
  switch (choice) {
    case 0:
      tensor.dtype = source.draw<int8_t>() % 10;
      return true;
    case 1:
      tensor.rank = source.draw<int8_t>() % 6;
      return true;
    case 2:
      tensor.shape[dimension] = source.draw_extent();
      return true;
    case 3:
      tensor.stride[dimension] = source.draw_extent();
      return true;
    case 4:
      // Unsigned: the least int64_t has no negation.
      tensor.stride[dimension] =
          static_cast<int64_t>(-static_cast<uint64_t>(tensor.stride[dimension]));
      return true;
    case 5:
      tensor.stride[dimension] = 0;
      return true;
    default:
      return false;
  }
}

// Without the tensors of a cache, which come before and after them.
constexpr size_t kBeforeCaches = 18, kCaches = 7;
static_assert(kOperands<Problem>[kBeforeCaches].name == "page_table" &&
              kOperands<Problem>[kBeforeCaches + kCaches].name == "o_scale");

inline void change_members(flashcore_problem& problem, Source& source) {
  for (int changes = source.draw<uint8_t>() % 4; changes > 0; --changes) {
    const size_t which = source.draw<uint8_t>() % (kOperands<Problem>.size() - kCaches);
    flashcore_tensor& tensor = tensor_of<Problem>(
        problem, kOperands<Problem>[which < kBeforeCaches ? which : which + kCaches]);
    const int choice = source.draw<uint8_t>() % 13;
    if (change_tensor(tensor, choice, source)) continue;
    switch (choice) {
      case 6:
        problem.alignment = source.draw<int8_t>() % 5;
        break;
      case 7:
        problem.causal_offset = source.draw_extent();
        break;
      case 8:
        problem.window_left = source.draw_extent();
        break;
      case 9:
        problem.kv_scale_block = source.draw_extent();
        break;
      case 10:
        problem.max_seqlen_q = source.draw_extent();
        problem.max_seqlen_kv = source.draw_extent();
        break;
      case 11:
        problem.v_transposed = source.draw<int8_t>() % 3;
        break;
      default:
        source.take(&problem.has_softmax_scale, 24);  // up to and including dropout_p
        break;
    }
  }
}

constexpr int64_t kLargestBuffer = 1 << 16;

// Exactly the memory of a tensor; `element` points to [0, 0, ...].
struct Buffer {
  std::vector<uint8_t> memory;
  uint8_t* element = nullptr;
};

// Returns false if it would be large. The problem has been accepted, so nothing overflows.
inline bool make_buffer(const flashcore_tensor& tensor, Buffer& buffer) {
  int64_t low = 0, high = 0;
  for (int32_t d = 0; d < tensor.rank; ++d) {
    if (tensor.shape[d] == 0) return true;  // no elements: null
    const int64_t reach = (tensor.shape[d] - 1) * tensor.stride[d];
    (reach < 0 ? low : high) += reach;
  }
  if (tensor.rank == 0) return true;
  const auto size = static_cast<int64_t>(flashcore_dtype_size(tensor.dtype));
  if (high - low >= kLargestBuffer) return false;
  buffer.memory.resize(static_cast<size_t>((high - low + 1) * size));
  buffer.memory.shrink_to_fit();
  buffer.element = buffer.memory.data() - low * size;
  return true;
}

// Fills some of the elements with arbitrary bits.
inline void fill(Buffer& buffer, const flashcore_tensor& tensor, Source& source) {
  if (tensor.dtype == FLASHCORE_I32) return;
  source.take(buffer.memory.data(), std::min<size_t>(buffer.memory.size(), 128));
}

// Lengths: often valid ones, so that the run proceeds, otherwise anything.
inline void fill_lengths(uint8_t* element, const flashcore_tensor& tensor, int64_t rows,
                         Source& source) {
  if (element == nullptr) return;
  auto* const values = reinterpret_cast<int32_t*>(element);
  const bool fitting = source.draw<uint8_t>() % 4 != 0;
  for (int64_t i = 0; i < tensor.shape[0]; ++i) {
    int32_t& value = values[i * tensor.stride[0]];
    const bool cumulative = rows >= 0;
    if (!fitting) {
      value = source.draw<int32_t>();
    } else if (!cumulative) {
      value = source.draw<uint8_t>() % 24;
    } else {
      const bool last = i + 1 == tensor.shape[0];
      const int64_t before = i == 0 ? 0 : values[(i - 1) * tensor.stride[0]];
      const int64_t step = i == 0 ? 0 : source.draw<uint8_t>() % 24;
      value = static_cast<int32_t>(last ? rows : std::min(before + step, rows));
    }
  }
}

// Returns whether a run of an accepted problem is short.
inline bool is_small(const flashcore_plan* plan, const flashcore_problem& problem) {
  int64_t work = problem.q.rank == 4 ? problem.q.shape[0] : 1;
  for (const int64_t extent :
       {problem.q.rank == 4 ? problem.q.shape[2] : problem.q.shape[0],
        problem.k.rank == 4 ? problem.k.shape[2] : problem.k.shape[0], problem.q.shape[1],
        problem.q.shape[problem.q.rank - 1] + problem.v.shape[problem.v.rank - 1]}) {
    work *= std::max<int64_t>(extent, 1);
    if (work > 1 << 20) return false;
  }
  return problem.cu_seqlens_q.shape[0] <= 1000 && flashcore_plan_workspace_bytes(plan) <= 1 << 24;
}

// Filled memory of the tensors of an accepted call.
template <class What>
class Memory {
 public:
  // Returns false if it would be large.
  bool make(const typename StructsOf<What>::CProblem& problem, Source& source) {
    for (size_t t = 0; t < buffers_.size(); ++t) {
      const flashcore_tensor& tensor = kOperands<What>[t].of_c(problem);
      if (!make_buffer(tensor, buffers_[t])) return false;
      fill(buffers_[t], tensor, source);
    }
    return true;
  }

  uint8_t* element(std::string_view name) const {
    const auto line = std::find_if(kOperands<What>.begin(), kOperands<What>.end(),
                                   [&](const Line& one) { return one.name == name; });
    return buffers_[static_cast<size_t>(line - kOperands<What>.begin())].element;
  }

  void bind(typename StructsOf<What>::CArguments& arguments) const {
    for (size_t t = 0; t < buffers_.size(); ++t) {
      std::memcpy(reinterpret_cast<std::byte*>(&arguments) + kOperands<What>[t].c_data,
                  &buffers_[t].element, sizeof buffers_[t].element);
    }
  }

 private:
  std::array<Buffer, kOperands<What>.size()> buffers_;
};

// A problem's memory and arguments, with lengths; false if it would be large.
inline bool make_forward(const flashcore_problem& problem, Source& source, Memory<Problem>& memory,
                         flashcore_arguments& arguments) {
  if (!memory.make(problem, source)) return false;
  for (const auto& [name, tensor, rows] :
       {std::tuple{"cu_seqlens_q", &problem.cu_seqlens_q, problem.q.shape[0]},
        {"cu_seqlens_kv", &problem.cu_seqlens_kv, problem.k.shape[0]},
        {"seqlens_q", &problem.seqlens_q, int64_t{-1}},
        {"seqlens_kv", &problem.seqlens_kv, int64_t{-1}},
        {"causal_offsets", &problem.causal_offsets, int64_t{-1}}}) {
    fill_lengths(memory.element(name), *tensor, rows, source);
  }
  flashcore_arguments_init(&arguments, sizeof arguments);
  memory.bind(arguments);
  return true;
}

// A workspace of a plan for one run.
class Workspace {
 public:
  explicit Workspace(const flashcore_plan* plan)
      : bytes(flashcore_plan_workspace_bytes(plan)),
        memory(bytes == 0 ? nullptr : std::aligned_alloc(256, (bytes + 255) / 256 * 256)) {}
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() { std::free(memory); }

  const size_t bytes;
  void* const memory;
};

}  // namespace flashcore::tests
