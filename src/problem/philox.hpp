// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011),
// and the dropout mask made of it.
//
// constexpr, so that the same code runs on the host, in the SIMD kernels and on the device.
#pragma once

#include <array>
#include <cstdint>

namespace flashcore {

using PhiloxKey = std::array<uint32_t, 2>;
using PhiloxBlock = std::array<uint32_t, 4>;

constexpr PhiloxBlock philox4x32_10(PhiloxBlock counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

// The key of one (seed, offset), drawn by Philox itself, so that offsets do not overlap.
constexpr PhiloxKey dropout_key(uint64_t seed, uint64_t offset) {
  const PhiloxBlock block =
      philox4x32_10({static_cast<uint32_t>(offset), static_cast<uint32_t>(offset >> 32), 0, 0},
                    {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return {block[0], block[1]};
}

// Returns random words for keys 4 * key_group ... + 3; word w belongs to key 4 * key_group + w.
constexpr PhiloxBlock dropout_words(PhiloxKey key, uint32_t batch, uint32_t head, uint32_t query,
                                    uint32_t key_group) {
  return philox4x32_10({key_group, query, head, batch}, key);
}

// A pair is kept if its word is at least this: 2^32 * p, rounded; 2^32 drops everything.
constexpr uint64_t dropout_threshold(float dropout_p) {
  return static_cast<uint64_t>(static_cast<double>(dropout_p) * 4294967296.0 + 0.5);
}

// Factor of the probabilities that are kept.
constexpr float dropout_rescale(float dropout_p) {
  return dropout_p < 1 ? 1.0f / (1.0f - dropout_p) : 0.0f;
}

}  // namespace flashcore
