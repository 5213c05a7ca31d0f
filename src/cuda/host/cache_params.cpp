#include "cuda/host/cache_params.hpp"

#include <algorithm>
#include <cstdint>

#include "cuda/attention/divisor.hpp"

namespace flashcore::cuda::host {

attention::Divisor divisor_of(int64_t d) {
  return attention::divisor(static_cast<uint32_t>(std::clamp<int64_t>(d, 1, INT32_MAX)));
}

void set_cache_params(attention::KvCacheParams& cache, const ForwardProblem& p) {
  const Paging& paging = p.paging;
  cache.table_batch = paging.flat ? 0 : paging.table_batch;
  cache.table_page = paging.table_page;
  cache.flat = paging.present && paging.flat;
  cache.table_pages = static_cast<int>(paging.table_pages);
  cache.num_pages = static_cast<int>(paging.num_pages);
  cache.page_size = static_cast<int>(paging.page_size);
  cache.by_page_size = divisor_of(paging.page_size);
  cache.indptr.step = p.kv_indptr.batch;
  cache.last_page_len.step = p.kv_last_page_len.batch;
  cache.leftpad.step = p.cache_leftpad.batch;
}

void bind_cache_params(attention::KvCacheParams& cache, const ForwardProblem& p,
                       const Arguments& args) {
  if (p.paging.present) cache.pages = p.paging.flat ? args.kv_indices : args.page_table;
  cache.indptr.data = p.kv_indptr.present ? args.kv_indptr : nullptr;
  cache.last_page_len.data = p.kv_last_page_len.present ? args.kv_last_page_len : nullptr;
  cache.leftpad.data = p.cache_leftpad.present ? args.cache_leftpad : nullptr;
  cache.page_status = p.page_status.present ? args.page_status : nullptr;
}

}  // namespace flashcore::cuda::host
