// A fault found by the simulator: its kind, the line where it was detected and the other line involved.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/site.hpp"

namespace flashcore::sim {

enum class Fault {
  // Shared memory.
  outside_shared_memory,  // beyond the launch's size
  misaligned_access,
  read_of_unwritten_bytes,
  race,                     // two unordered accesses of a word, at least one a write
  read_of_bytes_in_flight,  // before the wait that orders the copy
  write_to_bytes_in_flight,
  write_to_operand_in_use,     // while an asynchronous operation reads it
  missing_proxy_fence,         // ordinary writes, then a tensor copy or wgmma
  left_with_copies_in_flight,  // a block exited before the end of a copy that it started
  left_with_stores_unread,     // before its bulk stores have read shared memory
  too_much_shared_memory,      // more than a block may have
  not_shared_memory,           // an address of something else
  // Collectives and barriers.
  divergent_collective,     // lanes of a warp meet at different instructions
  collective_without_lane,  // a lane of the mask has left, or calls without its own bit
  barrier_counts_differ,
  barrier_misused,  // its index or its thread count
  launch_refused,   // the CUDA runtime would refuse it, too
  deadlock,
  // Transaction barriers.
  no_mbarrier,             // not initialised, or not yet visible
  mbarrier_not_published,  // to the asynchronous proxy or the cluster
  too_many_arrivals,
  arrival_out_of_phase,  // by a thread that cannot know that the previous phase is complete
  phase_waited_for_twice,
  mbarrier_overwritten,  // initialised again while in use
  // Clusters.
  remote_access_before_start,  // of a block that may not have started
  remote_access_after_end,
  // Tensor copies.
  no_tensor_map,
  misaligned_copy,
  store_before_tensor,  // a coordinate of the box is negative
  // wgmma.
  missing_wgmma_fence,
  register_in_flight,  // an accumulator or A register accessed before the wait
  descriptor_not_uniform,
  misaligned_descriptor,
  left_with_products_in_flight,
  warpgroup_incomplete,  // not all four warps participated
  divergent_warpgroup,   // its warps are at different instructions
  // Registers and grids.
  too_many_registers,
  register_count_misused,  // release_registers that acquires, acquire_registers that releases
  left_without_waiting_for_grid,
  outside_global_memory,  // outside of every allocation
  trap,
};

const char* name(Fault fault);

struct Finding {
  Fault fault;
  std::string text;    // "race: forward.cuh:12 reads ..., forward.cuh:30 wrote ..."
  uint64_t count = 0;  // number of times at these two lines
};

// Findings in the order of their first occurrence; one per kind and pair of lines.
class Findings {
 public:
  // `here`: where it was detected; `other`: the other line involved, which may be unknown.
  void add(Fault fault, Site here, Site other, const std::string& what);

  bool empty() const { return all_.empty(); }
  bool has(Fault fault) const;
  const std::vector<Finding>& all() const { return all_; }
  std::string text() const;  // one line each

 private:
  std::map<std::pair<Fault, std::pair<uint64_t, uint64_t>>, size_t> index_;
  std::vector<Finding> all_;
};

}  // namespace flashcore::sim
