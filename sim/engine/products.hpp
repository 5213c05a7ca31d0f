// wgmma: products of a warpgroup that run while its threads continue.
// Each warp computes its 16 rows; all 64 rows of A count as read by each.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/machine.hpp"
#include "engine/matrix.hpp"

namespace flashcore::sim {

struct ProductOptions {
  ElementType type = ElementType::f16;
  int columns = 0;
  bool overwrite = false;
  bool b_is_mn_major = false;
  bool a_is_mn_major = false;  // for an A in shared memory
};

void fence_products(Site site);
// `a` is null if A is in shared memory, at `a_descriptor`.
void issue_product(float* d, const uint32_t* a, uint64_t a_descriptor, uint64_t b_descriptor,
                   const ProductOptions& options, Site site);
void commit_products(Site site);
void wait_products(size_t pending_groups, Site site);

// The wgmma.fence of all warps are counted, and an access of a thread's own stack records
// the count at its register: a product that uses it later needs a wgmma.fence in between.
inline uint32_t fences = 0;

// An ordinary access of memory that this warp's products
// may use: it must not be one of their registers.
void on_access_to_products(Thread& thread, const void* address, uint32_t bytes, Site site);

}  // namespace flashcore::sim
