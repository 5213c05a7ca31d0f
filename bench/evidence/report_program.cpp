#include "bench/evidence/report_program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <system_error>

#include "bench/evidence/evidence_file.hpp"

namespace flashcore::bench {

void fail(const std::string& sentence) {
  fmt::print(stderr, "{}: {}\n", program_invocation_short_name, sentence);
  std::exit(1);
}

void parse(const std::vector<ReportOption>& options, int count, char** words) {
  std::string usage;
  for (const ReportOption& option : options) {
    constexpr const char* kValues[] = {"", " TEXT", " N"};
    usage += fmt::format(" [{}{}]", option.name, kValues[option.value.index()]);
  }
  for (int n = 1; n < count; ++n) {
    const auto option = std::find_if(options.begin(), options.end(),
                                     [&](const ReportOption& one) { return one.name == words[n]; });
    const bool known = option != options.end();
    if (known && option->value.index() == 0) {
      *std::get<bool*>(option->value) = true;
      continue;
    }
    const std::string text = n + 1 < count ? words[n + 1] : "";
    if (!known || text.empty()) {
      fail(fmt::format("'{}' is not understood, wanted{}", words[n], usage));
    }
    ++n;
    if (std::string* const* const to = std::get_if<std::string*>(&option->value)) {
      **to = text;
      continue;
    }
    int64_t& value = *std::get<int64_t*>(option->value);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool read = error == std::errc() && end == text.data() + text.size();
    if (!read || value < 1 || value > option->largest) {
      fail(fmt::format("{}: is '{}', wanted 1 to {}", option->name, text, option->largest));
    }
  }
}

void write_report(const std::string& path, const nlohmann::ordered_json& evidence) {
  if (path.empty()) return;
  if (const Status status = write_evidence(path, evidence); !status.ok()) fail(status.message());
  if (const Status status = check_evidence(evidence); !status.ok()) fail(status.message());
}

}  // namespace flashcore::bench
