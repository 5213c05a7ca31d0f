// The reads of a word since its last write. Lanes of a warp
// usually read a word together, and then share one record.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/clock.hpp"
#include "engine/site.hpp"

namespace flashcore::sim {

enum class Use : uint8_t { plain, atomic };

struct ReadersOfWarp {
  Epoch epoch = 0;
  uint32_t lanes = 0;  // 0: none
  ClusterNumber cluster = 0;
  uint16_t warp = 0;  // of agents: agent / 32
  uint8_t bytes = 0;  // of the word, one bit each
  Use use = Use::plain;
  Site site;  // of the first read

  static ReadersOfWarp one(Agent agent, Epoch epoch, uint8_t bytes, Site site) {
    return {epoch, 1u << (agent % 32), 0,   static_cast<uint16_t>(agent / 32),
            bytes, Use::plain,         site};
  }

  bool is_alike(const ReadersOfWarp& other) const {
    return epoch == other.epoch && cluster == other.cluster && warp == other.warp &&
           bytes == other.bytes && use == other.use;
  }
  // Returns whether knows(agent) holds for all.
  template <class Knows>
  bool all(Knows knows) const {
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
      if (!knows(static_cast<Agent>(warp * 32 + __builtin_ctz(rest)))) return false;
    }
    return true;
  }
};

class Reads {
 public:
  // Calls each(readers).
  template <class Each>
  void for_each(Each each) const {
    if (first_.lanes != 0) each(first_);
    if (more_ == nullptr) return;
    for (const ReadersOfWarp& readers : *more_) each(readers);
  }

  // Adds a read. Reads that its thread knows of, according to are_known(readers),
  // are dropped now and then: threads that know of the new read know of them, too.
  template <class AreKnown>
  void add(const ReadersOfWarp& read, AreKnown are_known) {
    if (first_.lanes == 0) {
      first_ = read;
      return;
    }
    if (first_.is_alike(read)) {
      first_.lanes |= read.lanes;
      return;
    }
    const auto is_covered = [&](const ReadersOfWarp& old) {
      return (old.bytes & ~read.bytes) == 0 && old.use == read.use && are_known(old);
    };
    const bool is_of_one_lane = (first_.lanes & (first_.lanes - 1)) == 0;
    if (is_of_one_lane && is_covered(first_)) {
      first_ = read;
      return;
    }
    if (more_ == nullptr) more_ = std::make_unique<std::vector<ReadersOfWarp>>();
    for (ReadersOfWarp& readers : *more_) {
      if (!readers.is_alike(read)) continue;
      readers.lanes |= read.lanes;
      return;
    }
    std::erase_if(*more_, is_covered);
    if (is_covered(first_)) {
      first_ = read;
    } else {
      more_->push_back(read);
    }
  }

  void clear() {
    first_.lanes = 0;
    if (more_ != nullptr) more_->clear();
  }

 private:
  ReadersOfWarp first_;
  std::unique_ptr<std::vector<ReadersOfWarp>> more_;
};

}  // namespace flashcore::sim
