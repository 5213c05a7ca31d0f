// Fills the slots: a unit's rows of Q, then its keys, then the next unit's. One warp, whose first eight
// lanes have a group of 8 rows each: they look a group's page up one tile before they copy it.
#pragma once

#include <cstdint>

#include "cuda/attention/decode/inputs.cuh"
#include "cuda/mla_sm90/latent/block.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/special.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/tma_policy.cuh"

namespace flashcore::cuda::mla_sm90::latent {

class Loader {
 public:
  __device__ Loader(const Params& p, const Maps& maps, const Block& block)
      : p_(p), maps_(maps), block_(block) {}

  __device__ void begin() {
#pragma unroll 1
    for (uint32_t slot = 0; slot < kSlots && more(); ++slot) load(slot);
  }

  // Returns whether there is more to load.
  __device__ bool more() const { return unit_ < block_.count; }

  // Loads the next tile.
  __device__ void load(uint32_t slot) {
    const uint32_t full = block_.full(slot);
    const int lane = ptx::thread_index() % 32;
    const uint32_t to = block_.slot(slot) + static_cast<uint32_t>(lane) * kGroupBytes;
    const Unit& unit = block_.units[unit_];
    if (lane == 0) ptx::mbarrier_arrive_expect(full, kSlotBytes);
    __syncwarp();
    if (key_ >= 0) {
      if (lane < kGroups) {
        ptx::tma_load_5d_policy(to, &maps_.k, full, p_.policy, 0, row_, 0, 0, lead_);
      }
      key_ += kTileKeys;
    } else {
      const int batch = p_.cu_seqlens_q.data != nullptr ? 0 : unit.batch;
      if (lane < kGroups) {
        ptx::tma_load_5d(to, &maps_.q, full, 0, block_.first_head + kGroupRows * lane, 0,
                         unit.q_row, batch);
      }
      key_ = uniform(unit.begin) / kTileKeys * kTileKeys;
    }
    if (key_ < uniform(unit.end)) {
      find(unit);
    } else {
      ++unit_;
      key_ = -1;
    }
  }

 private:
  // Finds this lane's box of a tile of keys.
  __device__ void find(const Unit& unit) {
    const int lane = ptx::thread_index() % 32, key = key_ + kGroupRows * lane;
    row_ = p_.rows_of_lead;  // zeros
    lead_ = 0;
    if (lane >= kGroups || key >= unit.end || key + kGroupRows <= unit.begin) return;
    attention::CachedEntry at{};
    at.entry.kv_row = unit.kv_row;
    at.in_table = unit.in_table;
    const attention::decode::KeyPlace place =
        attention::decode::find_place<false>(p_, at, unit.batch, 0, key);
    row_ = place.row;
    lead_ = p_.cu_seqlens_kv.data != nullptr ? 0 : place.lead;
  }

  const Params& p_;
  const Maps& maps_;
  const Block& block_;
  int unit_ = 0, key_ = -1;  // the next tile; -1: the unit's Q
  int row_ = 0, lead_ = 0;   // of its box
};

}  // namespace flashcore::cuda::mla_sm90::latent
