// cp.async: 16-byte copies that a thread issues in groups.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/site.hpp"

namespace flashcore::sim {

// shared[0..15] = from[0..15]; zeros if `from` is null.
void issue_cp_async(uint32_t shared, const void* from, Site site);
void commit_cp_async();
void wait_cp_async(size_t pending_groups);

// Arrives when all copies of this thread have landed.
void arrive_after_cp_async(uint32_t mbarrier, Site site);

}  // namespace flashcore::sim
