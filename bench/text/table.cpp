#include "bench/text/table.hpp"

#include <algorithm>

namespace flashcore::bench {

size_t display_width(std::string_view text) {
  size_t width = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {  // a colour: ESC [ digits m
      while (i < text.size() && text[i] != 'm') ++i;
      continue;
    }
    const bool continues = (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80;
    if (!continues) ++width;
  }
  return width;
}

std::string pad(std::string_view text, size_t width, Align align) {
  const size_t used = display_width(text);
  const std::string space(width > used ? width - used : 0, ' ');
  return align == Align::left ? std::string(text) + space : space + std::string(text);
}

std::vector<std::string> Table::lines() const {
  std::vector<std::string> headings;
  std::vector<size_t> widths;
  for (const Column& column : columns_) {
    headings.push_back(column.heading);
    widths.push_back(display_width(column.heading));
  }
  for (const auto& cells : rows_) {
    for (size_t c = 0; c < std::min(cells.size(), widths.size()); ++c) {
      widths[c] = std::max(widths[c], display_width(cells[c]));
    }
  }
  const auto format = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (size_t c = 0; c < std::min(cells.size(), widths.size()); ++c) {
      if (c > 0) line += "  ";
      line += pad(cells[c], widths[c], columns_[c].align);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
  };
  std::vector<std::string> out = {format(headings)};
  for (const auto& cells : rows_) out.push_back(format(cells));
  return out;
}

}  // namespace flashcore::bench
