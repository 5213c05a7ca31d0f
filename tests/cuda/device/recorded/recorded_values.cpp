// Runs the cases of recorded.hpp on the first GPU, or on the simulator, and writes them to a file or
// compares them with one.
//
// usage: recorded_values --write FILE | --compare FILE
//
// For a case with exact results the file has digests of the whole and of eight parts; for an approximate
// or short one, all words; for one that the device refuses, the error.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/evidence/evidence.hpp"
#include "bench/evidence/evidence_file.hpp"
#include "bench/process/forked_call.hpp"
#include "flashcore/flashcore.hpp"
#include "recorded.hpp"

namespace flashcore::recorded {
namespace {

using Json = nlohmann::ordered_json;
constexpr size_t kParts = 8, kFirstWords = 4, kFewWords = 16;

uint64_t digest(std::span<const uint32_t> words) {
  uint64_t hash = words.size();
  for (const uint32_t word : words) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 32;
  }
  return hash;
}

std::string hex_of(std::span<const uint32_t> words) {
  std::string text;
  for (const uint32_t word : words) text += fmt::format("{}{:08x}", text.empty() ? "" : " ", word);
  return text;
}

std::vector<uint32_t> words_of_hex(const std::string& text) {
  std::vector<uint32_t> words;
  for (size_t at = 0; at < text.size(); at += 9) {
    words.push_back(static_cast<uint32_t>(std::stoul(text.substr(at, 8), nullptr, 16)));
  }
  return words;
}

Json json_of(const Case& one, std::span<const uint32_t> words) {
  Json json = {{"name", one.name}, {"words", words.size()}};
  if (one.tolerance > 0) {
    json["tolerance"] = one.tolerance;
    json["values"] = hex_of(words);
    return json;
  }
  json["digest"] = fmt::format("{:016x}", digest(words));
  json["first"] = hex_of(words.size() <= kFewWords ? words : words.first(kFirstWords));
  std::string parts;
  for (size_t part = 0; part < kParts; ++part) {
    const size_t begin = words.size() * part / kParts, end = words.size() * (part + 1) / kParts;
    parts += fmt::format("{}{:08x}", part == 0 ? "" : " ",
                         static_cast<uint32_t>(digest(words.subspan(begin, end - begin))));
  }
  json["parts"] = parts;
  return json;
}

bool is_near(uint32_t a_bits, uint32_t b_bits, const Case& one) {
  const double a = std::bit_cast<float>(a_bits), b = std::bit_cast<float>(b_bits);
  if (a_bits == b_bits) return true;
  return std::abs(a - b) <= one.tolerance * std::max(std::abs(a), one.least);
}

// What is different, or nothing. `here` is a case's json_of.
std::string difference(const Json& recorded, const Json& here, const Case& one) {
  // Each device has its own words for an error.
  if (one.refused && recorded.contains("error") && here.contains("error")) return {};
  if (one.tolerance == 0) {
    if (here == recorded) return {};
    return fmt::format("recorded {}\n  here     {}", recorded.dump(), here.dump());
  }
  const std::vector<uint32_t> a = words_of_hex(recorded.value("values", ""));
  const std::vector<uint32_t> b = words_of_hex(here.value("values", ""));
  if (a.size() != b.size()) return "another number of words";
  for (size_t i = 0; i < a.size(); ++i) {
    if (!is_near(a[i], b[i], one)) {
      return fmt::format("word {}: recorded {:08x}, here {:08x}", i, a[i], b[i]);
    }
  }
  return {};
}

std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (const auto& part : {warpgroup_cases, warp_cases, copy_cases, format_cases}) {
    for (Case& one : part()) all.push_back(std::move(one));
  }
  return all;
}

// The GPU's name, or nothing where there is none.
std::string choose_gpu() {
  for (const DeviceInfo& info : devices()) {
    if (info.device.kind == DeviceKind::cpu || info.compute_capability != 90) continue;
    check(cudaSetDevice(info.device.index));
    return info.name;
  }
  return {};
}

struct Results {
  std::string gpu;
  std::vector<Json> values;         // in the order of all_cases; null where one failed
  std::vector<std::string> failed;  // with why
};

// The cases from `first` on, until one fails: after an error a process cannot use the GPU.
Json run_from(const std::vector<Case>& cases, size_t first) {
  Json done = {{"gpu", choose_gpu()}, {"values", Json::array()}, {"error", ""}};
  if (done["gpu"] == "") return done;
  try {
    for (size_t i = first; i < cases.size(); ++i) {
      done["values"].push_back(json_of(cases[i], cases[i].words()));
    }
  } catch (const std::exception& error) {
    done["error"] = error.what();
  }
  return done;
}

// What the file has of a case that failed as it must.
Json refusal(const Case& one, const std::string& error) {
  return {{"name", one.name}, {"error", error}};
}

// In copies of this process, which has not used a GPU.
Results run_all(const std::vector<Case>& cases) {
  constexpr double kMostSeconds = 300;
  Results all;
  while (all.values.size() < cases.size()) {
    const size_t first = all.values.size();
    const Result<std::string> text =
        bench::call_in_copy([&] { return run_from(cases, first).dump(); }, kMostSeconds);
    if (!text.ok()) throw std::runtime_error(text.status().message());
    const Json done = Json::parse(*text);
    all.gpu = done["gpu"];
    if (all.gpu.empty()) return all;
    for (const Json& value : done["values"]) all.values.push_back(value);
    if (all.values.size() == cases.size()) break;
    const std::string error = done["error"];
    const Case& one = cases[all.values.size()];
    if (one.refused) {
      all.values.push_back(refusal(one, error));
      continue;
    }
    all.failed.push_back(one.name + ": " + error);
    all.values.emplace_back();
  }
  return all;
}

int write(const std::string& path, const Results& results) {
  Json evidence = bench::new_evidence("recorded_values");
  evidence["device"] = {{"name", results.gpu}};
  evidence["values"] = Json::array();
  for (const Json& value : results.values) {
    if (!value.is_null()) evidence["values"].push_back(value);
  }
  evidence["complete"] = results.failed.empty();
  const Status status = bench::write_evidence(path, evidence);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  return status.ok() && results.failed.empty() ? 0 : 1;
}

int compare(const std::string& path, const std::vector<Case>& cases, const Results& results) {
  const auto evidence = bench::read_evidence(path);
  if (!evidence.ok()) {
    std::fprintf(stderr, "%s\n", evidence.status().message().c_str());
    return 1;
  }
  std::map<std::string, Json> recorded;
  for (const Json& value : (*evidence)["values"]) recorded[value["name"]] = value;
  size_t equal = 0, different = results.failed.size();
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto found = recorded.find(cases[i].name);
    std::string what = "is not in the file";
    if (found != recorded.end()) {
      if (!results.values[i].is_null()) {
        what = difference(found->second, results.values[i], cases[i]);
      }
      recorded.erase(found);
    }
    if (results.values[i].is_null()) continue;  // counted as failed
    if (!what.empty()) std::printf("%s:\n  %s\n", cases[i].name.c_str(), what.c_str());
    ++(what.empty() ? equal : different);
  }
  for (const auto& [name, value] : recorded) {
    std::printf("%s:\n  is in the file alone\n", name.c_str());
    ++different;
  }
  std::printf("%zu as on %s, %zu different\n", equal,
              (*evidence)["device"]["name"].get<std::string>().c_str(), different);
  return different == 0 ? 0 : 1;
}

constexpr int kSkipped = 77;

int run(int count, char** arguments) {
  const std::string_view verb = count == 3 ? arguments[1] : "";
  if (verb != "--write" && verb != "--compare") {
    std::fprintf(stderr, "usage: recorded_values --write FILE | --compare FILE\n");
    return 2;
  }
  const std::vector<Case> cases = all_cases();
  const Results results = run_all(cases);
  if (results.gpu.empty()) {
    std::printf("There is no GPU of compute capability 9.0.\n");
    return kSkipped;
  }
  for (const std::string& one : results.failed) std::printf("FAILED %s\n", one.c_str());
  return verb == "--write" ? write(arguments[2], results) : compare(arguments[2], cases, results);
}

}  // namespace
}  // namespace flashcore::recorded

int main(int count, char** arguments) {
  try {
    return flashcore::recorded::run(count, arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "recorded_values: %s\n", error.what());
    return 1;
  }
}
