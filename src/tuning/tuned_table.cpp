#include "tuning/tuned_table.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "problem/nearest_name.hpp"
#include "problem/status.hpp"

namespace flashcore::tuning {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostLevels = 5;
constexpr int64_t kMostCount = int64_t{1} << 31;
constexpr double kMostMicroseconds = 1e12, kMostNoise = 1e6;

// The text comes from a file, which may contain anything, so only printable characters are shown.
std::string shown(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 60)) out += c >= ' ' && c <= '~' ? c : '?';
  return text.size() > 60 ? out + "..." : out;
}

bool is_plain(std::string_view text) {
  return text.size() <= kMostText &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

// Reads the members of one object; the first error is kept as the status. Members that are not read
// are an error.
class Members {
 public:
  Members(const Json& object, std::string place) : object_(object), place_(std::move(place)) {
    if (!object.is_object()) fail("is not an object, wanted one");
  }

  std::string text(const char* name) {
    const Json* const found = find(name);
    if (found == nullptr) return {};
    if (!found->is_string()) return fail(name, "a text"), std::string();
    const auto& value = found->get_ref<const std::string&>();
    if (!is_plain(value)) {
      return fail(name, fmt::format("at most {} characters of ASCII", kMostText)), std::string();
    }
    return value;
  }
  double number(const char* name, double most) {
    const Json* const found = find(name);
    if (found == nullptr) return 0;
    const double value = found->is_number() ? found->get<double>() : -1;
    if (!(value >= 0 && value <= most)) {
      return fail(name, fmt::format("a number from 0 to {:g}", most)), 0.0;
    }
    return value;
  }
  int64_t count(const char* name) {
    return static_cast<int64_t>(number(name, static_cast<double>(kMostCount)));
  }
  bool flag(const char* name) {
    const Json* const found = find(name);
    if (found != nullptr && !found->is_boolean()) fail(name, "true or false");
    return found != nullptr && found->is_boolean() && found->get<bool>();
  }
  const Json* list(const char* name, size_t most) {
    const Json* const found = find(name);
    if (found == nullptr) return nullptr;
    if (found->is_array() && found->size() <= most) return found;
    return fail(name, fmt::format("a list of at most {}", most)), nullptr;
  }
  const Json* find(const char* name) {
    known_.emplace_back(name);
    const auto found = object_.is_object() ? object_.find(name) : object_.end();
    if (object_.is_object() && found != object_.end()) return &*found;
    if (object_.is_object()) fail(fmt::format("has no {}, wanted one", name));
    return nullptr;
  }
  const Status& status() const { return status_; }

  // Call after all members have been read.
  const Status& finish() {
    if (!status_.ok()) return status_;
    for (const auto& [name, member] : object_.items()) {
      if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
      fail(fmt::format("has '{}', wanted a key that is known; the nearest is '{}'", shown(name),
                       nearest_name(name, known_)));
    }
    return status_;
  }

 private:
  void fail(std::string_view name, std::string_view wanted) {
    const std::string found = object_.at(std::string(name)).dump(-1, ' ', true);
    fail(fmt::format("{} is {}, wanted {}", name, shown(found), wanted));
  }
  void fail(std::string_view what) {
    if (status_.ok()) status_ = invalid("{}: {}", place_, what);
  }

  const Json& object_;
  std::string place_;
  std::vector<std::string_view> known_;
  Status status_;
};

Result<TunedDevice> device_of(const Json& json) {
  Members members(json, "device");
  TunedDevice device{.name = members.text("name"),
                     .compute_capability = members.count("compute_capability"),
                     .multiprocessors = members.count("multiprocessors")};
  if (!members.finish().ok()) return members.status();
  return device;
}

Result<std::pair<std::string, TunedEntry>> entry_of(const Json& json, size_t number) {
  const std::string place = fmt::format("entries[{}]", number);
  Members members(json, place);
  std::string key = members.text("key");
  TunedEntry entry{.kernel = members.text("kernel"),
                   .config = members.text("config"),
                   .is_default = members.flag("is_default"),
                   .fingerprint = members.text("source"),
                   .compiler = members.text("compiler"),
                   .us = members.number("us", kMostMicroseconds),
                   .default_us = members.number("default_us", kMostMicroseconds),
                   .noise = members.number("noise", kMostNoise),
                   .default_kernel = members.text("default"),
                   .measured = members.text("measured"),
                   .problems = {}};
  if (const Json* const problems = members.list("problems", kMostProblems)) {
    for (const Json& problem : *problems) {
      if (!problem.is_string() || !is_plain(problem.get_ref<const std::string&>())) {
        return invalid("{}: problems has {}, wanted texts of at most {} characters", place,
                       shown(problem.dump(-1, ' ', true)), kMostText);
      }
      entry.problems.push_back(problem);
    }
  }
  if (!members.finish().ok()) return members.status();
  if (key.empty() || entry.kernel.empty()) return invalid("{}: key or kernel is empty", place);
  return std::pair(std::move(key), std::move(entry));
}

Json entry_json(const std::string& key, const TunedEntry& entry) {
  return {{"key", key},
          {"kernel", entry.kernel},
          {"config", entry.config},
          {"is_default", entry.is_default},
          {"us", entry.us},
          {"default", entry.default_kernel},
          {"default_us", entry.default_us},
          {"noise", entry.noise},
          {"source", entry.fingerprint},
          {"compiler", entry.compiler},
          {"measured", entry.measured},
          {"problems", entry.problems}};
}

// Rounds a number for the table: six digits, more than any measurement holds, and within its limits.
double kept(double value, double most) {
  if (!(value >= 0)) return 0;
  return std::strtod(fmt::format("{:.6g}", std::min(value, most)).c_str(), nullptr);
}

// Shortens a text for the table and replaces characters that are not printable ASCII.
std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, kMostText)) out += c >= ' ' && c <= '~' ? c : '?';
  return out;
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int get() const { return number_; }

 private:
  int number_;
};

}  // namespace

TunedDevice tuned_device(const DeviceInfo& device) {
  return {.name = plain(device.name),
          .compute_capability = device.compute_capability,
          .multiprocessors = device.multiprocessors};
}

std::string file_name(const TunedDevice& device) {
  constexpr size_t kMostName = 80;
  std::string name;
  for (const char c : device.name) {
    const bool is_word = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (is_word) name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (!is_word && !name.empty() && name.back() != '_') name += '_';
  }
  name.resize(std::min(name.size(), kMostName));
  if (!name.empty() && name.back() != '_') name += '_';
  const std::string family =
      device.compute_capability > 0 ? fmt::format("sm{}", device.compute_capability) : "cpu";
  return fmt::format("{}{}_{}.json", name, family, device.multiprocessors);
}

Result<TunedTable> parse_table(std::string_view text) {
  if (text.size() > kMostTableBytes) {
    return invalid("has {} bytes, wanted at most {}", text.size(), kMostTableBytes);
  }
  bool too_deep = false;
  // Nesting beyond the limit is dropped while parsing, so that no deep value is ever built.
  const auto shallow = [&](int depth, Json::parse_event_t, const Json&) {
    too_deep = too_deep || depth > kMostLevels;
    return depth <= kMostLevels;
  };
  const Json json = Json::parse(text, shallow, false);
  if (too_deep) return invalid("has more than {} levels, wanted fewer", kMostLevels);
  if (json.is_discarded()) return invalid("is not JSON, or was cut off");
  Members members(json, "table");
  const std::string schema = members.text("schema");
  const int64_t version = members.count("version");
  if (members.status().ok() && (schema != "flashcore-tuning" || version != 1)) {
    return invalid("table: is '{}' of version {}, wanted flashcore-tuning of version 1",
                   shown(schema), version);
  }
  const Json* const device = members.find("device");
  const Json* const entries = members.list("entries", kMostEntries);
  if (!members.finish().ok()) return members.status();
  Result<TunedDevice> read = device_of(*device);
  if (!read.ok()) return read.status();
  TunedTable table{.device = std::move(*read), .entries = {}};
  for (size_t i = 0; i < entries->size(); ++i) {
    Result<std::pair<std::string, TunedEntry>> entry = entry_of((*entries)[i], i);
    if (!entry.ok()) return entry.status();
    if (!table.entries.insert(std::move(*entry)).second) {
      return invalid("entries[{}]: key appears twice, wanted once", i);
    }
  }
  return table;
}

std::string table_text(const TunedTable& table) {
  const Json device = {{"name", table.device.name},
                       {"compute_capability", table.device.compute_capability},
                       {"multiprocessors", table.device.multiprocessors}};
  std::string text = fmt::format(
      "{{\"schema\": \"flashcore-tuning\", \"version\": 1,\n \"device\": {},\n \"entries\": [",
      device.dump(-1, ' ', true, Json::error_handler_t::replace));
  bool first = true;
  for (const auto& [key, entry] : table.entries) {
    text += fmt::format("{}\n  {}", first ? "" : ",",
                        entry_json(key, entry).dump(-1, ' ', true, Json::error_handler_t::replace));
    first = false;
  }
  return text + "\n]}\n";
}

Result<ReadTable> read_table(const std::string& path) {
  // O_NONBLOCK: opening a pipe would block the caller.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (file.get() < 0 && (errno == ENOENT || errno == ENOTDIR)) return ReadTable{};
  if (file.get() < 0) {
    return invalid("{}: cannot be read ({}), wanted a table", shown(path), std::strerror(errno));
  }
  struct stat about {};
  if (::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode)) {
    return invalid("{}: is not a regular file, wanted a table", shown(path));
  }
  std::string text;
  char piece[1 << 16];
  while (text.size() <= kMostTableBytes) {
    const ssize_t count = ::read(file.get(), piece, sizeof piece);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return invalid("{}: cannot be read ({}), wanted a table", shown(path), std::strerror(errno));
    }
    if (count == 0) break;
    text.append(piece, static_cast<size_t>(count));
  }
  Result<TunedTable> table = parse_table(text);
  if (!table.ok()) return invalid("{}: {}", shown(path), table.status().message());
  return ReadTable{.table = std::move(*table), .is_there = true};
}

TunedTable shipped_table(const TunedDevice& device) {
  static constexpr std::string_view kTables[] = {
#include "tuning/shipped_tables.inc"
  };
  for (const std::string_view text : kTables) {
    Result<TunedTable> table = parse_table(text);
    if (table.ok() && table->device == device) return std::move(*table);
  }
  return {.device = device, .entries = {}};
}

void merge(TunedTable& table, const std::string& key, const TunedEntry& measured,
           const TunedEntry& fallback, bool is_current) {
  const auto as_written = [](TunedEntry entry) {
    for (std::string* const text : {&entry.kernel, &entry.config, &entry.fingerprint,
                                    &entry.compiler, &entry.default_kernel, &entry.measured}) {
      *text = plain(*text);
    }
    for (std::string& problem : entry.problems) problem = plain(problem);
    entry.us = kept(entry.us, kMostMicroseconds);
    entry.default_us = kept(entry.default_us, kMostMicroseconds);
    entry.noise = kept(entry.noise, kMostNoise);
    return entry;
  };
  const TunedEntry added = as_written(measured);
  const auto known = table.entries.find(key);
  if (known == table.entries.end()) {
    if (table.entries.size() < kMostEntries) table.entries.emplace(key, added);
    return;
  }
  TunedEntry& entry = known->second;
  const bool is_alone = entry.problems == added.problems;
  if (!is_current || is_alone) {
    entry = added;
    return;
  }
  const bool agrees = entry.is_default == added.is_default && entry.kernel == added.kernel &&
                      entry.config == added.config;
  std::vector<std::string> problems = entry.problems;
  for (const std::string& problem : added.problems) {
    const bool is_there = std::find(problems.begin(), problems.end(), problem) != problems.end();
    if (!is_there && problems.size() < kMostProblems) problems.push_back(problem);
  }
  if (!agrees) entry = as_written(fallback);
  // If the problems agree, the entry keeps the smaller gain.
  if (agrees && added.us * entry.default_us > entry.us * added.default_us) entry = added;
  entry.problems = std::move(problems);
}

}  // namespace flashcore::tuning
