// Copies of tensor boxes (TMA), of contiguous bytes and of words to other blocks (st.async).
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/site.hpp"
#include "engine/tensor_map.hpp"

namespace flashcore::sim {

// Checks that the map has been written. PTX requires that only for a
// map that a copy uses; here, it is also required for a prefetched map.
void check_map(const void* map, Site site);

// Copies the box at `at` to shared memory of each block of the cluster in `blocks` (0: the
// own), at the same address; its bytes count at the mbarrier at the same address there.
void load_box(uint32_t shared, const void* map, uint32_t mbarrier, uint32_t blocks,
              const TensorCoordinates& at, Site site);

void store_box(const void* map, uint32_t shared, const TensorCoordinates& at, Site site);
void commit_stores();
// Waits until at most pending_groups have not yet read their shared memory, or written their data.
void wait_stores_read(size_t pending_groups);
void wait_stores_written(size_t pending_groups);

// Copies contiguous `bytes`, a multiple of 16 at one, to shared memory, counted at an mbarrier.
void load_bytes(uint32_t shared, const void* global, uint32_t bytes, uint32_t mbarrier, Site site);

// Copies bytes from shared memory, as a bulk store.
void store_bytes(void* global, uint32_t shared, uint32_t bytes, Site site);

// Adds fp32 numbers in shared memory to those at `global`, one by
// one: a bulk store that does not race with atomic operations.
void add_floats(float* global, uint32_t shared, uint32_t bytes, Site site);

// Copies `bytes` (4, 8 or 16) at `from` to a cluster address, counted at an mbarrier of that block.
void store_async(uint32_t shared, const void* from, uint32_t bytes, uint32_t mbarrier, Site site);

}  // namespace flashcore::sim
