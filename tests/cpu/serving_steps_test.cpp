// Compositions of serving operators: append and attention in one call, prefixes that sequences
// share on several levels, and MLA, whose values are columns of its keys.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "bench/gate/gates.hpp"
#include "bench/tensors/host_tensor.hpp"
#include "bench/tensors/random.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "flashcore/serving.hpp"
#include "tests/cpu/run_on_host.hpp"

namespace flashcore {
namespace {

using bench::HostProblem;
using bench::HostTensor;
using bench::Random;

TensorDesc ints(int64_t count) { return TensorDesc::contiguous(DType::i32, {count}); }

HostTensor normal(Random& random, const TensorDesc& desc) {
  HostTensor made(desc);
  made.fill([&] { return random.normal(); });
  return made;
}

HostTensor numbers(const std::vector<double>& values) {
  HostTensor made(ints(static_cast<int64_t>(values.size())));
  for (size_t n = 0; n < values.size(); ++n) made.set(static_cast<int64_t>(n), values[n]);
  return made;
}

const int32_t* ints_of(HostTensor& tensor) { return static_cast<const int32_t*>(tensor.data()); }

// ---------------------------------------------------------------------------------------------
// Append and attention in one call

// Two sequences in pages of 4 rows, 3 new rows each, with RoPE for the new keys and the queries.
struct OneStep {
  Random random{21};
  TensorDesc rows = TensorDesc::contiguous(DType::f32, {2, 2, 3, 8});
  TensorDesc queries = TensorDesc::contiguous(DType::f32, {2, 4, 3, 8});
  TensorDesc pages = TensorDesc::contiguous(DType::f32, {6, 2, 4, 8});
  HostTensor k_new = normal(random, rows), v_new = normal(random, rows);
  HostTensor k = normal(random, pages), v = normal(random, pages);
  HostTensor q = normal(random, queries), q_out{queries}, o{queries};
  HostTensor before = numbers({5, 0}), after = numbers({8, 3}), table = numbers({4, 1, 0, 5});
  Append what;
  Problem problem;

  OneStep() {
    what.k_new = what.v_new = rows;
    what.k = what.v = pages;
    what.seqlens_kv = ints(2);
    what.page_table = TensorDesc::contiguous(DType::i32, {2, 2});
    what.q = what.q_out = queries;
    what.rope_base = 100;
    problem.q = problem.o = queries;
    problem.k = problem.v = pages;
    problem.seqlens_kv = ints(2);
    problem.page_table = what.page_table;
    problem.causal = true;
  }
  AppendArguments rows_arguments() {
    return {.k_new = k_new.data(),
            .v_new = v_new.data(),
            .k = k.data(),
            .v = v.data(),
            .seqlens_kv = ints_of(before),
            .page_table = ints_of(table),
            .q = q.data(),
            .q_out = q_out.data()};
  }
  Arguments attention() {
    return {.q = q_out.data(),
            .k = k.data(),
            .v = v.data(),
            .o = o.data(),
            .seqlens_kv = ints_of(after),
            .page_table = ints_of(table)};
  }
};

TEST(Step, IsAppendAndThenAttention) {
  OneStep apart, together;
  PlanOptions two_threads;
  two_threads.threads = 2;
  const Result<Plan> plan = make_plan(apart.problem);
  ASSERT_TRUE(plan.ok());
  ASSERT_TRUE(append(apart.what, apart.rows_arguments()).ok());
  ASSERT_TRUE(plan->run(apart.attention()).ok());
  const Status status = append_and_attend(together.what, together.rows_arguments(), *plan,
                                          together.attention(), two_threads);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(together.o.same_elements(apart.o));
  EXPECT_TRUE(together.k.same_elements(apart.k));
  EXPECT_TRUE(together.v.same_elements(apart.v));
  EXPECT_TRUE(together.q_out.same_elements(apart.q_out));
}

TEST(Step, WritesNothingWhereEitherPartIsRefused) {
  OneStep untouched;
  const Result<Plan> plan = make_plan(untouched.problem);
  ASSERT_TRUE(plan.ok());
  const auto refused = [&](auto&& change, const char* sentence) {
    OneStep one;
    AppendArguments rows = one.rows_arguments();
    Arguments attention = one.attention();
    change(one, rows, attention);
    const Status status = append_and_attend(one.what, rows, *plan, attention);
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    EXPECT_NE(status.message().find(sentence), std::string::npos) << status.message();
    EXPECT_TRUE(one.k.same_elements(untouched.k)) << sentence;
    EXPECT_TRUE(one.v.same_elements(untouched.v)) << sentence;
  };
  refused([](OneStep&, AppendArguments&, Arguments& attention) { attention.o = nullptr; },
          "o: pointer is null");
  refused([](OneStep& one, AppendArguments&, Arguments&) { one.after.set(1, 9); },
          "seqlens_kv: entry 1 is 9, wanted 0 to 8");
  refused([](OneStep& one, AppendArguments&, Arguments&) { one.table.set(1, 7); },
          "page_table: page 1 of sequence 0 is 7");
  refused([](OneStep& one, AppendArguments&, Arguments&) { one.before.set(0, 6); },
          "k: sequence 0 has 6 rows in use and 3 new ones");
  refused([](OneStep&, AppendArguments& rows, Arguments&) { rows.k_new = nullptr; },
          "k_new: pointer is null");
  refused([](OneStep& one, AppendArguments&, Arguments& attention) { attention.v = one.k.data(); },
          "v: pointer");
}

// ---------------------------------------------------------------------------------------------
// Shared prefixes

// Attention of all queries of `queries` [1, H, rows, D] over keys [1, H, n, D].
struct Part {
  HostTensor o, lse;
};

Part attend(HostTensor& q, HostTensor& k, HostTensor& v, const HostTensor* keys_in_use = nullptr) {
  Problem p;
  p.q = p.o = q.desc();
  p.k = p.v = k.desc();
  p.lse =
      TensorDesc::contiguous(DType::f32, {q.desc().shape[0], q.desc().shape[1], q.desc().shape[2]});
  if (keys_in_use != nullptr) p.seqlens_kv = keys_in_use->desc();
  Part part{HostTensor(p.o), HostTensor(*p.lse)};
  const Result<Plan> plan = make_plan(p);
  EXPECT_TRUE(plan.ok());
  const Status status = plan->run(
      {.q = q.data(),
       .k = k.data(),
       .v = v.data(),
       .o = part.o.data(),
       .lse = part.lse.data(),
       .seqlens_kv =
           keys_in_use == nullptr ? nullptr : static_cast<const int32_t*>(keys_in_use->data())});
  EXPECT_TRUE(status.ok()) << status.message();
  return part;
}

// Regroups rows: the queries of `group` sequences become the rows of one entry.
HostTensor regrouped(const HostTensor& rows, int64_t batch) {
  const auto& shape = rows.desc().shape;
  const bool lse = rows.desc().rank == 3;
  const int64_t heads = shape[1], width = lse ? 1 : shape[3];
  const int64_t before = shape[2], after = shape[0] * shape[2] / batch;
  HostTensor out(lse ? TensorDesc::contiguous(rows.desc().dtype, {batch, heads, after})
                     : TensorDesc::contiguous(rows.desc().dtype, {batch, heads, after, width}));
  for (int64_t n = 0; n < shape[0] * before; ++n) {  // the row's index, over entries
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t d = 0; d < width; ++d) {
        const int64_t from = ((n / before * heads + h) * before + n % before) * width + d;
        const int64_t to = ((n / after * heads + h) * after + n % after) * width + d;
        out.set(to, rows.get(from));
      }
    }
  }
  return out;
}

void merge_into(Part& total, Part& more) {
  Merge what;
  what.o_a = what.o_b = what.o = total.o.desc();
  what.lse_a = what.lse_b = total.lse.desc();
  what.lse = what.lse_a;
  const Status status = merge(what, {.o_a = total.o.data(),
                                     .o_b = more.o.data(),
                                     .lse_a = static_cast<float*>(total.lse.data()),
                                     .lse_b = static_cast<float*>(more.lse.data()),
                                     .o = total.o.data(),
                                     .lse = static_cast<float*>(total.lse.data())});
  ASSERT_TRUE(status.ok()) << status.message();
}

// A prompt that all four sequences share, a continuation that pairs of them share, and their own
// rows, of different lengths, including 0: each level is read once for all that share it.
TEST(SharedPrefix, OverLevelsIsAttentionOverAll) {
  Random random(31);
  constexpr int64_t kSequences = 4, kHeads = 2, kWidth = 16;
  const auto keys = [&](int64_t entries, int64_t count) {
    return normal(random, TensorDesc::contiguous(DType::f32, {entries, kHeads, count, kWidth}));
  };
  HostTensor q = keys(kSequences, 1);
  HostTensor prompt_k = keys(1, 70), prompt_v = keys(1, 70);
  HostTensor pair_k = keys(2, 9), pair_v = keys(2, 9);
  HostTensor own_k = keys(kSequences, 6), own_v = keys(kSequences, 6);
  const std::vector<double> lengths = {6, 0, 1, 4};
  const HostTensor in_use = numbers(lengths);

  Part total = attend(q, own_k, own_v, &in_use);
  for (const auto& [k, v, entries] :
       {std::tuple{&pair_k, &pair_v, int64_t{2}}, {&prompt_k, &prompt_v, int64_t{1}}}) {
    HostTensor together = regrouped(q, entries);
    Part level = attend(together, *k, *v);
    Part apart{regrouped(level.o, kSequences), regrouped(level.lse, kSequences)};
    merge_into(total, apart);
  }

  for (int64_t b = 0; b < kSequences; ++b) {
    const auto own = static_cast<int64_t>(lengths[static_cast<size_t>(b)]);
    const TensorDesc whole = TensorDesc::contiguous(DType::f32, {1, kHeads, 70 + 9 + own, kWidth});
    HostTensor k(whole), v(whole), one(TensorDesc::contiguous(DType::f32, {1, kHeads, 1, kWidth}));
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t d = 0; d < kWidth; ++d) {
        one.set(h * kWidth + d, q.get((b * kHeads + h) * kWidth + d));
        for (int64_t j = 0; j < whole.shape[2]; ++j) {
          const auto from = [&](const HostTensor& a, const HostTensor& p, const HostTensor& o) {
            if (j < 70) return a.get((h * 70 + j) * kWidth + d);
            if (j < 79) return p.get(((b / 2 * kHeads + h) * 9 + j - 70) * kWidth + d);
            return o.get(((b * kHeads + h) * 6 + j - 79) * kWidth + d);
          };
          k.set((h * whole.shape[2] + j) * kWidth + d, from(prompt_k, pair_k, own_k));
          v.set((h * whole.shape[2] + j) * kWidth + d, from(prompt_v, pair_v, own_v));
        }
      }
    }
    const Part want = attend(one, k, v);
    for (int64_t h = 0; h < kHeads; ++h) {
      EXPECT_NEAR(total.lse.get(b * kHeads + h), want.lse.get(h), 2e-6);
      for (int64_t d = 0; d < kWidth; ++d) {
        EXPECT_NEAR(total.o.get((b * kHeads + h) * kWidth + d), want.o.get(h * kWidth + d), 2e-6)
            << "sequence " << b;
      }
    }
  }
}

// ---------------------------------------------------------------------------------------------
// MLA: one head of 576 numbers per row; the first 512 are also the values

constexpr int64_t kLatent = 512, kRotary = 64, kRow = kLatent + kRotary, kPage = 8, kPages = 7;

Problem mla_problem(DType dtype, int64_t queries) {
  Problem p;
  p.q = TensorDesc::contiguous(dtype, {2, 16, queries, kRow});
  p.k = TensorDesc::contiguous(dtype, {kPages, 1, kPage, kRow});
  p.v = p.k;
  p.v.shape[3] = kLatent;  // the same memory
  p.o = TensorDesc::contiguous(dtype, {2, 16, queries, kLatent});
  p.lse = TensorDesc::contiguous(DType::f32, {2, 16, queries});
  p.page_table = TensorDesc::contiguous(DType::i32, {2, 3});
  p.seqlens_kv = ints(2);
  p.causal = true;
  p.softmax_scale = 0.0722f;  // for 192 = 128 + 64 elements, before absorbing the latent
  return p;
}

TEST(Mla, ValuesAreColumnsOfTheKeys) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const int64_t queries : {1, 3}) {
      HostProblem host = bench::make_host_problem(mla_problem(dtype, queries), 17);
      host.at("seqlens_kv").set(0, 21);
      host.at("seqlens_kv").set(1, 6);
      // The judge gets the values in separate memory; the kernels get the view.
      const int64_t rows = kPages * kPage;
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t d = 0; d < kLatent; ++d) {
          host.at("v").set(r * kLatent + d, host.at("k").get(r * kRow + d));
        }
      }
      const Result<bench::Reference> reference = bench::compute_reference(host);
      ASSERT_TRUE(reference.ok());
      for (const char* const kernel : {"reference", "cpu_simd"}) {
        bench::poison_outputs(host);
        PlanOptions options;
        options.kernel = kernel;
        const Result<Plan> plan = make_plan(host.problem, options);
        ASSERT_TRUE(plan.ok()) << plan.status().message();
        Arguments arguments = host.arguments();
        arguments.v = arguments.k;
        ASSERT_TRUE(plan->run(arguments).ok());
        const bench::Verdict verdict = bench::judge(host, *reference);
        EXPECT_TRUE(verdict.passed) << kernel << ' ' << to_string(dtype) << ' ' << verdict.failure;
      }
    }
  }
}

// The rotated part of the keys and the latent part, which is also the values, are adjacent in a
// row: append takes them as the keys and the values of the same cache.
TEST(Mla, AppendsLatentAndRotatedColumns) {
  Random random(18);
  const TensorDesc cache = TensorDesc::contiguous(DType::f32, {kPages, 1, kPage, kRow});
  HostTensor rows(cache);
  rows.fill([] { return -1.0; });
  Append what;
  what.k_new = TensorDesc::contiguous(DType::f32, {1, 1, 2, kRotary});
  what.v_new = TensorDesc::contiguous(DType::f32, {1, 1, 2, kLatent});
  what.k = what.v = cache;
  what.k.shape[3] = kRotary;
  what.v.shape[3] = kLatent;
  what.seqlens_kv = ints(1);
  what.page_table = TensorDesc::contiguous(DType::i32, {1, 2});
  HostTensor k_new = normal(random, what.k_new), v_new = normal(random, what.v_new);
  HostTensor before = numbers({7}), table = numbers({3, 5});
  auto* const first = static_cast<float*>(rows.data());
  const Status status = append(what, {.k_new = k_new.data(),
                                      .v_new = v_new.data(),
                                      .k = first + kLatent,
                                      .v = first,
                                      .seqlens_kv = ints_of(before),
                                      .page_table = ints_of(table)});
  ASSERT_TRUE(status.ok()) << status.message();
  for (int64_t page = 0; page < kPages; ++page) {
    for (int64_t r = 0; r < kPage; ++r) {
      const int64_t row = page == 3 && r == 7 ? 0 : page == 5 && r == 0 ? 1 : -1;
      for (int64_t d = 0; d < kRow; ++d) {
        const double want = row < 0       ? -1.0
                            : d < kLatent ? v_new.get(row * kLatent + d)
                                          : k_new.get(row * kRotary + d - kLatent);
        ASSERT_EQ(rows.get((page * kPage + r) * kRow + d), want) << page << ' ' << r << ' ' << d;
      }
    }
  }
}

}  // namespace
}  // namespace flashcore
