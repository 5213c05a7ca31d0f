// A problem over a cache in pages as one with K and V in one piece: what rows are judged by.
#pragma once

#include "bench/gate/sampled_gate.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// The same problem with K and V [B, Hkv, Skv, D]; other problems stay as they are.
Problem in_one_piece(const Problem& problem);

// Its elements, from the tensors of `problem`, whose pages are [num_pages, page_size, Hkv, D] in memory:
// `inputs` reads in the order of the memory.
ReadElements in_one_piece(const Problem& problem, ReadElements inputs);

}  // namespace flashcore::bench
