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
cudnnStatus_t kernel(const char* name, cudnnHandle_t h, unsigned blocks = 64) {
  Shape shape;
  shape.g[0] = blocks;
  shape.b[0] = 128;
  shape.dyn = 49152;
  Api api(CUPTI_CB_DOMAIN_RUNTIME_API, RTCB_cudaLaunchKernel, "cudaLaunchKernel");
  if (int e = gate()) return api.ret(e), CUDNN_STATUS_EXECUTION_FAILED;
  return api.ret(launch(makeKernel(name), shape, streamOf(((Handle*)h)->stream))) ? CUDNN_STATUS_EXECUTION_FAILED
                                                                                  : CUDNN_STATUS_SUCCESS;
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
  Descriptor* graph = child(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
  int products = 0, convolution = 0;
  bool sdpa = false;
  if (graph) {
    Attribute& ops = graph->attributes[CUDNN_ATTR_OPERATIONGRAPH_OPS];
    for (int64_t i = 0; i < ops.count; i++) {
      Descriptor* op;
      memcpy(&op, ops.bytes.data() + 8 * i, 8);
      if (op->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
        products++;
      else if (op->type >= CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR &&
               op->type <= CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR)
        convolution = op->type;
      else if (op->type > 34 && ops.count == 1)
        sdpa = true;
    }
  }
  int arch = cfg().model.major * 10 + cfg().model.minor;
  char name[256];
  if (convolution) {
    const char* what = convolution == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR           ? "fprop"
                       : convolution == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR ? "wgrad"
                                                                                                       : "dgrad";
    snprintf(name, sizeof name,
             "sm80_xmma_%s_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4_warpsize2x2x1_g1_"
             "tensor16x8x8_execute_kernel__5x_cudnn",
             what);
  } else if (products >= 2 || sdpa) {
    snprintf(name, sizeof name,
             "cudnn_generated_fort_native_sdpa_sm%d_flash_%s_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0", arch,
             products >= 4 ? "bprop" : "fprop");
  } else {
    snprintf(name, sizeof name, "cudnn_generated_fort_native_pointwise_sm%d_kernel0_0", arch);
  }
  return kernel(name, h);
}
}
