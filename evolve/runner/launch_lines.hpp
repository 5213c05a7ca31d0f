// The launch configuration of a GPU candidate: lines of its source with integer expressions.
//
//   //@ launch grid batch * heads_q * ceil_div(seqlen_q, BLOCK_Q)      one to three, separated by ','
//   //@ launch block 128
//   //@ launch shared shared_bytes                  dynamic shared memory, in bytes; 0 without the line
//   //@ launch workspace 4 * batch * heads_q        bytes; the argument `workspace`; 0 without the line
//   //@ launch map k box 64, 64 swizzle 128         k is a CUtensorMap: rows and columns of its box
//
// Expressions have + - * / % and parentheses, min, max and ceil_div, and names: the arguments of
// the task's signature, multiprocessors, the source's numeric parameters, and variables of the
// compiled program (extern "C" __constant__ int), which is how a sizeof becomes available.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace flashcore::evolve {

struct TensorMapLine {
  std::string rows, columns;  // extents of the box; expressions
  int64_t swizzle = 0;        // 0, 32, 64 or 128 bytes
};

struct LaunchLines {
  std::vector<std::string> grid, block;              // expressions
  std::string shared, workspace;                     // "" if there is no line
  std::array<std::optional<TensorMapLine>, 4> maps;  // for q, k, v and o
};

// Parses a source, or only its launch lines. `error` says in one sentence what is wrong.
bool read_launch_lines(const std::string& source, LaunchLines& lines, std::string& error);

// Looks up a name; nothing if it is unknown.
using Names = std::function<std::optional<int64_t>(const std::string& name)>;

// Evaluates an expression; nothing, with the reason in `error`, if it is invalid.
std::optional<int64_t> evaluate(const std::string& expression, const Names& names,
                                std::string& error);

}  // namespace flashcore::evolve
