#include "cli/options.hpp"

#include <CLI/CLI.hpp>
#include <utility>

namespace flashcore::cli {
namespace {

template <class T>
void add(CLI::App& app, const std::string& group, const std::string& names, T& value,
         const std::string& help, const std::string& what) {
  app.add_option(names, value, help)->group(group)->type_name(what);
}

}  // namespace

void OptionSet::group(std::string heading) { group_ = std::move(heading); }

void OptionSet::flag(const std::string& names, bool& value, const std::string& help) {
  app_.add_flag(names, value, help)->group(group_);
}

void OptionSet::text(const std::string& names, std::string& value, const std::string& help,
                     const std::string& what) {
  add(app_, group_, names, value, help, what);
}

void OptionSet::number(const std::string& names, int64_t& value, const std::string& help) {
  add(app_, group_, names, value, help, "N");
}

void OptionSet::number(const std::string& names, uint64_t& value, const std::string& help) {
  add(app_, group_, names, value, help, "N");
}

void OptionSet::number(const std::string& names, std::optional<int64_t>& value,
                       const std::string& help) {
  add(app_, group_, names, value, help, "N");
}

void OptionSet::number(const std::string& names, double& value, const std::string& help) {
  add(app_, group_, names, value, help, "X");
}

void OptionSet::number(const std::string& names, std::optional<double>& value,
                       const std::string& help) {
  add(app_, group_, names, value, help, "X");
}

void OptionSet::choice(const std::string& names, std::string& value,
                       const std::vector<std::string>& allowed, const std::string& help) {
  std::string what;
  for (const std::string& one : allowed) what += (what.empty() ? "" : "|") + one;
  app_.add_option(names, value, help)
      ->group(group_)
      ->check(CLI::Validator(
          [allowed, what](std::string& given) {
            for (const std::string& one : allowed) {
              if (one == given) return std::string();
            }
            return "is '" + given + "', wanted " + what;
          },
          what))
      ->type_name("");
}

void OptionSet::positional(const std::string& name, std::string& value, const std::string& help) {
  add(app_, "Arguments", name, value, help, "");
}

}  // namespace flashcore::cli
