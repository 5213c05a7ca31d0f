// Random problems of both passes and GPUs of several generations. Some kernel of the table computes most problems.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "problem/backward.hpp"
#include "problem/problem.hpp"
#include "tools/launches/runs.hpp"

namespace flashcore::tests {

inline constexpr fake::Gpu kGpus[] = {
    {75, 68, 64 * 1024},   {80, 108, 163 * 1024},  {86, 84, 99 * 1024},  {89, 58, 99 * 1024},
    {90, 132, 227 * 1024}, {100, 148, 227 * 1024}, {120, 188, 99 * 1024}};

struct RandomPass {
  std::variant<ForwardProblem, BackwardProblem> problem;
  bool batch_invariant = false;
  bool hostile = false;  // sizes at which a CPU's vectors decide whether a workspace can be counted
};

// Draws a pass by its seed; none if what was drawn is malformed.
std::optional<RandomPass> random_pass(uint64_t seed);

// body(pass) for the first `count`.
template <class Body>
void for_random_passes(int count, const Body& body) {
  for (uint64_t seed = 0; count > 0; ++seed) {
    const std::optional<RandomPass> pass = random_pass(seed);
    if (!pass) continue;
    body(*pass);
    --count;
  }
}

// FNV-1a, of bytes that are added one after the other.
struct Digest {
  uint64_t value = 0xCBF29CE484222325u;

  void add(uint8_t byte) { value = (value ^ byte) * 0x100000001B3u; }
  void add(std::string_view text) {
    for (const char one : text) add(static_cast<uint8_t>(one));
  }
};

// Compares what `ask` said of the first problems with what was recorded: the text of all, or, with
// FLASHCORE_TEST_RECORDED=few, the digest of the text of `few`. FLASHCORE_PRINT_VERDICTS prints the text.
struct Recorded {
  int all, few;
  std::string_view text, digest_of_few;

  int count() const;
  void expect(std::string_view found) const;
};

}  // namespace flashcore::tests
