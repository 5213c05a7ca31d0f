// Any program as a proposer: one JSON object on its stdin, one on its stdout.
#include <utility>

#include "bench/process/child_process.hpp"
#include "bench/text/terminal.hpp"
#include "evolve/propose/proposer.hpp"
#include "evolve/task/task.hpp"
#include "problem/status.hpp"

namespace flashcore::evolve {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLongestAnswer = 32 << 20;

class Executable final : public Proposer {
 public:
  Executable(std::vector<std::string> words, double seconds)
      : words_(std::move(words)), seconds_(seconds) {}

  Result<std::optional<Proposal>> propose(const Request& request) override {
    const Json asked = request_json(request);
    FLASHCORE_RETURN_IF_ERROR(check_request(asked));
    const Result<bench::ChildOutput> said = bench::run_child(
        words_, {}, asked.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n",
        {seconds_, kLongestAnswer});
    if (!said.ok()) return said.status();
    if (said->timed_out) return invalid("proposer: took more than {:.3g} s", seconds_);
    if (said->too_long) return invalid("proposer: wrote more than {} bytes", kLongestAnswer);
    if (said->exit_status != 0) return invalid("proposer: exited with {}", said->exit_status);
    const Json answer = Json::parse(said->text, nullptr, false);
    if (answer.is_discarded()) {
      return invalid("proposer: wrote '{}', wanted one JSON object",
                     bench::printable(said->text.substr(0, 60)));
    }
    Result<Proposal> proposal = proposal_from(answer, request);
    if (!proposal.ok()) return proposal.status();
    return std::optional<Proposal>(std::move(*proposal));
  }

 private:
  std::vector<std::string> words_;
  double seconds_;
};

}  // namespace

std::unique_ptr<Proposer> executable_proposer(std::vector<std::string> words, double seconds) {
  return std::make_unique<Executable>(std::move(words), seconds);
}

}  // namespace flashcore::evolve
