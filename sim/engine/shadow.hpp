// The simulator's record of each byte of a block's shared memory: its writer,
// the reads since, and the asynchronous operations that still use it.
//
//   Piece   16 bytes, the unit of copies: reads in flight, completed asynchronous reads
//   Word    4 bytes: the last write, the reads since, whether a copy to it is in flight
//
// Pieces are created when first accessed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/clock.hpp"
#include "engine/reads.hpp"
#include "engine/site.hpp"

namespace flashcore::sim {

inline constexpr uint32_t kWordBytes = 4, kPieceBytes = 16, kPieceWords = kPieceBytes / kWordBytes;

struct Access {
  Epoch epoch = 0;  // 0: none
  Agent agent = 0;
  uint8_t bytes = 0;    // of the word, one bit each
  bool fenced = false;  // of a write: visible to the asynchronous proxy without a fence
  Site site;
};

struct Word {
  Access write;
  Reads reads;               // since `write`; includes atomic operations
  Site in_flight;            // the copy that currently writes it
  uint8_t written = 0;       // bytes, one bit each
  uint8_t agreed = 0;        // bytes that several lanes write, which must all write `value`
  bool has_atomics = false;  // among `reads`
  uint32_t value = 0;
};

struct Piece {
  std::array<Word, kPieceWords> words;
  uint32_t readers = 0;  // asynchronous reads in flight
  Site reader;           // the youngest
  Reads reads;           // by completed asynchronous operations
};

class Shadow {
 public:
  explicit Shadow(uint32_t bytes) : pages_((bytes + kPageBytes - 1) / kPageBytes) {}

  // Returns the piece of the byte at `offset` in shared memory.
  Piece& piece(uint32_t offset) {
    std::unique_ptr<Page>& page = pages_[offset / kPageBytes];
    if (page == nullptr) page = std::make_unique<Page>();
    return (*page)[offset % kPageBytes / kPieceBytes];
  }

 private:
  static constexpr uint32_t kPageBytes = 1024;
  using Page = std::array<Piece, kPageBytes / kPieceBytes>;
  std::vector<std::unique_ptr<Page>> pages_;
};

}  // namespace flashcore::sim
