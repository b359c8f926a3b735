// cuDNN's graph API: descriptors hold what they are told, every graph has one engine, and running it is one kernel.
#include <cudnn.h>
#include <cudnn_graph.h>

#include "fake.h"

#include "gen_cu_best.inc"
#include "gen_rt_best.inc"

using namespace fake;

namespace {
struct Attribute {
  int type = 0;
  int64_t count = 0;
  std::string bytes;
};
struct Descriptor {  // never freed: others point to them
  int type;
  std::map<int, Attribute> attributes;
};
struct Handle {
  cudaStream_t stream = nullptr;
};
size_t sizeOf(int type) {
  switch (type) {
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR: return 1;
    case CUDNN_TYPE_FRACTION: return 16;
    default: return 4;
  }
}
Descriptor* of(cudnnBackendDescriptor_t d) {
  return (Descriptor*)d;
}
Descriptor* child(Descriptor* d, int name) {
  if (!d || !d->attributes.count(name) || !d->attributes[name].count) return nullptr;
  Descriptor* c;
  memcpy(&c, d->attributes[name].bytes.data(), 8);
  return c;
}
void point(Descriptor* d, int name, Descriptor* to) {
  d->attributes[name] = {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, std::string((char*)&to, 8)};
}

std::vector<int64_t> sizes(Descriptor* operation, int tensor) {
  Descriptor* d = child(operation, tensor);
  if (!d || !d->attributes.count(CUDNN_ATTR_TENSOR_DIMENSIONS)) return {};
  const Attribute& a = d->attributes[CUDNN_ATTR_TENSOR_DIMENSIONS];
  std::vector<int64_t> all(a.count);
  memcpy(all.data(), a.bytes.data(), a.bytes.size());
  return all;
}
double elements(const std::vector<int64_t>& sizes) {
  double n = sizes.empty() ? 0 : 1;
  for (int64_t size : sizes) n *= size;
  return n;
}

// What a graph of operations is, as far as the name and the duration of its one kernel depend on it.
struct Graph {
  int products = 0;
  const char* convolution = nullptr;
  double flops = 0;
};
void addProduct(Graph& g, Descriptor* op) {
  auto a = sizes(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
  g.products++;
  if (!a.empty()) g.flops += 2 * elements(sizes(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC)) * a.back();
}
void addAttention(Graph& g, Descriptor* op, int q, int k, int products) {
  auto keys = sizes(op, k);
  g.products += products;
  if (keys.size() == 4) g.flops += 2 * products * elements(sizes(op, q)) * keys[2];
}
void addConvolution(Graph& g, Descriptor* op, const char* name, int output, int weight) {
  auto w = sizes(op, weight);
  g.convolution = name;
  if (!w.empty()) g.flops += 2 * elements(sizes(op, output)) * elements(w) / w[0];
}
Graph summary(Descriptor* graph) {
  Graph g;
  if (!graph) return g;
  const Attribute& ops = graph->attributes[CUDNN_ATTR_OPERATIONGRAPH_OPS];
  for (int64_t i = 0; i < ops.count; i++) {
    Descriptor* op;
    memcpy(&op, ops.bytes.data() + 8 * i, 8);
    switch (op->type) {
      case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: addProduct(g, op); break;
      case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        addConvolution(g, op, "fprop", CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W);
        break;
      case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        addConvolution(g, op, "wgrad", CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW);
        break;
      case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        addConvolution(g, op, "dgrad", CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W);
        break;
      // Attention is one operation or, of an older front end, written out as products and pointwise ones.
      case CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR:
        addAttention(g, op, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, 2);
        break;
      case CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR:
        addAttention(g, op, CUDNN_ATTR_OPERATION_SDPA_BWD_QDESC, CUDNN_ATTR_OPERATION_SDPA_BWD_KDESC, 5);
        break;
    }
  }
  return g;
}

cudnnStatus_t kernel(const char* name, cudnnHandle_t h, double ns) {
  Shape shape;
  shape.g[0] = 64;
  shape.b[0] = 128;
  shape.dyn = 49152;
  shape.ns = ns;
  Api api(CUPTI_CB_DOMAIN_RUNTIME_API, RTCB_cudaLaunchKernel, "cudaLaunchKernel");
  int e = gate();
  if (!e) e = launch(makeKernel(name), shape, streamOf(((Handle*)h)->stream));
  return api.ret(e) ? CUDNN_STATUS_EXECUTION_FAILED : CUDNN_STATUS_SUCCESS;
}
}  // namespace

extern "C" {
cudnnStatus_t cudnnCreate(cudnnHandle_t* h) {
  *h = (cudnnHandle_t) new Handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t) {
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t s) {
  ((Handle*)h)->stream = s;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t h, cudaStream_t* s) {
  *s = ((Handle*)h)->stream;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t t, cudnnBackendDescriptor_t* d) {
  *d = (cudnnBackendDescriptor_t) new Descriptor{(int)t, {}};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t) {
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendInitialize(cudnnBackendDescriptor_t) {
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t) {
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n, const void* v) {
  of(d)->attributes[name] = {(int)type, n, std::string((const char*)v, n * sizeOf(type))};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t room, int64_t* n, void* out) {
  Descriptor* x = of(d);
  int64_t ignored;
  if (!n) n = &ignored;
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
    *n = 1;
    if (room > 0 && out) {
      auto* engine = new Descriptor{CUDNN_BACKEND_ENGINE_DESCRIPTOR, {}};
      if (Descriptor* graph = child(x, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH))
        point(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
      int64_t zero = 0;
      engine->attributes[CUDNN_ATTR_ENGINE_GLOBAL_INDEX] = {CUDNN_TYPE_INT64, 1, std::string((char*)&zero, 8)};
      point(((Descriptor**)out)[0], CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    }
    return CUDNN_STATUS_SUCCESS;
  }
  if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE || name == CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE ||
      name == CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT) {
    *n = 1;
    if (room > 0 && out) *(int64_t*)out = name == CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT;
    return CUDNN_STATUS_SUCCESS;
  }
  if (name == CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED) {
    *n = 1;
    if (room > 0 && out) *(int32_t*)out = 0;
    return CUDNN_STATUS_SUCCESS;
  }
  auto it = x->attributes.find(name);
  if (it == x->attributes.end()) {
    *n = 0;
    return CUDNN_STATUS_SUCCESS;
  }
  *n = it->second.count;
  if (room > 0 && out) {
    int64_t take = std::min(room, it->second.count);
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {  // the caller brings descriptors to be filled
      for (int64_t i = 0; i < take; i++) {
        Descriptor* from;
        memcpy(&from, it->second.bytes.data() + 8 * i, 8);
        *((Descriptor**)out)[i] = *from;
      }
    } else {
      memcpy(out, it->second.bytes.data(), take * sizeOf(type));
    }
  }
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t h, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t) {
  Descriptor* engine = child(child(of(plan), CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG), CUDNN_ATTR_ENGINECFG_ENGINE);
  Graph g = summary(child(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH));
  int arch = cfg().model.major * 10 + cfg().model.minor;
  char name[256];
  if (g.convolution) {
    snprintf(name, sizeof name,
             "sm80_xmma_%s_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4_warpsize2x2x1_g1_"
             "tensor16x8x8_execute_kernel__5x_cudnn",
             g.convolution);
  } else if (g.products >= 2) {
    snprintf(name, sizeof name,
             "cudnn_generated_fort_native_sdpa_sm%d_flash_%s_%sf16_knob_7_64x128x128_4x1x1_kernel0_0", arch,
             g.products >= 4 ? "bprop" : "fprop", arch >= 90 ? "wgmma_" : "");
  } else {
    snprintf(name, sizeof name, "cudnn_generated_fort_native_pointwise_sm%d_kernel0_0", arch);
  }
  const Model& model = cfg().model;
  return kernel(name, h, g.flops / (0.7 * (g.convolution ? model.tf32 : model.half) * 1e3));
}
}
