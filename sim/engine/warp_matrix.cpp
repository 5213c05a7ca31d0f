#include "engine/warp_matrix.hpp"

#include <array>
#include <cstring>

#include "engine/access.hpp"
#include "engine/bank_conflicts.hpp"
#include "engine/byte_types.hpp"
#include "engine/collective.hpp"
#include "engine/scheduler.hpp"

namespace flashcore::sim {
namespace {

struct Rows {  // a lane's arguments of ldmatrix or stmatrix
  uint32_t* r;
  uint32_t address;
};

Rows& rows_of(const Meeting& meeting, int lane) {
  return *static_cast<Rows*>(meeting.arguments[static_cast<size_t>(lane)]);
}

void count_matrix_conflicts(const Meeting& meeting) {
  for (int matrix = 0; matrix < 4; ++matrix) {
    std::array<uint32_t, kLanes> addresses{};
    for (int row = 0; row < 8; ++row) {
      for (uint32_t word = 0; word < kPieceWords; ++word) {
        addresses[static_cast<size_t>(row) * kPieceWords + word] =
            rows_of(meeting, 8 * matrix + row).address + word * kWordBytes;
      }
    }
    count_phase(addresses, meeting.site);
  }
}

struct Operands {
  float* d;
  const uint32_t *a, *b;
};

// Elements of the type per register, which determine the width of k.
int per_register(ElementType type) { return is_byte(type) ? 4 : type == ElementType::tf32 ? 1 : 2; }

}  // namespace

void load_matrices(uint32_t (&r)[4], uint32_t row_address, bool transposed, Site site) {
  row_address = own_address(row_address, site);
  check_range(own_block(), row_address, kPieceBytes, kPieceBytes, "ldmatrix", site);
  // Each lane reads the row whose address it provides; passing values to other lanes orders nothing.
  on_read(self(), row_address, kPieceBytes, site);
  Rows rows{r, row_address};
  meet({transposed ? "ldmatrix.trans" : "ldmatrix", kAllLanes, true}, &rows, site,
       [&](Warp& warp, Meeting& meeting) {
         count_matrix_conflicts(meeting);
         for (int m = 0; m < 4; ++m) {
           uint16_t matrix[8][8];
           for (int row = 0; row < 8; ++row) {
             std::memcpy(matrix[row], byte_at(*warp.block, rows_of(meeting, 8 * m + row).address),
                         16);
           }
           for (int lane = 0; lane < kLanes; ++lane) {
             const int g = lane / 4, t = lane % 4 * 2;
             const uint32_t low = transposed ? matrix[t][g] : matrix[g][t];
             const uint32_t high = transposed ? matrix[t + 1][g] : matrix[g][t + 1];
             rows_of(meeting, lane).r[m] = low | high << 16;
           }
         }
       });
}

void store_matrices(uint32_t row_address, const uint32_t (&r)[4], bool transposed, Site site) {
  row_address = own_address(row_address, site);
  check_range(own_block(), row_address, kPieceBytes, kPieceBytes, "stmatrix", site);
  on_write(self(), row_address, kPieceBytes, site);
  uint32_t values[4] = {r[0], r[1], r[2], r[3]};
  Rows rows{values, row_address};
  meet({"stmatrix", kAllLanes, true}, &rows, site, [&](Warp& warp, Meeting& meeting) {
    count_matrix_conflicts(meeting);
    for (int m = 0; m < 4; ++m) {
      for (int row = 0; row < 8; ++row) {
        uint32_t words[4];
        for (int t = 0; t < 4; ++t) {
          if (!transposed) {
            words[t] = rows_of(meeting, 4 * row + t).r[m];
            continue;
          }
          // Elements 2 t and 2 t + 1 of the row are this column of two rows that lanes hold.
          const int shift = row % 2 * 16;
          const uint32_t low = rows_of(meeting, 4 * (2 * t) + row / 2).r[m] >> shift & 0xffff;
          const uint32_t high = rows_of(meeting, 4 * (2 * t + 1) + row / 2).r[m] >> shift & 0xffff;
          words[t] = low | high << 16;
        }
        std::memcpy(byte_at(*warp.block, rows_of(meeting, 8 * m + row).address), words, 16);
      }
    }
  });
}

uint32_t transpose_matrix(uint32_t x, Site site) {
  uint32_t words[2] = {x, 0};  // before and after
  meet({"movmatrix", kAllLanes, true}, words, site, [&](Warp& /*warp*/, Meeting& meeting) {
    const auto words_of = [&](int lane) {
      return static_cast<uint32_t*>(meeting.arguments[static_cast<size_t>(lane)]);
    };
    const auto element = [&](int row, int column) {
      return words_of(4 * row + column / 2)[0] >> (column % 2 * 16) & 0xffff;
    };
    for (int lane = 0; lane < kLanes; ++lane) {
      const int g = lane / 4, t = lane % 4 * 2;
      words_of(lane)[1] = element(t, g) | element(t + 1, g) << 16;
    }
  });
  return words[1];
}

void multiply_m16n8(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], ElementType type,
                    Site site) {
  Operands operands{d, a, b};
  meet({"mma.sync", kAllLanes, true}, &operands, site, [&](Warp&, Meeting& meeting) {
    const int elements = per_register(type), k = 8 * elements, bits = 32 / elements;
    std::array<float, 16 * 32> left{};
    std::array<float, 32 * 8> right{};
    std::array<float, 16 * 8> sum{};
    const auto at = [](int row, int columns, int column) {
      return static_cast<size_t>(row * columns + column);
    };
    const auto element = [&](uint32_t word, int i) {
      return widen(elements == 1 ? word : word >> (i * bits) & ((1u << bits) - 1), type);
    };
    const auto of = [&](int lane) -> Operands& {
      return *static_cast<Operands*>(meeting.arguments[static_cast<size_t>(lane)]);
    };
    for (int lane = 0; lane < kLanes; ++lane) {
      const int g = lane / 4, t = lane % 4;
      for (int i = 0; i < elements; ++i) {
        for (int r = 0; r < 4; ++r) {
          left[at(g + r % 2 * 8, k, elements * (t + r / 2 * 4) + i)] = element(of(lane).a[r], i);
        }
        for (int r = 0; r < 2; ++r) {
          right[at(elements * (t + r * 4) + i, 8, g)] = element(of(lane).b[r], i);
        }
      }
      for (int e = 0; e < 4; ++e) sum[at(g + e / 2 * 8, 8, 2 * t + e % 2)] = of(lane).d[e];
    }
    multiply(sum.data(), left.data(), right.data(), 16, 8, k);
    for (int lane = 0; lane < kLanes; ++lane) {
      const int g = lane / 4, t = lane % 4;
      for (int e = 0; e < 4; ++e) of(lane).d[e] = sum[at(g + e / 2 * 8, 8, 2 * t + e % 2)];
    }
  });
}

void load_shared(uint32_t address, void* to, uint32_t bytes, Site site) {
  address = own_address(address, site);
  check_range(own_block(), address, bytes, bytes, "ld.shared", site);
  on_read(self(), address, bytes, site);
  count_lane_access(self(), address, bytes, site);
  std::memcpy(to, byte_at(own_block(), address), bytes);
}

void store_shared(uint32_t address, const void* from, uint32_t bytes, Site site) {
  address = own_address(address, site);
  check_range(own_block(), address, bytes, bytes, "st.shared", site);
  on_write(self(), address, bytes, site);
  count_lane_access(self(), address, bytes, site);
  std::memcpy(byte_at(own_block(), address), from, bytes);
}

}  // namespace flashcore::sim
