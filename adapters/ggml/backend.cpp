// The backend's face to ggml: one device, which computes attention in the CPU's memory and leaves every other
// operation to ggml.
#include <cstring>
#include <string_view>

#include "attention.hpp"
#include "ggml-backend-impl.h"
#include "ggml-impl.h"

namespace flashcore::ggml {
namespace {

constexpr const char* kName = "FlashCore";

bool needs_no_work(ggml_op op) {
  return op == GGML_OP_NONE || op == GGML_OP_RESHAPE || op == GGML_OP_VIEW ||
         op == GGML_OP_PERMUTE || op == GGML_OP_TRANSPOSE;
}

Attention& attention_of(ggml_backend_t backend) {
  return *static_cast<Attention*>(backend->context);
}

const char* name_of_backend(ggml_backend_t) { return kName; }

void free_backend(ggml_backend_t backend) {
  delete &attention_of(backend);
  delete backend;
}

ggml_status compute_graph(ggml_backend_t backend, ggml_cgraph* graph) {
  const bool is_first = attention_of(backend).runs() == 0;
  for (int n = 0; n < graph->n_nodes; ++n) {
    const ggml_tensor& node = *graph->nodes[n];
    if (needs_no_work(node.op) || (node.flags & GGML_TENSOR_FLAG_COMPUTE) == 0) continue;
    if (node.op != GGML_OP_FLASH_ATTN_EXT) return GGML_STATUS_FAILED;
    const Status status = attention_of(backend).run(node);
    if (!status.ok()) {
      GGML_LOG_ERROR("%s: %s\n", kName, status.message().c_str());
      return status.code() == StatusCode::out_of_memory ? GGML_STATUS_ALLOC_FAILED
                                                        : GGML_STATUS_FAILED;
    }
  }
  if (is_first && attention_of(backend).runs() > 0)
    GGML_LOG_DEBUG("%s: computes attention\n", kName);
  return GGML_STATUS_SUCCESS;
}

ggml_guid_t guid() {
  static ggml_guid one = {0x66, 0x6c, 0x61, 0x73, 0x68, 0x63, 0x6f, 0x72,
                          0x65, 0x2d, 0x67, 0x67, 0x6d, 0x6c, 0x00, 0x01};
  return &one;
}

void set_threads(ggml_backend_t backend, int threads) {
  attention_of(backend).set_threads(threads);
}

ggml_backend_t make_backend(ggml_backend_dev_t device, const char*) {
  ggml_backend_i face = {};
  face.get_name = name_of_backend;
  face.free = free_backend;
  face.graph_compute = compute_graph;
  return new ggml_backend{guid(), face, device, new Attention};
}

bool supports_operation(ggml_backend_dev_t device, const ggml_tensor* op) {
  if (needs_no_work(op->op)) return true;
  return op->op == GGML_OP_FLASH_ATTN_EXT &&
         static_cast<Attention*>(device->context)->supports(*op);
}

void describe_device(ggml_backend_dev_t, ggml_backend_dev_props* properties) {
  *properties = {};
  properties->name = kName;
  properties->description = "FlashCore's attention on the CPU";
  properties->type = GGML_BACKEND_DEVICE_TYPE_ACCEL;
  properties->caps.buffer_from_host_ptr = true;
  properties->caps.mmap_support = true;
}

ggml_backend_buffer_type_t host_memory(ggml_backend_dev_t) {
  return ggml_backend_cpu_buffer_type();
}

ggml_backend_dev_t device_of(ggml_backend_reg_t registry, size_t) {
  static Attention plans;  // answers which operations are supported
  static ggml_backend_device device = [&] {
    ggml_backend_device_i face = {};
    face.get_name = [](ggml_backend_dev_t) { return kName; };
    face.get_description = [](ggml_backend_dev_t) { return "FlashCore's attention on the CPU"; };
    face.get_memory = [](ggml_backend_dev_t, size_t* free, size_t* total) { *free = *total = 0; };
    face.get_type = [](ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_ACCEL; };
    face.get_props = describe_device;
    face.init_backend = make_backend;
    face.get_buffer_type = host_memory;
    face.buffer_from_host_ptr = [](ggml_backend_dev_t, void* data, size_t size, size_t) {
      return ggml_backend_cpu_buffer_from_ptr(data, size);
    };
    face.supports_op = supports_operation;
    face.supports_buft = [](ggml_backend_dev_t, ggml_backend_buffer_type_t type) {
      return ggml_backend_buft_is_host(type);
    };
    return ggml_backend_device{face, registry, &plans};
  }();
  return &device;
}

void* function_named(ggml_backend_reg_t, const char* name) {
  return std::string_view(name) == "ggml_backend_set_n_threads"
             ? reinterpret_cast<void*>(set_threads)
             : nullptr;
}

}  // namespace
}  // namespace flashcore::ggml

// ggml looks for this name (GGML_BACKEND_PATH).
extern "C" {
GGML_BACKEND_API ggml_backend_reg_t ggml_backend_init(void);
}

ggml_backend_reg_t ggml_backend_init() {
  using namespace flashcore::ggml;
  static ggml_backend_reg registry = [] {
    ggml_backend_reg_i face = {};
    face.get_name = [](ggml_backend_reg_t) { return kName; };
    face.get_device_count = [](ggml_backend_reg_t) { return size_t{1}; };
    face.get_device = device_of;
    face.get_proc_address = function_named;
    return ggml_backend_reg{GGML_BACKEND_API_VERSION, face, nullptr};
  }();
  return &registry;
}
