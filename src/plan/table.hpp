// The table of kernels: every implementation, best first; each can refuse with one sentence.
//
// make_plan, explain and a forced choice all use this one table; docs/adding-a-kernel.md says how
// to add a row.
#pragma once

#include <string_view>
#include <vector>

#include "kernel/kernel.hpp"

namespace flashcore {

// The variants of all kernels, in the order of choice. The variants of a kernel follow each other.
const std::vector<Variant>& variants();

// The kernels: rows of the table.
std::vector<Kernel> kernels();

// Null where none has this name.
const Variant* find_variant(std::string_view name);

}  // namespace flashcore
