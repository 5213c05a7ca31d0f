// How a kernel cuts a problem into units of work. Kernels hand this over as data, so that the cost
// model (src/tuning) knows no kernel.
#pragma once

#include <cstdint>
#include <string_view>

#include "problem/problem.hpp"

namespace flashcore {

// A unit is a block, or a cluster of blocks, that computes some queries of one head.
struct WorkUnit {
  std::string_view tile = {};  // the name of its constants in src/tuning/gpus
  int64_t block_q = 0;         // queries of a unit
  int64_t group_q = 0;         // of those that step over keys together; block_q is a multiple
  int64_t step_keys = 0;       // keys of a step
  int64_t sms = 1;             // SMs that a unit runs on: one for each block of a cluster
  int64_t units_at_once = 1;   // that these SMs hold
  int64_t most_at_once = 1;    // that they hold in any launch on any GPU: fewer are faster
};

// Returns whether units differ in how many keys they see.
constexpr bool sees_unevenly(const ForwardProblem& p) {
  return p.band.right >= 0 || p.band.left >= 0 || p.packed || p.seqlens_q.present ||
         p.seqlens_kv.present;
}

}  // namespace flashcore
