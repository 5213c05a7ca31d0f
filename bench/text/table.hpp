// Text tables: columns as wide as their widest cell, two spaces apart.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/text/terminal.hpp"

namespace flashcore::bench {

enum class Align { left, right };

struct Column {
  std::string heading;
  Align align = Align::left;
};

struct Cell {
  std::string text;
  Tone tone;
  std::string rest;  // after the text, plain

  Cell(std::string what, Tone how = Tone::plain, std::string more = {})
      : text(std::move(what)), tone(how), rest(std::move(more)) {}
  Cell(const char* what, Tone how = Tone::plain, std::string more = {})
      : Cell(std::string(what), how, std::move(more)) {}

  std::string shown(bool in_color) const { return (in_color ? colored(text, tone) : text) + rest; }
};

// Printed columns of UTF-8 text: code points.
size_t display_width(std::string_view text);

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  void row(std::vector<Cell> cells) { rows_.push_back(std::move(cells)); }
  // The heading first, then every row.
  std::vector<std::string> lines(bool in_color = false) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace flashcore::bench
