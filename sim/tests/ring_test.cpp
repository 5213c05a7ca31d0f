// A ring of slots that one warp fills by tensor copies and four warps empty:
// the structure of every Hopper kernel here, and typical faults of such rings.
#include <cuda_runtime.h>

#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tma.cuh"
#include "tests/support.hpp"
#include "tests/tensor_maps.hpp"

namespace flashcore::sim {
namespace {

using namespace cuda;

enum class RingFault {
  none,
  full_not_awaited,
  empty_not_awaited,
  consumer_parity,
  producer_parity,
  released_before_reading,
  released_by_a_lane_alone,
  released_by_three_of_four,
  counted_for_five,
  counted_for_three,
  half_the_bytes,
  twice_the_bytes,
  not_published,
  no_first_barrier,
  empty_slot_waited_for_twice,
  initialised_again,
  two_arrivals,
};

constexpr int kSlots = 3, kTiles = 11, kRows = 16, kColumns = 64, kWarps = 4;
constexpr uint32_t kHalfBytes = kRows * kColumns, kTileBytes = 2 * kHalfBytes;
constexpr LaunchOptions kRing{.grid = {1}, .block = {160}, .shared_bytes = 16384};

struct Ring {
  alignas(1024) unsigned char slot[kSlots][2][kHalfBytes];
  uint64_t full[kSlots], empty[kSlots];
};

struct Place {
  int slot = 0;
  uint32_t parity = 0;
  void next() {
    if (++slot < kSlots) return;
    slot = 0;
    parity ^= 1;
  }
};

uint32_t address(const uint64_t& barrier) { return ptx::shared_address(&barrier); }

void produce(Ring& ring, const CUtensorMap& map, RingFault fault) {
  Place at;
  for (int tile = 0; tile < kTiles; ++tile, at.next()) {
    const uint32_t parity = at.parity ^ (fault == RingFault::producer_parity ? 0u : 1u);
    if (fault != RingFault::empty_not_awaited) {
      ptx::mbarrier_wait(address(ring.empty[at.slot]), parity);
    }
    if (fault == RingFault::empty_slot_waited_for_twice && tile == 5) {
      ptx::mbarrier_wait(address(ring.empty[at.slot]), parity);
    }
    const uint32_t full = address(ring.full[at.slot]);
    uint32_t bytes = kTileBytes;
    if (fault == RingFault::half_the_bytes) bytes /= 2;
    if (fault == RingFault::twice_the_bytes) bytes *= 2;
    ptx::mbarrier_arrive_expect(full, bytes);
    if (fault == RingFault::two_arrivals) ptx::mbarrier_arrive(full);
    for (int half = 0; half < 2; ++half) {
      ptx::tma_load_4d(ptx::shared_address(ring.slot[at.slot][half]), &map, full, 0,
                       (2 * tile + half) * kRows, 0, 0);
    }
  }
}

void consume(Ring& ring, const Matrix& matrix, RingFault fault) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  Place at;
  const auto release = [&] {
    if (fault == RingFault::released_by_three_of_four && warp == 2) return;
    if (lane == 0) ptx::mbarrier_arrive(address(ring.empty[at.slot]));
  };
  for (int tile = 0; tile < kTiles; ++tile, at.next()) {
    const uint32_t parity = at.parity ^ (fault == RingFault::consumer_parity ? 1u : 0u);
    if (fault != RingFault::full_not_awaited) {
      ptx::mbarrier_wait(address(ring.full[at.slot]), parity);
    }
    if (fault == RingFault::released_before_reading) release();
    for (int i = thread; i < static_cast<int>(kTileBytes); i += 128) {
      const auto half = static_cast<int>(kHalfBytes);
      const unsigned char x = load(ring.slot[at.slot][i / half][i % half]);
      const auto there = static_cast<size_t>(tile) * kTileBytes + static_cast<size_t>(i);
      if (fault == RingFault::none && x != matrix.bytes[there]) __trap();
    }
    if (fault == RingFault::released_before_reading) continue;
    if (fault != RingFault::released_by_a_lane_alone) __syncwarp();
    release();
  }
}

void run_ring(Matrix& matrix, const CUtensorMap& map, RingFault fault) {
  Ring& ring = *shared_array<Ring>();
  const uint32_t count = fault == RingFault::counted_for_five    ? 5
                         : fault == RingFault::counted_for_three ? 3
                                                                 : kWarps;
  if (threadIdx.x == 128) {
    for (int slot = 0; slot < kSlots; ++slot) {
      ptx::mbarrier_init(address(ring.full[slot]), 1);
      ptx::mbarrier_init(address(ring.empty[slot]), count);
    }
    if (fault != RingFault::not_published) ptx::mbarrier_init_fence();
  }
  if (fault != RingFault::no_first_barrier) __syncthreads();
  if (threadIdx.x == 128) produce(ring, map, fault);
  if (threadIdx.x < 128) consume(ring, matrix, fault);
  if (fault != RingFault::initialised_again) return;
  __syncthreads();
  if (threadIdx.x == 128) {
    ptx::mbarrier_arrive(address(ring.empty[0]));
    ptx::mbarrier_init(address(ring.empty[0]), 4);
  }
}

struct Case {
  const char* name;
  RingFault fault;
  std::vector<Fault> wanted;  // one of these, under every schedule
};

class RingTest : public testing::TestWithParam<Case> {};

TEST_P(RingTest, FaultIsFound) {
  Matrix matrix(2 * kTiles * kRows, kColumns, 1);
  const CUtensorMap map = matrix.map(kRows, kColumns, 0);
  const auto kernel = [&] { run_ring(matrix, map, GetParam().fault); };
  if (GetParam().wanted.empty()) {
    expect_clean(kRing, kernel);
  } else {
    expect_one_of(GetParam().wanted, kRing, kernel);
  }
}

const std::vector<Fault> kUnorderedRead{Fault::race, Fault::read_of_bytes_in_flight,
                                        Fault::read_of_unwritten_bytes};

INSTANTIATE_TEST_SUITE_P(
    All, RingTest,
    testing::Values(
        Case{"None", RingFault::none, {}},
        Case{"FullNotAwaited", RingFault::full_not_awaited, kUnorderedRead},
        Case{"EmptyNotAwaited",
             RingFault::empty_not_awaited,
             {Fault::race, Fault::write_to_bytes_in_flight}},
        Case{"ConsumerParity",
             RingFault::consumer_parity,
             {Fault::race, Fault::read_of_bytes_in_flight, Fault::read_of_unwritten_bytes,
              Fault::deadlock}},
        Case{"ProducerParity", RingFault::producer_parity, {Fault::deadlock}},
        Case{"ReleasedBeforeReading",
             RingFault::released_before_reading,
             {Fault::race, Fault::read_of_bytes_in_flight}},
        Case{"ReleasedByALaneAlone", RingFault::released_by_a_lane_alone, {Fault::race}},
        Case{"ReleasedByThreeOfFour", RingFault::released_by_three_of_four, {Fault::deadlock}},
        Case{"CountedForFive", RingFault::counted_for_five, {Fault::deadlock}},
        Case{"CountedForThree",
             RingFault::counted_for_three,
             {Fault::arrival_out_of_phase, Fault::race}},
        Case{"HalfTheBytes", RingFault::half_the_bytes, kUnorderedRead},
        Case{"TwiceTheBytes", RingFault::twice_the_bytes, {Fault::deadlock}},
        Case{"NotPublished", RingFault::not_published, {Fault::mbarrier_not_published}},
        Case{"NoFirstBarrier", RingFault::no_first_barrier, {Fault::no_mbarrier}},
        Case{"EmptySlotWaitedForTwice",
             RingFault::empty_slot_waited_for_twice,
             {Fault::phase_waited_for_twice}},
        Case{"InitialisedAgain", RingFault::initialised_again, {Fault::mbarrier_overwritten}},
        Case{"TwoArrivals",
             RingFault::two_arrivals,
             {Fault::too_many_arrivals, Fault::arrival_out_of_phase}}),
    [](const auto& test) { return std::string(test.param.name); });

// A late lane may find the phase after the one that it waits for, if another lane of its
// warp has released the slot meanwhile. This needs a schedule in which the lane is late.
void hand_over(bool faulty) {
  struct Slot {
    uint64_t full, empty;
  };
  Slot& slot = *shared_array<Slot>();
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(address(slot.full), 1);
    ptx::mbarrier_init(address(slot.empty), 1);
    ptx::mbarrier_init_fence();
  }
  __syncthreads();
  const bool produces = threadIdx.x == 32, consumes = threadIdx.x < 32;
  for (uint32_t i = 0; i < kTiles && (produces || consumes); ++i) {
    if (produces) {
      ptx::mbarrier_wait(address(slot.empty), i % 2 ^ 1);
      ptx::mbarrier_arrive(address(slot.full));
      continue;
    }
    ptx::mbarrier_wait(address(slot.full), i % 2);
    if (!faulty) __syncwarp();
    if (threadIdx.x == 0) ptx::mbarrier_arrive(address(slot.empty));
  }
}

TEST(Ring, ALateLaneMissesAPhase) {
  constexpr LaunchOptions kTwoWarps{.grid = {1}, .block = {64}, .shared_bytes = 1024};
  expect_fault_in_some_order(Fault::deadlock, kTwoWarps, [] { hand_over(true); });
  expect_clean(kTwoWarps, [] { hand_over(false); });
}

// The report of a deadlock names the barrier, its phase and what is missing.
TEST(Ring, DeadlockNamesTheBarrier) {
  Matrix matrix(2 * kTiles * kRows, kColumns, 1);
  const CUtensorMap map = matrix.map(kRows, kColumns, 0);
  const Findings findings =
      run(kRing, {}, [&] { run_ring(matrix, map, RingFault::counted_for_five); });
  EXPECT_THAT(findings.text(), testing::HasSubstr("ring_test.cpp:"));
  EXPECT_THAT(findings.text(),
              testing::HasSubstr("0 phases complete, 1 of 5 arrivals and 0 bytes"));
}

}  // namespace
}  // namespace flashcore::sim
