#include "engine/product_operands.hpp"

#include <array>

#include "engine/scheduler.hpp"
#include "engine/shadow.hpp"
#include "engine/tensor_map.hpp"

namespace flashcore::sim {
namespace {

uint32_t descriptor_field(uint64_t descriptor, int bit) {
  return static_cast<uint32_t>(descriptor >> bit & 0x3fff) << 4;
}
int descriptor_span(uint64_t descriptor) {
  constexpr std::array<int, 4> kSpans{0, 128, 64, 32};
  return kSpans[descriptor >> 62];
}

}  // namespace

void check_descriptor(uint64_t descriptor, Site site) {
  const int span = descriptor_span(descriptor);
  const uint32_t address = descriptor_field(descriptor, 0);
  if (span == 0) {
    report(Fault::misaligned_descriptor, site, Site(),
           "operands without a swizzle have no host version");
    give_up();
  }
  const uint32_t base_offset = static_cast<uint32_t>(descriptor >> 49 & 7);
  if (base_offset == 0 && (address >> 7 & static_cast<uint32_t>(span / 16 - 1)) == 0) return;
  report(Fault::misaligned_descriptor, site, Site(),
         format("shared %u is inside of the 8 rows of a swizzle of %d bytes", address, span));
}

void k_major_pieces(std::vector<uint32_t>& pieces, uint64_t descriptor, int rows) {
  const int span = descriptor_span(descriptor);
  const uint32_t start = descriptor_field(descriptor, 0), stride = descriptor_field(descriptor, 32);
  for (uint32_t row = 0; row < static_cast<uint32_t>(rows); ++row) {
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t address =
          start + row / 8 * stride + row % 8 * static_cast<uint32_t>(span) + half * kPieceBytes;
      pieces.push_back(swizzled(address, span));
    }
  }
}

void mn_major_pieces(std::vector<uint32_t>& pieces, uint64_t descriptor, int columns) {
  const int span = descriptor_span(descriptor);
  const auto panel_pieces = static_cast<uint32_t>(span) / kPieceBytes;
  const uint32_t start = descriptor_field(descriptor, 0);
  const uint32_t leading = descriptor_field(descriptor, 16);
  const uint32_t stride = descriptor_field(descriptor, 32);
  for (uint32_t k = 0; k < uint32_t{kProductDepth}; ++k) {
    for (uint32_t j = 0; j < static_cast<uint32_t>(columns) / 8; ++j) {
      const uint32_t address = start + j / panel_pieces * leading + k / 8 * stride +
                               k % 8 * static_cast<uint32_t>(span) + j % panel_pieces * kPieceBytes;
      pieces.push_back(swizzled(address, span));
    }
  }
}

}  // namespace flashcore::sim
