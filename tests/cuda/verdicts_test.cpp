// Which of 100,000 random problems each kernel of the table computes, on GPUs of several generations: how many, and
// a digest of every answer. What changes here changes what the library computes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "bench/cases/random_backward.hpp"
#include "bench/cases/random_problem.hpp"
#include "bench/tensors/backward_set.hpp"
#include "bench/tensors/random.hpp"
#include "plan/device.hpp"
#include "plan/kernel_choice.hpp"
#include "plan/table.hpp"
#include "problem/backward.hpp"
#include "tests/fuzz/hostile_problem.hpp"
#include "tools/launches/fake_runtime.hpp"

namespace flashcore {
namespace {

using bench::Random, bench::RandomSpace;

constexpr int kProblems = 100000;

constexpr fake::Gpu kGpus[] = {{75, 68, 64 * 1024},  {80, 108, 163 * 1024}, {86, 84, 99 * 1024},
                               {89, 58, 99 * 1024},  {90, 132, 227 * 1024}, {100, 148, 227 * 1024},
                               {120, 188, 99 * 1024}};

// ---- problems

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

// ---- verdicts

struct Answers {
  int64_t asked = 0, computes = 0, declines = 0;
  uint64_t digest = 0xCBF29CE484222325u, declined = 0xCBF29CE484222325u;  // FNV-1a
};

void add(uint64_t& digest, bool bit) { digest = (digest ^ (bit ? 1u : 0u)) * 0x100000001B3u; }

class Verdicts {
 public:
  // `hostile`: sizes at which a CPU's vectors decide whether a workspace can be counted.
  template <class AnyProblem>
  void ask(const AnyProblem& p, bool batch_invariant, bool hostile) {
    const bool backward = !std::is_same_v<AnyProblem, ForwardProblem>;
    for (const PlanContext& context : contexts(batch_invariant)) {
      for (const Kernel& kernel : kernels()) {
        if (!runs_on(kernel, context.device.device.kind) || !computes(kernel, p)) continue;
        if (hostile && kernel.name == "cpu_simd") continue;
        Answers& answers = answers_[kernel.name + (backward ? ", backward" : "")];
        const KernelVerdict verdict = verdict_of(kernel, p, context);
        const bool computes = verdict.refusal.empty();
        ++answers.asked;
        answers.computes += computes ? 1 : 0;
        answers.declines += verdict.declines.empty() ? 0 : 1;
        add(answers.digest, computes);
        add(answers.declined, !verdict.declines.empty());
      }
    }
  }

  const std::map<std::string, Answers>& answers() const { return answers_; }

 private:
  static std::vector<PlanContext> contexts(bool batch_invariant) {
    std::vector<PlanContext> all(1);
    all[0].device = cpu_device();
    all[0].threads = 4;
    for (const fake::Gpu& gpu : kGpus) {
      PlanContext& context = all.emplace_back();
      context.device.device = {DeviceKind::cuda, 0};
      context.device.compute_capability = gpu.compute_capability;
      context.device.multiprocessors = gpu.multiprocessors;
      context.device.shared_memory_a_block = gpu.shared_memory_a_block;
    }
    for (PlanContext& context : all) context.batch_invariant = batch_invariant;
    return all;
  }

  std::map<std::string, Answers> answers_;
};

// Whether the problem could be resolved, and was asked for.
bool ask_forward(Random& random, uint64_t seed, bool hostile, Verdicts& verdicts) {
  const auto draw = [&]() -> uint32_t { return static_cast<uint32_t>(random.bits()); };
  Problem problem =
      hostile ? tests::hostile_problem(draw) : bench::RandomDraw(seed, space_of(random)).problem();
  bend(random, kBends, problem);
  const Result<ForwardProblem> p = resolve(problem);
  if (p.ok()) verdicts.ask(*p, random.chance(0.3), hostile);
  return p.ok();
}

bool ask_backward(Random& random, uint64_t seed, bool hostile, Verdicts& verdicts) {
  const auto draw = [&]() -> uint32_t { return static_cast<uint32_t>(random.bits()); };
  Problem problem;
  Gradients gradients;
  if (hostile) {
    problem = tests::hostile_problem(draw);
    gradients = tests::hostile_gradients(draw, problem);
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
  if (p.ok()) verdicts.ask(*p, random.chance(0.3), hostile);
  return p.ok();
}

std::string table_of(const Verdicts& verdicts, bool with_declines) {
  std::string text;
  for (const auto& [name, one] : verdicts.answers()) {
    text +=
        fmt::format("{:<36} {:>7} of {:>7}  {:016x}", name, one.computes, one.asked, one.digest);
    if (with_declines) text += fmt::format("  declines {:>7}  {:016x}", one.declines, one.declined);
    text += '\n';
  }
  return text;
}

constexpr std::string_view kWanted =
    R"(00_unfused                              4256 of  546189  c40ca183e520a6af
12_mma_sync                             4256 of  546189  c40ca183e520a6af
13_fp8_stage_c                           152 of  546189  0ea20af2755d414f
14_fp8_native                             76 of  546189  bd0a61d66b41f9ff
15_wgmma_tma                             996 of  546189  8c3e6f409dc2b391
backward_sm80, backward               101316 of  153811  1ac4c5f973be5a37
backward_sm90, backward                 3588 of  153811  11396416328db2d5
backward_sm90_split, backward           2072 of  153811  2a0716536fcd3fc7
backward_sm90_wide, backward             778 of  153811  4cf26586841a7b3b
cpu_simd                               68192 of   69759  f5f668e78c21c5ad
cpu_simd, backward                     17554 of   20451  32316ef55adf4987
decode_sm80                           198174 of  546189  c527b4ef64314755
decode_sm90                             9942 of  546189  c2d00d2a94064b8b
forward_fp8_converted                  78366 of  546189  4db2c2487748350d
forward_fp8_sm89                        6836 of  546189  830f0f6b4b78754f
forward_fp8_sm89_precise                6836 of  546189  830f0f6b4b78754f
forward_fp8_sm90                        2371 of  546189  e62a32f3b3223934
forward_fp8_sm90_options                3672 of  546189  5931bf3bac21615b
forward_fp8_sm90_precise                2371 of  546189  e62a32f3b3223934
forward_fp8_sm90_three                  1187 of  546189  4d0033573e474dd0
forward_fp8_v_rows                     21366 of  546189  d2688882226728cd
forward_sm80_dropout_state              8418 of  546189  f63a5a6be5c25d35
forward_sm80_f32                       10914 of  546189  4d830ae226353029
forward_sm80_fp8                       79944 of  546189  c6daa836a367fd3b
forward_sm80_latency                   40842 of  546189  350656a1759e7a61
forward_sm80_paged                     18582 of  546189  f3875e219f526a41
forward_sm80_split_kv                 141792 of  546189  5ea95ce9e5310cc3
forward_sm80_throughput               131520 of  546189  c6757a5a60ab98f3
forward_sm90_192x128                    3325 of  546189  00011ae902b6e94a
forward_sm90_64x128                     3325 of  546189  00011ae902b6e94a
forward_sm90_64x64                      3325 of  546189  00011ae902b6e94a
forward_sm90_latency                    6208 of  546189  3cfdd58e306cb565
forward_sm90_latency_wide               6208 of  546189  3cfdd58e306cb565
forward_sm90_paged                      1082 of  546189  1bf5db85032abe8d
forward_sm90_throughput                 9674 of  546189  09f6aaefa6f1c7e9
naive                                  49758 of   78027  6d2bc1bd54b0a20f
naive, backward                        21973 of   21973  37595b2b3b438e78
reference                              78027 of   78027  895cc1605b038e7a
reference, backward                    21973 of   21973  37595b2b3b438e78
)";

TEST(Verdicts, AreThoseOfTheTable) {
  fake::forget();
  fake::use(kGpus[4]);
  Verdicts verdicts;
  int resolved = 0;
  for (uint64_t seed = 0; resolved < kProblems; ++seed) {
    Random random(seed);
    random.bits();
    const bool hostile = seed % 5 == 0;
    const bool asked = seed % 4 == 3 ? ask_backward(random, seed, hostile, verdicts)
                                     : ask_forward(random, seed, hostile, verdicts);
    resolved += asked ? 1 : 0;
  }
  if (std::getenv("FLASHCORE_PRINT_VERDICTS") != nullptr)
    fmt::print("{}", table_of(verdicts, true));
  EXPECT_EQ(table_of(verdicts, false), kWanted);
}

}  // namespace
}  // namespace flashcore
