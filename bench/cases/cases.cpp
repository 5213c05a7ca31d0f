#include "bench/cases/cases.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "bench/cases/fp8_problem.hpp"
#include "bench/cases/serving_cases.hpp"
#include "problem/transposed.hpp"

namespace flashcore::bench {
namespace {

std::string_view suffix(bool causal) { return causal ? "/causal" : ""; }

std::vector<Case> gates() {
  std::vector<Case> cases;
  for (const Case& shape : gate_shapes()) {
    for (const bool causal : {false, true}) {
      cases.push_back(shape);
      cases.back().causal = causal;
      cases.back().name += suffix(causal);
    }
  }
  return cases;
}

std::vector<Case> five() {
  const auto one = [](int64_t batch, int64_t seqlen, int64_t head_dim, bool causal) {
    return square_case(fmt::format("({},8,{},{}){}", batch, seqlen, head_dim, suffix(causal)),
                       DType::f16, batch, 8, seqlen, head_dim, causal);
  };
  return {one(1, 512, 64, false), one(1, 512, 64, true), one(2, 2048, 64, false),
          one(2, 2048, 64, true), one(2, 2048, 128, false)};
}

// 16384 tokens in total and a hidden size of 2048, as attention papers report.
std::vector<Case> sweep() {
  constexpr int64_t kTokens = 16384, kHidden = 2048;
  std::vector<Case> cases;
  for (const int64_t head_dim : {64, 128, 256}) {
    for (const bool causal : {false, true}) {
      for (int64_t seqlen = 512; seqlen <= kTokens; seqlen *= 2) {
        cases.push_back(square_case(fmt::format("d{}/s{}{}", head_dim, seqlen, suffix(causal)),
                                    DType::bf16, kTokens / seqlen, kHidden / head_dim, seqlen,
                                    head_dim, causal));
      }
    }
  }
  return cases;
}

std::vector<Case> small() {
  std::vector<Case> cases;
  for (const int64_t head_dim : {64, 128}) {
    for (const int64_t heads : {8, 16, 32}) {
      for (const int64_t seqlen : {128, 256, 512, 1024}) {
        cases.push_back(square_case(fmt::format("(1,{},{},{})", heads, seqlen, head_dim),
                                    DType::f16, 1, heads, seqlen, head_dim, false));
      }
    }
  }
  return cases;
}

// The sweep's shapes in bf16, in e4m3, which should be faster, and in e4m3 with V stored transposed.
std::vector<Case> fp8() {
  std::vector<Case> cases;
  for (const Case& shape : sweep()) {
    if (shape.head_dim > 128) continue;
    for (const auto& [name, dtype, v_transposed] : {std::tuple{"bf16", DType::bf16, false},
                                                    {"f8e4m3", DType::f8e4m3, false},
                                                    {"f8e4m3, V^T", DType::f8e4m3, true}}) {
      Case& one = cases.emplace_back(shape);
      one.name += fmt::format("/{}", name);
      one.dtype = dtype;
      one.scales = dtype == DType::f8e4m3;
      one.v_transposed = v_transposed;
    }
  }
  return cases;
}

// Compares kernels that compute e4m3 with each other and with bf16. Without scales, so that a few
// rows are judged.
std::vector<Case> fp8_modes() {
  constexpr int64_t kSeqlen = 2048;
  std::vector<Case> cases;
  for (const Case& shape : sweep()) {
    if (shape.head_dim > 128 || shape.seqlen_q != kSeqlen) continue;
    for (const DType dtype : {DType::bf16, DType::f8e4m3}) {
      Case& one = cases.emplace_back(shape);
      one.name += fmt::format("/{}", to_string(dtype));
      one.dtype = dtype;
    }
  }
  return cases;
}

// The cost of amax_o and amax_s: each problem without and with them, one after the other.
std::vector<Case> amax() {
  constexpr int64_t kSeqlen = 2048, kHidden = 2048;
  std::vector<Case> cases;
  for (const int64_t head_dim : {64, 128}) {
    for (const int64_t batch : {1, 8}) {
      for (const bool causal : {false, true}) {
        for (const DType o : {DType::bf16, DType::f8e4m3}) {
          for (const bool largest : {false, true}) {
            Case& one = cases.emplace_back(
                square_case(fmt::format("d{}/{}k{}/O {}{}", head_dim, batch * kSeqlen / 1024,
                                        suffix(causal), to_string(o), largest ? "/amax" : ""),
                            DType::f8e4m3, batch, kHidden / head_dim, kSeqlen, head_dim, causal));
            one.o_dtype = o;
            one.largest = largest;
          }
        }
      }
    }
  }
  return cases;
}

// In the types that the CPU's peers support.
std::vector<Case> cpu() {
  std::vector<Case> cases;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto add = [&](int64_t batch, int64_t seqlen, int64_t head_dim, bool causal) {
      cases.push_back(square_case(fmt::format("({},8,{},{})/{}{}", batch, seqlen, head_dim,
                                              to_string(dtype), suffix(causal)),
                                  dtype, batch, 8, seqlen, head_dim, causal));
    };
    add(1, 512, 64, false);
    for (const int64_t head_dim : {64, 128}) {
      add(2, 2048, head_dim, false);
      add(2, 2048, head_dim, true);
    }
    cases.push_back({.name = fmt::format("b4/8k/hkv8/{}", to_string(dtype)),
                     .dtype = dtype,
                     .batch = 4,
                     .heads_q = 32,
                     .heads_kv = 8,
                     .seqlen_q = 1,
                     .seqlen_kv = 8192,
                     .head_dim = 128});
  }
  return cases;
}

// The cost of each feature, compared with the plain problem.
std::vector<Case> features() {
  constexpr int64_t kBatch = 4, kSeqlen = 4096, kHidden = 2048;
  std::vector<Case> cases;
  for (const int64_t head_dim : {64, 128, 256}) {
    const auto add = [&](const char* name) -> Case& {
      return cases.emplace_back(square_case(fmt::format("d{}/{}", head_dim, name), DType::bf16,
                                            kBatch, kHidden / head_dim, kSeqlen, head_dim, false));
    };
    (void)add("plain");
    add("causal").causal = true;
    Case& window = add("causal, window 512");
    window.causal = true;
    window.window_left = 512;
    add("softcap").softcap = 30;
    add("ALiBi").alibi = true;
    add("bias f32").bias = DType::f32;
    add("bias bf16").bias = DType::bf16;
    add("mask").mask = true;
    add("dropout").dropout_p = 0.1f;
  }
  return cases;
}

// The backward pass: options, training shapes (groups, windows, packed batches), and short calls.
std::vector<Case> backward() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, int64_t batch, int64_t heads, int64_t seqlen,
                       int64_t head_dim, bool causal) -> Case& {
    return cases.emplace_back(
        square_case(name, DType::bf16, batch, heads, seqlen, head_dim, causal));
  };
  for (const bool causal : {false, true}) {
    add(fmt::format("heads 32 over 8{}", suffix(causal)), 2, 32, 4096, 128, causal).heads_kv = 8;
  }
  (void)add("8k/causal", 2, 16, 8192, 128, true);
  add("8k/causal, window 1024", 2, 16, 8192, 128, true).window_left = 1024;
  add("8k/causal, window 128", 2, 16, 8192, 128, true).window_left = 128;
  add("packed/causal", 8, 16, 2048, 128, true).packed = true;
  (void)add("4k", 4, 16, 4096, 128, false);
  add("4k/softcap", 4, 16, 4096, 128, false).softcap = 30;
  add("4k/ALiBi", 4, 16, 4096, 128, false).alibi = true;
  add("4k/sinks", 4, 16, 4096, 128, false).sinks = true;
  add("4k/bias bf16", 4, 16, 4096, 128, false).bias = DType::bf16;
  add("4k/mask", 4, 16, 4096, 128, false).mask = true;
  add("4k/dropout", 4, 16, 4096, 128, false).dropout_p = 0.1f;
  add("4k/f16", 4, 16, 4096, 128, false).dtype = DType::f16;
  add("2k/f32", 2, 16, 2048, 64, false).dtype = DType::f32;
  add("512 of 2k", 8, 16, 512, 64, false).seqlen_kv = 2048;
  for (const auto& [batch, heads, seqlen] : {std::tuple<int64_t, int64_t, int64_t>{1, 8, 128},
                                             {1, 8, 512},
                                             {8, 16, 256},
                                             {1, 8, 1024}}) {
    (void)add(fmt::format("({},{},{},64)/causal", batch, heads, seqlen), batch, heads, seqlen, 64,
              true);
  }
  return cases;
}

bool has_even_entries(const Case& one) { return one.max_seqlen_q > 0 || one.max_seqlen_kv > 0; }

// Makes the tensors [B * S, H, D].
void set_packed(const Case& one, Problem& problem) {
  const int64_t total_q = one.batch * one.seqlen_q, total_kv = one.batch * one.seqlen_kv;
  const int64_t head_dim_v = one.head_dim_v > 0 ? one.head_dim_v : one.head_dim;
  problem.q = TensorDesc::contiguous(one.dtype, {total_q, one.heads_q, one.head_dim});
  problem.o = TensorDesc::contiguous(one.dtype, {total_q, one.heads_q, head_dim_v});
  problem.k = TensorDesc::contiguous(one.dtype, {total_kv, one.heads_kv, one.head_dim});
  problem.v = TensorDesc::contiguous(one.dtype, {total_kv, one.heads_kv, head_dim_v});
  problem.lse = TensorDesc::contiguous(DType::f32, {total_q, one.heads_q});
  problem.cu_seqlens_q = problem.cu_seqlens_kv =
      TensorDesc::contiguous(DType::i32, {one.batch + 1});
  const auto longest = [&](int64_t total) {
    const std::vector<int32_t> starts = packed_starts(total, one.batch);
    return starts.back() - starts[starts.size() - 2];
  };
  problem.max_seqlen_q = has_even_entries(one) ? one.max_seqlen_q : longest(total_q);
  problem.max_seqlen_kv = has_even_entries(one) ? one.max_seqlen_kv : longest(total_kv);
}

// Turns K and V into pages of a cache.
void set_pages(const Case& one, Problem& problem) {
  const int64_t pages = (one.seqlen_kv + one.page_size - 1) / one.page_size;
  const int64_t row = one.heads_kv * one.head_dim;
  problem.k = problem.v = TensorDesc::strided(
      problem.k.dtype, {one.batch * pages, one.heads_kv, one.page_size, one.head_dim},
      {one.page_size * row, one.head_dim, row, 1});
  problem.page_table = TensorDesc::contiguous(DType::i32, {one.batch, pages});
  problem.max_seqlen_kv = one.seqlen_kv;
}

}  // namespace

std::vector<int32_t> ragged_lengths(int64_t longest, int64_t batch) {
  std::vector<int32_t> lengths;
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t shortest = std::max<int64_t>(longest / 80, 1);
    const int64_t more = batch > 1 ? (longest - shortest) * b / (batch - 1) : longest - shortest;
    lengths.push_back(static_cast<int32_t>(shortest + more));
  }
  return lengths;
}

std::vector<int32_t> tree_words(int64_t tokens) {
  const int64_t words = (tokens + 31) / 32;
  std::vector<int32_t> rows(static_cast<size_t>(tokens * words));
  for (int64_t token = 0; token < tokens; ++token) {
    for (int64_t t = token;; t = (t - 1) / 2) {
      auto& word = rows[static_cast<size_t>(token * words + t / 32)];
      word = static_cast<int32_t>(static_cast<uint32_t>(word) | (1u << (t % 32)));
      if (t == 0) break;
    }
  }
  return rows;
}

std::vector<int32_t> keys_in_use(const Case& one) {
  if (one.ragged) return ragged_lengths(one.seqlen_kv, one.batch);
  return std::vector<int32_t>(static_cast<size_t>(one.batch), static_cast<int32_t>(one.seqlen_kv));
}

std::vector<int32_t> packed_starts(int64_t total, int64_t batch) {
  std::vector<int32_t> starts;
  for (int64_t b = 0; b <= batch; ++b) {
    starts.push_back(static_cast<int32_t>(total * b * (b + 1) / (batch * (batch + 1))));
  }
  return starts;
}

std::vector<int32_t> packed_starts(int64_t total, int64_t batch, int64_t longest) {
  if (batch * longest != total) return packed_starts(total, batch);
  std::vector<int32_t> starts;
  for (int64_t b = 0; b <= batch; ++b) starts.push_back(static_cast<int32_t>(b * longest));
  return starts;
}

Case square_case(std::string name, DType dtype, int64_t batch, int64_t heads, int64_t seqlen,
                 int64_t head_dim, bool causal) {
  return {.name = std::move(name),
          .dtype = dtype,
          .batch = batch,
          .heads_q = heads,
          .heads_kv = heads,
          .seqlen_q = seqlen,
          .seqlen_kv = seqlen,
          .head_dim = head_dim,
          .causal = causal};
}

Problem to_problem(const Case& one) {
  Problem problem;
  if (one.packed) {
    set_packed(one, problem);
  } else {
    const int64_t head_dim_v = one.head_dim_v > 0 ? one.head_dim_v : one.head_dim;
    const auto tensor = [&](int64_t heads, int64_t rows, int64_t width) {
      return TensorDesc::contiguous(one.dtype, {one.batch, heads, rows, width});
    };
    problem.q = tensor(one.heads_q, one.seqlen_q, one.head_dim);
    problem.o = tensor(one.heads_q, one.seqlen_q, head_dim_v);
    problem.k = tensor(one.heads_kv, one.seqlen_kv, one.head_dim);
    problem.v = tensor(one.heads_kv, one.seqlen_kv, head_dim_v);
    problem.lse = TensorDesc::contiguous(DType::f32, {one.batch, one.heads_q, one.seqlen_q});
  }
  if (one.kv_dtype) problem.k.dtype = problem.v.dtype = *one.kv_dtype;
  if (one.v_dtype) problem.v.dtype = *one.v_dtype;
  if (one.page_size > 0) set_pages(one, problem);
  if (one.latent) problem.v = first_columns(problem.k, one.head_dim_v);
  if (one.v_transposed) {
    problem.v_transposed = true;
    problem.v = TensorDesc::contiguous(
        problem.v.dtype,
        {one.batch, one.heads_kv, problem.o.shape[3], columns_of_keys(one.seqlen_kv)});
  }
  if (one.ragged || one.page_size > 0) {
    problem.seqlens_kv = TensorDesc::contiguous(DType::i32, {one.batch});
  }
  // fp8 has too few bits to judge O in it.
  if (size_of(one.dtype) == 1) problem.o.dtype = DType::f16;
  if (one.largest) {
    problem.amax_o = problem.amax_s = TensorDesc::contiguous(DType::f32, {one.batch, one.heads_q});
  }
  problem.causal = one.causal;
  if (one.top_left) problem.alignment = Alignment::top_left;
  problem.softcap = one.softcap;
  problem.window_left = one.window_left;
  problem.window_right = one.window_right;
  problem.dropout_p = one.dropout_p;
  if (one.bias) {
    problem.bias = TensorDesc::contiguous(*one.bias, {1, one.heads_q, one.seqlen_q, one.seqlen_kv});
  }
  if (one.mask) {
    problem.mask = TensorDesc::contiguous(DType::boolean, {1, 1, one.seqlen_q, one.seqlen_kv});
  }
  if (one.tree) {
    problem.tree_mask =
        TensorDesc::contiguous(DType::i32, {1, one.seqlen_q, (one.seqlen_q + 31) / 32});
  }
  if (one.alibi) problem.alibi_slopes = TensorDesc::contiguous(DType::f32, {one.heads_q});
  if (one.sinks) problem.sinks = TensorDesc::contiguous(DType::f32, {one.heads_q});
  if (one.scales) problem = with_fp8_inputs(problem);
  if (one.o_dtype) problem.o.dtype = *one.o_dtype;
  if (size_of(problem.o.dtype) == 1) problem.o_scale = TensorDesc::contiguous(DType::f32, {1, 1});
  return problem;
}

int64_t rotated_copies(const Case& one) {
  if (!one.rotated) return 1;
  constexpr int64_t kOthers = int64_t{512} << 20;
  const Problem problem = to_problem(one);
  const double of_v = v_is_in_k(problem) ? 0 : element_bytes(problem.v);
  const auto bytes = static_cast<int64_t>(element_bytes(problem.k) + of_v);
  return 1 + (kOthers + bytes - 1) / bytes;
}

HostProblem fill(const Case& one, uint64_t seed) {
  HostProblem host = make_host_problem(to_problem(one), seed);
  if (one.packed) {
    for (const auto& [name, seqlen, longest] :
         {std::tuple{"cu_seqlens_q", one.seqlen_q, host.problem.max_seqlen_q},
          {"cu_seqlens_kv", one.seqlen_kv, host.problem.max_seqlen_kv}}) {
      host.at(name).assign(packed_starts(one.batch * seqlen, one.batch, longest));
    }
  }
  if (host.problem.seqlens_kv) host.at("seqlens_kv").assign(keys_in_use(one));
  if (one.tree) host.at("tree_mask").assign(tree_words(one.seqlen_q));
  if (host.problem.o_scale) host.at("o_scale").set(0, kOutputScale);
  if (one.scales) fill_fp8_inputs(host, seed);
  return host;
}

std::string features_text(const Case& one) {
  std::string text;
  const auto add = [&](const std::string& feature) {
    text += (text.empty() ? "" : ", ") + feature;
  };
  if (one.softcap > 0) add(fmt::format("softcap {:g}", one.softcap));
  if (one.window_left >= 0 || one.window_right >= 0) {
    add(fmt::format("window ({}, {})", one.window_left, one.window_right));
  }
  if (one.bias) add(fmt::format("bias {}", to_string(*one.bias)));
  if (one.mask) add("mask");
  if (one.alibi) add("ALiBi");
  if (one.sinks) add("sinks");
  if (one.packed) add("packed");
  if (one.head_dim_v > 0 && one.head_dim_v != one.head_dim) {
    add(fmt::format("head dimension of v {}", one.head_dim_v));
  }
  if (one.top_left) add("top left");
  if (one.dropout_p > 0) add(fmt::format("dropout {:g}", one.dropout_p));
  if (one.scales) add("scales");
  if (one.v_transposed) add("V transposed");
  if (one.page_size > 0) add(fmt::format("pages of {}", one.page_size));
  if (one.kv_dtype) {
    add(fmt::format("{} {}", size_of(one.dtype) == 1 ? "k and v" : "cache",
                    to_string(*one.kv_dtype)));
  }
  if (one.v_dtype) add(fmt::format("v {}", to_string(*one.v_dtype)));
  if (one.latent) add("v in k");
  if (one.ragged) add("ragged");
  if (one.tree) add("tree mask");
  if (one.o_dtype) add(fmt::format("O {}", to_string(*one.o_dtype)));
  if (one.largest) add("amax_o and amax_s");
  return text;
}

std::vector<Case> gate_shapes() {
  return {square_case("small", DType::f16, 2, 8, 128, 64, false),
          square_case("mission", DType::f16, 1, 8, 512, 64, false),
          square_case("long", DType::f16, 2, 8, 2048, 64, false),
          square_case("wide", DType::f16, 2, 8, 2048, 128, false)};
}

std::vector<Suite> suites() {
  return {
      {"gates", "small, mission, long, wide; full and causal"},
      {"five", "the five fp16 shapes that every rung of the ladder is timed on"},
      {"sweep", "16384 tokens, hidden size 2048, D 64 to 256, S 512 to 16384, bf16"},
      {"small", "one sequence, 8 to 32 heads, S 128 to 1024, fp16"},
      {"decode", "one query, 32 heads over 8 or 32, long caches, bf16"},
      {"paged", "the same in pages of 64, 16 and 1 rows, one head of keys, and an fp8 cache"},
      {"ragged", "64 sequences of 100 to 8k keys, in one piece and in pages"},
      {"rotated", "decode whose caches come from memory at each call, bf16 and fp8"},
      {"speculative", "1 to 16 queries of 16 sequences with 8k keys, causal and as a tree"},
      {"prefill",
       "chunks of 512 and 2048 queries behind 8k and 32k keys, in one piece and in pages"},
      {"mla", "latent rows of 576 elements, V their first 512, in pages of 64 from memory; bf16"},
      {"features", "softcap, window, ALiBi, bias, mask, dropout; 4 x 4096 tokens, bf16"},
      {"backward", "for --backward: groups, windows, packed, options, short calls; bf16"},
      {"fp8", "the sweep at D 64 and 128, in bf16, in e4m3 with scales, and with V transposed"},
      {"fp8_modes", "S 2048 of these, without scales, by all kernels that compute e4m3"},
      {"amax", "e4m3 with an O of bf16 and e4m3, without and with amax_o and amax_s"},
      {"cpu", "the five shapes' sizes and a decode, fp32 and bf16, for a CPU and its peers"}};
}

std::optional<std::vector<Case>> suite_cases(std::string_view name, bool quick) {
  if (std::optional<std::vector<Case>> serving = serving_cases(name, quick)) return serving;
  if (quick) return std::nullopt;
  if (name == "gates") return gates();
  if (name == "five") return five();
  if (name == "sweep") return sweep();
  if (name == "small") return small();
  if (name == "features") return features();
  if (name == "backward") return backward();
  if (name == "fp8") return fp8();
  if (name == "fp8_modes") return fp8_modes();
  if (name == "amax") return amax();
  if (name == "cpu") return cpu();
  return std::nullopt;
}

}  // namespace flashcore::bench
