#include "engine/cp_async.hpp"

#include <cstring>

#include "engine/access.hpp"
#include "engine/allocations.hpp"
#include "engine/global_shadow.hpp"
#include "engine/mbarrier.hpp"
#include "engine/scheduler.hpp"

namespace flashcore::sim {
namespace {

using CopyPointer = std::shared_ptr<Copy16>;

// Copies the bytes; this does not decide who may read them.
void land(Copy16& copy) {
  if (copy.landed) return;
  copy.landed = true;
  unsigned char* const to = byte_at(*copy.block, copy.to);
  if (copy.from != nullptr) {
    std::memcpy(to, copy.from, kPieceBytes);
  } else {
    std::memset(to, 0, kPieceBytes);
  }
}

}  // namespace

void issue_cp_async(uint32_t shared, const void* from, Site site) {
  Thread& thread = self();
  shared = own_address(shared, site);
  check_range(*thread.block, shared, kPieceBytes, kPieceBytes, "cp.async", site);
  if (reinterpret_cast<uintptr_t>(from) % kPieceBytes != 0) {
    report(Fault::misaligned_copy, site, Site(), "cp.async from an address no multiple of 16");
  }
  on_global_read(check_global(from, kPieceBytes, 1, "cp.async", site), {from, kPieceBytes}, site);
  begin_write(thread, *thread.block, shared, kPieceBytes, false, site);
  std::memset(byte_at(*thread.block, shared), policy().poison, kPieceBytes);
  const auto copy = std::make_shared<Copy16>(Copy16{thread.block, shared, from, site, false});
  thread.copies.open.push_back(copy);
  // Late copies land in the wait.
  if (policy().completion != Completion::late) add_completion([copy] { land(*copy); });
}

void commit_cp_async() {
  CopyGroups& copies = self().copies;
  copies.committed.push_back(std::move(copies.open));
  copies.open.clear();
}

void wait_cp_async(size_t pending_groups) {
  Thread& thread = self();
  take_groups(thread.copies.committed, pending_groups, [&](const auto& group) {
    for (const CopyPointer& copy : group) {
      land(*copy);
      end_write(*copy->block, copy->to, kPieceBytes,
                {thread.now, thread.agent, 0, false, copy->site});
    }
  });
}

void arrive_after_cp_async(uint32_t mbarrier, Site site) {
  Thread& thread = self();
  Mbarrier& barrier = mbarrier_at(*thread.block, own_address(mbarrier, site), site);
  auto copies = std::make_shared<std::vector<CopyPointer>>();
  for (const auto& group : thread.copies.committed) {
    copies->insert(copies->end(), group.begin(), group.end());
  }
  copies->insert(copies->end(), thread.copies.open.begin(), thread.copies.open.end());
  // They now belong to the barrier; groups remain, empty, for waits that count them.
  for (auto& group : thread.copies.committed) group.clear();
  thread.copies.open.clear();
  ClockJoin issued;
  release(thread, issued);
  const Clock issuer = issued.clock();
  const Agent agent = thread.agent;
  add_completion([copies, &barrier, issuer, agent, site] {
    for (const CopyPointer& copy : *copies) {
      land(*copy);
      // The copies are ordinary writes of the thread, which the barrier's phase shows to others.
      end_write(*copy->block, copy->to, kPieceBytes,
                {issuer.of(agent), agent, 0, false, copy->site});
    }
    arrive_later(barrier, issuer, site);
  });
}

}  // namespace flashcore::sim
