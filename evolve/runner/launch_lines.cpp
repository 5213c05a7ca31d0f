#include "evolve/runner/launch_lines.hpp"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <sstream>
#include <string_view>

namespace flashcore::evolve {
namespace {

constexpr size_t kLongestLine = 500;
constexpr int kDeepest = 50;
constexpr std::string_view kTensors = "qkvo";

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// A recursive descent parser. An error ends it: `error_` is set, and values no longer matter.
class Expression {
 public:
  Expression(const std::string& text, const Names& names) : text_(text), names_(names) {}

  std::optional<int64_t> value(std::string& error) {
    const int64_t result = sum();
    skip_spaces();
    if (error_.empty() && at_ < text_.size()) error_ = "is followed by '" + text_.substr(at_) + "'";
    if (error_.empty()) return result;
    error = "'" + text_ + "': " + error_;
    return std::nullopt;
  }

 private:
  void skip_spaces() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  char next() {
    skip_spaces();
    return at_ < text_.size() && error_.empty() ? text_[at_] : '\0';
  }
  bool take(char wanted) {
    if (next() != wanted) return false;
    ++at_;
    return true;
  }
  int64_t fail(const std::string& why) {
    if (error_.empty()) error_ = why;
    return 0;
  }

  int64_t combined(char operation, int64_t a, int64_t b) {
    int64_t result = 0;
    bool past = false;
    switch (operation) {
      case '+':
        past = __builtin_add_overflow(a, b, &result);
        break;
      case '-':
        past = __builtin_sub_overflow(a, b, &result);
        break;
      case '*':
        past = __builtin_mul_overflow(a, b, &result);
        break;
      default:
        if (b <= 0) return fail("divides by a number that is not positive");
        result = operation == '/' ? a / b : a % b;
    }
    return past ? fail("is past 64 bits") : result;
  }

  int64_t sum() {
    if (++depth_ > kDeepest) return fail("is nested too deeply");
    int64_t result = product();
    for (char c = next(); c == '+' || c == '-'; c = next()) {
      ++at_;
      result = combined(c, result, product());
    }
    --depth_;
    return result;
  }

  int64_t product() {
    int64_t result = factor();
    for (char c = next(); c == '*' || c == '/' || c == '%'; c = next()) {
      ++at_;
      result = combined(c, result, factor());
    }
    return result;
  }

  int64_t factor() {
    const char c = next();
    if (take('(')) {
      const int64_t result = sum();
      return take(')') ? result : fail("lacks a ')'");
    }
    if (std::isdigit(static_cast<unsigned char>(c)) != 0) return number();
    if (c == '_' || std::isalpha(static_cast<unsigned char>(c)) != 0) return named();
    return fail("lacks a number or a name");
  }

  int64_t number() {
    int64_t result = 0;
    for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0; ++at_) {
      result = combined('+', combined('*', result, 10), text_[at_] - '0');
    }
    return result;
  }

  int64_t named() {
    std::string name;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c != '_' && std::isalnum(static_cast<unsigned char>(c)) == 0) break;
      name += c;
    }
    if (name == "min" || name == "max" || name == "ceil_div") return called(name);
    const std::optional<int64_t> found = names_(name);
    return found ? *found : fail("there is no name '" + name + "'");
  }

  int64_t called(const std::string& name) {
    if (!take('(')) return fail(name + " lacks its arguments");
    const int64_t a = sum();
    if (!take(',')) return fail(name + " has two arguments");
    const int64_t b = sum();
    if (!take(')')) return fail("lacks a ')'");
    if (name == "min") return std::min(a, b);
    if (name == "max") return std::max(a, b);
    const int64_t whole = combined('/', a, b), rest = combined('%', a, b);
    return whole + (rest > 0 ? 1 : 0);
  }

  const std::string& text_;
  const Names& names_;
  std::string error_;
  size_t at_ = 0;
  int depth_ = 0;
};

// Splits at commas outside of parentheses.
std::vector<std::string> pieces_of(const std::string& text) {
  std::vector<std::string> pieces(1);
  int depth = 0;
  for (const char c : text) {
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (c == ',' && depth == 0) {
      pieces.emplace_back();
    } else {
      pieces.back() += c;
    }
  }
  for (std::string& piece : pieces) piece = trimmed(piece);
  return pieces;
}

// "k box 64, 64 swizzle 128"
bool read_map(const std::string& text, LaunchLines& lines) {
  const size_t tensor = text.size() > 1 && text[1] == ' ' ? kTensors.find(text[0]) : kTensors.npos;
  const size_t box = text.find(" box "), swizzle = text.find(" swizzle ");
  if (tensor == kTensors.npos || box == std::string::npos || swizzle == std::string::npos ||
      swizzle < box) {
    return false;
  }
  const std::vector<std::string> sides = pieces_of(text.substr(box + 5, swizzle - box - 5));
  const std::string bytes = trimmed(text.substr(swizzle + 9));
  if (sides.size() != 2 || (bytes != "0" && bytes != "32" && bytes != "64" && bytes != "128")) {
    return false;
  }
  lines.maps[tensor] = TensorMapLine{sides[0], sides[1], std::strtol(bytes.c_str(), nullptr, 10)};
  return true;
}

bool read_line(const std::string& what, const std::string& text, LaunchLines& lines) {
  if (what == "map") return read_map(text, lines);
  if (what == "grid" || what == "block") {
    auto& list = what == "grid" ? lines.grid : lines.block;
    if (!list.empty()) return false;
    list = pieces_of(text);
    return list.size() <= 3 && std::find(list.begin(), list.end(), "") == list.end();
  }
  if (what != "shared" && what != "workspace") return false;
  std::string& one = what == "shared" ? lines.shared : lines.workspace;
  if (!one.empty() || text.empty()) return false;
  one = text;
  return true;
}

}  // namespace

bool read_launch_lines(const std::string& source, LaunchLines& lines, std::string& error) {
  static constexpr std::string_view kBegin = "//@ launch ";
  std::istringstream all(source);
  for (std::string line; std::getline(all, line);) {
    if (!line.starts_with(kBegin)) continue;
    const std::string rest = trimmed(line.substr(kBegin.size()));
    const size_t space = rest.find(' ');
    if (line.size() > kLongestLine || space == std::string::npos ||
        !read_line(rest.substr(0, space), trimmed(rest.substr(space)), lines)) {
      error = "the line '" + line.substr(0, 80) +
              "' is none, wanted grid, block, shared, workspace (each once) or map q box R, C "
              "swizzle B";
      return false;
    }
  }
  if (!lines.grid.empty() && !lines.block.empty()) return true;
  error = "there is no line '//@ launch " + std::string(lines.grid.empty() ? "grid" : "block") +
          " ...', wanted one";
  return false;
}

std::optional<int64_t> evaluate(const std::string& expression, const Names& names,
                                std::string& error) {
  return Expression(expression, names).value(error);
}

}  // namespace flashcore::evolve
