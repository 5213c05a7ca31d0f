#include "dispatch/device.hpp"

namespace flashcore {

std::vector<DeviceInfo> cuda_devices() { return {}; }

}  // namespace flashcore
