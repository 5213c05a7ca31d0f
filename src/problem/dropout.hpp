// Reads a run's dropout seed and offset: from the arguments, or from memory that the host can read.
#pragma once

#include <cstdint>

#include "problem/philox.hpp"
#include "problem/problem.hpp"

namespace flashcore {

inline PhiloxKey dropout_key_of(const ForwardProblem& p, const Arguments& args) {
  if (!p.dropout_state.present) return dropout_key(args.dropout_seed, args.dropout_offset);
  return dropout_key(static_cast<uint64_t>(args.dropout_state[p.dropout_state.at(0, 0)]),
                     static_cast<uint64_t>(args.dropout_state[p.dropout_state.at(1, 0)]));
}

}  // namespace flashcore
