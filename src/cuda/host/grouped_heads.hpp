// One query a head: the query heads that share a KV head, seen as queries of one head.
//
//   Q [B, 8 heads, 1 query, D] over 2 KV heads   ->   Q [B, 2 heads, 4 queries, D], the same memory
//
// A tile of queries then reads the keys of its head once for all of them.
#pragma once

#include "problem/problem.hpp"

namespace flashcore::cuda::host {

// The problem so seen, or as it is: where there is more than one query, or queries of a head would
// have to differ in what only heads differ in (ALiBi, sinks, dropout) or in the keys that they see.
ForwardProblem with_grouped_heads(const ForwardProblem& problem);

}  // namespace flashcore::cuda::host
