#include "bench/peers/peers.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "bench/device/plan_choice.hpp"
#include "bench/process/child_process.hpp"
#include "bench/text/terminal.hpp"
#include "problem/dtype.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kStartSeconds = 120;  // a cold import of PyTorch from a slow disk
constexpr double kCaseSeconds = 240;   // FlexAttention, FlashAttention 4, FlashInfer compile first
constexpr double kTimeSeconds = 60;

// A text from an answer, which another program wrote.
std::string text_of(const Json& value, const char* name) {
  const auto found = value.find(name);
  if (found == value.end() || !found->is_string()) return {};
  return printable(found->get<std::string>().substr(0, 300));
}

Status write_piece(const std::string& folder, std::string_view name,
                   std::span<const std::byte> piece) {
  std::ofstream file(fmt::format("{}/{}", folder, name), std::ios::binary);
  file.write(reinterpret_cast<const char*>(piece.data()),
             static_cast<std::streamsize>(piece.size()));
  if (file.flush()) return {};
  return unsupported("peers: {}: cannot be written", folder);
}

}  // namespace

// Adds the features that peers are asked for; a packed batch by the starts of its entries, and a bias, mask or slopes
// by their types and shapes, next to the file of their piece.
Status Peers::add_features(const Case& one, Json& request) {
  const Problem problem = to_problem(one);
  Random random = random_of_options();
  for (const auto& [name, desc, piece] : pieces_of_options(problem, random)) {
    FLASHCORE_RETURN_IF_ERROR(write_piece(folder_.path(), name, piece.bytes()));
    request[name] = {{"dtype", to_string(desc.dtype)},
                     {"shape", std::vector(desc.shape.begin(), desc.shape.begin() + desc.rank)}};
  }
  if (one.window_left >= 0 || one.window_right >= 0) {
    request["window"] = {one.window_left, one.window_right};
  }
  if (one.softcap > 0) request["softcap"] = one.softcap;
  if (!one.packed) return {};
  request["starts_q"] = packed_starts(problem.q.shape[0], one.batch, problem.max_seqlen_q);
  request["starts_kv"] = packed_starts(problem.k.shape[0], one.batch, problem.max_seqlen_kv);
  return {};
}

bool asks_peers(const Case& one, bool backward) {
  Case others = one;
  others.bias.reset();
  others.mask = others.alibi = false;
  if (backward) {
    others.window_left = others.window_right = -1;
    others.softcap = 0;
    others.packed = false;
  }
  return size_of(one.dtype) > 1 && features_text(others).empty();
}

bool asks_native_peers(const Case& one) {
  Case others = one;
  if (size_of(one.dtype) == 1) others.o_dtype.reset();
  return features_text(others).empty();
}

// The helper is next to the sources: in the working directory, or above the program.
std::string peers_script(const std::string& option) {
  if (option != "auto") return option;
  constexpr const char* kScript = "tools/peers_torch.py";
  const Result<std::string> program = this_program();
  for (const std::filesystem::path& root :
       {std::filesystem::path("."),
        std::filesystem::path(program.ok() ? *program : "").parent_path() / "../.."}) {
    std::error_code ignored;
    if (std::filesystem::exists(root / kScript, ignored)) return (root / kScript).string();
  }
  return kScript;
}

bool may_be_timed(const Verdict& verdict) {
  constexpr double kLargestError = 2e-2;
  return verdict.passed || verdict.max_scaled_error <= kLargestError;
}

bool gradients_may_be_timed(const Verdict& verdict) {
  constexpr double kLargestError = 5e-2;
  return verdict.passed || verdict.relative_error <= kLargestError;
}

Result<std::unique_ptr<Peers>> Peers::start(const std::string& script, Device device, int threads,
                                            const std::string& backends) {
  Result<TemporaryFolder> folder = TemporaryFolder::make();
  if (!folder.ok()) return folder.status();
  std::unique_ptr<Peers> peers(new Peers(std::move(*folder)));
  Result<std::unique_ptr<PeerProcess>> process =
      PeerProcess::start({"python3", script, "--serve", "--device", to_text(device), "--threads",
                          std::to_string(threads), "--backends", backends},
                         peers->folder_.path() + "/log");
  if (!process.ok()) return process.status();
  peers->process_ = std::move(*process);
  return peers;
}

Status Peers::greet() {
  Result<Json> versions = process_->ask({{"do", "versions"}}, kStartSeconds);
  if (!versions.ok()) return versions.status();
  versions_ = std::move(*versions);
  return {};
}

Status Peers::write_pieces(const TiledInputs& inputs) {
  const std::string dtype(to_string(inputs.dtype()));
  if (written_ == dtype) return {};
  for (const char* const name : {"q", "k", "v", "d_o"}) {
    FLASHCORE_RETURN_IF_ERROR(write_piece(folder_.path(), name, inputs.piece(name)));
  }
  written_ = dtype;
  return {};
}

Result<std::vector<PeerVerdict>> Peers::begin(const Case& one, const std::string& suite,
                                              const TiledInputs& inputs,
                                              const JudgedRows& reference) {
  FLASHCORE_RETURN_IF_ERROR(write_pieces(inputs));
  Json request = {{"do", "case"},
                  {"folder", folder_.path()},
                  {"suite", suite},
                  {"dtype", to_string(one.dtype)},
                  {"batch", one.batch},
                  {"heads_q", one.heads_q},
                  {"heads_kv", one.heads_kv},
                  {"seqlen_q", one.seqlen_q},
                  {"seqlen_kv", one.seqlen_kv},
                  {"head_dim", one.head_dim},
                  {"causal", one.causal},
                  {"copies", rotated_copies(one)}};
  request.update(reference.request());
  FLASHCORE_RETURN_IF_ERROR(add_features(one, request));
  const Result<Json> answer = process_->ask(request, kCaseSeconds);
  if (!answer.ok()) return answer.status();
  std::vector<PeerVerdict> verdicts;
  const auto list = answer->find("backends");
  if (list == answer->end() || !list->is_array()) return unsupported("peers: named no backends");
  for (const Json& item : *list) verdicts.push_back(verdict_of(item, reference));
  return verdicts;
}

PeerVerdict Peers::verdict_of(const Json& answer, const JudgedRows& reference) const {
  PeerVerdict peer{.name = text_of(answer, "name"),
                   .version = text_of(answer, "version"),
                   .error = text_of(answer, "error"),
                   .verdict = {}};
  if (!peer.error.empty()) return peer;
  const std::string file = text_of(answer, "rows");
  if (file.empty() || file.find('/') != std::string::npos) {
    peer.error = "named no file of rows";
    return peer;
  }
  std::ifstream stream(folder_.path() + "/" + file, std::ios::binary);
  const std::string rows{std::istreambuf_iterator<char>(stream), {}};
  const Result<Verdict> verdict = reference.judge_rows(std::as_bytes(std::span(rows)));
  if (!verdict.ok()) {
    peer.error = verdict.status().message();
    return peer;
  }
  peer.verdict = *verdict;
  const bool finite =
      answer.contains("finite") && answer["finite"].is_boolean() && answer["finite"];
  if (peer.verdict.passed && !finite) {
    peer.verdict.passed = false;
    peer.verdict.failure = "has elements that are not finite";
  }
  return peer;
}

Result<Timing> Peers::time(const std::string& backend, const Meter& meter,
                           const Protocol& protocol) {
  const Result<Json> answer = process_->ask(
      {{"do", "time"}, {"backend", backend}, {"protocol", meter.settings(protocol)}}, kTimeSeconds);
  if (!answer.ok()) return answer.status();
  Timing timing;
  const Json samples = answer->value("seconds", Json());
  if (!samples.is_array() || samples.empty()) return unsupported("peers: gave no samples");
  for (const Json& sample : samples) {
    if (!sample.is_number() || !(sample.get<double>() > 0)) {
      return unsupported("peers: gave a sample that is no time");
    }
    timing.sample_seconds.push_back(sample);
  }
  const Json calls = answer->value("calls_per_sample", Json());
  if (calls.is_number_integer()) timing.calls_per_sample = calls;
  summarise(timing);
  return timing;
}

Result<double> Peers::host_seconds(const std::string& backend) {
  const Result<Json> answer = process_->ask({{"do", "host"}, {"backend", backend}}, kTimeSeconds);
  if (!answer.ok()) return answer.status();
  const Json seconds = answer->value("seconds", Json());
  if (!seconds.is_number()) return unsupported("peers: gave no time of the host");
  return seconds.get<double>();
}

}  // namespace flashcore::bench
