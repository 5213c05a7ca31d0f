#include "engine/access.hpp"

#include <algorithm>
#include <cstring>

#include "engine/scheduler.hpp"

namespace flashcore::sim {
namespace {

uint8_t byte_mask(uint32_t word_address, uint32_t address, uint32_t bytes) {
  const uint32_t begin = std::max(address, word_address);
  const uint32_t end = std::min(address + bytes, word_address + kWordBytes);
  return static_cast<uint8_t>(((1u << (end - begin)) - 1) << (begin - word_address));
}

// Returns whether the writer ran fence.proxy.async after `write`, and `thread` knows of it.
bool is_fenced(const Thread& thread, const Access& write) {
  if (write.fenced) return true;
  const Cluster& cluster = *thread.block->cluster;
  const auto threads = static_cast<size_t>(thread.block->threads.size());
  if (write.agent >= threads * cluster.blocks.size()) return true;  // a copy
  const Thread& writer = cluster.blocks[write.agent / threads]->threads[write.agent % threads];
  const auto fence = std::lower_bound(writer.fences.begin(), writer.fences.end(), write.epoch);
  return fence != writer.fences.end() && knows(thread, writer.agent, *fence);
}

bool knows_all(const Thread& thread, const ReadersOfWarp& read) {
  return read.all([&](Agent agent) { return knows(thread, agent, read.epoch); });
}

void race(const Thread& thread, Site site, Site other, uint32_t address, const char* verb,
          const char* other_verb) {
  report(Fault::race, site, other,
         format("%s %s shared %u, which nothing orders after the %s at", name_of(thread).c_str(),
                verb, address, other_verb));
}

const char* name_of(Use use) { return use == Use::atomic ? "atomic operation" : "read"; }

// Lanes of one warp may write the same value at one line: the result is the same in any order.
bool may_agree(const Thread& thread, const Access& write, Site site) {
  return write.site == site && write.agent / kLanes == thread.agent / kLanes;
}

uint32_t value_of(Block& block, uint32_t word_address) {
  uint32_t value;
  std::memcpy(&value, byte_at(block, word_address), sizeof value);
  return value;
}

// Checks that the lanes that should write the same value did: their stores have happened by now.
void compare_agreed(const Thread& thread, Block& block, Word& word, uint32_t word_address) {
  uint32_t bits = 0;
  for (uint32_t byte = 0; byte < kWordBytes; ++byte) {
    if ((word.agreed >> byte & 1) != 0) bits |= 0xffu << (8 * byte);
  }
  if (((value_of(block, word_address) ^ word.value) & bits) != 0) {
    report(Fault::race, word.write.site, word.write.site,
           format("lanes of the warp of %s write different values to shared %u",
                  name_of(thread).c_str(), word_address));
  }
  word.agreed = 0;
}
inline void check_agreement(const Thread& thread, Block& block, Word& word, uint32_t at) {
  if (word.agreed != 0) [[unlikely]]
    compare_agreed(thread, block, word, at);
}

// Checks every write: `thread` must know that all earlier users of the word are done.
void check_write(Thread& thread, Block& block, Word& word, uint8_t bytes, uint32_t address,
                 Site site) {
  check_agreement(thread, block, word, address);
  if (word.in_flight) {
    report(Fault::write_to_bytes_in_flight, site, word.in_flight,
           format("%s writes shared %u before the copy is awaited that was started at",
                  name_of(thread).c_str(), address));
  }
  const Access& write = word.write;
  if ((write.bytes & bytes) != 0 && !knows(thread, write.agent, write.epoch)) {
    if (may_agree(thread, write, site)) {
      word.agreed = write.bytes & bytes;
      word.value = value_of(block, address);
    } else {
      race(thread, site, write.site, address, "writes", "write");
    }
  }
  word.reads.for_each([&](const ReadersOfWarp& read) {
    if ((read.bytes & bytes) != 0 && !knows_all(thread, read)) {
      race(thread, site, read.site, address, "writes", name_of(read.use));
    }
  });
}

// Checks that a use (`verb`) comes after the atomic operations on the word.
void check_atomics(const Thread& thread, const Word& word, uint8_t bytes, uint32_t address,
                   const char* verb, Site site) {
  word.reads.for_each([&](const ReadersOfWarp& read) {
    if (read.use == Use::atomic && (read.bytes & bytes) != 0 && !knows_all(thread, read)) {
      race(thread, site, read.site, address, verb, name_of(read.use));
    }
  });
}

void forget_reads(Word& word) {
  word.reads.clear();
  word.has_atomics = false;
}

void check_write(Thread& thread, const Piece& piece, uint32_t address, Site site) {
  if (piece.readers != 0) {
    report(Fault::write_to_operand_in_use, site, piece.reader,
           format("%s writes shared %u, which is being read by what was started at",
                  name_of(thread).c_str(), address));
  }
  piece.reads.for_each([&](const ReadersOfWarp& read) {
    if (!knows_all(thread, read)) {
      race(thread, site, read.site, address, "writes", "asynchronous read");
    }
  });
}

// Calls each(word, address of the word, bytes of it in the access).
template <class Each>
void for_each_word(Block& block, uint32_t address, uint32_t bytes, Each each) {
  uint32_t at = address / kWordBytes * kWordBytes;
  for (; at < address + bytes; at += kWordBytes) {
    Piece& piece = piece_at(block, at);
    each(piece, piece.words[at % kPieceBytes / kWordBytes], at, byte_mask(at, address, bytes));
  }
}

}  // namespace

uint32_t own_offset(const void* pointer, Site site) {
  const auto* const p = static_cast<const unsigned char*>(pointer);
  const Block& block = own_block();
  if (p < block.shared || p > block.shared + block.shared_bytes) {
    report(Fault::not_shared_memory, site, Site(),
           name_of(self()) + " takes the shared address of other memory");
    give_up();
  }
  return kFirstShared + static_cast<uint32_t>(p - block.shared);
}

uint32_t shared_address(const void* pointer, Site site) {
  const uint32_t offset = own_offset(pointer, site);
  const auto rank = static_cast<uint32_t>(own_block().rank);
  return rank == 0 ? offset : offset | (rank + 1) << kBlockShift;
}

uint32_t own_address(uint32_t address, Site site) {
  if (&resolve(address, site) != &own_block()) {
    report(Fault::outside_shared_memory, site, Site(),
           name_of(self()) + " gives another block's address to what takes its own alone");
    give_up();
  }
  return address;
}

Block& resolve(uint32_t& address, Site site) {
  const uint32_t window = address >> kBlockShift;
  address &= (1u << kBlockShift) - 1;
  if (window == 0) return own_block();
  Cluster& cluster = *own_block().cluster;
  if (window > cluster.blocks.size()) {
    report(Fault::outside_shared_memory, site, Site(),
           format("%s names block %u of a cluster of %zu", name_of(self()).c_str(), window - 1,
                  cluster.blocks.size()));
    give_up();
  }
  Block& block = *cluster.blocks[window - 1];
  if (&block != &own_block() && !self().saw_cluster_start) {
    report(
        Fault::remote_access_before_start, site, Site(),
        name_of(self()) + " uses shared memory of another block before a barrier of the cluster");
  }
  if (block.live_threads == 0) {
    report(Fault::remote_access_after_end, site, Site(),
           name_of(self()) + " uses shared memory of a block that has left");
  }
  return block;
}

void check_range(const Block& block, uint32_t address, uint32_t bytes, uint32_t alignment,
                 const char* what, Site site) {
  if (address < kFirstShared || address - kFirstShared + uint64_t{bytes} > block.shared_bytes) {
    report(Fault::outside_shared_memory, site, Site(),
           format("%s, %s: %u bytes at shared %d of %u", what, name_of(self()).c_str(), bytes,
                  static_cast<int>(address - kFirstShared), block.shared_bytes));
    give_up();
  }
  if ((address & (alignment - 1)) != 0) {
    report(Fault::misaligned_access, site, Site(),
           format("%s, %s: shared %u is no multiple of %u", what, name_of(self()).c_str(), address,
                  alignment));
  }
}

void on_read(Thread& thread, uint32_t address, uint32_t bytes, Site site) {
  for_each_word(*thread.block, address, bytes, [&](Piece&, Word& word, uint32_t at, uint8_t mask) {
    check_agreement(thread, *thread.block, word, at);
    if (word.in_flight) {
      report(Fault::read_of_bytes_in_flight, site, word.in_flight,
             format("%s reads shared %u before the copy is awaited that was started at",
                    name_of(thread).c_str(), at));
      return;
    }
    if (ordinary_accesses_are_seen && (mask & ~word.written) != 0) {
      report(Fault::read_of_unwritten_bytes, site, Site(),
             format("%s reads shared %u", name_of(thread).c_str(), at));
    }
    const Access& write = word.write;
    if ((write.bytes & mask) != 0 && !knows(thread, write.agent, write.epoch)) {
      race(thread, site, write.site, at, "reads", "write");
    }
    if (word.has_atomics) [[unlikely]]
      check_atomics(thread, word, mask, at, "reads", site);
    word.reads.add(ReadersOfWarp::one(thread.agent, thread.now, mask, site),
                   [&](const ReadersOfWarp& read) { return knows_all(thread, read); });
  });
}

void allow_unwritten(Thread& thread, uint32_t address, uint32_t bytes) {
  address &= (1U << kBlockShift) - 1;
  for_each_word(*thread.block, address, bytes,
                [](Piece&, Word& word, uint32_t, uint8_t mask) { word.written |= mask; });
}

void on_write(Thread& thread, uint32_t address, uint32_t bytes, Site site) {
  Piece* last = nullptr;
  for_each_word(*thread.block, address, bytes,
                [&](Piece& piece, Word& word, uint32_t at, uint8_t mask) {
                  if (&piece != last) {
                    check_write(thread, piece, at, site);
                    piece.reads.clear();
                    last = &piece;
                  }
                  check_write(thread, *thread.block, word, mask, at, site);
                  word.write = {thread.now, thread.agent, mask, false, site};
                  word.written |= mask;
                  forget_reads(word);
                });
}

void on_atomic(Thread& thread, uint32_t address, uint32_t bytes, Site site) {
  Block& block = *thread.block;
  check_write(thread, piece_at(block, address), address, site);
  for_each_word(block, address, bytes, [&](Piece&, Word& word, uint32_t at, uint8_t mask) {
    check_agreement(thread, block, word, at);
    if (word.in_flight) {
      report(Fault::write_to_bytes_in_flight, site, word.in_flight,
             format("an atomic operation of %s at shared %u, before the copy is awaited that was "
                    "started at",
                    name_of(thread).c_str(), at));
    }
    if (ordinary_accesses_are_seen && (mask & ~word.written) != 0) {
      report(Fault::read_of_unwritten_bytes, site, Site(),
             format("%s reads shared %u in an atomic operation", name_of(thread).c_str(), at));
    }
    const Access& write = word.write;
    if ((write.bytes & mask) != 0 && !knows(thread, write.agent, write.epoch)) {
      race(thread, site, write.site, at, "uses by an atomic operation", "write");
    }
    word.reads.for_each([&](const ReadersOfWarp& read) {
      if (read.use == Use::atomic || (read.bytes & mask) == 0 || knows_all(thread, read)) return;
      race(thread, site, read.site, at, "uses by an atomic operation", "read");
    });
    auto mine = ReadersOfWarp::one(thread.agent, thread.now, mask, site);
    mine.use = Use::atomic;
    word.reads.add(mine, [&](const ReadersOfWarp& read) { return knows_all(thread, read); });
    word.has_atomics = true;
    word.written |= mask;
  });
}

void begin_write(Thread& issuer, Block& block, uint32_t address, uint32_t bytes,
                 bool by_async_proxy, Site site) {
  Piece& first = piece_at(block, address);
  check_write(issuer, first, address, site);
  first.reads.clear();
  for_each_word(block, address, bytes, [&](Piece&, Word& word, uint32_t at, uint8_t mask) {
    check_write(issuer, block, word, mask, at, site);
    if (by_async_proxy && word.write.bytes != 0 && !is_fenced(issuer, word.write)) {
      report(Fault::missing_proxy_fence, site, word.write.site,
             format("a copy to shared %u follows, without one, the ordinary write at", at));
    }
    word.in_flight = site;
    word.write = {};
    forget_reads(word);
  });
}

void end_write(Block& block, uint32_t address, uint32_t bytes, const Access& by) {
  for_each_word(block, address, bytes, [&](Piece&, Word& word, uint32_t, uint8_t mask) {
    word.in_flight = Site();
    word.write = by;
    word.write.bytes = mask;
    word.written |= mask;
  });
}

// Returns whether a check of reading one of two words also holds for the other.
static bool is_alike(const Word& a, const Word& b) {
  return a.write.epoch == b.write.epoch && a.write.agent == b.write.agent &&
         a.write.bytes == b.write.bytes && a.write.fenced == b.write.fenced &&
         a.written == b.written && a.in_flight == b.in_flight && !b.has_atomics;
}

void begin_async_read(Thread& issuer, Block& block, uint32_t address, Site site) {
  Piece& piece = piece_at(block, address);
  const Word* checked = nullptr;
  for (uint32_t i = 0; i < kPieceWords; ++i) {
    const Word& word = piece.words[i];
    if (checked != nullptr && is_alike(*checked, word)) continue;
    checked = &word;
    const uint32_t at = address + i * kWordBytes;
    if (word.in_flight) {
      report(Fault::read_of_bytes_in_flight, site, word.in_flight,
             format("%s starts a read of shared %u before the copy is awaited that was started at",
                    name_of(issuer).c_str(), at));
      continue;
    }
    if (ordinary_accesses_are_seen && word.written != 0xf) {
      report(Fault::read_of_unwritten_bytes, site, Site(),
             format("%s starts a read of shared %u", name_of(issuer).c_str(), at));
    }
    if (word.has_atomics) [[unlikely]]
      check_atomics(issuer, word, 0xf, at, "starts a read of", site);
    if (word.write.bytes == 0) continue;
    if (!knows(issuer, word.write.agent, word.write.epoch)) {
      race(issuer, site, word.write.site, at, "starts a read of", "write");
    } else if (!is_fenced(issuer, word.write)) {
      report(Fault::missing_proxy_fence, site, word.write.site,
             format("shared %u is read without one after the ordinary write at", at));
    }
  }
  ++piece.readers;
  piece.reader = site;
}

void end_async_read(Block& block, uint32_t address, Agent agent, Epoch epoch, Site site) {
  Piece& piece = piece_at(block, address);
  --piece.readers;
  // An agent's earlier reads are complete when a later one is.
  piece.reads.add(ReadersOfWarp::one(agent, epoch, 0xf, site), [&](const ReadersOfWarp& read) {
    return read.epoch <= epoch && read.all([&](Agent other) { return other == agent; });
  });
}

}  // namespace flashcore::sim
