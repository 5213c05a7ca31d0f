// The options of a subcommand. A thin wrapper of CLI11, so that its headers are compiled once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's name
class App;
}

namespace flashcore::cli {

class OptionSet {
 public:
  explicit OptionSet(CLI::App& app) : app_(app) {}

  void group(std::string heading);  // heading of the following options in --help

  // `names` is "--causal" or "--out,-o"; `what` is the value's placeholder in --help.
  void flag(const std::string& names, bool& value, const std::string& help);
  void text(const std::string& names, std::string& value, const std::string& help,
            const std::string& what = "TEXT");
  void number(const std::string& names, int64_t& value, const std::string& help);
  void number(const std::string& names, uint64_t& value, const std::string& help);
  void number(const std::string& names, std::optional<int64_t>& value, const std::string& help);
  void number(const std::string& names, double& value, const std::string& help);
  void number(const std::string& names, std::optional<double>& value, const std::string& help);
  void choice(const std::string& names, std::string& value, const std::vector<std::string>& allowed,
              const std::string& help);
  // Not in --help: for child processes of this program.
  void hidden(const std::string& names, std::string& value);
  void positional(const std::string& name, std::string& value, const std::string& help);

 private:
  CLI::App& app_;
  std::string group_ = "Options";
};

}  // namespace flashcore::cli
