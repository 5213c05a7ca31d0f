#include "bench/run/one_piece.hpp"

#include <algorithm>
#include <utility>

namespace flashcore::bench {

Problem in_one_piece(const Problem& problem) {
  if (!problem.page_table) return problem;
  Problem whole = problem;
  const int64_t batch = problem.q.shape[0], heads = problem.k.shape[1];
  for (TensorDesc* const rows : {&whole.k, &whole.v}) {
    *rows =
        TensorDesc::contiguous(rows->dtype, {batch, heads, problem.max_seqlen_kv, rows->shape[3]});
  }
  if (v_is_in_k(problem)) whole.v = first_columns(whole.k, problem.v.shape[3]);
  whole.page_table.reset();
  whole.max_seqlen_kv = 0;
  return whole;
}

ReadElements in_one_piece(const Problem& problem, ReadElements inputs) {
  if (!problem.page_table) return inputs;
  return
      [problem, inputs = std::move(inputs)](std::string_view name, int64_t begin, HostTensor& to) {
        if (name != "k" && name != "v") return inputs(name, begin, to);
        const int64_t heads = problem.k.shape[1], page_size = problem.k.shape[2];
        const int64_t keys = problem.max_seqlen_kv, pages = problem.page_table->shape[1];
        const int64_t width = name == "k" ? problem.k.shape[3] : problem.v.shape[3];
        HostTensor row(TensorDesc::contiguous(to.desc().dtype, {width}));
        HostTensor page(TensorDesc::contiguous(DType::i32, {1}));
        auto out = to.bytes().begin();
        for (int64_t n = begin / width; n < (begin + to.elements()) / width; ++n) {
          const int64_t key = n % keys, head = n / keys % heads, entry = n / keys / heads;
          if (key % page_size == 0 || n == begin / width) {
            inputs("page_table", entry * pages + key / page_size, page);
          }
          const int64_t place = static_cast<int64_t>(page.get(0)) * page_size + key % page_size;
          inputs(name, (place * heads + head) * width, row);
          out = std::copy(row.bytes().begin(), row.bytes().end(), out);
        }
      };
}

}  // namespace flashcore::bench
