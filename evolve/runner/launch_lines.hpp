// How a GPU candidate wants to be launched: lines of its source, of whole numbers.
//
//   //@ launch grid batch * heads_q * ceil_div(seqlen_q, BLOCK_Q)      one to three, separated by ','
//   //@ launch block 128
//   //@ launch shared shared_bytes                  dynamic shared memory, in bytes; 0 without the line
//   //@ launch workspace 4 * batch * heads_q        bytes; the argument `workspace`; 0 without the line
//   //@ launch map k box 64, 64 swizzle 128         k is a CUtensorMap: rows and columns of its box
//
// Expressions have + - * / % and parentheses, min, max and ceil_div, and names: the arguments of the
// task's signature, multiprocessors, the source's parameters that are numbers, and variables of the
// compiled program (extern "C" __constant__ int), which is how sizeof gets here.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace flashcore::evolve {

struct TensorMapLine {
  std::string rows, columns;  // of the box; expressions
  int64_t swizzle = 0;        // 0, 32, 64 or 128 bytes
};

struct LaunchLines {
  std::vector<std::string> grid, block;              // expressions
  std::string shared, workspace;                     // "" where there is no line
  std::array<std::optional<TensorMapLine>, 4> maps;  // of q, k, v and o
};

// Of a source, or of its launch lines alone. `error` says in one sentence what is wrong with them.
bool read_launch_lines(const std::string& source, LaunchLines& lines, std::string& error);

// The value of a name; nothing: there is no such name.
using Names = std::function<std::optional<int64_t>(const std::string& name)>;

// What an expression comes to; nothing, and why in `error`.
std::optional<int64_t> evaluate(const std::string& expression, const Names& names,
                                std::string& error);

}  // namespace flashcore::evolve
