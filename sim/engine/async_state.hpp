// What a thread or warp has under way: groups of cp.async, of bulk stores and of products.
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

// cp.async of 16 bytes.
struct Copy16 {
  Block* block = nullptr;
  uint32_t to = 0;
  const void* from = nullptr;  // null: zeros
  Site site;
  bool landed = false;  // the bytes are there, but nobody may know it yet
};

struct CopyGroups {
  std::vector<std::shared_ptr<Copy16>> open;
  std::vector<std::vector<std::shared_ptr<Copy16>>> committed;  // the oldest first

  bool empty() const { return open.empty() && committed.empty(); }
};

// A bulk store of a tensor's box, or of `bytes` in a row: `row` is where to.
struct BulkStore {
  Block* block = nullptr;
  TensorMap map;
  uint32_t from = 0;
  TensorCoordinates at{};
  Site site;
  bool has_read = false, has_written = false;
  std::vector<unsigned char> data;  // what it has read
  void* row = nullptr;
  uint32_t bytes = 0;
  bool adds = false;  // numbers of fp32 to those that are there
};

// Stores are two steps, each with an agent whose epoch n means that n groups have made it: the shared
// memory has been read, the global memory has been written.
struct StoreGroups {
  using Group = std::vector<std::shared_ptr<BulkStore>>;

  Agent reader = 0, writer = 0;  // 0: there was no store
  Epoch begun = 0, read = 0, written = 0;
  Group open;
  std::vector<Group> committed;  // the oldest first
  std::vector<Group> unwritten;  // those that have read, as far as anybody has waited
  // Whether all that was begun has read.
  bool empty() const { return open.empty() && committed.empty(); }
};

// Calls each(group) for the oldest groups but `pending`, and takes them away.
template <class Groups, class Each>
void take_groups(Groups& groups, size_t pending, Each each) {
  if (groups.size() <= pending) return;
  const auto count = static_cast<std::ptrdiff_t>(groups.size() - pending);
  std::for_each(groups.begin(), groups.begin() + count, each);
  groups.erase(groups.begin(), groups.begin() + count);
}

// The part of a thread's stack that holds all registers of its products in flight.
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

// 16 rows of accumulators, those of one warp, while products add to them.
struct Accumulators {
  std::array<float*, 32> lane{};
  int columns = 0;
  int pending = 0;           // products
  Site site;                 // of the youngest
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
  uint32_t fence = 0;  // the count of the last wgmma.fence; 0: there was none
  Agent agent = 0;     // epoch n: n groups are complete
  Epoch complete = 0;
  uint64_t issued = 0;
  std::vector<std::shared_ptr<Accumulators>> accumulators;  // in flight
  std::vector<std::shared_ptr<Product>> open;
  std::vector<std::vector<std::shared_ptr<Product>>> committed;

  bool empty() const { return open.empty() && committed.empty(); }
};

// What the warps of a warpgroup execute of wgmma: the same instructions, each at its own time.
struct WarpgroupSteps {
  struct Step {
    const char* what;
    Site site;
  };
  static constexpr size_t kWarps = 4;

  std::deque<Step> steps;  // that some warp has yet to come to
  uint64_t first = 0;      // number of the first of them
  std::array<uint64_t, kWarps> taken{};
};

}  // namespace flashcore::sim
