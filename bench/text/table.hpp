// Text tables: columns as wide as their widest cell, two spaces apart.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace flashcore::bench {

enum class Align { left, right };

struct Column {
  std::string heading;
  Align align = Align::left;
};

// Printed columns of UTF-8 text: code points, without terminal colours.
size_t display_width(std::string_view text);

std::string pad(std::string_view text, size_t width, Align align);

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::vector<std::string> lines() const;  // the heading first, then every row

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace flashcore::bench
