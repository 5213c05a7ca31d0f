#include "engine/tensor_copy.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/access.hpp"
#include "engine/allocations.hpp"
#include "engine/global_shadow.hpp"
#include "engine/machine_parts.hpp"
#include "engine/mbarrier.hpp"
#include "engine/scheduler.hpp"

namespace flashcore::sim {
namespace {

const TensorMap& map_at(const void* map, Site site) {
  const auto* const found = static_cast<const TensorMap*>(map);
  if (found->magic != TensorMap::kMagic) {
    report(Fault::no_tensor_map, site, Site(), name_of(self()) + " uses a map that nobody wrote");
    give_up();
  }
  return *found;
}

// A 16-byte piece of a box: its shared address, its address in the tensor (null
// if it is outside entirely), and the number of its bytes that are inside.
struct BoxPiece {
  uint32_t shared;
  unsigned char* global;
  size_t inside;

  // An H200 stores whole pieces: also past the end of a row that ends inside of one.
  size_t stored() const { return global == nullptr ? 0 : kPieceBytes; }
};

template <class Each>
void for_each_piece(const TensorMap& map, uint32_t shared, const TensorCoordinates& at, Each each) {
  const uint32_t row_bytes = map.row_bytes();
  const int64_t element = map.element_bytes();
  uint32_t row_start = shared;
  std::array<int, 5> in_box{};  // of a row, with column 0
  for (; in_box[4] < map.box[4]; row_start += row_bytes) {
    bool inside = true;
    int64_t offset = 0;
    for (size_t i = 1; i < in_box.size(); ++i) {
      const int64_t index = int64_t{at[i]} + in_box[i];
      inside = inside && index >= 0 && index < map.extent[i];
      offset += index * map.stride[i];
    }
    for (uint32_t byte = 0; byte < row_bytes; byte += kPieceBytes) {
      const int64_t from = at[0] * element + byte;
      const int64_t end = std::min<int64_t>(from + kPieceBytes, map.extent[0] * element);
      const bool has = inside && from >= 0 && from < end;
      each(BoxPiece{swizzled(row_start + byte, map.span),
                    has ? const_cast<unsigned char*>(map.base) + offset + from : nullptr,
                    has ? static_cast<size_t>(end - from) : 0});
    }
    ++in_box[1];
    for (size_t i = 1; i + 1 < in_box.size() && in_box[i] == map.box[i]; ++i) {
      in_box[i] = 0;
      ++in_box[i + 1];
    }
  }
}

// Checks a box's shared address: the swizzle's pattern repeats after 8 of its rows.
void check_box(const Block& block, const TensorMap& map, uint32_t shared, Site site) {
  const uint32_t alignment =
      map.span == 0 ? 128u : std::max(128u, 8u * static_cast<uint32_t>(map.span));
  if (shared % alignment != 0) {
    report(Fault::misaligned_copy, site, Site(),
           format("shared %u is no multiple of %u, which a swizzle of %d bytes asks for", shared,
                  alignment, map.span));
  }
  check_range(block, shared, map.box_bytes(), 1, "tensor copy", site);
}

// An H200 reports an illegal instruction for other positions,
// even if the box is entirely outside of the tensor.
void check_place(const TensorMap& map, const TensorCoordinates& at, bool is_store, Site site) {
  if (at[0] * map.element_bytes() % kPieceBytes != 0) {
    report(Fault::misaligned_copy, site, Site(),
           format("column %d of elements of %d bytes is no multiple of 16 bytes", at[0],
                  static_cast<int>(map.element_bytes())));
    give_up();
  }
  if (is_store && std::any_of(at.begin(), at.end(), [](int i) { return i < 0; })) {
    report(Fault::store_before_tensor, site, Site(),
           format("a box is stored at %d,%d,%d,%d: only loads may begin before the tensor", at[0],
                  at[1], at[2], at[3]));
    give_up();
  }
}

void load_to(Block& block, uint32_t shared, const TensorMap& map, uint32_t mbarrier,
             const TensorCoordinates& at, Site site) {
  check_box(block, map, shared, site);
  Mbarrier& barrier = mbarrier_at(block, mbarrier, site);
  check_published(barrier, site);
  for_each_piece(map, shared, at, [&](const BoxPiece& piece) {
    on_global_read(check_global(piece.global, piece.inside, 1, "tensor copy", site),
                   {piece.global, piece.inside}, site);
    begin_write(self(), block, piece.shared, kPieceBytes, true, site);
    std::memset(byte_at(block, piece.shared), policy().poison, kPieceBytes);
  });
  // The map is copied: the caller may have exited when the copy completes.
  const Clock known = phases_known_to(self());
  add_completion([&block, &barrier, map, shared, at, site, known] {
    if (block.live_threads == 0) {
      report(Fault::left_with_copies_in_flight, Site(), site,
             format("block %u left before the copy that was started at", block.index.x));
    }
    const Access access = access_of_phase(barrier, site);
    for_each_piece(map, shared, at, [&](const BoxPiece& piece) {
      unsigned char* const to = byte_at(block, piece.shared);
      std::memset(to, 0, kPieceBytes);
      if (piece.global != nullptr) std::memcpy(to, piece.global, piece.inside);
      end_write(block, piece.shared, kPieceBytes, access);
    });
    deliver_bytes(barrier, map.box_bytes(), known);
  });
}

// Calls each(shared address, offset) for the 16-byte pieces of a row of bytes.
template <class Each>
void for_each_row_piece(uint32_t shared, uint32_t bytes, Each each) {
  for (uint32_t offset = 0; offset < bytes; offset += kPieceBytes) each(shared + offset, offset);
}

void check_row(const Block& block, const void* global, uint32_t shared, uint32_t bytes, Site site) {
  if (bytes % kPieceBytes != 0 || reinterpret_cast<uintptr_t>(global) % kPieceBytes != 0) {
    report(Fault::misaligned_copy, site, Site(),
           format("%u bytes at a global address that is %u past a multiple of 16", bytes,
                  static_cast<uint32_t>(reinterpret_cast<uintptr_t>(global) % kPieceBytes)));
    give_up();
  }
  check_range(block, shared, bytes, kPieceBytes, "bulk copy", site);
}

// Calls each(shared address, global address) for each 16-byte piece of a store.
template <class Each>
void for_each_moved(const BulkStore& store, Each each) {
  if (store.row != nullptr) {
    for_each_row_piece(store.from, store.bytes, [&](uint32_t piece, uint32_t offset) {
      each(piece, static_cast<unsigned char*>(store.row) + offset);
    });
    return;
  }
  for_each_piece(store.map, store.from, store.at, [&](const BoxPiece& piece) {
    if (piece.global != nullptr) each(piece.shared, piece.global);
  });
}

void read_source(BulkStore& store) {
  store.has_read = true;
  for_each_moved(store, [&](uint32_t from, unsigned char*) {
    const unsigned char* const data = byte_at(*store.block, from);
    store.data.insert(store.data.end(), data, data + kPieceBytes);
  });
}

void write_target(BulkStore& store) {
  if (store.has_written) return;
  store.has_written = true;
  const unsigned char* from = store.data.data();
  for_each_moved(store, [&](uint32_t, unsigned char* to) {
    if (store.adds) {
      std::array<float, kPieceBytes / sizeof(float)> x, sum;
      std::memcpy(x.data(), from, kPieceBytes);
      std::memcpy(sum.data(), to, kPieceBytes);
      for (size_t i = 0; i < x.size(); ++i) sum[i] += x[i];
      std::memcpy(to, sum.data(), kPieceBytes);
    } else {
      std::memcpy(to, from, kPieceBytes);
    }
    from += kPieceBytes;
  });
}

// Returns the access of global memory by a store of the open group: the group's own agent performs it.
GlobalMemoryUse by_store(const void* global, size_t bytes, Use use) {
  StoreGroups& stores = self().stores;
  if (stores.writer == 0) {
    stores.reader = new_agent(*self().block->cluster);
    stores.writer = new_agent(*self().block->cluster);
  }
  return {global, bytes, use, stores.writer, stores.begun + 1};
}

// The store reads now, and writes later.
void read_now(const std::shared_ptr<BulkStore>& store) {
  if (store->has_read) return;
  read_source(*store);
  add_completion(*store->block->cluster, [store] { write_target(*store); });
}

void begin_store(const std::shared_ptr<BulkStore>& store) {
  self().stores.open.push_back(store);
  // Late stores read in the wait.
  if (policy().completion != Completion::late) add_completion([store] { read_now(store); });
}

}  // namespace

void check_map(const void* map, Site site) { map_at(map, site); }

void load_box(uint32_t shared, const void* map_address, uint32_t mbarrier, uint32_t blocks,
              const TensorCoordinates& at, Site site) {
  const TensorMap& map = map_at(map_address, site);
  check_place(map, at, false, site);
  shared = own_address(shared, site), mbarrier = own_address(mbarrier, site);
  if (blocks == 0) {
    load_to(own_block(), shared, map, mbarrier, at, site);
    return;
  }
  for (uint32_t rank = 0; blocks >> rank != 0; ++rank) {
    if ((blocks >> rank & 1) == 0) continue;
    uint32_t address = shared | (rank + 1) << kBlockShift;
    load_to(resolve(address, site), shared, map, mbarrier, at, site);
  }
}

void store_box(const void* map_address, uint32_t shared, const TensorCoordinates& at, Site site) {
  const TensorMap& map = map_at(map_address, site);
  check_place(map, at, true, site);
  Thread& thread = self();
  shared = own_address(shared, site);
  check_box(*thread.block, map, shared, site);
  for_each_piece(map, shared, at, [&](const BoxPiece& piece) {
    on_global_write(check_global(piece.global, piece.stored(), 1, "tensor copy", site),
                    by_store(piece.global, piece.stored(), Use::plain), site);
    begin_async_read(thread, *thread.block, piece.shared, site);
  });
  const auto store = std::make_shared<BulkStore>();
  store->block = thread.block, store->map = map, store->from = shared, store->at = at;
  store->site = site;
  begin_store(store);
}

void commit_stores() {
  StoreGroups& stores = self().stores;
  stores.committed.push_back(std::move(stores.open));
  stores.open.clear();
  ++stores.begun;
}

void wait_stores_read(size_t pending_groups) {
  Thread& thread = self();
  StoreGroups& stores = thread.stores;
  if (stores.reader == 0) return;
  take_groups(stores.committed, pending_groups, [&](const StoreGroups::Group& group) {
    ++stores.read;
    for (const auto& store : group) {
      read_now(store);
      const auto end_read = [&](uint32_t piece) {
        end_async_read(*store->block, piece, stores.reader, stores.read, store->site);
      };
      if (store->row != nullptr) {
        for_each_row_piece(store->from, store->bytes, [&](uint32_t at, uint32_t) { end_read(at); });
      } else {
        for_each_piece(store->map, store->from, store->at,
                       [&](const BoxPiece& piece) { end_read(piece.shared); });
      }
    }
    stores.unwritten.push_back(group);
  });
  thread.seen = join(thread.seen, stores.reader, stores.read);
}

void wait_stores_written(size_t pending_groups) {
  wait_stores_read(pending_groups);
  Thread& thread = self();
  StoreGroups& stores = thread.stores;
  if (stores.writer == 0) return;
  const size_t unread = std::min(stores.committed.size(), pending_groups);
  take_groups(stores.unwritten, pending_groups - unread, [&](const StoreGroups::Group& group) {
    ++stores.written;
    for (const auto& store : group) write_target(*store);
  });
  thread.seen = join(thread.seen, stores.writer, stores.written);
}

void load_bytes(uint32_t shared, const void* global, uint32_t bytes, uint32_t mbarrier, Site site) {
  Block& block = own_block();
  shared = own_address(shared, site), mbarrier = own_address(mbarrier, site);
  check_row(block, global, shared, bytes, site);
  Mbarrier& barrier = mbarrier_at(block, mbarrier, site);
  check_published(barrier, site);
  on_global_read(check_global(global, bytes, kPieceBytes, "bulk copy", site), {global, bytes},
                 site);
  for_each_row_piece(shared, bytes, [&](uint32_t piece, uint32_t) {
    begin_write(self(), block, piece, kPieceBytes, true, site);
    std::memset(byte_at(block, piece), policy().poison, kPieceBytes);
  });
  const Clock known = phases_known_to(self());
  add_completion([&block, &barrier, shared, global, bytes, site, known] {
    if (block.live_threads == 0) {
      report(Fault::left_with_copies_in_flight, Site(), site,
             format("block %u left before the copy that was started at", block.index.x));
    }
    const Access access = access_of_phase(barrier, site);
    for_each_row_piece(shared, bytes, [&](uint32_t piece, uint32_t offset) {
      std::memcpy(byte_at(block, piece), static_cast<const unsigned char*>(global) + offset,
                  kPieceBytes);
      end_write(block, piece, kPieceBytes, access);
    });
    deliver_bytes(barrier, bytes, known);
  });
}

namespace {

void store_row(void* global, uint32_t shared, uint32_t bytes, bool adds, Site site) {
  Thread& thread = self();
  shared = own_address(shared, site);
  check_row(*thread.block, global, shared, bytes, site);
  on_global_write(check_global(global, bytes, kPieceBytes, adds ? "bulk sum" : "bulk store", site),
                  by_store(global, bytes, adds ? Use::atomic : Use::plain), site);
  for_each_row_piece(shared, bytes, [&](uint32_t piece, uint32_t) {
    begin_async_read(thread, *thread.block, piece, site);
  });
  const auto store = std::make_shared<BulkStore>();
  store->block = thread.block, store->from = shared, store->site = site;
  store->row = global, store->bytes = bytes, store->adds = adds;
  begin_store(store);
}

}  // namespace

void store_bytes(void* global, uint32_t shared, uint32_t bytes, Site site) {
  store_row(global, shared, bytes, false, site);
}
void add_floats(float* global, uint32_t shared, uint32_t bytes, Site site) {
  store_row(global, shared, bytes, true, site);
}

void store_async(uint32_t shared, const void* from, uint32_t bytes, uint32_t mbarrier, Site site) {
  Block& block = resolve(shared, site);
  resolve(mbarrier, site);
  check_range(block, shared, bytes, bytes, "st.async", site);
  Mbarrier& barrier = mbarrier_at(block, mbarrier, site);
  if (&block != &own_block()) check_published(barrier, site);
  begin_write(self(), block, shared, bytes, false, site);
  std::array<unsigned char, kPieceBytes> data{};
  std::memcpy(data.data(), from, bytes);
  std::memset(byte_at(block, shared), policy().poison, bytes);
  const Clock known = phases_known_to(self());
  add_completion([&block, &barrier, data, shared, bytes, site, known] {
    if (block.live_threads == 0) {
      report(Fault::remote_access_after_end, Site(), site,
             format("block %u had left when the store was complete that was started at",
                    block.index.x));
    }
    std::memcpy(byte_at(block, shared), data.data(), bytes);
    end_write(block, shared, bytes, access_of_phase(barrier, site));
    deliver_bytes(barrier, bytes, known);
  });
}

}  // namespace flashcore::sim
