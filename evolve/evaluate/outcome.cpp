#include "evolve/evaluate/outcome.hpp"

namespace flashcore::evolve {

std::string_view to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::valid:
      return "valid";
    case Outcome::timeout:
      return "timeout";
    case Outcome::compile:
      return "compile";
    case Outcome::resources:
      return "resources";
    case Outcome::runtime:
      return "runtime";
    case Outcome::correctness:
      return "correctness";
    case Outcome::constraints:
      return "constraints";
    case Outcome::duplicate:
      return "duplicate";
    case Outcome::proposal:
      return "proposal";
  }
  return "";
}

}  // namespace flashcore::evolve
