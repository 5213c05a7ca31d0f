#include "engine/allocations.hpp"

#include <sys/mman.h>

#include <array>
#include <cstring>
#include <map>

#include "engine/scheduler.hpp"

namespace flashcore::sim {
namespace {

constexpr size_t kArenaBytes = size_t{64} << 30;  // of addresses; memory is committed when used
constexpr size_t kPage = 4096;

class Arena {
 public:
  Arena() {
    void* const memory =
        mmap(nullptr, kArenaBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return;
    first_global = reinterpret_cast<uintptr_t>(memory);
    end_of_global = first_global + kArenaBytes;
  }

  void* allocate(size_t bytes, uint8_t poison) {
    if (blocks_.empty()) next_ = first_global + kPage;
    const size_t pages = pages_of(bytes);
    if (bytes > kArenaBytes || pages + kPage > end_of_global - next_) return nullptr;
    const uintptr_t at = next_;
    void* const memory = reinterpret_cast<void*>(at);
    if (mprotect(memory, pages, PROT_READ | PROT_WRITE) != 0) return nullptr;
    std::memset(memory, poison, bytes);
    blocks_.emplace(at, Allocation{at, bytes});
    next_ = at + pages + kPage;
    return memory;
  }

  bool free(void* memory) {
    const auto block = blocks_.find(reinterpret_cast<uintptr_t>(memory));
    if (block == blocks_.end()) return false;
    const size_t pages = pages_of(block->second.bytes);
    near_ = {};
    (void)madvise(memory, pages, MADV_DONTNEED);
    (void)mprotect(memory, pages, PROT_NONE);
    blocks_.erase(block);
    return true;
  }

  Allocation* find(uintptr_t at, uint64_t bytes) {
    Allocation*& near = near_[at / kPage % near_.size()];
    if (near != nullptr && near->has(at, bytes)) return near;
    auto block = blocks_.upper_bound(at);
    if (block == blocks_.begin()) return nullptr;
    --block;
    if (!block->second.has(at, bytes)) return nullptr;
    near = &block->second;
    return near;
  }

 private:
  static size_t pages_of(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

  uintptr_t next_ = 0;
  std::map<uintptr_t, Allocation> blocks_;  // by address
  std::array<Allocation*, 64> near_{};      // the most recently used, by page
};

Arena arena;

}  // namespace

void* allocate_global(size_t bytes, uint8_t poison) { return arena.allocate(bytes, poison); }
bool free_global(void* memory) { return arena.free(memory); }
Allocation* find_allocation(const void* pointer, uint64_t bytes) {
  return arena.find(reinterpret_cast<uintptr_t>(pointer), bytes);
}

Allocation* check_global(const void* pointer, uint64_t bytes, uint32_t alignment, const char* what,
                         Site site) {
  if (!is_global(pointer)) return nullptr;
  if ((reinterpret_cast<uintptr_t>(pointer) & (alignment - 1)) != 0) {
    report(Fault::misaligned_access, site, Site(),
           format("%s: %s of global %p, wanted a multiple of %u", name_of(self()).c_str(), what,
                  pointer, alignment));
  }
  if (Allocation* const found = find_allocation(pointer, bytes); found != nullptr) return found;
  report(Fault::outside_global_memory, site, Site(),
         format("%s: %s of %llu bytes at global %p, which no allocation has",
                name_of(self()).c_str(), what, static_cast<unsigned long long>(bytes), pointer));
  give_up();
}

}  // namespace flashcore::sim
