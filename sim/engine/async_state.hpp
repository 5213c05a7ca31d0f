// Pending operations of a thread or warp: groups of cp.async, of bulk stores and of products.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine/clock.hpp"
#include "engine/site.hpp"
#include "engine/tensor_map.hpp"

namespace flashcore::sim {

struct Block;

// A cp.async of 16 bytes.
struct Copy16 {
  Block* block = nullptr;
  uint32_t to = 0;
  const void* from = nullptr;  // null: zeros
  Site site;
  bool landed = false;  // the bytes have arrived, but no thread may know it yet
};

struct CopyGroups {
  std::vector<std::shared_ptr<Copy16>> open;
  std::vector<std::vector<std::shared_ptr<Copy16>>> committed;  // oldest first

  bool empty() const { return open.empty() && committed.empty(); }
};

// A bulk store of a tensor's box, or of `bytes` contiguous bytes to `row`.
struct BulkStore {
  Block* block = nullptr;
  TensorMap map;
  uint32_t from = 0;
  TensorCoordinates at{};
  Site site;
  bool has_read = false, has_written = false;
  std::vector<unsigned char> data;  // data that it has read
  void* row = nullptr;
  uint32_t bytes = 0;
  bool adds = false;  // adds fp32 numbers to those in memory
};

// A store has two steps, each with an agent whose epoch n means that n groups have
// completed it: the shared memory has been read, and the global memory has been written.
struct StoreGroups {
  using Group = std::vector<std::shared_ptr<BulkStore>>;

  Agent reader = 0, writer = 0;  // 0: no store yet
  Epoch begun = 0, read = 0, written = 0;
  Group open;
  std::vector<Group> committed;  // oldest first
  std::vector<Group> unwritten;  // those whose reads a thread has waited for
  // Returns whether every store has read its source.
  bool empty() const { return open.empty() && committed.empty(); }
};

// Calls each(group) for all but the youngest `pending` groups, and removes them.
template <class Groups, class Each>
void take_groups(Groups& groups, size_t pending, Each each) {
  if (groups.size() <= pending) return;
  const auto count = static_cast<std::ptrdiff_t>(groups.size() - pending);
  std::for_each(groups.begin(), groups.begin() + count, each);
  groups.erase(groups.begin(), groups.begin() + count);
}

// The part of a thread's stack that contains all registers of its products in flight.
struct RegisterRange {
  uintptr_t begin = UINTPTR_MAX, end = 0;

  void add(const void* first, size_t bytes) {
    const auto at = reinterpret_cast<uintptr_t>(first);
    begin = std::min(begin, at);
    end = std::max(end, at + bytes);
  }
  bool overlaps(const void* first, size_t bytes) const {
    const auto at = reinterpret_cast<uintptr_t>(first);
    return at < end && begin < at + bytes;
  }
};

// 16 rows of accumulators, of one warp, while products add to them.
struct Accumulators {
  std::array<float*, 32> lane{};
  int columns = 0;
  int pending = 0;           // products
  Site site;                 // of the youngest product
  std::vector<float> value;  // [16][columns]
};

struct Product {
  std::shared_ptr<Accumulators> d;
  Site site;
  int kind = 0;  // ElementType of A and B
  bool overwrite = false;
  bool a_in_shared = false, a_is_mn_major = false, b_is_mn_major = false;
  std::array<const uint32_t*, 32> a_lane{};
  std::array<std::array<uint32_t, 4>, 32> a_bits{};  // at issue
  std::vector<uint32_t> a_pieces, b_pieces;          // addresses
  bool done = false;
};

struct Products {
  uint32_t fence = 0;  // the count at the last wgmma.fence; 0: none
  Agent agent = 0;     // epoch n: n groups are complete
  Epoch complete = 0;
  uint64_t issued = 0;
  std::vector<std::shared_ptr<Accumulators>> accumulators;  // in flight
  std::vector<std::shared_ptr<Product>> open;
  std::vector<std::vector<std::shared_ptr<Product>>> committed;

  bool empty() const { return open.empty() && committed.empty(); }
};

// The sequence of wgmma instructions of a warpgroup: all warps execute the same ones, at their own pace.
struct WarpgroupSteps {
  struct Step {
    const char* what;
    Site site;
  };
  static constexpr size_t kWarps = 4;

  std::deque<Step> steps;  // that some warp has not yet reached
  uint64_t first = 0;      // index of the first of them
  std::array<uint64_t, kWarps> taken{};
};

}  // namespace flashcore::sim
