// Tensor maps for tests.
#pragma once

#include <cuda.h>

#include <cstring>
#include <vector>

namespace flashcore::sim {

// [rows, columns] elements, row-major, read in boxes of box_rows x box_columns.
struct Matrix {
  int rows, columns, element_bytes;
  std::vector<unsigned char> bytes;

  Matrix(int rows_, int columns_, int element_bytes_)
      : rows(rows_),
        columns(columns_),
        element_bytes(element_bytes_),
        bytes(static_cast<size_t>(rows_ * columns_ * element_bytes_)) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<unsigned char>(1 + (i * 7 + i / 251) % 250);
    }
  }
  int row_bytes() const { return columns * element_bytes; }

  // `used`: the tensor's columns; the others lie between its rows.
  CUtensorMap map(int box_rows, int box_columns, int span, int used) {
    TensorMap made;
    made.magic = TensorMap::kMagic;
    made.base = bytes.data();
    made.extent = {used, rows, 1, 1, 1};
    const int64_t all = static_cast<int64_t>(bytes.size());
    made.stride = {element_bytes, row_bytes(), all, all, all};
    made.box = {box_columns, box_rows, 1, 1, 1};
    made.span = span;
    CUtensorMap encoded{};
    std::memcpy(&encoded, &made, sizeof made);
    return encoded;
  }
  CUtensorMap map(int box_rows, int box_columns, int span) {
    return map(box_rows, box_columns, span, columns);
  }
};

}  // namespace flashcore::sim
