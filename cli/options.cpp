#include "cli/options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <type_traits>
#include <utility>

namespace flashcore::cli {
namespace {

// Returns whether all of `text` is a T.
template <class T>
bool parses(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// The help text; adds the default if the text does not name it.
template <class Value>
std::string with_default(const std::string& help, const Value& value) {
  if (value == Value{} || help.find("default") != std::string::npos) return help;
  return fmt::format("{} (default {})", help, value);
}
template <class T>
std::string with_default(const std::string& help, const std::optional<T>&) {
  return help;
}

// Value is T or std::optional<T>.
template <class T, class Value>
void add_number(CLI::App& app, const std::string& group, const std::string& names, Value& value,
                const std::string& help) {
  const bool whole = std::is_integral_v<T>;
  const std::string wanted = !whole                  ? "a number"
                             : std::is_unsigned_v<T> ? "a whole number from 0 on"
                                                     : "a whole number";
  const CLI::Validator number(
      [wanted](const std::string& text) {
        return parses<T>(text) ? std::string() : "is '" + text + "', wanted " + wanted;
      },
      "");
  app.add_option(names, value, with_default(help, value))
      ->group(group)
      ->type_name(whole ? "N" : "X")
      ->check(number);
}

// Refuses empty text: it usually comes from an unset variable in a script.
CLI::Validator not_empty(const std::string& what) {
  return {[what](const std::string& text) {
            return text.empty() ? "is '', wanted " + what : std::string();
          },
          ""};
}

}  // namespace

void OptionSet::group(std::string heading) { group_ = std::move(heading); }

void OptionSet::flag(const std::string& names, bool& value, const std::string& help) {
  app_.add_flag(names, value, help)->group(group_);
}

void OptionSet::text(const std::string& names, std::string& value, const std::string& help,
                     const std::string& what) {
  app_.add_option(names, value, with_default(help, value))
      ->group(group_)
      ->type_name(what)
      ->check(not_empty(what));
}

void OptionSet::number(const std::string& names, int64_t& value, const std::string& help) {
  add_number<int64_t>(app_, group_, names, value, help);
}

void OptionSet::number(const std::string& names, uint64_t& value, const std::string& help) {
  add_number<uint64_t>(app_, group_, names, value, help);
}

void OptionSet::number(const std::string& names, std::optional<int64_t>& value,
                       const std::string& help) {
  add_number<int64_t>(app_, group_, names, value, help);
}

void OptionSet::number(const std::string& names, double& value, const std::string& help) {
  add_number<double>(app_, group_, names, value, help);
}

void OptionSet::number(const std::string& names, std::optional<double>& value,
                       const std::string& help) {
  add_number<double>(app_, group_, names, value, help);
}

void OptionSet::choice(const std::string& names, std::string& value,
                       const std::vector<std::string>& allowed, const std::string& help) {
  std::string what;
  for (const std::string& one : allowed) what += (what.empty() ? "" : "|") + one;
  CLI::Validator one_of(
      [allowed, what](const std::string& given) {
        const bool known = std::find(allowed.begin(), allowed.end(), given) != allowed.end();
        return known ? std::string() : "is '" + given + "', wanted " + what;
      },
      "");
  app_.add_option(names, value, with_default(help, value))
      ->group(group_)
      ->type_name(what)
      ->check(one_of);
}

void OptionSet::hidden(const std::string& names, std::string& value) {
  app_.add_option(names, value)->group("")->check(not_empty("a value"));
}

void OptionSet::positional(const std::string& name, std::string& value, const std::string& help) {
  app_.add_option(name, value, help)->type_name("")->check(not_empty("a value"));
}

}  // namespace flashcore::cli
