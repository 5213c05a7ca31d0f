// Accesses of shared memory, checked against its shadow: they must be inside, ordered after the
// accesses that they depend on, and not of bytes that an asynchronous operation still uses.
//
// Addresses are in the .shared window. Bits 24 and up name a block of the cluster
// plus one, as computed by cluster_address (mapa); zero is the own block.
#pragma once

#include <cstdint>

#include "engine/machine.hpp"

namespace flashcore::sim {

inline constexpr uint32_t kFirstShared = 1024;  // lower addresses are the system's
inline constexpr uint32_t kMaxStaticBytes = 48 * 1024;
inline constexpr int kBlockShift = 24;

// Returns the byte at a shared address, which must be of this block.
inline unsigned char* byte_at(Block& block, uint32_t address) {
  return block.shared + (address - kFirstShared);
}
inline Piece& piece_at(Block& block, uint32_t address) {
  return block.shadow.piece(address - kFirstShared);
}

// Returns the address of a pointer into this block's shared memory; ends the launch for any other.
uint32_t shared_address(const void* pointer, Site site);
// Returns it without the block bits.
uint32_t own_offset(const void* pointer, Site site);
// Removes the block bits from an address of this block's memory.
uint32_t own_address(uint32_t address, Site site);

// Returns the block that `address` names, and removes the block from the address.
Block& resolve(uint32_t& address, Site site);

// Ends the launch if [address, address + bytes) is not inside; reports a fault if it is not aligned.
void check_range(const Block& block, uint32_t address, uint32_t bytes, uint32_t alignment,
                 const char* what, Site site);

// An ordinary access by this thread.
void on_read(Thread& thread, uint32_t address, uint32_t bytes, Site site);
void on_write(Thread& thread, uint32_t address, uint32_t bytes, Site site);
// An atomic operation, which does not race with others.
void on_atomic(Thread& thread, uint32_t address, uint32_t bytes, Site site);
// These bytes may be read although they are unwritten: nothing depends on their value.
void allow_unwritten(Thread& thread, uint32_t address, uint32_t bytes);

// A copy to `bytes` (4, 8 or 16, aligned) of a block: from begin to end, they must
// not be used. `by_async_proxy`: false for cp.async, whose writes count as ordinary.
void begin_write(Thread& issuer, Block& block, uint32_t address, uint32_t bytes,
                 bool by_async_proxy, Site site);
void end_write(Block& block, uint32_t address, uint32_t bytes, const Access& by);

// An asynchronous read of a 16-byte piece, which `issuer` starts and `agent` completes.
void begin_async_read(Thread& issuer, Block& block, uint32_t address, Site site);
void end_async_read(Block& block, uint32_t address, Agent agent, Epoch epoch, Site site);

// True if the program is compiled so that ordinary accesses call on_read and on_write.
inline bool ordinary_accesses_are_seen = false;

}  // namespace flashcore::sim
