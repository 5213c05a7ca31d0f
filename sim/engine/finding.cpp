#include "engine/finding.hpp"

#include <algorithm>

namespace flashcore::sim {

const char* name(Fault fault) {
  switch (fault) {
    case Fault::outside_shared_memory:
      return "outside of shared memory";
    case Fault::misaligned_access:
      return "misaligned access";
    case Fault::read_of_unwritten_bytes:
      return "read of unwritten shared memory";
    case Fault::race:
      return "race";
    case Fault::read_of_bytes_in_flight:
      return "read of bytes in flight";
    case Fault::write_to_bytes_in_flight:
      return "write to bytes in flight";
    case Fault::write_to_operand_in_use:
      return "write to an operand in use";
    case Fault::missing_proxy_fence:
      return "missing fence.proxy.async";
    case Fault::left_with_copies_in_flight:
      return "left with copies in flight";
    case Fault::left_with_stores_unread:
      return "left before bulk stores had read";
    case Fault::too_much_shared_memory:
      return "too much shared memory";
    case Fault::not_shared_memory:
      return "not an address of shared memory";
    case Fault::divergent_collective:
      return "divergent collective";
    case Fault::collective_without_lane:
      return "collective without all its lanes";
    case Fault::barrier_counts_differ:
      return "barrier counts differ";
    case Fault::barrier_misused:
      return "barrier misused";
    case Fault::launch_refused:
      return "launch refused";
    case Fault::deadlock:
      return "deadlock";
    case Fault::no_mbarrier:
      return "no mbarrier there";
    case Fault::mbarrier_not_published:
      return "mbarrier not published";
    case Fault::too_many_arrivals:
      return "too many arrivals";
    case Fault::arrival_out_of_phase:
      return "arrival out of phase";
    case Fault::phase_waited_for_twice:
      return "phase waited for twice";
    case Fault::mbarrier_overwritten:
      return "mbarrier overwritten";
    case Fault::remote_access_before_start:
      return "remote access before the block's start";
    case Fault::remote_access_after_end:
      return "remote access after the block's end";
    case Fault::no_tensor_map:
      return "no tensor map there";
    case Fault::misaligned_copy:
      return "misaligned copy";
    case Fault::store_before_tensor:
      return "store before the tensor";
    case Fault::missing_wgmma_fence:
      return "missing wgmma.fence";
    case Fault::register_in_flight:
      return "register of wgmma touched in flight";
    case Fault::descriptor_not_uniform:
      return "descriptor not uniform";
    case Fault::misaligned_descriptor:
      return "misaligned descriptor";
    case Fault::left_with_products_in_flight:
      return "left with wgmma in flight";
    case Fault::warpgroup_incomplete:
      return "warpgroup incomplete";
    case Fault::divergent_warpgroup:
      return "divergent warpgroup";
    case Fault::too_many_registers:
      return "too many registers";
    case Fault::register_count_misused:
      return "setmaxnreg misused";
    case Fault::left_without_waiting_for_grid:
      return "left without waiting for the earlier grid";
    case Fault::outside_global_memory:
      return "outside of global memory";
    case Fault::trap:
      return "trap";
  }
  return "unknown";
}

void Findings::add(Fault fault, Site here, Site other, const std::string& what) {
  const auto [entry, is_new] =
      index_.try_emplace({fault, {here.bits(), other.bits()}}, all_.size());
  if (is_new) {
    std::string text = std::string(name(fault)) + ": ";
    if (here) text += here.text() + ": ";
    text += what;
    if (other) text.append(" ").append(other.text());
    all_.push_back({fault, std::move(text), 0});
  }
  ++all_[entry->second].count;
}

bool Findings::has(Fault fault) const {
  return std::any_of(all_.begin(), all_.end(), [&](const Finding& f) { return f.fault == fault; });
}

std::string Findings::text() const {
  std::string text;
  for (const Finding& f : all_) text += f.text + " (" + std::to_string(f.count) + " times)\n";
  return text;
}

}  // namespace flashcore::sim
