// One query per head: the query heads that share a KV head, viewed as queries of one head.
//
//   Q [B, 8 heads, 1 query, D] over 2 KV heads   ->   Q [B, 2 heads, 4 queries, D], the same memory
//
// A query tile then reads its head's keys once for all of them.
#pragma once

#include "problem/problem.hpp"

namespace flashcore::cuda::host {

// Returns the problem in this view, or unchanged if there is more than one query, or if queries of
// a head would differ in a property of heads (ALiBi, sinks, dropout) or in the keys that they see.
ForwardProblem with_grouped_heads(const ForwardProblem& problem);

}  // namespace flashcore::cuda::host
