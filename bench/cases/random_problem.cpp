#include "bench/cases/random_problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/cases/fp8_problem.hpp"
#include "bench/cases/random_cache.hpp"
#include "bench/cases/random_layout.hpp"
#include "bench/tensors/random.hpp"
#include "problem/transposed.hpp"

namespace flashcore::bench {
namespace {

using Sizes = RandomSizes;

// A separate stream from the rest of the problem's.
constexpr uint64_t kStateNumbers = 0x65746174735f6e69;
constexpr uint64_t kOutputNumbers = 0x737475705f74756f;
constexpr uint64_t kTypeNumbers = 0x73657079745f3866;
constexpr uint64_t kColumnNumbers = 0x736e6d756c6f635f;
constexpr uint64_t kHeadNumbers = 0x73646165685f5f5f;

int64_t random_length(Random& random, int64_t largest) {
  if (random.chance(0.03)) return 0;
  if (random.chance(0.1)) return 1;
  if (random.chance(0.3)) return std::min(largest, 16 * random.integer(1, (largest + 15) / 16));
  return random.integer(1, largest);
}

int64_t random_head_dim(Random& random, const RandomSpace& space) {
  if (!space.any_head_dim && space.largest_head_dim >= 256) {
    return random.pick<int64_t>({64, 128, 256});
  }
  if (!space.any_head_dim || random.chance(0.4)) return random.pick<int64_t>({64, 128});
  if (random.chance(0.6)) return 8 * random.integer(1, space.largest_head_dim / 8);
  return random.integer(1, space.largest_head_dim);
}

// Keeps at least one head and one entry.
void limit_heads(Sizes& s, int64_t most) {
  const int64_t group = s.heads_q / s.heads_kv;
  s.heads_kv = std::clamp<int64_t>(most / group, 1, s.heads_kv);
  s.heads_q = s.heads_kv * std::min(group, most);
  s.batch = std::min(s.batch, std::max<int64_t>(most / s.heads_q, 1));
}

Sizes random_sizes(Random& random, const RandomSpace& space) {
  Sizes s{};
  s.batch = random.chance(0.03) ? 0 : random.integer(1, 3);
  s.heads_kv = random.integer(1, 3);
  s.heads_q = s.heads_kv * (space.grouped_heads && random.chance(0.5) ? random.integer(2, 4) : 1);
  s.seqlen_q = random_length(random, space.largest_seqlen);
  s.seqlen_kv = random.chance(0.4) ? s.seqlen_q : random_length(random, space.largest_seqlen);
  s.head_dim_qk = random_head_dim(random, space);
  s.head_dim_v =
      space.any_head_dim && random.chance(0.3) ? random_head_dim(random, space) : s.head_dim_qk;
  if (space.most_heads > 0) limit_heads(s, space.most_heads);
  return s;
}

// One head of latent rows, under up to 140 heads of queries.
Sizes latent_sizes(Random& random, const RandomSpace& space) {
  Sizes s = random_sizes(random, space);
  s.heads_kv = 1;
  s.heads_q = random.chance(0.3) ? 64 * random.integer(1, 2) : random.integer(1, 140);
  if (random.chance(0.6)) s.seqlen_q = 1;
  s.head_dim_qk = 576;
  s.head_dim_v = 512;
  if (space.most_heads > 0) limit_heads(s, space.most_heads);
  return s;
}

// Drops the batch dimension and orders the rest [rows, heads, width].
TensorDesc packed_of(const TensorDesc& t) {
  return TensorDesc::strided(t.dtype, {t.shape[2], t.shape[1], t.shape[3]},
                             {t.stride[2], t.stride[1], t.stride[3]});
}

TensorDesc random_broadcast(Random& random, DType dtype, const Sizes& s, int64_t seqlen_q,
                            int64_t seqlen_kv) {
  const auto one_or = [&](int64_t extent) { return random.chance(0.5) ? 1 : extent; };
  const int64_t batch = one_or(s.batch), heads = one_or(s.heads_q);
  return TensorDesc::contiguous(dtype, {batch, heads, one_or(seqlen_q), one_or(seqlen_kv)});
}

// Lengths of `batch` entries that sum to at most `batch * largest`.
std::vector<int64_t> random_lengths(Random& random, int64_t batch, int64_t largest) {
  std::vector<int64_t> lengths(static_cast<size_t>(batch));
  for (int64_t& length : lengths) {
    length = random.chance(0.1) ? 0 : random.integer(0, largest);
  }
  return lengths;
}

void draw_masking(Random& random, Problem& problem, const Sizes& s, bool any_feature) {
  problem.causal = random.chance(0.5);
  problem.alignment = random.pick({Alignment::top_left, Alignment::bottom_right, Alignment::given});
  if (problem.alignment == Alignment::given) {
    problem.causal_offset = random.integer(-s.seqlen_q, s.seqlen_kv);
  }
  if (!any_feature || !random.chance(0.3)) return;
  problem.window_left = random.chance(0.3) ? -1 : random.integer(0, 96);
  problem.window_right = random.chance(0.3) ? -1 : random.integer(0, 96);
}

// Draws features that change scores or weights, except for the scale.
void draw_score_features(Random& random, Problem& problem, const Sizes& s, int64_t seqlen_q,
                         int64_t seqlen_kv) {
  if (random.chance(0.25)) {
    problem.bias = random_broadcast(random, random.pick({DType::f32, DType::f16, DType::bf16}), s,
                                    seqlen_q, seqlen_kv);
  }
  if (random.chance(0.25)) {
    problem.mask = random_broadcast(random, DType::boolean, s, seqlen_q, seqlen_kv);
  }
  if (random.chance(0.2)) {
    problem.alibi_slopes = random.chance(0.5)
                               ? TensorDesc::contiguous(DType::f32, {s.heads_q})
                               : TensorDesc::contiguous(DType::f32, {s.batch, s.heads_q});
  }
  if (random.chance(0.2)) problem.sinks = TensorDesc::contiguous(DType::f32, {s.heads_q});
  if (random.chance(0.2)) problem.softcap = static_cast<float>(random.pick({5.0, 20.0, 50.0}));
  if (random.chance(0.2)) problem.dropout_p = static_cast<float>(random.pick({0.1, 0.5}));
}

void draw_scale_and_offsets(Random& random, Problem& problem, const Sizes& s, bool e4m3) {
  if (e4m3) {
    // Multiplied by the scales of q and k, at most 2 each, scores have a sigma of at most 2:
    // rounding probabilities to e4m3 has larger errors if few keys dominate a row (fp8_cases.hpp).
    problem.softmax_scale = static_cast<float>((0.1 + 0.4 * random.uniform()) /
                                               std::sqrt(static_cast<double>(s.head_dim_qk)));
  } else if (random.chance(0.2)) {
    // At most twice the default: the gates are for scores of moderate size, and fp32's error in a
    // score grows with the score.
    problem.softmax_scale =
        static_cast<float>(2 * random.uniform() / std::sqrt(static_cast<double>(s.head_dim_qk)));
  }
  if (problem.alignment == Alignment::given && random.chance(0.5)) {
    problem.causal_offset = 0;
    problem.causal_offsets = TensorDesc::contiguous(DType::i32, {s.batch});
  }
}

void draw_scales(Random& random, Problem& problem, const Sizes& s, int64_t seqlen_kv,
                 bool of_blocks) {
  const auto one_or = [&](int64_t extent) { return random.chance(0.5) ? 1 : extent; };
  if (of_blocks && random.chance(0.3)) problem.kv_scale_block = 32 * random.integer(1, 3);
  const int64_t blocks = problem.kv_scale_block == 0
                             ? (seqlen_kv > 0 ? 1 : 0)
                             : (seqlen_kv + problem.kv_scale_block - 1) / problem.kv_scale_block;
  const auto kv_scale = [&] {
    const int64_t batch = one_or(s.batch), heads = one_or(s.heads_kv);
    return TensorDesc::contiguous(DType::f32, {batch, heads, one_or(blocks)});
  };
  if (random.chance(0.8)) {
    const int64_t batch = one_or(s.batch);
    problem.q_scale = TensorDesc::contiguous(DType::f32, {batch, one_or(s.heads_q)});
  }
  if (random.chance(0.8)) problem.k_scale = kv_scale();
  if (random.chance(0.8)) problem.v_scale = kv_scale();
}

// One problem in six gets an fp8 O, half of these with a scale, and each of the largest values.
void draw_more_outputs(Random random, Problem& problem, const Sizes& s, const RandomSpace& space) {
  if (!(space.more_outputs || space.max_logit) || !random.chance(1.0 / 6)) return;
  const auto of_heads = [&] {
    const int64_t batch = random.chance(0.4) ? 1 : s.batch;
    return TensorDesc::contiguous(DType::f32, {batch, random.chance(0.4) ? 1 : s.heads_q});
  };
  if (space.more_outputs && space.any_dtype && space.fp8 && random.chance(0.6)) {
    problem.o.dtype = random.pick({DType::f8e4m3, DType::f8e5m2});
    if (random.chance(0.5)) problem.o_scale = of_heads();
  }
  if (space.more_outputs && random.chance(0.6)) problem.amax_o = of_heads();
  if (space.more_outputs && random.chance(0.6)) problem.amax_s = of_heads();
  if (problem.amax_s && random.chance(0.3)) {  // not dense
    problem.amax_s->stride[0] += 3;
    if (problem.amax_s->shape[0] == 1) problem.amax_s->stride[1] = 2;
  }
  if (space.max_logit && random.chance(0.6)) problem.max_logit = of_heads();
}

// A third of the problems with fp8 K and V: K, V or both get the other fp8 type.
void draw_mix(Random random, Problem& problem) {
  if (size_of(problem.k.dtype) != 1 || !random.chance(1.0 / 3)) return;
  const int64_t which = random.integer(1, 3);
  const auto other = [](DType dtype) {
    return dtype == DType::f8e4m3 ? DType::f8e5m2 : DType::f8e4m3;
  };
  if ((which & 1) != 0) problem.k.dtype = other(problem.k.dtype);
  if ((which & 2) != 0) problem.v.dtype = other(problem.v.dtype);
}

void draw_transposed(Random random, Problem& problem, double share, bool aligned) {
  const bool in_one_piece = problem.v.rank == 4 && !problem.page_table && !problem.kv_indices;
  if (size_of(problem.v.dtype) != 1 || !in_one_piece || !random.chance(share)) return;
  const auto [batch, heads, rows, width] = problem.v.shape;
  const int64_t more = random.chance(0.2) ? kColumnBlock : 0;
  problem.v_transposed = true;
  problem.v = random_layout(random, problem.v.dtype, batch, heads, width,
                            columns_of_keys(rows) + more, aligned);
}

// Keys and values past an entry's length must not matter: sets them to NaN.
void dirty_padding(HostProblem& host, const Sizes& s, std::span<const int64_t> lengths) {
  for (const std::string_view name : {"k", "v"}) {
    HostTensor& tensor = host.at(name);
    const bool by_column = host.problem.v_transposed && name == "v";
    const int64_t width = tensor.desc().shape[by_column ? 2 : 3];
    const int64_t keys = tensor.desc().shape[by_column ? 3 : 2];
    for (int64_t b = 0; b < s.batch; ++b) {
      for (int64_t h = 0; h < s.heads_kv; ++h) {
        const int64_t head = (b * s.heads_kv + h) * width * keys;
        for (int64_t j = lengths[static_cast<size_t>(b)]; j < keys; ++j) {
          for (int64_t d = 0; d < width; ++d) {
            tensor.set(head + (by_column ? d * keys + column_of_key(j) : j * width + d),
                       std::numeric_limits<double>::quiet_NaN());
          }
        }
      }
    }
  }
}

// Returns whether V got some of them.
bool draw_hostile_values(Random& random, HostProblem& host) {
  bool in_v = false;
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  if (random.chance(0.1)) {  // a few attended (or masked) NaNs and, in V, infinities
    HostTensor& tensor = host.at(random.pick({"q", "k", "v"}));
    in_v = &tensor == &host.at("v");
    // Not in fp8, which saturates: its largest number makes outputs so large that rounding them
    // exceeds the gates' absolute limit on outliers. Not with ALiBi, where some weights are 0 in
    // fp32 but not in the reference.
    const bool may_be_infinite =
        in_v && size_of(tensor.desc().dtype) > 1 && !host.has("alibi_slopes");
    for (int64_t n = std::min<int64_t>(tensor.elements(), 2); n > 0; --n) {
      tensor.set(random.integer(0, tensor.elements() - 1),
                 may_be_infinite && random.chance(0.5) ? kInf : kNaN);
    }
  }
  if (random.chance(0.1)) {  // growing scores, outliers
    HostTensor& q = host.at("q");
    for (int64_t n = std::min<int64_t>(q.elements(), 8); n > 0; --n) {
      q.set(random.integer(0, q.elements() - 1), 8.0);
    }
  }
  if (host.has("bias") && random.chance(0.5)) {
    HostTensor& bias = host.at("bias");
    for (int64_t i = 0; i < bias.elements(); ++i) {
      if (random.chance(0.2)) bias.set(i, -kInf);
    }
  }
  return in_v;
}

// A third of the problems with sinks or slopes get one that is NaN or infinite. An infinite slope removes
// pairs; a kernel may still multiply their weight of 0 by a value (`in_v`: some value is NaN or infinite).
void draw_hostile_heads(Random& random, HostProblem& host, bool in_v) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const std::string_view name : {"sinks", "alibi_slopes"}) {
    if (!host.has(name) || host.at(name).elements() == 0 || !random.chance(1.0 / 3)) continue;
    HostTensor& tensor = host.at(name);
    const double value = random.pick({kInf, -kInf, kNaN});
    if (name == "alibi_slopes" && value == kInf && in_v) continue;
    tensor.set(random.integer(0, tensor.elements() - 1), value);
  }
}

// Slopes so steep that the nearest key dominates its row: exact if no other feature removes pairs,
// and if there is no LSE, which is as large as a slope times a distance, past the gates' limit.
void draw_steep_slopes(Random& random, HostProblem& host) {
  const Problem& p = host.problem;
  if (!p.alibi_slopes || p.lse || p.bias || p.mask || p.tree_mask || random.chance(0.5)) return;
  host.at("alibi_slopes").fill([&] { return random.pick({0.5, 1e9, 1e20, 1e30}); });
}

}  // namespace

RandomSpace narrowed(RandomSpace space, int narrowing) {
  if (narrowing >= 1 && !space.only_e4m3) {
    space.only_16_bit = space.same_types = true, space.fp8 = false;
  }
  if (narrowing >= 1) space.more_outputs = space.max_logit = space.mixes_fp8 = false;
  if (narrowing >= 2) space.any_head_dim = false;
  if (narrowing >= 3) space.any_score = false;
  if (narrowing >= 4) space.dense = true;
  return space;
}

RandomDraw::RandomDraw(uint64_t seed, const RandomSpace& space) : random_(seed), space_(space) {
  random_.bits();  // seeds 0, 1, 2, ... are used unchanged: step away from them
  const Sizes s = space.latent ? latent_sizes(random_, space) : random_sizes(random_, space);
  sizes_ = s;
  const DType dtype =
      !space.any_dtype    ? space.dtype
      : space.only_e4m3   ? DType::f8e4m3
      : space.only_16_bit ? random_.pick({DType::f16, DType::bf16})
      : space.fp8
          ? random_.pick({DType::f32, DType::f16, DType::bf16, DType::f8e4m3, DType::f8e5m2})
          : random_.pick({DType::f32, DType::f16, DType::bf16});
  const bool fp8 = dtype == DType::f8e4m3 || dtype == DType::f8e5m2;
  const DType o_dtype = !space.any_dtype ? DType::f16
                        : fp8            ? random_.pick({DType::f32, DType::f16, DType::bf16})
                                         : dtype;
  const bool packed = space.any_feature && !space.dense && random_.chance(0.25);
  const bool aligned = !space.any_head_dim || random_.chance(0.7);

  int64_t rows_q = s.seqlen_q, rows_kv = s.seqlen_kv, tensor_batch = s.batch;
  if (packed) {
    packed_q_ = {0}, packed_kv_ = {0};
    for (const int64_t n : random_lengths(random_, s.batch, s.seqlen_q))
      packed_q_.push_back(packed_q_.back() + n);
    for (const int64_t n : random_lengths(random_, s.batch, s.seqlen_kv))
      packed_kv_.push_back(packed_kv_.back() + n);
    rows_q = packed_q_.back(), rows_kv = packed_kv_.back(), tensor_batch = 1;
  }
  Problem& problem = problem_;
  const auto layout = [&](DType type, int64_t heads, int64_t rows, int64_t width) {
    const TensorDesc full = random_layout(random_, type, tensor_batch, heads, rows, width, aligned);
    return packed ? packed_of(full) : full;
  };
  problem.q = layout(dtype, s.heads_q, rows_q, s.head_dim_qk);
  problem.k = layout(dtype, s.heads_kv, rows_kv, s.head_dim_qk);
  problem.v = layout(dtype, s.heads_kv, rows_kv, s.head_dim_v);
  problem.o = layout(o_dtype, s.heads_q, rows_q, s.head_dim_v);
  if (random_.chance(0.8)) {
    problem.lse = packed ? TensorDesc::contiguous(DType::f32, {rows_q, s.heads_q})
                         : TensorDesc::contiguous(DType::f32, {s.batch, s.heads_q, s.seqlen_q});
  }
  bound_q_ = s.seqlen_q, bound_kv_ = s.seqlen_kv;
  if (packed) {
    problem.cu_seqlens_q = problem.cu_seqlens_kv =
        TensorDesc::contiguous(DType::i32, {s.batch + 1});
    const bool bounded = random_.chance(0.5);
    problem.max_seqlen_q = bounded ? std::min(s.seqlen_q, rows_q) : 0;
    problem.max_seqlen_kv = bounded ? std::min(s.seqlen_kv, rows_kv) : 0;
    bound_q_ = problem.max_seqlen_q == 0 ? rows_q : problem.max_seqlen_q;
    bound_kv_ = problem.max_seqlen_kv == 0 ? rows_kv : problem.max_seqlen_kv;
  }
  draw_masking(random_, problem, s, space.any_feature);
  if (space.any_feature && space.any_score) {
    draw_score_features(random_, problem, s, bound_q_, bound_kv_);
  }
  if (space.any_feature) draw_scale_and_offsets(random_, problem, s, space.only_e4m3);
  if (fp8 && space.any_dtype) draw_scales(random_, problem, s, bound_kv_, !space.only_e4m3);
  if (fp8 && !space.any_dtype) problem = with_fp8_inputs(problem);
  const bool lengths = space.any_feature && !space.dense;
  const bool used_q = lengths && random_.chance(0.15);
  const bool used_kv = lengths && random_.chance(0.25);
  if (space.dense) problem.causal_offsets.reset();
  if (used_q) problem.seqlens_q = TensorDesc::contiguous(DType::i32, {s.batch});
  if (used_kv) problem.seqlens_kv = TensorDesc::contiguous(DType::i32, {s.batch});
  if (Random other(seed ^ kStateNumbers);
      space.dropout_state && problem.dropout_p > 0 && other.chance(0.5)) {
    problem.dropout_state = TensorDesc::strided(DType::i64, {2}, {other.integer(1, 3)});
  }
  draw_more_outputs(Random(seed ^ kOutputNumbers), problem, s, space);
  if (space.caches) problem = with_random_cache(random_, problem, bound_kv_, aligned);
  if (space.latent) problem.v = first_columns(problem.k, s.head_dim_v);
  if (space.mixes_fp8 && space.any_dtype && !space.only_e4m3) {
    draw_mix(Random(seed ^ kTypeNumbers), problem);
  }
  if (space.transposed_v > 0 && space.any_dtype && !space.caches) {
    draw_transposed(Random(seed ^ kColumnNumbers), problem, space.transposed_v, aligned);
  }
}

HostProblem RandomDraw::fill() const {
  Random random = random_;
  const uint64_t seed = random.bits();
  HostProblem host = make_host_problem(problem_, seed);
  if (!space_.any_dtype && problem_.q_scale) fill_fp8_inputs(host, seed);
  if (space_.only_e4m3 && host.has("v_scale")) {  // keeps outputs within the gates' range
    HostTensor& scale = host.at("v_scale");
    for (int64_t i = 0; i < scale.elements(); ++i) scale.set(i, scale.get(i) / 2);
  }
  if (host.has("o_scale")) {  // from saturation to few distinct numbers
    Random other(seed ^ kOutputNumbers);
    host.at("o_scale").fill([&] { return std::exp2(16 * other.uniform() - 12); });
  }
  const bool packed = !packed_q_.empty();
  if (packed) {
    host.at("cu_seqlens_q").assign(packed_q_);
    if (problem_.cu_seqlens_kv) host.at("cu_seqlens_kv").assign(packed_kv_);
  }
  if (problem_.causal_offsets) {
    host.at("causal_offsets").fill([&] {
      return static_cast<double>(random.integer(-sizes_.seqlen_q, sizes_.seqlen_kv));
    });
  }
  if (problem_.seqlens_q) {
    host.at("seqlens_q").assign(random_lengths(random, sizes_.batch, bound_q_));
  }
  std::vector<int64_t> lengths(static_cast<size_t>(packed ? 0 : sizes_.batch), sizes_.seqlen_kv);
  if (space_.caches) {
    fill_random_cache(random, host);
  } else if (problem_.seqlens_kv) {
    lengths = random_lengths(random, sizes_.batch, bound_kv_);
    host.at("seqlens_kv").assign(lengths);
    if (!packed && !problem_.v_transposed) dirty_padding(host, sizes_, lengths);
  }
  // Half of the time: kernels may recompute all rows whose products meet a NaN.
  if (problem_.v_transposed && Random(seed ^ kColumnNumbers).chance(0.5)) {
    dirty_padding(host, sizes_, lengths);
  }
  if (space_.hostile_values) {
    const bool in_v = draw_hostile_values(random, host);
    Random other(seed ^ kHeadNumbers);
    if (space_.steep_slopes) draw_steep_slopes(other, host);
    draw_hostile_heads(other, host, in_v);
  }
  // A kernel that uses the numbers instead draws another mask.
  if (problem_.dropout_state) std::swap(host.dropout_seed, host.dropout_offset);
  return host;
}

HostProblem random_problem(uint64_t seed, const RandomSpace& space) {
  return RandomDraw(seed, space).fill();
}

bool mixes_fp8(const Problem& problem) {
  const DType q = problem.q.dtype, k = problem.k.dtype;
  return problem.v.dtype != k || (size_of(q) == 1 && k != q);
}

std::string describe(const Problem& problem) {
  std::string text;
  for_each_tensor(problem, [&](std::string_view name, const TensorDesc& desc) {
    const auto rank = static_cast<size_t>(desc.rank);
    text += fmt::format("{} {}[{}]", name, to_string(desc.dtype),
                        fmt::join(std::span(desc.shape.data(), rank), ","));
    if (name == "q" || name == "k" || name == "v" || name == "o") {
      text += fmt::format("/({})", fmt::join(std::span(desc.stride.data(), rank), ","));
    }
    text += ' ';
  });
  constexpr const char* kAlignments[] = {"top_left", "bottom_right", "given"};
  text += fmt::format("causal {} {}", problem.causal,
                      kAlignments[static_cast<size_t>(problem.alignment)]);
  if (problem.causal_offset != 0) text += fmt::format(" offset {}", problem.causal_offset);
  if (problem.window_left >= 0 || problem.window_right >= 0) {
    text += fmt::format(" window {},{}", problem.window_left, problem.window_right);
  }
  if (problem.softcap > 0) text += fmt::format(" softcap {}", problem.softcap);
  if (problem.softmax_scale) text += fmt::format(" scale {}", *problem.softmax_scale);
  if (problem.dropout_p > 0) text += fmt::format(" dropout {}", problem.dropout_p);
  if (problem.max_seqlen_kv > 0) text += fmt::format(" max_seqlen_kv {}", problem.max_seqlen_kv);
  if (problem.kv_scale_block > 0) text += fmt::format(" scale block {}", problem.kv_scale_block);
  if (problem.v_transposed) text += " v_transposed";
  return text;
}

}  // namespace flashcore::bench
