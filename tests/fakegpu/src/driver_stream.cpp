// Streams, events and graphs of the driver.
#include "driver.h"

#include <algorithm>

using namespace fake;

extern "C" {
CUresult cuStreamCreate(CUstream* s, unsigned flags) {
  CU(cuStreamCreate);
  *s = newStream(flags, 0);
  OK;
}
CUresult cuStreamCreateWithPriority(CUstream* s, unsigned flags, int priority) {
  CU(cuStreamCreateWithPriority);
  *s = newStream(flags, priority);
  OK;
}
CUresult cuStreamDestroy_v2(CUstream) {
  return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream s) {
  CU(cuStreamSynchronize);
  LIVE;
  FAIL(streamSync(streamOf(s)));
}
CUresult cuStreamQuery(CUstream s) {
  CU(cuStreamQuery);
  LIVE;
  FAIL(now() < streamOf(s)->end ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}
CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned) {
  CU(cuStreamWaitEvent);
  FAIL(streamWait(streamOf(s), e));
}
CUresult cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus* st) {
  *st = streamOf(s)->cap ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
CUresult cuStreamGetCaptureInfo_v2(CUstream s, CUstreamCaptureStatus* st, cuuint64_t* id, CUgraph* g,
                                   const CUgraphNode** deps, size_t* n) {
  CUstream_st* x = streamOf(s);
  *st = x->cap ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  if (!x->cap) return CUDA_SUCCESS;
  if (id) *id = x->cap->id;
  if (g) *g = x->cap->graph;
  if (deps) *deps = x->capDeps.data();
  if (n) *n = x->capDeps.size();
  return CUDA_SUCCESS;
}
CUresult cuStreamGetCtx(CUstream s, CUcontext* c) {
  *c = contextOf(streamOf(s)->dev);
  return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent* e, unsigned flags) {
  CU(cuEventCreate);
  *e = new CUevent_st;
  (*e)->flags = flags;
  OK;
}
CUresult cuEventDestroy_v2(CUevent) {
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent e, CUstream s) {
  CU(cuEventRecord);
  FAIL(eventRecord(e, streamOf(s)));
}
CUresult cuEventQuery(CUevent e) {
  CU(cuEventQuery);
  FAIL(e->recorded && now() < e->time ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}
CUresult cuEventSynchronize(CUevent e) {
  CU(cuEventSynchronize);
  waitUntil(e->time);
  OK;
}
CUresult cuGraphLaunch(CUgraphExec g, CUstream s) {
  CU(cuGraphLaunch);
  LIVE;
  FAIL(launchGraph(g, streamOf(s)));
}
CUresult cuStreamGetCaptureInfo_v3(CUstream s, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* g,
                                   const CUgraphNode** deps, const CUgraphEdgeData** edges, size_t* n) {
  CU(cuStreamGetCaptureInfo_v3);
  CUstream_st* x = streamOf(s);
  *status = !x->cap          ? CU_STREAM_CAPTURE_STATUS_NONE
            : x->cap->broken ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                             : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (x->cap) {
    if (id) *id = x->cap->id;
    if (g) *g = x->cap->graph;
    if (deps) *deps = x->capDeps.data();
    if (n) *n = x->capDeps.size();
  }
  if (edges) *edges = nullptr;
  OK;
}
#if CUDA_VERSION >= 13010  // Drivers for CUDA 13.0 have neither.
CUresult cuGraphNodeGetToolsId(CUgraphNode n, unsigned long long* id) {
  CU(cuGraphNodeGetToolsId);
  *id = ((u64)n->graph->id << 32) | n->index;
  OK;
}
CUresult cuGraphExecGetId(CUgraphExec g, unsigned* id) {
  CU(cuGraphExecGetId);
  *id = g->id;
  OK;
}
#endif
CUresult cuGraphGetNodes(CUgraph g, CUgraphNode* nodes, size_t* n) {
  CU(cuGraphGetNodes);
  if (nodes) {
    *n = std::min(*n, g->nodes.size());
    std::copy_n(g->nodes.begin(), *n, nodes);
  } else {
    *n = g->nodes.size();
  }
  OK;
}
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode n, CUDA_KERNEL_NODE_PARAMS* p) {
  CU(cuGraphKernelNodeGetParams_v2);
  *p = CUDA_KERNEL_NODE_PARAMS();
  if (n->work.op != Op::kernel) FAIL(CUDA_ERROR_INVALID_VALUE);
  p->func = n->work.func;
  OK;
}
CUresult cuGraphNodeGetType(CUgraphNode n, CUgraphNodeType* t) {
  CU(cuGraphNodeGetType);
  switch (n->work.op) {
    case Op::kernel: *t = CU_GRAPH_NODE_TYPE_KERNEL; break;
    case Op::memcpy: *t = CU_GRAPH_NODE_TYPE_MEMCPY; break;
    case Op::memset: *t = CU_GRAPH_NODE_TYPE_MEMSET; break;
    case Op::host: *t = CU_GRAPH_NODE_TYPE_HOST; break;
    default: *t = CU_GRAPH_NODE_TYPE_EMPTY;
  }
  OK;
}
}
