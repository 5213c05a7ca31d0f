#include "tests/cuda/random_passes.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iterator>
#include <string>

#include "bench/cases/random_backward.hpp"
#include "bench/cases/random_problem.hpp"
#include "bench/tensors/backward_set.hpp"
#include "bench/tensors/random.hpp"
#include "tests/fuzz/hostile_problem.hpp"

namespace flashcore::tests {
namespace {

using bench::Random, bench::RandomSpace;

// What kernels have in common and what only one has: the narrower a space, the more compute its problems.
RandomSpace space_of(Random& random) {
  RandomSpace space;
  space.largest_seqlen = random.pick<int64_t>({16, 160, 4096, 20000});
  space.largest_head_dim = random.pick<int64_t>({136, 264, 600});
  space.more_outputs = space.mixes_fp8 = true;
  space.transposed_v = 0.3;
  space.caches = random.chance(0.3);
  space.only_e4m3 = !space.caches && random.chance(0.3);
  space.only_16_bit = !space.only_e4m3 && random.chance(0.4);
  if (random.chance(0.6))
    space = narrowed(space, static_cast<int>(random.integer(1, bench::kNarrowings)));
  space.grouped_heads = random.chance(0.7);
  return space;
}

TensorDesc ones(DType dtype) { return TensorDesc::contiguous(dtype, {1, 1, 1, 1}); }
TensorDesc of_heads(const Problem& p) {
  return TensorDesc::contiguous(DType::f32, {1, p.q.shape[1]});
}
TensorDesc of_q_heads(const Problem& p) {
  return TensorDesc::contiguous(DType::f32, {p.q.shape[1]});
}
TensorDesc of_entries(const Problem& p) {
  return TensorDesc::contiguous(DType::i32,
                                {p.cu_seqlens_q ? p.cu_seqlens_q->shape[0] - 1 : p.q.shape[0]});
}
size_t row_of(const Problem& p) { return p.cu_seqlens_q ? 0 : 2; }

DType any_dtype(Random& r) {
  return r.pick({DType::f32, DType::f16, DType::bf16, DType::f8e4m3, DType::f8e5m2, DType::f64});
}

void bend_stride(Random& r, Problem& p) {
  TensorDesc* const all[] = {&p.q, &p.k, &p.v, &p.o};
  TensorDesc& tensor = *all[r.integer(0, 3)];
  int64_t& stride = tensor.stride[static_cast<size_t>(r.integer(0, tensor.rank - 2))];
  // A stride may be so large that these wrap.
  const auto s = static_cast<uint64_t>(stride);
  const auto wrapped = [](uint64_t x) { return static_cast<int64_t>(x); };
  stride = r.pick<int64_t>({0, wrapped(s + 1), wrapped(s + 8), wrapped(0 - s), wrapped(2 * s)});
}

void bend_rows(Random& r, Problem& p) {
  const size_t row = row_of(p);
  p.q.shape[row] = p.o.shape[row] = r.pick<int64_t>({1, 5000, 70000, 1 << 24, 1 << 30});
  if (p.lse) p.lse->shape[row] = p.q.shape[row];
}

void bend_keys(Random& r, Problem& p) {
  const size_t row = row_of(p);
  p.k.shape[row] = p.v.shape[row] = r.pick<int64_t>({1, 5000, 70000, 1 << 24, 1 << 30});
  p.k.stride[row] = p.v.stride[row] = r.pick<int64_t>({0, 64, 4096});
}

void bend_lse(Random& r, Problem& p) {
  p.lse = bench::with_lse(p).lse;
  p.lse->dtype = r.pick({DType::f32, DType::f64});
}

// Options that the space rarely draws together, types, strides, and extents.
using Bend = void (*)(Random&, Problem&);
constexpr Bend kBends[] = {
    [](Random& r, Problem& p) {
      p.softmax_scale = r.pick({0.0F, -1.0F, 0.5F});
    },
    [](Random&, Problem& p) { p.softcap = p.softcap > 0 ? 0.0F : 30.0F; },
    [](Random&, Problem& p) { p.bias = ones(DType::f32); },
    [](Random&, Problem& p) { p.mask = ones(DType::boolean); },
    [](Random&, Problem& p) { p.alibi_slopes = of_q_heads(p); },
    [](Random&, Problem& p) { p.sinks = of_q_heads(p); },
    [](Random&, Problem& p) { p.dropout_p = 0.5F; },
    [](Random&, Problem& p) { p.dropout_state = TensorDesc::contiguous(DType::i64, {2}); },
    [](Random&, Problem& p) { p.bias = p.mask = p.alibi_slopes = p.sinks = std::nullopt; },
    [](Random&, Problem& p) { p.dropout_p = 0, p.softcap = 0; },
    [](Random& r, Problem& p) { p.window_left = r.integer(-1, 100); },
    [](Random& r, Problem& p) { p.window_right = r.integer(-1, 100), p.causal = false; },
    [](Random&, Problem& p) { p.seqlens_q = p.seqlens_kv = of_entries(p); },
    [](Random&, Problem& p) {
      p.causal_offsets = of_entries(p), p.alignment = Alignment::given, p.causal_offset = 0;
    },
    [](Random&, Problem& p) { p.cache_leftpad = of_entries(p); },
    [](Random&, Problem& p) { p.amax_o = of_heads(p); },
    [](Random&, Problem& p) { p.amax_s = of_heads(p); },
    [](Random&, Problem& p) { p.o.dtype = DType::f8e4m3, p.o_scale = of_heads(p); },
    [](Random& r, Problem& p) { p.o.dtype = any_dtype(r); },
    [](Random& r, Problem& p) { p.k.dtype = p.v.dtype = any_dtype(r); },
    [](Random& r, Problem& p) { p.v.dtype = any_dtype(r); },
    [](Random& r, Problem& p) { p.q.dtype = p.k.dtype = p.v.dtype = any_dtype(r); },
    [](Random& r, Problem& p) { p.q.dtype = p.k.dtype = p.v.dtype = p.o.dtype = any_dtype(r); },
    [](Random&, Problem& p) { p.k.shape[1] = p.v.shape[1] = 1; },
    [](Random&, Problem& p) { p.k_scale.reset(), p.kv_scale_block = 0; },
    [](Random& r, Problem& p) {
      p.kv_scale_block = r.pick<int64_t>({0, 1, 128, 1000});
    },
    bend_stride,
    bend_stride,
    bend_rows,
    bend_keys,
    bend_lse};

using BendGradients = void (*)(Random&, Gradients&);
constexpr BendGradients kGradientBends[] = {
    [](Random& r, Gradients& g) { g.dq.dtype = any_dtype(r); },
    [](Random& r, Gradients& g) { g.dk.dtype = any_dtype(r); },
    [](Random& r, Gradients& g) { g.dv.dtype = any_dtype(r); },
    [](Random&, Gradients& g) {
      if (g.d_lse) g.d_lse->dtype = DType::f64;
    },
    [](Random&, Gradients& g) {
      if (g.d_sinks) g.d_sinks->dtype = DType::f64;
    },
    [](Random&, Gradients& g) {
      if (g.d_bias) g.d_bias->dtype = DType::f64;
    },
    [](Random&, Gradients& g) {
      if (g.d_alibi_slopes) g.d_alibi_slopes->dtype = DType::f64;
    },
    [](Random& r, Gradients& g) {
      g.d_o.stride[0] = r.pick<int64_t>({0, 1 << 20, -4096});
    },
    [](Random& r, Gradients& g) {
      g.dv.stride[0] += r.pick<int64_t>({1, 8});
    },
    [](Random&, Gradients& g) { g.dq.stride[0] += 1; }};

template <class Bends, class Bent>
void bend(Random& random, const Bends& bends, Bent& bent) {
  for (int64_t n = random.integer(0, 2); n > 0; --n) {
    bends[random.integer(0, std::ssize(bends) - 1)](random, bent);
  }
}

std::optional<RandomPass> forward_pass(Random& random, uint64_t seed, bool hostile) {
  const auto draw = [&]() -> uint32_t { return static_cast<uint32_t>(random.bits()); };
  Problem problem =
      hostile ? hostile_problem(draw) : bench::RandomDraw(seed, space_of(random)).problem();
  bend(random, kBends, problem);
  const Result<ForwardProblem> p = resolve(problem);
  if (!p.ok()) return std::nullopt;
  return RandomPass{*p, random.chance(0.3), hostile};
}

std::optional<RandomPass> backward_pass(Random& random, uint64_t seed, bool hostile) {
  const auto draw = [&]() -> uint32_t { return static_cast<uint32_t>(random.bits()); };
  Problem problem;
  Gradients gradients;
  if (hostile) {
    problem = hostile_problem(draw);
    gradients = hostile_gradients(draw, problem);
  } else {
    RandomSpace space = space_of(random);
    space.caches = space.only_e4m3 = space.mixes_fp8 = space.more_outputs = false;
    space.same_types = random.chance(0.7);
    problem = bench::RandomBackward(seed, space).problem();
    gradients = bench::RandomBackward(seed, space).gradients();
    if (random.chance(0.4)) {
      bend(random, kBends, problem);
      gradients = bench::gradients_of(problem, random.chance(0.5));
    }
  }
  bend(random, kGradientBends, gradients);
  const Result<BackwardProblem> p = resolve(problem, gradients);
  if (!p.ok()) return std::nullopt;
  return RandomPass{*p, random.chance(0.3), hostile};
}

}  // namespace

std::optional<RandomPass> random_pass(uint64_t seed) {
  Random random(seed);
  random.bits();
  const bool hostile = seed % 5 == 0;
  return seed % 4 == 3 ? backward_pass(random, seed, hostile) : forward_pass(random, seed, hostile);
}

namespace {

bool wants_few() {
  const char* const wanted = std::getenv("FLASHCORE_TEST_RECORDED");
  return wanted != nullptr && std::string_view(wanted) == "few";
}

}  // namespace

int Recorded::count() const { return wants_few() ? few : all; }

void Recorded::expect(std::string_view found) const {
  if (std::getenv("FLASHCORE_PRINT_VERDICTS") != nullptr) fmt::print("{}", found);
  if (!wants_few()) {
    EXPECT_EQ(found, text);
    return;
  }
  Digest digest;
  digest.add(found);
  EXPECT_EQ(fmt::format("{:016x}", digest.value), digest_of_few) << found;
}

}  // namespace flashcore::tests
