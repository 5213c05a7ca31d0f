// flashcore: fused attention from the command line. docs/command.md describes it.
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "bench/device/plan_choice.hpp"
#include "cli/parser.hpp"
#include "cli/session.hpp"

namespace flashcore::cli {
namespace {

ExitCode run(std::vector<std::string> words, Session& session) {
  const Result<Request> request = parse_command_line(std::move(words), session.json);
  if (!request.ok()) return session.fail(request.status());
  if (!request->help.empty()) {
    bench::write_text(request->nothing_asked ? stderr : stdout, request->help + "\n");
    return request->nothing_asked ? ExitCode::bad_input : ExitCode::ok;
  }
  const Result<ExitCode> code = request->execute(session);
  return code.ok() ? *code : session.fail(code.status());
}

ExitCode run_and_catch(int argc, char** argv, Session& session) {
  try {
    bench::take_forced_kernel();
    return run({argv + (argc > 0 ? 1 : 0), argv + argc}, session);
  } catch (const std::bad_alloc&) {
    return session.fail({StatusCode::out_of_memory, "memory: none is left"});
  } catch (const std::exception& error) {
    return session.fail({StatusCode::internal, error.what()});
  }
}

}  // namespace
}  // namespace flashcore::cli

int main(int argc, char** argv) {
  flashcore::cli::hold_standard_streams();
  flashcore::cli::Session session;
  const flashcore::cli::ExitCode code = flashcore::cli::run_and_catch(argc, argv, session);
  return static_cast<int>(session.finish(code));
}
