#include "evolve/show/leaderboard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "bench/text/numbers.hpp"
#include "bench/text/terminal.hpp"
#include "evolve/loop/population.hpp"

namespace flashcore::evolve {
namespace {

std::string name_of(const Attempt& one) {
  constexpr size_t kLongest = 60;
  const std::string name = bench::printable(one.origin.name);
  return name.size() <= kLongest ? name : name.substr(0, kLongest) + "...";
}

// Times of the first shape.
std::string time_text(const Attempt& one) {
  const auto times = one.evidence.find("times");
  if (times == one.evidence.end() || times->empty()) return "";
  return bench::seconds_text(times->front()["seconds"]);
}

void add_below(const std::multimap<int64_t, const Attempt*>& children, int64_t id, size_t depth,
               std::vector<std::string>& lines) {
  const auto [first, last] = children.equal_range(id);
  for (auto child = first; child != last; ++child) {
    const Attempt& one = *child->second;
    std::string others;
    for (size_t i = 1; i < one.origin.parents.size(); ++i) {
      others += fmt::format(" and {}", one.origin.parents[i]);
    }
    lines.push_back(fmt::format("{}{} {}{}: {}", std::string(2 * depth, ' '), one.id,
                                one.origin.operation, others, result_text(one)));
    add_below(children, one.id, depth + 1, lines);
  }
}

}  // namespace

std::string reproduction_text(const std::vector<nlohmann::ordered_json>& lines,
                              const std::vector<Attempt>& attempts) {
  int64_t recorded = 0, same = 0;
  const Attempt* best = nullptr;  // best recorded program, as measured here
  double best_score = 1;          // the seed's
  for (size_t i = 0; i < lines.size() && i + 1 < attempts.size(); ++i) {
    const Attempt& one = attempts[i + 1];
    const auto outcome = lines[i].find("outcome"), score = lines[i].find("score");
    if (outcome == lines[i].end() || !outcome->is_string()) continue;
    ++recorded;
    if (*outcome == one.outcome) ++same;
    if (*outcome != "valid" || score == lines[i].end() || !score->is_number()) continue;
    if (score->get<double>() <= best_score) continue;
    best_score = *score;
    best = &one;
  }
  if (recorded == 0) return "";
  std::string text = fmt::format("{} of {} recorded outcomes are the same", same, recorded);
  if (best == nullptr) return text;
  return text + fmt::format("; the recording's best, attempt {}, has {:.2f} there and {:.2f} here",
                            best->id, best_score, best->score);
}

bench::Table leaderboard(const std::vector<Attempt>& attempts, int64_t rows) {
  using bench::Align;
  bench::Table table({{"attempt", Align::right},
                      {"score", Align::right},
                      {"noise", Align::right},
                      {"time", Align::right},
                      {"from"},
                      {"name"}});
  for (const Attempt* const one : elites_of(attempts, rows)) {
    table.row({std::to_string(one->id), fmt::format("{:.2f}x", one->score),
               fmt::format("{:.1f}%", 100 * one->noise), time_text(*one), one->origin.operation,
               name_of(*one)});
  }
  return table;
}

std::string outcomes_text(const std::vector<Attempt>& attempts) {
  std::map<std::string, int64_t> counts;
  for (const Attempt& one : attempts) ++counts[one.done ? one.outcome : "unfinished"];
  std::string text = fmt::format("{} valid", counts["valid"]);
  for (const auto& [outcome, count] : counts) {
    if (outcome != "valid") text += fmt::format(", {} {}", count, outcome);
  }
  return text;
}

std::vector<std::string> lineage(const std::vector<Attempt>& attempts) {
  std::multimap<int64_t, const Attempt*> children;
  for (const Attempt& one : attempts) {
    children.emplace(one.origin.parents.empty() ? 0 : one.origin.parents.front(), &one);
  }
  std::vector<std::string> lines;
  add_below(children, 0, 0, lines);
  return lines;
}

std::string result_text(const Attempt& one) {
  if (!one.done) return "not evaluated yet";
  if (one.outcome != "valid") {
    return fmt::format("{} in {}: {}", one.outcome, one.stage, bench::printable(one.reason));
  }
  return fmt::format("{:.2f}x {} {}", one.score, time_text(one), name_of(one));
}

}  // namespace flashcore::evolve
