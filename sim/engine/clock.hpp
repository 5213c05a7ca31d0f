// Vector clocks: for each agent, the part of its past that is known to have happened.
//
// An agent is a thread, or anything that completes asynchronously: a transaction barrier, the products
// of a warp, the bulk stores of a thread. An event is an agent and one of its epochs. It happened before
// the state that a clock describes if the clock's component for that agent has reached the epoch.
//
// Clocks are shared and immutable, since all threads that leave a barrier know the same.
//
// Agents belong to one cluster. Knowledge of other clusters is a second part, which is
// empty until threads of two clusters synchronise through global memory (global_order.hpp).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace flashcore::sim {

using Agent = uint16_t;
using Epoch = uint32_t;  // the first is 1

using ClusterNumber = uint32_t;  // in a run
class Clock;
using Clusters = std::map<ClusterNumber, Clock>;
using SharedClusters = std::shared_ptr<const Clusters>;

class Clock {
 public:
  Clock() = default;  // knows nothing
  Clock(std::vector<Epoch> epochs, SharedClusters abroad)
      : known_(std::make_shared<const Known>(Known{std::move(epochs), std::move(abroad)})) {}

  Epoch of(Agent agent) const {
    return known_ != nullptr && agent < known_->epochs.size() ? known_->epochs[agent] : 0;
  }
  // Knowledge of other clusters; null: none.
  SharedClusters abroad() const { return known_ == nullptr ? nullptr : known_->abroad; }
  Epoch of(ClusterNumber cluster, Agent agent) const;
  // Returns the clock without that part.
  Clock at_home() const;

  bool is_same(const Clock& other) const { return known_ == other.known_; }
  bool knows_nothing() const { return known_ == nullptr; }

 private:
  friend class ClockJoin;
  struct Known {
    std::vector<Epoch> epochs;
    SharedClusters abroad;
  };
  std::shared_ptr<const Known> known_;
};

// The smallest clock that includes all added clocks.
class ClockJoin {
 public:
  void add(const Clock& clock);
  void add(Agent agent, Epoch epoch);
  void add(const SharedClusters& abroad);
  Clock clock();  // and resets

 private:
  std::vector<Epoch> epochs_;
  SharedClusters abroad_;
  Clock last_;  // many threads know the same; its components are in epochs_
};

// Joins both, through a small cache: 32 lanes of a warp mostly join the same two clocks.
Clock join(const Clock& a, const Clock& b);
Clock join(const Clock& a, Agent agent, Epoch epoch);
SharedClusters join(const SharedClusters& a, const SharedClusters& b);

}  // namespace flashcore::sim
