// Capture and graphs.
#include "runtime.h"

#include <algorithm>

using namespace fake;

namespace fake {
int capturing = 0;  // captures in progress that forbid unsafe calls of other threads (mode global)
static thread_local int captureMode = cudaStreamCaptureModeGlobal;
int unsafeCall() {
  return capturing > 0 && captureMode == cudaStreamCaptureModeGlobal ? cudaErrorStreamCaptureUnsupported : 0;
}
}  // namespace fake

extern "C" {
static std::vector<Capture*> captures;
static u32 graphIds = 1;
static cudaError_t beginCapture(CUstream_st* s, CUgraph_st* g, int mode) {
  Lock l(mu);
  if (s == nullStream(s->dev)) return cudaErrorStreamCaptureUnsupported;
  if (s->cap) return cudaErrorIllegalState;
  static u64 next = 1;
  auto* c = new Capture{next++, g, s, mode};
  s->cap = c;
  s->capDeps.clear();
  captures.push_back(c);
  if (mode == cudaStreamCaptureModeGlobal) capturing++;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode) {
  RT(cudaStreamBeginCapture);
  LIVE;
  auto* g = new CUgraph_st;
  g->id = graphIds++;
  FAIL(beginCapture(streamOf(s), g, mode));
}
cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t s, cudaGraph_t g, const cudaGraphNode_t*,
                                          const cudaGraphEdgeData*, size_t, cudaStreamCaptureMode mode) {
  RT(cudaStreamBeginCaptureToGraph);
  LIVE;
  FAIL(beginCapture(streamOf(s), g, mode));
}
}
namespace fake {
void endCaptureEverywhere(Capture* c);
}
extern "C" {
cudaError_t cudaStreamEndCapture(cudaStream_t st, cudaGraph_t* g) {
  RT(cudaStreamEndCapture);
  LIVE;
  Lock l(mu);
  CUstream_st* s = streamOf(st);
  Capture* c = s->cap;
  if (g) *g = nullptr;
  if (!c) FAIL(cudaErrorIllegalState);
  if (c->origin != s) FAIL(cudaErrorStreamCaptureWrongThread);
  if (c->mode == cudaStreamCaptureModeGlobal) capturing--;
  c->over = true;
  endCaptureEverywhere(c);
  if (c->broken) FAIL(cudaErrorStreamCaptureInvalidated);
  if (g) *g = c->graph;
  OK;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus* st) {
  RT(cudaStreamIsCapturing);
  LIVE;
  CUstream_st* x = streamOf(s);
  *st = !x->cap          ? cudaStreamCaptureStatusNone
        : x->cap->broken ? cudaStreamCaptureStatusInvalidated
                         : cudaStreamCaptureStatusActive;
  OK;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, cudaStreamCaptureStatus* st, unsigned long long* id,
                                     cudaGraph_t* g, const cudaGraphNode_t** deps, const cudaGraphEdgeData** edges,
                                     size_t* n) {
  RT(cudaStreamGetCaptureInfo);
  LIVE;
  CUstream_st* x = streamOf(s);
  *st = !x->cap          ? cudaStreamCaptureStatusNone
        : x->cap->broken ? cudaStreamCaptureStatusInvalidated
                         : cudaStreamCaptureStatusActive;
  if (x->cap) {
    if (id) *id = x->cap->id;
    if (g) *g = x->cap->graph;
    if (deps) *deps = x->capDeps.data();
    if (n) *n = x->capDeps.size();
  }
  if (edges) *edges = nullptr;
  OK;
}
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t s, cudaGraphNode_t* deps, const cudaGraphEdgeData*,
                                                size_t n, unsigned flags) {
  RT(cudaStreamUpdateCaptureDependencies);
  CUstream_st* x = streamOf(s);
  if (flags == cudaStreamSetCaptureDependencies) x->capDeps.clear();
  x->capDeps.insert(x->capDeps.end(), deps, deps + n);
  OK;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* m) {
  RT(cudaThreadExchangeStreamCaptureMode);
  int old = captureMode;
  captureMode = *m;
  *m = (cudaStreamCaptureMode)old;
  OK;
}
cudaError_t cudaGraphCreate(cudaGraph_t* g, unsigned) {
  RT(cudaGraphCreate);
  *g = new CUgraph_st;
  (*g)->id = graphIds++;
  OK;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t* nodes, size_t* n) {
  RT(cudaGraphGetNodes);
  if (nodes) {
    *n = std::min(*n, g->nodes.size());
    std::copy_n(g->nodes.begin(), *n, nodes);
  } else {
    *n = g->nodes.size();
  }
  OK;
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t n, cudaGraphNodeType* t) {
  RT(cudaGraphNodeGetType);
  switch (n->work.op) {
    case Op::kernel: *t = cudaGraphNodeTypeKernel; break;
    case Op::memcpy: *t = cudaGraphNodeTypeMemcpy; break;
    case Op::memset: *t = cudaGraphNodeTypeMemset; break;
    case Op::host: *t = cudaGraphNodeTypeHost; break;
    default: *t = cudaGraphNodeTypeEmpty;
  }
  OK;
}
cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t n, cudaKernelNodeParams* p) {
  RT(cudaGraphKernelNodeGetParams);
  *p = cudaKernelNodeParams();
  if (n->work.op != Op::kernel) FAIL(cudaErrorInvalidValue);
  p->func = n->work.func;
  p->gridDim = dim3(n->work.shape.g[0], n->work.shape.g[1], n->work.shape.g[2]);
  p->blockDim = dim3(n->work.shape.b[0], n->work.shape.b[1], n->work.shape.b[2]);
  p->sharedMemBytes = n->work.shape.dyn;
  OK;
}
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t n, cudaGraphNode_t* deps, cudaGraphEdgeData* edges,
                                         size_t* count) {
  RT(cudaGraphNodeGetDependencies);
  if (deps) {
    *count = std::min(*count, n->deps.size());
    std::copy_n(n->deps.begin(), *count, deps);
    if (edges) memset(edges, 0, *count * sizeof *edges);
  } else {
    *count = n->deps.size();
  }
  OK;
}
cudaError_t cudaGraphAddNode(cudaGraphNode_t* out, cudaGraph_t g, const cudaGraphNode_t* deps, const cudaGraphEdgeData*,
                             size_t n, cudaGraphNodeParams* p) {
  RT(cudaGraphAddNode);
  auto* node = new CUgraphNode_st;
  if (p->type == cudaGraphNodeTypeKernel) {
    node->work.op = Op::kernel;
    node->work.func = funcOf((const void*)p->kernel.func);
    node->work.shape = shapeOf(p->kernel.gridDim, p->kernel.blockDim, p->kernel.sharedMemBytes);
  } else if (p->type != cudaGraphNodeTypeEmpty) {
    FAIL(unsupported("cudaGraphAddNode of this type", 801));
  }
  node->deps.assign(deps, deps + n);
  node->index = (u32)g->nodes.size();
  node->graph = g;
  g->nodes.push_back(node);
  *out = node;
  OK;
}
static cudaError_t instantiate(cudaGraphExec_t* e, cudaGraph_t g) {
  *e = new CUgraphExec_st;
  (*e)->id = graphIds++;
  (*e)->graph = g;
  (*e)->nodes = g->nodes;
  (*e)->origin = g->nodes.empty() ? nullptr : g->nodes[0]->stream;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* e, cudaGraph_t g, unsigned long long) {
  RT(cudaGraphInstantiate);
  LIVE;
  FAIL(instantiate(e, g));
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* e, cudaGraph_t g, unsigned long long) {
  RT(cudaGraphInstantiateWithFlags);
  LIVE;
  FAIL(instantiate(e, g));
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
  RT(cudaGraphUpload);
  OK;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s) {
  RT(cudaGraphLaunch);
  LIVE;
  FAIL(launchGraph(e, streamOf(s)));
}
cudaError_t cudaGraphDestroy(cudaGraph_t) {
  RT(cudaGraphDestroy);
  OK;  // its nodes live on in what was made of it
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) {
  RT(cudaGraphExecDestroy);
  OK;
}
cudaError_t cudaGraphDebugDotPrint(cudaGraph_t g, const char* path, unsigned) {
  RT(cudaGraphDebugDotPrint);
  if (FILE* f = fopen(path, "w")) {
    fprintf(f, "digraph g {\n");
    for (auto* n : g->nodes) {
      fprintf(f, "n%u [label=\"%s\"];\n", n->index, n->work.func ? n->work.func->name.c_str() : "other");
      for (auto* d : n->deps) fprintf(f, "n%u -> n%u;\n", d->index, n->index);
    }
    fprintf(f, "}\n");
    fclose(f);
  }
  OK;
}
struct UserObject {
  cudaHostFn_t destroy;
  void* ptr;
};
cudaError_t cudaUserObjectCreate(cudaUserObject_t* o, void* p, cudaHostFn_t destroy, unsigned, unsigned) {
  RT(cudaUserObjectCreate);
  *o = (cudaUserObject_t) new UserObject{destroy, p};
  OK;
}
cudaError_t cudaUserObjectRelease(cudaUserObject_t, unsigned) {
  RT(cudaUserObjectRelease);
  OK;
}
cudaError_t cudaGraphRetainUserObject(cudaGraph_t, cudaUserObject_t, unsigned, unsigned) {
  RT(cudaGraphRetainUserObject);
  OK;
}
}
