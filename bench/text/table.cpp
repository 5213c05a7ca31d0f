#include "bench/text/table.hpp"

#include <algorithm>

namespace flashcore::bench {

size_t display_width(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;  // not a continuation byte of UTF-8
  }));
}

std::vector<std::string> Table::lines(bool in_color) const {
  std::vector<Cell> headings;
  std::vector<size_t> widths;
  for (const Column& column : columns_) {
    headings.emplace_back(column.heading);
    widths.push_back(display_width(column.heading));
  }
  for (const auto& cells : rows_) {
    for (size_t c = 0; c < std::min(cells.size(), widths.size()); ++c) {
      widths[c] = std::max(widths[c], display_width(cells[c].shown(false)));
    }
  }
  const auto format = [&](const std::vector<Cell>& cells) {
    std::string line;
    for (size_t c = 0; c < std::min(cells.size(), widths.size()); ++c) {
      const std::string text = cells[c].shown(in_color);
      const std::string space(widths[c] - display_width(cells[c].shown(false)), ' ');
      if (c > 0) line += "  ";
      line += columns_[c].align == Align::left ? text + space : space + text;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
  };
  std::vector<std::string> out = {format(headings)};
  for (const auto& cells : rows_) out.push_back(format(cells));
  return out;
}

}  // namespace flashcore::bench
