// A problem over a paged cache as one with K and V in one piece, to judge its rows.
#pragma once

#include "bench/gate/part.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// The problem with K and V [B, Hkv, Skv, D]; other problems are unchanged.
Problem in_one_piece(const Problem& problem);

// Reads its elements from the tensors of `problem`, whose pages are [num_pages, page_size, Hkv, D]
// in memory; `inputs` reads in memory order.
ReadElements in_one_piece(const Problem& problem, ReadElements inputs);

}  // namespace flashcore::bench
