#include "evolve/show/plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "bench/text/terminal.hpp"
#include "evolve/show/leaderboard.hpp"

namespace flashcore::evolve {
namespace {

constexpr double kWidth = 720, kHeight = 400, kLeft = 60, kRight = 20, kTop = 40, kBottom = 50;

constexpr const char* kStyle =
    "<style>svg{color:#24292f;background:#fff;font:12px sans-serif}.grid{stroke:#d0d7de}"
    ".best{stroke:#2f7fd6;stroke-width:2;fill:none}.valid{fill:#2f7fd6}.invalid{fill:#cf4a74}"
    "text{fill:currentColor}@media(prefers-color-scheme:dark){svg{color:#c9d1d9;background:#0d1117}"
    ".grid{stroke:#30363d}}</style>";

std::string escaped(std::string_view text) {
  std::string out;
  for (const char one : bench::printable(text)) {
    if (one == '<') {
      out += "&lt;";
    } else if (one == '&') {
      out += "&amp;";
    } else if (one == '"') {
      out += "&quot;";
    } else {
      out += one;
    }
  }
  return out;
}

struct Axes {
  double last_second = 1, low = 1, high = 2;

  double x(double second) const { return kLeft + (kWidth - kLeft - kRight) * second / last_second; }
  double y(double score) const {
    return kTop + (kHeight - kTop - kBottom) * std::log(high / score) / std::log(high / low);
  }
};

Axes axes_of(const std::vector<Attempt>& attempts) {
  Axes axes;
  for (const Attempt& one : attempts) {
    axes.last_second = std::max(axes.last_second, one.seconds);
    if (one.outcome != "valid") continue;
    axes.high = std::max(axes.high, one.score * 1.1);
    axes.low = std::min(axes.low, one.score * 0.9);
  }
  return axes;
}

std::string grid(const Axes& axes) {
  std::string svg;
  const auto last = static_cast<int>(std::floor(std::log2(axes.high)));
  for (auto power = static_cast<int>(std::ceil(std::log2(axes.low))); power <= last; ++power) {
    const double score = std::exp2(power);
    svg += fmt::format(
        "<path class=\"grid\" d=\"M{:.1f} {:.1f}H{:.1f}\"/><text x=\"{:.1f}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{:g}x</text>\n",
        kLeft, axes.y(score), kWidth - kRight, kLeft - 8, axes.y(score) + 4, score);
  }
  for (int i = 0; i <= 4; ++i) {
    const double second = axes.last_second * i / 4;
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:.3g} s</text>\n",
                       axes.x(second), kHeight - kBottom + 20, second);
  }
  return svg;
}

}  // namespace

std::string plot_svg(const std::vector<Attempt>& attempts, const std::string& title) {
  const Axes axes = axes_of(attempts);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" role=\"img\">\n{2}\n<title>{3}</title>\n<text x=\"{4}\" y=\"22\" "
      "font-size=\"14\">{3}</text>\n<text x=\"{4}\" y=\"{5}\">time of the run; score: times as "
      "fast "
      "as the seed; crosses are invalid</text>\n",
      kWidth, kHeight, kStyle, escaped(title), kLeft, kHeight - 10);
  svg += grid(axes);
  std::string line, marks;
  double best = 0;
  for (const Attempt& one : attempts) {
    if (!one.done) continue;
    const double x = axes.x(one.seconds);
    const std::string tip = fmt::format("<title>{} {}: {}</title>", one.id, one.origin.operation,
                                        escaped(result_text(one)));
    if (one.outcome != "valid") {
      const double y = kHeight - kBottom - 6;
      marks += fmt::format(
          "<path class=\"invalid\" d=\"M{:.1f} {:.1f}l3 3 3-3 1 1-3 3 3 3-1 1-3-3-3 3-1-1 "
          "3-3-3-3z\">{}"
          "</path>\n",
          x - 3, y - 4, tip);
      continue;
    }
    marks +=
        fmt::format("<circle class=\"valid\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\">{}</circle>\n",
                    x, axes.y(one.score), tip);
    if (one.score <= best) continue;
    best = one.score;
    line += line.empty() ? fmt::format("M{:.1f} {:.1f}", x, axes.y(best))
                         : fmt::format("H{:.1f}V{:.1f}", x, axes.y(best));
  }
  if (!line.empty()) {
    svg += fmt::format("<path class=\"best\" d=\"{}H{:.1f}\"/>\n", line, kWidth - kRight);
  }
  return svg + marks + "</svg>\n";
}

std::string report_html(const std::vector<Attempt>& attempts, const std::string& title) {
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>"
      "<style>body{{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em;"
      "color-scheme:light dark}}pre{{overflow-x:auto}}svg{{max-width:100%;height:auto}}</style>"
      "</head><body>\n<h1>{0}</h1>\n<p>{1}</p>\n",
      escaped(title), outcomes_text(attempts));
  html += plot_svg(attempts, "Score over time");
  html += "<h2>The best</h2>\n<pre>\n";
  for (const std::string& line : leaderboard(attempts, 10).lines()) html += escaped(line) + "\n";
  html += "</pre>\n<h2>Who comes from whom</h2>\n<pre>\n";
  for (const std::string& line : lineage(attempts)) html += escaped(line) + "\n";
  return html + "</pre>\n</body></html>\n";
}

}  // namespace flashcore::evolve
