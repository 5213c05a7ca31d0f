// A call with its tensors, by their names in the table of operands.
#pragma once

#include <map>
#include <string>

#include "bench/tensors/host_tensor.hpp"
#include "problem/operands.hpp"

namespace flashcore::testing {

template <class What>
struct CallCase {
  What what;
  std::map<std::string, bench::HostTensor> tensors;

  bench::HostTensor& at(const std::string& name) { return tensors.at(name); }
  bool has(const std::string& name) const { return tensors.contains(name); }
  bench::HostTensor& add(const std::string& name, const TensorDesc& desc) {
    return tensors.emplace(name, bench::HostTensor(desc)).first->second;
  }
  // Adds what `what` describes and is not there.
  void add_described() {
    for (const auto& line : kOperands<What>) {
      const TensorDesc* const desc = line.find(what);
      if (desc != nullptr) add(std::string(line.name), *desc);
    }
  }

  // place(tensor): its first element, there where the call runs.
  template <class Place>
  typename StructsOf<What>::Arguments arguments(const Place& place) {
    typename StructsOf<What>::Arguments args;
    for (const auto& line : kOperands<What>) {
      const auto found = tensors.find(std::string(line.name));
      if (found != tensors.end()) line.bind(args, place(found->second));
    }
    return args;
  }
  typename StructsOf<What>::Arguments arguments() {
    return arguments([](bench::HostTensor& tensor) { return tensor.data(); });
  }
};

}  // namespace flashcore::testing
