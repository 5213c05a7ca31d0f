#include "bench/cases/random_cache.hpp"

#include <algorithm>
#include <limits>
#include <optional>

#include "bench/cases/random_layout.hpp"

namespace flashcore::bench {
namespace {

bool is_fp8(DType dtype) { return size_of(dtype) == 1; }

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t number(const HostProblem& host, std::string_view name, int64_t i) {
  return static_cast<int64_t>(host.at(name).get(i));
}

TensorDesc ints(int64_t count) { return TensorDesc::contiguous(DType::i32, {count}); }

void draw_kv_scales(Random& random, Problem& problem, int64_t lead, int64_t rows) {
  const int64_t heads = problem.k.shape[1];
  const auto one_or = [&](int64_t extent) { return random.chance(0.5) ? 1 : extent; };
  problem.kv_scale_block = random.chance(0.5) ? 0 : random.pick<int64_t>({1, 3, 16, 32});
  const int64_t block =
      problem.kv_scale_block == 0 ? std::max<int64_t>(rows, 1) : problem.kv_scale_block;
  for (std::optional<TensorDesc>* const scale : {&problem.k_scale, &problem.v_scale}) {
    scale->reset();
    if (random.chance(0.2)) continue;
    const int64_t leads = one_or(lead), all_heads = one_or(heads);
    *scale = TensorDesc::contiguous(DType::f32, {leads, all_heads, one_or(divide_up(rows, block))});
  }
}

// From one word too few for the queries to one too many.
TensorDesc random_tree_mask(Random& random, const Problem& problem) {
  const bool packed = problem.cu_seqlens_q.has_value();
  const int64_t rows = problem.q.shape[packed ? 0 : 2];
  const int64_t words = std::max<int64_t>(0, divide_up(rows, 32) + random.integer(-1, 1));
  const int64_t gap = random.chance(0.3) ? random.integer(1, 3) : 0;
  if (packed) return TensorDesc::strided(DType::i32, {rows, words}, {words + gap, 1});
  const int64_t batch = random.chance(0.3) ? 1 : problem.q.shape[0];
  return TensorDesc::strided(DType::i32, {batch, rows, words},
                             {rows * (words + gap), words + gap, 1});
}

// Sets three bits in four, so that few rows see no key.
void fill_tree_mask(Random& random, HostProblem& host) {
  if (!host.problem.tree_mask) return;
  host.at("tree_mask").fill([&] {
    return static_cast<double>(static_cast<int32_t>(random.bits() | random.bits()));
  });
}

// The number of rows that an entry has room for.
int64_t rows_of_entry(const Problem& problem) {
  if (problem.max_seqlen_kv > 0) return problem.max_seqlen_kv;
  if (problem.page_table) return problem.page_table->shape[1] * problem.k.shape[2];
  if (problem.kv_indices) return problem.kv_indices->shape[0] * problem.k.shape[2];
  return problem.k.shape[problem.cu_seqlens_kv ? 0 : 2];
}

void fill_lengths(Random& random, HostProblem& host) {
  const Problem& problem = host.problem;
  const int64_t batch = cache_entries(problem);
  int64_t largest = rows_of_entry(problem);
  if (problem.kv_indices) {
    const int64_t page = problem.k.shape[2];
    const int64_t pages = problem.kv_indices->shape[0] / std::max<int64_t>(batch, 1);
    largest = std::min(largest, pages * page);
    // Together with lengths, a list may be longer than any entry.
    const int64_t most = problem.seqlens_kv ? pages * page : largest;
    int64_t at = 0;
    host.at("kv_indptr").set(0, 0);
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t rows = random.chance(0.1) ? 0 : random.integer(0, most);
      const bool last = problem.kv_last_page_len.has_value();
      const int64_t used = last ? divide_up(rows, page) : rows / page;
      at += used;
      host.at("kv_indptr").set(b + 1, static_cast<double>(at));
      // Not read if the entry has no page.
      if (last) {
        host.at("kv_last_page_len")
            .set(b, used == 0 ? -7.0 : static_cast<double>(rows - (used - 1) * page));
      }
    }
  }
  if (problem.seqlens_kv) {
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t rows = random.chance(0.1) ? 0 : random.integer(0, largest);
      host.at("seqlens_kv").set(b, static_cast<double>(rows));
    }
  }
  if (problem.cache_leftpad) {
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t most = random.chance(0.2) ? largest : std::min<int64_t>(largest, 20);
      host.at("cache_leftpad").set(b, static_cast<double>(random.integer(0, most)));
    }
  }
}

// Out-of-range indices wherever no run may read them, and with a page status also elsewhere.
void fill_table(Random& random, HostProblem& host) {
  const Problem& problem = host.problem;
  if (!problem.page_table && !problem.kv_indices) return;
  const int64_t pages = problem.k.shape[0], page = problem.k.shape[2];
  HostTensor& table = host.at(problem.page_table ? "page_table" : "kv_indices");
  const auto garbage = [&] {
    return static_cast<double>(
        random.pick<int64_t>({-1, pages, pages + 7, std::numeric_limits<int32_t>::min(),
                              std::numeric_limits<int32_t>::max()}));
  };
  table.fill(garbage);
  for (int64_t b = 0; b < cache_entries(problem); ++b) {
    const CacheKeys keys = cache_keys(host, b);
    if (keys.last <= keys.first) continue;
    const int64_t pad = problem.cache_leftpad ? number(host, "cache_leftpad", b) : 0;
    const int64_t first =
        problem.page_table ? b * problem.page_table->shape[1] : number(host, "kv_indptr", b);
    for (int64_t n = (pad + keys.first) / page; n <= (pad + keys.last - 1) / page; ++n) {
      const bool wrong = problem.page_status && random.chance(0.05);
      table.set(first + n, wrong ? garbage() : static_cast<double>(random.integer(0, pages - 1)));
    }
  }
}

// Numbers in the visible rows; every other byte is NaN, also in scales.
void fill_rows(Random& random, HostProblem& host) {
  const Problem& problem = host.problem;
  const int64_t heads = problem.k.shape[1];
  for (const char* const name : {"k", "v"}) host.at(name).poison();
  for (int64_t b = 0; b < cache_entries(problem); ++b) {
    const CacheKeys keys = cache_keys(host, b);
    bool clamped = false;
    for (int64_t j = keys.first; j < keys.last; ++j) {
      const CacheRow at = cache_row(host, b, j, clamped);
      for (const char* const name : {"k", "v"}) {
        HostTensor& tensor = host.at(name);
        const auto& shape = tensor.desc().shape;
        const int64_t width = shape[static_cast<size_t>(tensor.desc().rank - 1)];
        for (int64_t h = 0; h < heads; ++h) {
          const int64_t row = problem.cu_seqlens_kv ? at.row * heads + h
                                                    : (at.lead * heads + h) * shape[2] + at.row;
          for (int64_t d = 0; d < width; ++d) tensor.set(row * width + d, random.normal());
        }
      }
    }
  }
}

}  // namespace

int64_t cache_entries(const Problem& problem) {
  return problem.cu_seqlens_q ? problem.cu_seqlens_q->shape[0] - 1 : problem.q.shape[0];
}

CacheKeys cache_keys(const HostProblem& host, int64_t b) {
  const Problem& problem = host.problem;
  int64_t rows = rows_of_entry(problem);
  if (problem.kv_indices) {
    const int64_t pages = number(host, "kv_indptr", b + 1) - number(host, "kv_indptr", b);
    rows = pages * problem.k.shape[2];
    if (problem.kv_last_page_len && pages > 0) {
      rows += number(host, "kv_last_page_len", b) - problem.k.shape[2];
    }
  }
  if (problem.cu_seqlens_kv) {
    rows = number(host, "cu_seqlens_kv", b + 1) - number(host, "cu_seqlens_kv", b);
  }
  if (problem.seqlens_kv) rows = std::min(rows, number(host, "seqlens_kv", b));
  if (problem.cache_leftpad) {
    rows = std::max<int64_t>(0, rows - number(host, "cache_leftpad", b));
  }
  int64_t queries = problem.cu_seqlens_q
                        ? number(host, "cu_seqlens_q", b + 1) - number(host, "cu_seqlens_q", b)
                        : problem.q.shape[2];
  if (problem.seqlens_q) queries = std::min(queries, number(host, "seqlens_q", b));
  const int64_t offset = problem.alignment == Alignment::top_left       ? 0
                         : problem.alignment == Alignment::bottom_right ? rows - queries
                         : problem.causal_offsets ? number(host, "causal_offsets", b)
                                                  : problem.causal_offset;
  CacheKeys keys{.in_use = rows, .first = rows, .last = 0};
  for (int64_t i = 0; i < queries; ++i) {
    for (int64_t j = 0; j < rows; ++j) {
      if (problem.causal && j > i + offset) continue;
      if (problem.window_left >= 0 && j < i + offset - problem.window_left) continue;
      if (problem.window_right >= 0 && j > i + offset + problem.window_right) continue;
      keys.first = std::min(keys.first, j);
      keys.last = std::max(keys.last, j + 1);
    }
  }
  return keys;
}

CacheRow cache_row(const HostProblem& host, int64_t b, int64_t key, bool& was_clamped) {
  const Problem& problem = host.problem;
  const int64_t row = key + (problem.cache_leftpad ? number(host, "cache_leftpad", b) : 0);
  if (problem.cu_seqlens_kv) return {0, row + number(host, "cu_seqlens_kv", b)};
  if (!problem.page_table && !problem.kv_indices) return {b, row};
  const int64_t page = problem.k.shape[2], pages = problem.k.shape[0];
  const int64_t index =
      problem.page_table ? number(host, "page_table", b * problem.page_table->shape[1] + row / page)
                         : number(host, "kv_indices", number(host, "kv_indptr", b) + row / page);
  if (index < 0 || index >= pages) was_clamped = true;
  return {std::clamp<int64_t>(index, 0, pages - 1), row % page};
}

Problem with_random_cache(Random& random, Problem problem, int64_t bound_kv, bool aligned) {
  const bool narrow = !is_fp8(problem.q.dtype) && random.chance(0.35);
  const DType dtype = narrow ? random.pick({DType::f8e4m3, DType::f8e5m2}) : problem.q.dtype;
  const size_t width = static_cast<size_t>(problem.k.rank - 1);
  const int64_t heads = problem.k.shape[1];
  const int64_t dqk = problem.k.shape[width], dv = problem.v.shape[width];
  const int64_t batch = cache_entries(problem);
  problem.k.dtype = problem.v.dtype = dtype;
  if (random.chance(0.3)) problem.cache_leftpad = ints(batch);
  if (random.chance(0.2)) problem.tree_mask = random_tree_mask(random, problem);
  if (random.chance(0.1)) {  // in one piece
    if (narrow) {
      const bool packed = problem.cu_seqlens_kv.has_value();
      draw_kv_scales(random, problem, packed ? batch : problem.k.shape[0], bound_kv);
    }
    return problem;
  }
  const bool one_column = random.chance(0.1);  // cache_batch_idx
  const bool flat = !one_column && random.chance(0.3);
  const int64_t page = one_column
                           ? std::max<int64_t>(bound_kv, 1)
                           : random.pick<int64_t>({1, 2, 3, 5, 8, 16, 16, 17, 32, 64, 128, 256});
  int64_t columns = divide_up(bound_kv, page);
  if (!one_column && bound_kv > 0) columns += random.integer(0, 2);
  problem.cu_seqlens_kv.reset();
  problem.max_seqlen_kv = 0;
  const bool described = problem.bias.has_value() || problem.mask.has_value();
  if (described || random.chance(0.5)) problem.max_seqlen_kv = bound_kv;
  const int64_t listed = std::max<int64_t>(batch, 1) * columns + (flat ? random.integer(0, 3) : 0);
  if (flat) {
    problem.kv_indptr = ints(batch + 1);
    problem.kv_indices = ints(bound_kv == 0 ? 0 : listed);
    if (random.chance(0.8)) problem.kv_last_page_len = ints(batch);
  } else {
    problem.page_table = TensorDesc::contiguous(DType::i32, {batch, columns});
    if (random.chance(0.2)) {  // a view of a wider table
      problem.page_table->stride[0] = columns + random.integer(1, 4);
    }
  }
  problem.seqlens_kv.reset();
  if (random.chance(flat ? 0.2 : 0.85)) problem.seqlens_kv = ints(batch);
  const int64_t pages = random.chance(0.3) ? random.integer(1, std::max<int64_t>(1, listed))
                                           : std::max<int64_t>(1, listed) + random.integer(0, 4);
  problem.k = random_layout(random, dtype, pages, heads, page, dqk, aligned);
  problem.v = random_layout(random, dtype, pages, heads, page, dv, aligned);
  problem.kv_scale_block = 0;
  problem.k_scale.reset();
  problem.v_scale.reset();
  if (is_fp8(dtype)) draw_kv_scales(random, problem, pages, page);
  if (random.chance(0.3)) problem.page_status = ints(1);
  return problem;
}

void fill_random_cache(Random& random, HostProblem& host) {
  fill_lengths(random, host);
  fill_table(random, host);
  fill_rows(random, host);
  fill_tree_mask(random, host);
}

}  // namespace flashcore::bench
