#include "evolve/task/sha256.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace flashcore::evolve {
namespace {

constexpr size_t kRounds = 64;

// The first 32 bits of the fraction of a prime's root, found by bisection with integers: floor(2^32
// root(p)) without its upper half.
constexpr uint32_t fraction_of_root(uint64_t prime, int degree) {
  uint64_t low = 0, high = uint64_t{1} << 37;  // no root reaches 32
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    __extension__ using Wide = unsigned __int128;
    Wide power = middle;
    for (int i = 1; i < degree; ++i) power *= middle;
    const bool below = power < static_cast<Wide>(prime) << 32 * degree;
    (below ? low : high) = middle;
  }
  return static_cast<uint32_t>(low);
}

constexpr std::array<uint64_t, kRounds> first_primes() {
  std::array<uint64_t, kRounds> primes{};
  size_t count = 0;
  for (uint64_t n = 2; count < primes.size(); ++n) {
    bool is_prime = true;
    for (size_t i = 0; i < count && is_prime; ++i) is_prime = n % primes[i] != 0;
    if (is_prime) primes[count++] = n;
  }
  return primes;
}

template <size_t Count>
constexpr std::array<uint32_t, Count> constants(int degree) {
  std::array<uint32_t, Count> out{};
  for (size_t i = 0; i < Count; ++i) out[i] = fraction_of_root(first_primes()[i], degree);
  return out;
}

using State = std::array<uint32_t, 8>;

void add_block(State& state, const unsigned char* block) {
  static const std::array<uint32_t, kRounds> kAdded = constants<kRounds>(3);
  std::array<uint32_t, kRounds> w{};
  for (size_t i = 0; i < 16; ++i) {
    for (size_t byte = 0; byte < 4; ++byte) w[i] = w[i] << 8 | block[4 * i + byte];
  }
  using std::rotr;
  for (size_t i = 16; i < kRounds; ++i) {
    const uint32_t s0 = rotr(w[i - 15], 7) ^ rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
    const uint32_t s1 = rotr(w[i - 2], 17) ^ rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t i = 0; i < kRounds; ++i) {
    const uint32_t s1 = rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25);
    const uint32_t first = h + s1 + ((e & f) ^ (~e & g)) + kAdded[i] + w[i];
    const uint32_t s0 = rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22);
    const uint32_t second = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
  }
  const State added = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < state.size(); ++i) state[i] += added[i];
}

}  // namespace

std::string sha256(std::string_view bytes) {
  static const State kFirst = constants<8>(2);
  std::string padded(bytes);
  padded += '\x80';
  while (padded.size() % 64 != 56) padded += '\0';
  const uint64_t bits = uint64_t{8} * bytes.size();
  for (int shift = 56; shift >= 0; shift -= 8) padded += static_cast<char>(bits >> shift & 0xFF);
  State state = kFirst;
  for (size_t i = 0; i < padded.size(); i += 64) {
    add_block(state, reinterpret_cast<const unsigned char*>(padded.data()) + i);
  }
  std::string text;
  for (const uint32_t word : state) text += fmt::format("{:08x}", word);
  return text;
}

}  // namespace flashcore::evolve
