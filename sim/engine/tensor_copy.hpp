// Copies of tensor boxes (TMA), of bytes in a row and of words to other blocks (st.async).
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/site.hpp"
#include "engine/tensor_map.hpp"

namespace flashcore::sim {

// Somebody wrote the map. PTX wants that only of one that a copy uses; here also of one that is
// fetched ahead.
void check_map(const void* map, Site site);

// The box at `at` goes to shared memory of each block of the cluster in `blocks` (0: the own), at
// the same address, and its bytes count at the mbarrier at the same address there.
void load_box(uint32_t shared, const void* map, uint32_t mbarrier, uint32_t blocks,
              const TensorCoordinates& at, Site site);

void store_box(const void* map, uint32_t shared, const TensorCoordinates& at, Site site);
void commit_stores();
// Until at most so many groups have yet to read their shared memory, or to write what they have read.
void wait_stores_read(size_t pending_groups);
void wait_stores_written(size_t pending_groups);

// `bytes` in a row, a multiple of 16 at one, to shared memory, counted at an mbarrier.
void load_bytes(uint32_t shared, const void* global, uint32_t bytes, uint32_t mbarrier, Site site);

// The same from shared memory, as a bulk store.
void store_bytes(void* global, uint32_t shared, uint32_t bytes, Site site);

// Adds fp32 numbers in shared memory to those at `global`, one by one: a bulk store that nobody
// else's atomic operations race with.
void add_floats(float* global, uint32_t shared, uint32_t bytes, Site site);

// `bytes` (4, 8 or 16) at `from` to a cluster address, counted at an mbarrier of that block.
void store_async(uint32_t shared, const void* from, uint32_t bytes, uint32_t mbarrier, Site site);

}  // namespace flashcore::sim
