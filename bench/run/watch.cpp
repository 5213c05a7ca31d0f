#include "bench/run/watch.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/evidence/evidence_file.hpp"
#include "bench/process/child_process.hpp"
#include "bench/process/temporary_folder.hpp"
#include "bench/run/case.hpp"
#include "bench/run/case_evidence.hpp"
#include "bench/text/progress.hpp"
#include "bench/text/terminal.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kPatience = 10;  // multiple of the deadline, for steps outside of our kernels
constexpr size_t kMostLost = 50;
constexpr size_t kLongestLine = size_t{1} << 20;

volatile std::sig_atomic_t signal_seen = 0;

// Records SIGINT and SIGTERM while it lives, so that the child can be ended and the evidence closed.
class SignalNote {
 public:
  SignalNote() {
    struct sigaction action = {};
    action.sa_handler = [](int signal) { signal_seen = signal; };
    for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &action, &before_[i]);
  }
  SignalNote(const SignalNote&) = delete;
  SignalNote& operator=(const SignalNote&) = delete;
  ~SignalNote() {
    for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
  }

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM};
  std::array<struct sigaction, kSignals.size()> before_{};
};

// The arguments of this program.
std::vector<std::string> own_words() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\0', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

Json order_json(const RunOrder& order) {
  Json lost = Json::array();
  for (const RunOrder::Lost& one : order.lost) {
    lost.push_back({{"suite", one.suite},
                    {"name", one.name},
                    {"implementation", one.implementation},
                    {"why", one.why}});
  }
  return {{"out", order.out},
          {"goes_on", order.goes_on},
          {"elapsed", order.elapsed},
          {"kernel", order.kernel},
          {"lost", lost}};
}

RunOrder order_of(const Json& json) {
  RunOrder order{.out = json.at("out"),
                 .goes_on = json.at("goes_on"),
                 .elapsed = json.at("elapsed"),
                 .kernel = json.at("kernel"),
                 .lost = {}};
  for (const Json& one : json.at("lost")) {
    order.lost.push_back(
        {one.at("suite"), one.at("name"), one.at("implementation"), one.at("why")});
  }
  return order;
}

class Watch {
 public:
  Watch(const RunOptions& options, const std::vector<Subject>& subjects, const PlanOptions& plan,
        std::string folder)
      : options_(options),
        subjects_(subjects),
        plan_(plan),
        folder_(std::move(folder)),
        progress_(is_terminal(stderr) ? Progress::Style::redrawn : Progress::Style::silent,
                  options.tuning ? "tune" : "bench", std::ssize(subjects)) {
    order_.out = options.out.empty() ? folder_ + "/evidence.json" : options.out;
    order_.kernel = plan.kernel;
  }

  // Runs children until one ends by itself.
  Status run();

 private:
  enum class Ending { done, failed, lost, interrupted };

  Result<Child> start_worker();
  Ending follow(Child& child);
  Status lose_point();
  void hear(const Json& message);
  double patience() const;
  double elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  const RunOptions& options_;
  const std::vector<Subject>& subjects_;
  const PlanOptions& plan_;
  std::string folder_;
  RunOrder order_;
  Progress progress_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  int64_t finished_ = 0;
  // State of the running child: its step, and how it ended.
  std::string what_ = "starting", suite_, name_, implementation_, why_;
  Status status_;
};

Result<Child> Watch::start_worker() {
  order_.elapsed = elapsed();
  const std::string file = folder_ + "/order.json";
  FLASHCORE_RETURN_IF_ERROR(write_json(file, order_json(order_)));
  const Result<std::string> program = this_program();
  if (!program.ok()) return program.status();
  std::vector<std::string> words = own_words();
  if (words.size() < 2) return Status(StatusCode::internal, "its own words cannot be read");
  words.front() = options_.worker_program.empty() ? *program : options_.worker_program;
  words.insert(words.end(), {"--worker", file});
  what_ = "starting";
  implementation_.clear();
  return start_child(words, {});
}

double Watch::patience() const {
  const bool ours = !implementation_.empty() && plan_.device.kind == DeviceKind::cuda;
  return ours ? options_.deadline : kPatience * options_.deadline;
}

void Watch::hear(const Json& message) {
  if (message.contains("begins")) {
    what_ = message["begins"];
    suite_ = message["suite"];
    name_ = message["name"];
    implementation_ = message["implementation"];
    progress_.step(what_);
    if (options_.verbose)
      write_text(stderr, fmt::format("{:6.1f} s  begins {}\n", elapsed(), what_));
  } else if (message.contains("finished")) {
    ++finished_;
    progress_.advance();
    const std::string line = message["finished"];
    if (!line.empty() && !is_terminal(stderr) && subjects_.size() > 1) {
      write_text(stderr, fmt::format("{:6.1f} s  {}/{} {}\n", elapsed(), finished_,
                                     subjects_.size(), line));
    }
  } else if (message.contains("failed")) {
    status_ = Status(static_cast<StatusCode>(message["failed"].get<int>()), message["message"]);
  }
}

Watch::Ending Watch::follow(Child& child) {
  LineReader lines(child.stream(), kLongestLine);
  bool ended = false;
  for (;;) {
    std::string line;
    const LineReader::Event event = lines.next(after_seconds(patience()), line);
    if (signal_seen != 0) return Ending::interrupted;
    if (event == LineReader::Event::interrupt) continue;
    if (event == LineReader::Event::line) {
      const Json message = Json::parse(line, nullptr, false);
      if (!message.is_object()) continue;
      ended = ended || message.contains("ended");
      hear(message);
      continue;
    }
    if (event == LineReader::Event::silence) {
      why_ = fmt::format("was abandoned after {:g} s", patience());
      return Ending::lost;
    }
    if (ended && status_.ok()) return Ending::done;
    if (ended && status_.code() != StatusCode::device_error) return Ending::failed;
    child.end();
    why_ = status_.ok() ? "its process " + child.ending() : status_.message();
    return Ending::lost;
  }
}

// The child left its evidence; the next one resumes without the point that was running.
Status Watch::lose_point() {
  if (implementation_.empty() || order_.lost.size() >= kMostLost) {
    return {StatusCode::device_error, fmt::format("{}: {}", what_, why_)};
  }
  order_.lost.push_back({suite_, name_, implementation_, fmt::format("{}: {}", what_, why_)});
  order_.goes_on = true;
  finished_ = 0;
  status_ = {};
  progress_.interrupt();
  write_text(stderr, fmt::format("{:6.1f} s  lost {}: {}\n", elapsed(), what_, why_));
  return {};
}

Status Watch::run() {
  const SignalNote signals;
  for (;;) {
    Result<Child> child = start_worker();
    if (!child.ok()) return child.status();
    switch (follow(*child)) {
      case Ending::done:
        return {};
      case Ending::failed:
        return status_;
      case Ending::interrupted:
        return {StatusCode::internal, "interrupted"};
      case Ending::lost:
        child->end();
        FLASHCORE_RETURN_IF_ERROR(lose_point());
        break;
    }
  }
}

// Sends lines to the watcher, on this process's original stdout.
class Reporter final : public RunListener {
 public:
  explicit Reporter(std::FILE* stream) : stream_(stream) {}

  void begins(const Step& step) override {
    say({{"begins", step.what},
         {"suite", step.suite},
         {"name", step.name},
         {"implementation", step.implementation}});
  }
  void finished(const Json* one) override {
    std::string line;
    if (one != nullptr && one->contains("tuned")) {
      line = tuned_line(*one);
    } else if (one != nullptr) {
      const Json& rows = (*one)["rows"];
      const auto timed = std::find_if(rows.begin(), rows.end(),
                                      [](const Json& row) { return !row["times"].empty(); });
      if (timed != rows.end()) line = case_line(*one, (*timed)["times"].begin().key());
    }
    say({{"finished", line}});
  }
  void say(const Json& message) {
    write_text(stream_, message.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n");
    std::fflush(stream_);
  }

 private:
  std::FILE* stream_;
};

// Closes the evidence of a run that was ended from outside.
Status note_ending(const std::string& path, const Status& status) {
  Result<Json> evidence = read_evidence(path);
  if (!evidence.ok()) return status;
  (*evidence)["notes"].push_back("ended early: " + status.message());
  const Status written = write_evidence(path, *evidence);
  return written.ok() ? status : written;
}

}  // namespace

Result<Watched> watch_cases(const RunOptions& options, const std::vector<Subject>& subjects,
                            const PlanOptions& plan) {
  Result<TemporaryFolder> folder = TemporaryFolder::make();
  if (!folder.ok()) return folder.status();
  const std::string out = options.out.empty() ? folder->path() + "/evidence.json" : options.out;
  signal_seen = 0;
  const Status status = Watch(options, subjects, plan, folder->path()).run();
  if (!status.ok()) {
    // Refused options leave the file unchanged.
    const bool began = signal_seen != 0 || (status.code() != StatusCode::invalid_argument);
    const Status said = began ? note_ending(out, status) : status;
    if (signal_seen == 0) return said;
    return Watched{.evidence = nullptr, .interrupted = true};
  }
  Result<Json> evidence = read_evidence(out);
  if (!evidence.ok()) return evidence.status();
  return Watched{.evidence = std::move(*evidence), .interrupted = false};
}

Status work_for_watcher(const RunOptions& options, const std::vector<Subject>& subjects,
                        PlanOptions plan) {
  // Dies with the watcher, however that ends.
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::FILE* const stream = ::fdopen(::dup(STDOUT_FILENO), "w");
  if (stream == nullptr) return {StatusCode::internal, "stdout: cannot be used"};
  (void)::dup2(STDERR_FILENO, STDOUT_FILENO);  // libraries print; stdout is for the lines
  const Result<Json> file = read_json(options.worker);
  if (!file.ok()) return file.status();
  const RunOrder order = order_of(*file);
  plan.kernel = order.kernel;
  Reporter reporter(stream);
  Json evidence;
  const Status status = run_cases(options, subjects, plan, order, reporter, evidence);
  if (!status.ok()) {
    reporter.say({{"failed", static_cast<int>(status.code())}, {"message", status.message()}});
  }
  reporter.say({{"ended", true}});
  return {};
}

}  // namespace flashcore::bench
