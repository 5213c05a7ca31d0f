// What the programs that write one kind of evidence share: options, errors and the file.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// Ends the program with a sentence after its name.
[[noreturn]] void fail(const std::string& sentence);

template <class T>
T taken(Result<T> result) {
  if (!result.ok()) fail(result.status().message());
  return std::move(*result);
}

// "--name", "--name TEXT", or "--name N", a number from 1 on.
struct ReportOption {
  std::string name;
  std::variant<bool*, std::string*, int64_t*> value;
  int64_t largest = INT32_MAX;
};
void parse(const std::vector<ReportOption>& options, int count, char** words);

// Writes evidence to a file and checks it; "": neither.
void write_report(const std::string& path, const nlohmann::ordered_json& evidence);

}  // namespace flashcore::bench
