#include "cli/subjects.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "bench/cases/cases.hpp"
#include "bench/evidence/evidence_file.hpp"
#include "bench/run/backward_workload.hpp"
#include "bench/text/numbers.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

constexpr const char* kStandard = "five,sweep,small,decode,features";

Status add_suite(const std::string& name, bool quick, std::vector<bench::Subject>& subjects) {
  const std::optional<std::vector<bench::Case>> cases = bench::suite_cases(name, quick);
  if (quick && !cases && bench::suite_cases(name)) {
    return invalid(
        "--quick: the suite is '{}', wanted one of decode, paged, ragged, rotated, speculative, "
        "prefill",
        name);
  }
  if (!cases) {
    std::string names;
    for (const bench::Suite& suite : bench::suites()) {
      names += fmt::format("{}{}", names.empty() ? "" : ", ", suite.name);
    }
    return invalid("--suite: is '{}', wanted one of {}, standard", name, names);
  }
  for (const bench::Case& one : *cases) {
    subjects.push_back({.suite = name, .one = one, .given = std::nullopt});
  }
  return {};
}

// The given problem, with the requested gradients.
Result<bench::Subject> given_subject(const SubjectOptions& options) {
  Result<bench::ProblemInputs> inputs = options.problem.read(options.gradients.sources());
  if (!inputs.ok()) return inputs.status();
  bench::Subject subject;
  subject.suite = "given";
  if (options.gradients.backward()) {
    const Result<Gradients> gradients = options.gradients.describe(
        *inputs, options.problem.layout(), options.problem.draws_d_lse());
    if (!gradients.ok()) return gradients.status();
    subject.gradients = *gradients;
  }
  subject.given = std::move(*inputs);
  return subject;
}

Result<std::vector<bench::Subject>> all_subjects(const SubjectOptions& options) {
  std::vector<bench::Subject> subjects;
  if (!options.cases.empty() && options.problem.given()) {
    return invalid("--cases: is '{}', wanted either that or a problem", options.cases);
  }
  if (options.quick && (!options.cases.empty() || options.problem.given())) {
    return invalid("--quick: is given, wanted it with --suite");
  }
  if (options.problem.given()) {
    Result<bench::Subject> subject = given_subject(options);
    if (!subject.ok()) return subject.status();
    subjects.push_back(std::move(*subject));
    return subjects;
  }
  FLASHCORE_RETURN_IF_ERROR(options.gradients.check_for_suites());
  if (!options.cases.empty()) {
    const Result<std::vector<bench::FileCase>> cases = bench::read_cases(options.cases);
    if (!cases.ok()) return cases.status();
    for (const bench::FileCase& one : *cases) {
      bench::Subject& subject = subjects.emplace_back();
      subject.suite = one.suite;
      subject.one = one.one;
      if (one.backward) subject.gradients = bench::plain_gradients(subject.problem());
    }
    return subjects;
  }
  const std::string suites = options.suites == "standard" ? kStandard : options.suites;
  const std::vector<std::string> names = bench::split(suites, ',');
  for (const std::string& name : names) {
    if (std::count(names.begin(), names.end(), name) > 1) {
      return invalid("--suite: has '{}' twice, wanted each once", name);
    }
    FLASHCORE_RETURN_IF_ERROR(add_suite(name, options.quick, subjects));
  }
  return subjects;
}

}  // namespace

Result<std::vector<bench::Subject>> subjects_of(const SubjectOptions& options) {
  Result<std::vector<bench::Subject>> subjects = all_subjects(options);
  if (!subjects.ok()) return subjects;
  for (bench::Subject& subject : *subjects) {
    if (subject.suite == "backward" && !options.gradients.backward() && !subject.gradients) {
      return invalid("--suite: is 'backward', wanted it with --backward");
    }
    if (options.gradients.backward() && !subject.gradients) {
      subject.gradients = bench::plain_gradients(subject.problem());
    }
  }
  return subjects;
}

void SubjectOptions::declare(OptionSet& set) {
  std::string help = fmt::format(
      "What is timed when no problem is given, separated by commas (default {}):", suites);
  for (const bench::Suite& suite : bench::suites()) {
    help += fmt::format("\n{}: {}", suite.name, suite.summary);
  }
  help += fmt::format("\nstandard: {}", kStandard);
  set.group("What is timed");
  set.text("--suite", suites, help, "NAMES");
  set.flag("--quick", quick,
           "An eighth of the sequences and keys of decode, paged, ragged, rotated, speculative and "
           "prefill");
  set.text("--cases", cases, "Cases from a JSON file instead (docs/command.md)", "FILE");
}

}  // namespace flashcore::cli
