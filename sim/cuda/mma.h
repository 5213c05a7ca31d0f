// Stands for CUDA's header of this name: nvcuda::wmma with 16 x 16 x 16 tiles, fp16
// operands and fp32 accumulators, with the register layout of tile/wmma_fragment.hpp.
//
// Loads and stores are ordinary accesses of each lane's own registers: CUDA does
// not specify which lane reads which element, and orders nothing between the lanes.
#pragma once

#include <array>
#include <type_traits>

#include "cuda_fp16.h"
#include "engine/collective.hpp"
#include "engine/matrix.hpp"

namespace nvcuda::wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };

inline constexpr int kTile = 16;

// 16-bit operands repeat their first 8 registers in the last 8.
template <class Use, int kRows, int kColumns, int kDepth, class T, class Layout = void>
struct fragment {
  static_assert(kRows == kTile && kColumns == kTile && kDepth == kTile);
  static constexpr int num_elements = std::is_same_v<Use, accumulator> ? 8 : 16;
  T x[num_elements];
};

// Returns the tile's element in register `r` of `lane`, by row.
template <class Use>
constexpr int element_of(int lane, int r) {
  const int g = lane / 4, t = 2 * (lane % 4) + (r & 1), middle = 8 * (r >> 1 & 1);
  const int last = 8 * (r >> 2 & 1);
  if (std::is_same_v<Use, matrix_b>) return (t + middle) * kTile + g + last;
  return (g + middle) * kTile + t + last;
}

// Returns that element's index in a matrix.
template <class Use>
unsigned place_of(int r, unsigned stride, bool by_column) {
  const auto element = static_cast<unsigned>(element_of<Use>(::flashcore::sim::self().lane, r));
  const unsigned row = element / kTile, column = element % kTile;
  return by_column ? column * stride + row : row * stride + column;
}

inline void meet_all(const char* what, ::flashcore::sim::Site site) {
  ::flashcore::sim::meet({what, ::flashcore::sim::kAllLanes, true}, nullptr, site,
                         [](::flashcore::sim::Warp&, ::flashcore::sim::Meeting&) {});
}

template <class Use, class T, class Layout>
void fill_fragment(fragment<Use, kTile, kTile, kTile, T, Layout>& f,
                   std::type_identity_t<T> value) {
  for (T& x : f.x) x = value;
}

template <class Use, class T, class Layout>
void load_matrix_sync(fragment<Use, kTile, kTile, kTile, T, Layout>& f, const T* from,
                      unsigned stride,
                      ::flashcore::sim::Site site = ::flashcore::sim::Site::here()) {
  meet_all("wmma.load", site);
  for (int r = 0; r < f.num_elements; ++r) {
    f.x[r] = from[place_of<Use>(r, stride, std::is_same_v<Layout, col_major>)];
  }
}
template <class T>
void load_matrix_sync(fragment<accumulator, kTile, kTile, kTile, T>& f, const T* from,
                      unsigned stride, layout_t layout,
                      ::flashcore::sim::Site site = ::flashcore::sim::Site::here()) {
  meet_all("wmma.load", site);
  for (int r = 0; r < f.num_elements; ++r) {
    f.x[r] = from[place_of<accumulator>(r, stride, layout == mem_col_major)];
  }
}
template <class T>
void store_matrix_sync(T* to, const fragment<accumulator, kTile, kTile, kTile, T>& f,
                       unsigned stride, layout_t layout,
                       ::flashcore::sim::Site site = ::flashcore::sim::Site::here()) {
  meet_all("wmma.store", site);
  for (int r = 0; r < f.num_elements; ++r) {
    to[place_of<accumulator>(r, stride, layout == mem_col_major)] = f.x[r];
  }
}

template <class LayoutA, class LayoutB>
void mma_sync(fragment<accumulator, kTile, kTile, kTile, float>& d,
              const fragment<matrix_a, kTile, kTile, kTile, __half, LayoutA>& a,
              const fragment<matrix_b, kTile, kTile, kTile, __half, LayoutB>& b,
              const fragment<accumulator, kTile, kTile, kTile, float>& c,
              ::flashcore::sim::Site site = ::flashcore::sim::Site::here()) {
  namespace sim = ::flashcore::sim;
  struct Operands {
    float* d;
    const __half *a, *b;
    const float* c;
  } operands{d.x, a.x, b.x, c.x};
  sim::meet({"wmma.mma", sim::kAllLanes, true}, &operands, site,
            [](sim::Warp&, sim::Meeting& meeting) {
              std::array<float, kTile * kTile> left, right, sum;
              const auto for_each_register = [&](auto each) {
                for (int lane = 0; lane < sim::kLanes; ++lane) {
                  auto& of = *static_cast<Operands*>(meeting.arguments[static_cast<size_t>(lane)]);
                  for (int r = 0; r < 8; ++r) each(of, lane, r);
                }
              };
              const auto at = [](int element) { return static_cast<size_t>(element); };
              for_each_register([&](const Operands& of, int lane, int r) {
                left[at(element_of<matrix_a>(lane, r))] = of.a[r];
                right[at(element_of<matrix_b>(lane, r))] = of.b[r];
                sum[at(element_of<accumulator>(lane, r))] = of.c[r];
              });
              sim::multiply(sum.data(), left.data(), right.data(), kTile, kTile, kTile);
              for_each_register([&](const Operands& of, int lane, int r) {
                of.d[r] = sum[at(element_of<accumulator>(lane, r))];
              });
            });
}

}  // namespace nvcuda::wmma
