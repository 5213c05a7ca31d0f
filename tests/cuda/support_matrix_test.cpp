// The tables of README.md and docs/forward-sm90.md that say which kernel the library chooses for each
// kind of problem, on each kind of device. They are made here and compared with the pages.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "plan/device.hpp"
#include "plan/kernel_choice.hpp"
#include "problem/backward.hpp"
#include "tools/launches/fake_runtime.hpp"
#include "tools/launches/runs.hpp"

namespace flashcore {
namespace {

struct Column {
  std::string title;
  std::vector<fake::Gpu> gpus;  // none: the CPU
};

struct Row {
  std::string title;
  std::vector<Problem> problems;
};

struct Shape {
  int64_t batch = 4, heads_q = 16, heads_kv = 16, seqlen_q = 4096, seqlen_kv = 4096;
  int64_t head_dim = 128, head_dim_v = 128;
};

constexpr DType kHalf[] = {DType::f16, DType::bf16};

Problem problem_of(DType dtype, const Shape& s = {}) {
  Problem p;
  p.q = TensorDesc::contiguous(dtype, {s.batch, s.heads_q, s.seqlen_q, s.head_dim});
  p.k = TensorDesc::contiguous(dtype, {s.batch, s.heads_kv, s.seqlen_kv, s.head_dim});
  p.v = TensorDesc::contiguous(dtype, {s.batch, s.heads_kv, s.seqlen_kv, s.head_dim_v});
  p.o = TensorDesc::contiguous(dtype, {s.batch, s.heads_q, s.seqlen_q, s.head_dim_v});
  p.lse = TensorDesc::contiguous(DType::f32, {s.batch, s.heads_q, s.seqlen_q});
  return p;
}

// change(problem) of an ordinary problem, in both 16-bit types.
template <class Change>
void add(std::vector<Problem>& problems, const Change& change, const Shape& shape = {}) {
  for (const DType dtype : kHalf) change(problems.emplace_back(problem_of(dtype, shape)));
}

std::vector<Problem> plain() {
  std::vector<Problem> all;
  for (const int64_t heads_kv : {16, 4, 1}) {
    const Shape shape{.heads_kv = heads_kv};
    add(
        all, [](Problem&) {}, shape);
    add(
        all, [](Problem& p) { p.causal = true; }, shape);
    add(
        all, [](Problem& p) { p.causal = true, p.window_left = 512; }, shape);
  }
  add(all, [](Problem&) {}, {.head_dim = 64, .head_dim_v = 64});
  add(all, [](Problem&) {}, {.head_dim = 256, .head_dim_v = 256});
  add(all, [](Problem&) {}, {.head_dim = 192, .head_dim_v = 128});
  return all;
}

std::vector<Problem> lengths() {
  std::vector<Problem> all;
  add(all,
      [](Problem& p) { p.seqlens_q = p.seqlens_kv = TensorDesc::contiguous(DType::i32, {4}); });
  add(all, [](Problem& p) {
    p.q = p.k = p.v = p.o = TensorDesc::contiguous(p.q.dtype, {16384, 16, 128});
    p.lse = TensorDesc::contiguous(DType::f32, {16384, 16});
    p.cu_seqlens_q = p.cu_seqlens_kv = TensorDesc::contiguous(DType::i32, {5});
  });
  return all;
}

std::vector<Problem> softcap_and_sinks() {
  std::vector<Problem> all;
  add(all, [](Problem& p) { p.softcap = 30; });
  add(all, [](Problem& p) { p.sinks = TensorDesc::contiguous(DType::f32, {16}); });
  return all;
}

std::vector<Problem> bias_and_masks() {
  std::vector<Problem> all;
  add(all, [](Problem& p) { p.bias = TensorDesc::contiguous(DType::f32, {1, 1, 4096, 4096}); });
  add(all, [](Problem& p) { p.mask = TensorDesc::contiguous(DType::boolean, {4, 1, 4096, 4096}); });
  add(all, [](Problem& p) { p.alibi_slopes = TensorDesc::contiguous(DType::f32, {16}); });
  add(all, [](Problem& p) { p.dropout_p = 0.1F; });
  return all;
}

std::vector<Problem> dropout_state() {
  std::vector<Problem> all;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    add(all, [&](Problem& p) {
      p.q.dtype = p.k.dtype = p.v.dtype = p.o.dtype = dtype;
      p.dropout_p = 0.1F;
      p.dropout_state = TensorDesc::contiguous(DType::i64, {2});
    });
  }
  return all;
}

std::vector<Problem> small() {
  std::vector<Problem> all;
  const auto causal = [](Problem& p) { p.causal = true; };
  const Shape narrow{1, 8, 8, 512, 512, 64, 64}, wide{1, 8, 8, 1024, 1024, 128, 128};
  for (const Shape& shape : {narrow, wide}) {
    add(
        all, [](Problem&) {}, shape);
    add(all, causal, shape);
  }
  return all;
}

std::vector<Problem> decode() {
  std::vector<Problem> all;
  add(all, [](Problem&) {}, {1, 32, 8, 1, 8192, 128, 128});
  return all;
}

// Pages by a table and by a list, padding on the left, fp8 keys and values.
std::vector<Problem> caches() {
  std::vector<Problem> all;
  const Shape shape{4, 32, 8, 1, 8192, 128, 128};
  const auto in_pages = [](Problem& p) {
    p.k = p.v = TensorDesc::contiguous(p.q.dtype, {2048, 8, 16, 128});
  };
  add(
      all,
      [&](Problem& p) {
        in_pages(p);
        p.page_table = TensorDesc::contiguous(DType::i32, {4, 512});
        p.seqlens_kv = TensorDesc::contiguous(DType::i32, {4});
      },
      shape);
  add(
      all,
      [&](Problem& p) {
        in_pages(p);
        p.kv_indptr = TensorDesc::contiguous(DType::i32, {5});
        p.kv_indices = TensorDesc::contiguous(DType::i32, {2048});
      },
      shape);
  add(
      all, [](Problem& p) { p.cache_leftpad = TensorDesc::contiguous(DType::i32, {4}); }, shape);
  add(
      all, [](Problem& p) { p.k.dtype = p.v.dtype = DType::f8e4m3; }, shape);
  return all;
}

// Many queries over pages of 16 and of 4 rows.
std::vector<Problem> chunks() {
  std::vector<Problem> all;
  for (const int64_t page_size : {16, 4}) {
    add(all,
        [&](Problem& p) {
          p.k = p.v = TensorDesc::contiguous(p.q.dtype, {2048, 8, page_size, 128});
          p.page_table = TensorDesc::contiguous(DType::i32, {4, 8192 / page_size});
          p.causal = true;
        },
        {4, 32, 8, 512, 8192, 128, 128});
  }
  return all;
}

std::vector<Problem> tree_masks() {
  std::vector<Problem> all;
  add(all,
      [](Problem& p) {
        p.tree_mask = TensorDesc::contiguous(DType::i32, {4, 1, 1});
      },
      {4, 32, 8, 1, 8192, 128, 128});
  return all;
}

// One head of keys, whose first columns are the values.
std::vector<Problem> mla() {
  std::vector<Problem> all;
  add(all, [](Problem& p) { p.v.stride = p.k.stride; }, {4, 16, 1, 1, 8192, 576, 512});
  return all;
}

std::vector<Problem> fp32() {
  std::vector<Problem> all;
  for (const auto& some : {plain(), lengths(), softcap_and_sinks(), bias_and_masks(), decode()}) {
    for (const Problem& one : some) {
      if (one.q.dtype != DType::f16) continue;
      Problem& p = all.emplace_back(one);
      p.q.dtype = p.k.dtype = p.v.dtype = p.o.dtype = DType::f32;
    }
  }
  return all;
}

Problem fp8(DType dtype, const Shape& shape = {}) {
  Problem p = problem_of(dtype, shape);
  p.o.dtype = DType::bf16;
  p.q_scale = TensorDesc::contiguous(DType::f32, {4, 16});
  p.k_scale = p.v_scale = TensorDesc::contiguous(DType::f32, {4, 16, 1});
  return p;
}

// Full and causal, lengths and a window, sinks; and the other head dimension.
std::vector<Problem> plain_e4m3() {
  std::vector<Problem> all(4, fp8(DType::f8e4m3));
  all[1].causal = true;
  all[2].window_left = 64;
  all[2].seqlens_kv = TensorDesc::contiguous(DType::i32, {4});
  all[3].sinks = TensorDesc::contiguous(DType::f32, {16});
  all.push_back(fp8(DType::f8e4m3, {.head_dim = 64, .head_dim_v = 64}));
  return all;
}

// e5m2, and e4m3 with a softcap.
std::vector<Problem> other_fp8() {
  std::vector<Problem> all = {fp8(DType::f8e5m2), fp8(DType::f8e4m3)};
  all[1].softcap = 30;
  return all;
}

// A scale of O, and each of the largest values.
std::vector<Problem> more_outputs(const std::vector<Problem>& problems) {
  std::vector<Problem> all;
  for (const Problem& one : problems) {
    const TensorDesc heads = TensorDesc::contiguous(DType::f32, {4, 16});
    all.emplace_back(one).amax_o = heads;
    all.emplace_back(one).amax_s = heads;
    Problem& scaled = all.emplace_back(one);
    scaled.o.dtype = DType::f8e4m3;
    scaled.o_scale = heads;
  }
  return all;
}

std::vector<Problem> largest_scores() {
  std::vector<Problem> all = {problem_of(DType::f16), problem_of(DType::bf16)};
  for (Problem& one : all) one.max_logit = TensorDesc::contiguous(DType::f32, {4, 16});
  return all;
}

PlanContext on_cpu() {
  PlanContext context;
  context.device = cpu_device();
  context.threads = 1;
  return context;
}

Gradients gradients_of(const Problem& p) {
  Gradients gradients;
  gradients.d_o = p.o;
  gradients.dq = p.q;
  gradients.dk = p.k;
  gradients.dv = p.v;
  return gradients;
}

enum class Pass { forward, backward };

// The name of the kernel that is chosen, or "-".
template <class AnyProblem>
std::string chosen(const Result<AnyProblem>& resolved, const PlanContext& context) {
  EXPECT_TRUE(resolved.ok()) << resolved.status().message();
  if (!resolved.ok()) return "?";
  const Variant* const kernel = choose_kernel(*resolved, context).kernel;
  return kernel == nullptr ? "-" : fmt::format("`{}`", kernel->name);
}

// The chosen kernels of all problems, each once.
std::string cell(const std::vector<Problem>& problems, const Column& column, Pass pass) {
  std::vector<PlanContext> contexts;
  if (column.gpus.empty()) contexts.push_back(on_cpu());
  for (const fake::Gpu& gpu : column.gpus) contexts.push_back(fake::context_of(gpu));
  std::vector<std::string> names;
  for (const PlanContext& context : contexts) {
    for (const Problem& problem : problems) {
      std::string name = pass == Pass::forward
                             ? chosen(resolve(problem), context)
                             : chosen(resolve(problem, gradients_of(problem)), context);
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

const fake::Gpu kHopper{90, 132, 227 * 1024};

std::string head_of(const std::string& first, const std::vector<std::string>& titles) {
  std::string text = fmt::format("| {} |", first), line = "| --- |";
  for (const std::string& title : titles) text += fmt::format(" {} |", title), line += " --- |";
  return text + "\n" + line + "\n";
}

std::string table(Pass pass, const std::vector<Row>& rows) {
  const std::vector<Column> columns = {
      {"CPU", {}},
      {"Ampere, Ada (8.x)", {{80, 108, 163 * 1024}, {86, 84, 99 * 1024}, {89, 58, 99 * 1024}}},
      {"Hopper (9.0)", {kHopper}},
      {"Later, by PTX (10.x, 12.x)", {{100, 148, 227 * 1024}, {120, 188, 99 * 1024}}}};
  std::vector<std::string> titles;
  for (const Column& column : columns) titles.push_back(column.title);
  std::string text = head_of(pass == Pass::forward ? "forward" : "backward", titles);
  for (const Row& row : rows) {
    text += fmt::format("| {} |", row.title);
    for (const Column& column : columns) {
      text += fmt::format(" {} |", cell(row.problems, column, pass));
    }
    text += "\n";
  }
  return text;
}

std::string forward_table() {
  return table(
      Pass::forward,
      {{"f16, bf16: full, causal, windows, GQA, LSE, head_dim up to 256", plain()},
       {"... packed batches, sequence lengths", lengths()},
       {"... softcap, sinks", softcap_and_sinks()},
       {"... bias, boolean masks, ALiBi, dropout", bias_and_masks()},
       {"... dropout with its seed in the device's memory, f32 too", dropout_state()},
       {"... 8 heads of 512 or 1024 tokens", small()},
       {"... decode: one query against 8192 keys", decode()},
       {"... caches: pages, padding on the left, fp8 keys and values", caches()},
       {"... 512 queries over pages of 16 and of 4 rows", chunks()},
       {"... tree masks", tree_masks()},
       {"... MLA: keys of 576 elements, values their first 512", mla()},
       {"... the largest score of each head", largest_scores()},
       {"f32, every feature", fp32()},
       {"fp8 e4m3, head_dim 64 and 128, scales per head: full, causal, windows, GQA, lengths, "
        "sinks, LSE",
        plain_e4m3()},
       {"... every other feature, e5m2", other_fp8()},
       {"... an O of fp8 with a scale, largest values", more_outputs({fp8(DType::f8e4m3)})},
       {"other types: an O of fp8 with a scale, largest values",
        more_outputs({problem_of(DType::f16), problem_of(DType::bf16)})}});
}

std::string backward_table() {
  return table(Pass::backward,
               {{"f16, bf16: full, causal, windows, GQA, head_dim up to 256", plain()},
                {"... packed batches, sequence lengths", lengths()},
                {"... softcap, sinks", softcap_and_sinks()},
                {"... bias, boolean masks, ALiBi, dropout", bias_and_masks()},
                {"... 8 heads of 512 or 1024 tokens", small()},
                {"f32, every feature", fp32()}});
}

// Few queries, by how many keys they see.
std::string few_queries_table() {
  constexpr int64_t kKeys[] = {2048, 8192};
  std::vector<std::string> titles;
  for (const int64_t keys : kKeys) titles.push_back(fmt::format("{}k keys", keys / 1024));
  std::string text = head_of("32 heads over 8, head_dim 128", titles);
  for (const int64_t batch : {1, 64}) {
    for (const int64_t queries : {1, 16, 64}) {
      text +=
          fmt::format("| {}, {} |", queries == 1 ? "1 query" : fmt::format("{} queries", queries),
                      batch == 1 ? "1 sequence" : fmt::format("{} sequences", batch));
      for (const int64_t keys : kKeys) {
        std::vector<Problem> problems;
        add(problems, [](Problem&) {}, {batch, 32, 8, queries, keys, 128, 128});
        text += fmt::format(" {} |", cell(problems, {"", {kHopper}}, Pass::forward));
      }
      text += "\n";
    }
  }
  return text;
}

// The part of a page between the markers of this name is `wanted`.
void check_part(const std::string& page, const std::string& name, const std::string& wanted) {
  std::ifstream file(std::filesystem::path(FLASHCORE_ROOT) / page);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::string before = fmt::format("<!-- tested: {} -->\n", name);
  const std::string after = fmt::format("<!-- end: {} -->\n", name);
  const size_t begin = text.find(before), end = text.find(after);
  ASSERT_TRUE(begin != std::string::npos && end != std::string::npos && begin < end)
      << page << ": wanted the markers\n"
      << before << after;
  const size_t first = begin + before.size();
  EXPECT_EQ(text.substr(first, end - first), wanted) << page;
}

TEST(SupportMatrix, OfTheReadmeIsWhatTheLibraryChooses) {
  check_part("README.md", "support matrix", forward_table());
}

TEST(SupportMatrix, GradientsOfTheReadmeAreWhatTheLibraryChooses) {
  check_part("README.md", "gradients", backward_table());
}

TEST(SupportMatrix, FewQueriesOnHopperAreWhatTheLibraryChooses) {
  check_part("docs/forward-sm90.md", "few queries", few_queries_table());
}

}  // namespace
}  // namespace flashcore
