// flashcore_fit_tuning: fits a GPU's constants to its recordings, and writes its constants.json.
//
//   flashcore_fit_tuning src/tuning/gpus/h200/constants.json      from the repository's root
//
// Reads "gpu", "measurements" and "measured", and the seed and the folds of "fit"; writes the rest.
//
// The shapes are divided into folds. For each fold the constants are fitted to the other folds, and
// their choices are judged on it: "held_out" has the losses over all folds. Then the constants are
// fitted to all shapes, and these are written.
//
// The constants minimise
//   the mean squared error of the times' logarithms, per recording, and
//   the mean regret of each choice, where a regret above kLargeRegret counts twice, and
//   kPrior times the squared distance from typical values, for constants that some of the data
//   cannot distinguish from others: in logarithms, scaled by a width.
// Each of several searches takes random steps of decreasing size, and the one with the least cost
// wins. A constant at a bound of the search is an error, and nothing is written.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "problem/status.hpp"
#include "tools/tuning/replay.hpp"
#include "tuning/cost_model.hpp"

namespace flashcore::replay {
namespace {

using nlohmann::ordered_json;
using tuning::Constants, tuning::Work, tuning::work_of;

constexpr double kPrior = 2e-4, kRegretWeight = 1, kLargeRegret = 0.1;
constexpr int kSearches = 12, kSteps = 60000;
constexpr double kLargestStep = 0.3, kSmallestStep = 0.003;
constexpr double kChanged = 2;       // constants changed per step, on average
constexpr double kNearBound = 1.01;  // as a factor

// A constant's range in a search.
struct Range {
  std::string_view name;
  double least, typical, most;
  double width;  // width of the prior, in its logarithm; 0: no prior
};
constexpr Range kLaunch{"launch_us", 0.3, 2, 8, 0.5};
constexpr Range kBeginAndEnd{"begin_and_end_us", 0.1, 1.5, 8, 1};
constexpr Range kStep{"step_us", 0.05, 1, 8, 0};
constexpr Range kMask{"mask_us", 0.01, 0.2, 3, 1};
constexpr Range kAlone{"alone", 0.3, 0.8, 1, 0.25};
constexpr Range kTail{"tail", 0.02, 0.3, 1.2, 1};

// Indices of a tile's constants among all that are searched; -1: none, see constants_of().
// Constants of how units share the GPU are the same for all head dimensions.
struct TilePlaces {
  std::string tile;
  int64_t head_dim;
  size_t begin_and_end, step, mask;
  int alone, tail;
};

struct Sample {
  Work work;
  size_t tile;
  double log_us;
  size_t recording;
};
struct ChoiceRow {
  struct One {
    Work work;
    size_t tile;
    double regret;
  };
  size_t choice;
  std::vector<One> options;
};

class Fit {
 public:
  // `in_fit`: per row, whether the fit uses it.
  Fit(const Recordings& recordings, const std::vector<bool>& in_fit, double bytes_per_us)
      : bytes_per_us_(bytes_per_us), errors_(recordings.commits.size()), samples_(errors_.size()) {
    ranges_.push_back(kLaunch);
    owners_.emplace_back("");
    const DeviceInfo& device = recordings.device;
    for (size_t n = 0; n < recordings.rows.size(); ++n) {
      const Row& row = recordings.rows[n];
      if (!in_fit[n]) continue;
      for (const Option& one : timed(row, device)) {
        const Work work = work_of(row.problem, one.unit, device.multiprocessors);
        all_samples_.push_back(
            {work, tile_of(row.problem, one.unit, work), std::log(one.us), row.recording});
        ++samples_[row.recording];
      }
    }
    for (size_t i = 0; i < std::size(kChoices); ++i) {
      for (size_t n = 0; n < recordings.rows.size(); ++n) {
        if (in_fit[n]) add_choice(i, recordings.rows[n], device);
      }
    }
  }

  const std::vector<Range>& ranges() const { return ranges_; }
  const std::vector<TilePlaces>& tiles() const { return tiles_; }
  // The owner of a constant: its tile without the head dimension.
  const std::string& owner(size_t i) const { return owners_[i]; }
  std::string_view tile(size_t i) const {
    return std::string_view(owners_[i]).substr(0, owners_[i].find(','));
  }

  Constants constants_of(const TilePlaces& at, const std::vector<double>& values) const {
    // Neither is used if it is not searched: no data has two units per SM, or a last wave.
    return {.begin_and_end = values[at.begin_and_end],
            .step = values[at.step],
            .mask = values[at.mask],
            .alone = at.alone < 0 ? 1 : values[static_cast<size_t>(at.alone)],
            .tail = at.tail < 0 ? kTail.typical : values[static_cast<size_t>(at.tail)]};
  }

  double cost(const std::vector<double>& values) {
    current_.clear();
    for (const TilePlaces& at : tiles_) current_.push_back(constants_of(at, values));
    const double launch = values[0];
    std::fill(errors_.begin(), errors_.end(), 0.0);
    for (const Sample& one : all_samples_) {
      const double off = std::log(us(one.work, one.tile, launch)) - one.log_us;
      errors_[one.recording] += off * off;
    }
    double total = 0;
    for (size_t i = 0; i < errors_.size(); ++i) {
      total += errors_[i] / static_cast<double>(std::max<size_t>(samples_[i], 1));
    }
    std::array<double, std::size(kChoices)> regrets{};
    for (const ChoiceRow& row : choices_) {
      const ChoiceRow::One* best = nullptr;
      double least = 0;
      for (const ChoiceRow::One& one : row.options) {
        const double time = us(one.work, one.tile, launch);
        if (best == nullptr || time < least) best = &one, least = time;
      }
      regrets[row.choice] += best->regret * (1 + best->regret / kLargeRegret);
    }
    for (size_t i = 0; i < regrets.size(); ++i) {
      total += kRegretWeight * regrets[i] / static_cast<double>(std::max<size_t>(rows_[i], 1));
    }
    for (size_t i = 0; i < values.size(); ++i) {
      if (ranges_[i].width == 0) continue;
      const double far = std::log(values[i] / ranges_[i].typical) / ranges_[i].width;
      total += kPrior * far * far;
    }
    return total;
  }

 private:
  double us(const Work& work, size_t tile, double launch) const {
    return tuning::predicted_us(work, current_[tile], launch, bytes_per_us_);
  }

  size_t place(const Range& range, const std::string& owner) {
    ranges_.push_back(range);
    owners_.push_back(owner);
    return ranges_.size() - 1;
  }

  size_t tile_of(const ForwardProblem& p, const WorkUnit& unit, const Work& work) {
    const int64_t head_dim = std::max(p.head_dim_qk, p.head_dim_v);
    const auto found = std::find_if(tiles_.begin(), tiles_.end(), [&](const TilePlaces& one) {
      return one.tile == unit.tile && one.head_dim == head_dim;
    });
    const auto index = static_cast<size_t>(found - tiles_.begin());
    const std::string name(unit.tile);
    if (found == tiles_.end()) {
      const std::string wide = fmt::format("{}, {}", name, head_dim);
      tiles_.push_back({name, head_dim, place(kBeginAndEnd, wide), place(kStep, wide),
                        shared(kMask, name), -1, -1});
    }
    TilePlaces& tile = tiles_[index];
    if (work.most_at_once > 1) tile.alone = static_cast<int>(shared(kAlone, name));
    if (work.uneven && work.units_per_sm > static_cast<double>(work.units_at_once)) {
      tile.tail = static_cast<int>(shared(kTail, name));
    }
    return index;
  }

  // One constant for all head dimensions of a tile.
  size_t shared(const Range& range, const std::string& tile) {
    for (size_t i = 0; i < ranges_.size(); ++i) {
      if (owners_[i] == tile && ranges_[i].name == range.name) return i;
    }
    return place(range, tile);
  }

  void add_choice(size_t choice, const Row& row, const DeviceInfo& device) {
    const std::vector<Option> options = options_of(kChoices[choice], row, device);
    if (options.empty()) return;
    double best = options[0].us;
    for (const Option& one : options) best = std::min(best, one.us);
    ChoiceRow added{choice, {}};
    for (const Option& one : options) {
      const Work work = work_of(row.problem, one.unit, device.multiprocessors);
      added.options.push_back({work, tile_of(row.problem, one.unit, work), one.us / best - 1});
    }
    choices_.push_back(std::move(added));
    ++rows_[choice];
  }

  double bytes_per_us_;
  std::vector<Range> ranges_;
  std::vector<std::string> owners_;  // tile of each constant
  std::vector<TilePlaces> tiles_;
  std::vector<Sample> all_samples_;
  std::vector<ChoiceRow> choices_;
  std::array<size_t, std::size(kChoices)> rows_{};
  std::vector<double> errors_;
  std::vector<size_t> samples_;  // per recording
  std::vector<Constants> current_;
};

struct Found {
  double cost;
  std::vector<double> values;
};

// A step of a search. If no two of a tile's units share one SM, the data determine only the product
// of `alone` and a time: half of its steps change the two in opposite directions.
class Steps {
 public:
  Steps(const Fit& fit, uint64_t seed) : fit_(fit), random_(seed) {}

  std::vector<double> next(std::vector<double> values, double size) {
    const std::vector<Range>& ranges = fit_.ranges();
    std::uniform_int_distribution<size_t> any(0, values.size() - 1);
    const size_t always = any(random_);
    const bool together = ranges[always].name == kAlone.name && part_(random_) < 0.5;
    const double factor = std::exp(size * normal_(random_));
    for (size_t i = 0; i < values.size(); ++i) {
      if (together) {
        const bool is_time = fit_.tile(i) == fit_.tile(always) && ranges[i].name != kTail.name;
        if (i == always || is_time) values[i] *= i == always ? factor : 1 / factor;
      } else if (i == always || part_(random_) < kChanged / static_cast<double>(values.size())) {
        values[i] *= std::exp(size * normal_(random_));
      }
      values[i] = std::clamp(values[i], ranges[i].least, ranges[i].most);
    }
    return values;
  }

 private:
  const Fit& fit_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> part_{0, 1};
};

Found search(Fit& fit, uint64_t seed) {
  Steps steps(fit, seed);
  Found best{0, {}};
  for (const Range& range : fit.ranges()) best.values.push_back(range.typical);
  best.cost = fit.cost(best.values);
  for (int n = 0; n < kSteps; ++n) {
    const double size =
        kLargestStep * std::pow(kSmallestStep / kLargestStep, static_cast<double>(n) / kSteps);
    std::vector<double> values = steps.next(best.values, size);
    const double cost = fit.cost(values);
    if (cost < best.cost) best = {cost, std::move(values)};
  }
  return best;
}

Status check_bounds(const Fit& fit, const std::vector<double>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const Range& range = fit.ranges()[i];
    if (values[i] > kNearBound * range.least && values[i] < range.most / kNearBound) continue;
    return {StatusCode::invalid_argument,
            fmt::format("{}: {} is {:.4f}, at a bound of the search ({} to {})", fit.owner(i),
                        range.name, values[i], range.least, range.most)};
  }
  return {};
}

// Enough digits to choose as the fit did, few enough to read.
double rounded(double value) { return std::round(value * 1e4) / 1e4; }

Status check_gpu(const ordered_json& gpu, const Recordings& recordings) {
  const DeviceInfo& device = recordings.device;
  if (gpu["name"] == device.name && gpu["compute_capability"] == device.compute_capability &&
      gpu["multiprocessors"] == device.multiprocessors &&
      gpu["sm_clock_mhz"] == recordings.sm_clock_mhz) {
    return {};
  }
  return {StatusCode::invalid_argument,
          "gpu: is not what the recordings were made on, " + device.name};
}

ordered_json tiles_json(const Fit& fit, const std::vector<double>& values) {
  ordered_json tiles = ordered_json::array();
  std::vector<TilePlaces> sorted = fit.tiles();
  std::sort(sorted.begin(), sorted.end(), [](const TilePlaces& a, const TilePlaces& b) {
    return std::tie(a.tile, a.head_dim) < std::tie(b.tile, b.head_dim);
  });
  for (const TilePlaces& at : sorted) {
    const Constants one = fit.constants_of(at, values);
    tiles.push_back({{"tile", at.tile},
                     {"head_dim", at.head_dim},
                     {"begin_and_end_us", rounded(one.begin_and_end)},
                     {"step_us", rounded(one.step)},
                     {"mask_us", rounded(one.mask)},
                     {"alone", rounded(one.alone)},
                     {"tail", rounded(one.tail)}});
  }
  return tiles;
}

// The losses of choices, by choice, and the errors of predictions.
struct Judgement {
  std::array<Regret, std::size(kChoices)> regrets;
  PredictionError error;
};

void judge(Judgement& judgement, const Recordings& recordings, const std::vector<bool>& judged,
           const ordered_json& document) {
  const Table table(document);
  for (size_t n = 0; n < recordings.rows.size(); ++n) {
    if (!judged[n]) continue;
    const Row& row = recordings.rows[n];
    add_error(judgement.error, row, table.tuning(), recordings.device);
    for (size_t i = 0; i < std::size(kChoices); ++i) {
      add_regret(judgement.regrets[i], kChoices[i], row, table.tuning(), recordings.device);
    }
  }
}

ordered_json regret_json(const char* name, Choice choice, const Regret& regret) {
  fmt::print("{}, {}: {} problems, regret {:.2f}% on average, {:.1f}% at worst{}{}\n",
             name_of(choice), name, regret.problems, 100 * regret.mean(), 100 * regret.worst,
             regret.worst > 0 ? ": " : "", regret.worst_problem);
  return {{"problems", regret.problems},
          {"mean", rounded(regret.mean())},
          {"worst", rounded(regret.worst)}};
}

// One line per tile, recording and choice.
std::string text_of(const ordered_json& document) {
  std::string text = "{\n";
  for (const auto& [key, value] : document.items()) {
    text += fmt::format("  \"{}\": ", key);
    if (value.is_array()) {
      text += "[\n";
      for (size_t i = 0; i < value.size(); ++i) {
        text += "    " + value[i].dump() + (i + 1 < value.size() ? ",\n" : "\n");
      }
      text += "  ]";
    } else {
      text += value.dump();
    }
    text += key == document.rbegin().key() ? "\n" : ",\n";
  }
  return text + "}\n";
}

// Fits the constants to these rows and puts them into the document.
Status fit_rows(ordered_json& document, const Recordings& recordings,
                const std::vector<bool>& in_fit) {
  const uint64_t seed = document["fit"]["seed"];
  Fit fit(recordings, in_fit, 1e3 * document["gpu"]["memory_gb_s"].get<double>());
  Found best = search(fit, seed);
  for (uint64_t n = 1; n < kSearches; ++n) {
    Found other = search(fit, seed + n);
    if (other.cost < best.cost) best = std::move(other);
  }
  fmt::print("{} of {} rows, {} constants: cost {:.5f}\n",
             std::count(in_fit.begin(), in_fit.end(), true), in_fit.size(), best.values.size(),
             best.cost);
  FLASHCORE_RETURN_IF_ERROR(check_bounds(fit, best.values));
  document["launch_us"] = rounded(best.values[0]);
  document["tiles"] = tiles_json(fit, best.values);
  document["fit"]["error"] = 1;  // placeholder: a table must have an error
  return {};
}

Status fit_file(const std::string& path) {
  Result<ordered_json> read = read_json(path);
  if (!read.ok()) return read.status();
  ordered_json document = std::move(*read);
  const Result<Recordings> recordings = read_recordings(".", document);
  if (!recordings.ok()) return recordings.status();
  FLASHCORE_RETURN_IF_ERROR(check_gpu(document["gpu"], *recordings));
  for (size_t i = 0; i < recordings->commits.size(); ++i) {
    document["measurements"][i]["commit"] = recordings->commits[i];
  }

  const uint64_t seed = document["fit"]["seed"], folds = document["fit"]["folds"];
  const std::vector<bool> all(recordings->rows.size(), true);
  Judgement held_out, fitted;
  for (uint64_t fold = 0; fold < folds; ++fold) {
    std::vector<bool> judged, in_fit;
    for (const Row& row : recordings->rows) {
      judged.push_back(fold_of(row.problem, seed, folds) == fold);
      in_fit.push_back(!judged.back());
    }
    ordered_json other = document;
    FLASHCORE_RETURN_IF_ERROR(fit_rows(other, *recordings, in_fit));
    judge(held_out, *recordings, judged, other);
  }
  FLASHCORE_RETURN_IF_ERROR(fit_rows(document, *recordings, all));
  judge(fitted, *recordings, all, document);

  fmt::print("predicted times are off by {:.1f}% on average, held out {:.1f}%\n",
             100 * fitted.error.mean(), 100 * held_out.error.mean());
  document["fit"]["error"] = rounded(held_out.error.mean());
  document["regret"] = ordered_json::array();
  for (size_t i = 0; i < std::size(kChoices); ++i) {
    document["regret"].push_back(
        {{"choice", name_of(kChoices[i])},
         {"fitted", regret_json("fitted", kChoices[i], fitted.regrets[i])},
         {"held_out", regret_json("held out", kChoices[i], held_out.regrets[i])}});
  }
  std::ofstream file(path);
  file << text_of(document);
  file.close();
  if (!file.good()) return {StatusCode::invalid_argument, path + ": cannot be written"};
  return {};
}

}  // namespace
}  // namespace flashcore::replay

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: flashcore_fit_tuning src/tuning/gpus/GPU/constants.json\n");
    return 2;
  }
  try {
    const flashcore::Status status = flashcore::replay::fit_file(argv[1]);
    if (status.ok()) return 0;
    fmt::print(stderr, "flashcore_fit_tuning: {}\n", status.message());
  } catch (const nlohmann::json::exception& error) {
    fmt::print(stderr, "flashcore_fit_tuning: {}: {}\n", argv[1], error.what());
  }
  return 1;
}
