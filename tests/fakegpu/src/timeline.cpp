// When each piece of work begins and ends, and in which order.
#include "fake.h"

#include <sys/mman.h>

#include <algorithm>
#include <thread>

namespace fake {
// Pages of zeros go back to where they came from: an emptied cache of the device would otherwise fill the host's
// memory.
static void clear(char* at, size_t n) {
  const size_t page = 4096;
  char* first = (char*)(((uintptr_t)at + page - 1) & ~(page - 1));
  char* last = (char*)(((uintptr_t)at + n) & ~(page - 1));
  Alloc home;
  if (first >= last || !find(at, &home) || home.type != cudaMemoryTypeDevice) {
    memset(at, 0, n);
    return;
  }
  memset(at, 0, first - at);
  madvise(first, last - first, MADV_DONTNEED);
  memset(last, 0, at + n - last);
}

static void perform(const Work& w) {
  if (w.op == Op::memcpy) {
    if (w.height) {
      for (size_t y = 0; y < w.height; y++)
        memmove((char*)w.dst + y * w.dpitch, (const char*)w.src + y * w.spitch, w.width);
    } else if (isNumberOfOld(w.src, w.bytes)) {
      memset(w.dst, 0, w.bytes);
    } else {
      memmove(w.dst, w.src, w.bytes);
    }
    noteCopied(w.dst, w.bytes);
  } else if (w.op == Op::memset) {
    size_t rows = w.height ? w.height : 1, n = w.height ? w.width : w.bytes / w.elem;
    for (size_t y = 0; y < rows; y++) {
      char* at = (char*)w.dst + y * w.dpitch;
      if (w.value == 0)
        clear(at, n * w.elem);
      else if (w.elem == 1)
        memset(at, (int)w.value, n);
      else if (w.elem == 2)
        std::fill_n((uint16_t*)at, n, (uint16_t)w.value);
      else
        std::fill_n((u32*)at, n, w.value);
    }
  }
}

static void hostCall(const Work& w, u64 at) {
  auto fn = w.hostFn;
  auto* arg = w.hostArg;
  std::thread([=] {
    waitUntil(at);
    fn(arg);
  }).detach();
}

// The longest time for which no device had work, and the end of all work so far; under the device's lock.
static u64 idlest = 0, busyUntil = now();

u64 longestIdle() {
  Lock l(mu);
  u64 n = now(), idle = std::max(idlest, n > busyUntil ? n - busyUntil : 0);
  idlest = 0;
  busyUntil = std::max(busyUntil, n);
  return idle;
}

static u64 run(const Work& w, CUstream_st* s, u64 ready, u32 graphId, u64 nodeId) {
  u64 start = std::max(ready, now() + ticks(cfg().launchNs));
  u64 end = start + ticks(durationNs(w));
  if (start > busyUntil) idlest = std::max(idlest, start - busyUntil);
  busyUntil = std::max(busyUntil, end);
  perform(w);
  if (w.op == Op::kernel || w.op == Op::memcpy || w.op == Op::memset) record({&w, s, start, end, graphId, nodeId});
  if (w.op == Op::host) hostCall(w, end);
  if (w.op == Op::kernel) countLaunch(*w.func, end);
  return end;
}

static u64 readyOn(CUstream_st* s) {
  u64 ready = s->end + ticks(cfg().gapNs);
  if (s == nullStream(s->dev)) {
    for (auto* other : streams())
      if (other->dev == s->dev && !(other->flags & cudaStreamNonBlocking)) ready = std::max(ready, other->end);
  } else if (!(s->flags & cudaStreamNonBlocking)) {
    ready = std::max(ready, nullStream(s->dev)->end);
  }
  return ready;
}

void endCaptureEverywhere(Capture* c) {
  Lock l(mu);
  for (auto* s : streams())
    if (s->cap == c) {
      s->cap = nullptr;
      s->capDeps.clear();
    }
}
int captureBroken(CUstream_st* s) {
  if (s->cap) s->cap->broken = true;
  return cudaErrorStreamCaptureUnsupported;
}

// A stream's queue is finite, as on a real device: who launches faster than the device works waits here.
static void waitForRoom(CUstream_st* s) {
  const size_t room = 1024;
  u64 over = 0;
  {
    Lock l(mu);
    auto& pending = s->pending;
    while (!pending.empty() && pending.front() <= now()) pending.pop_front();
    if (pending.size() >= room) over = pending[pending.size() - room];
  }
  waitUntil(over);
}

int submit(CUstream_st* s, Work w, u64* end) {
  waitForRoom(s);
  Lock l(mu);
  touch(s->dev);
  if (s->cap) {
    if (s->cap->broken) return cudaErrorStreamCaptureInvalidated;
    auto* n = new CUgraphNode_st;
    n->work = w;
    n->deps = s->capDeps;
    n->index = (u32)s->cap->graph->nodes.size();
    n->stream = s;
    n->graph = s->cap->graph;
    s->cap->graph->nodes.push_back(n);
    s->capDeps = {n};
    if (end) *end = 0;
    return 0;
  }
  s->end = run(w, s, readyOn(s), 0, 0);
  s->pending.push_back(s->end);
  if (end) *end = s->end;
  static const bool blocking = [] {
    const char* v = getenv("CUDA_LAUNCH_BLOCKING");
    return v && !strcmp(v, "1");
  }();
  if (blocking && w.op == Op::kernel) {
    waitUntil(s->end);
    return gate();
  }
  return 0;
}

int launchGraph(CUgraphExec_st* e, CUstream_st* s) {
  Lock l(mu);
  touch(s->dev);
  replayBegins();
  u64 begin = std::max(readyOn(s), now() + ticks(cfg().launchNs * 2)), last = begin;
  std::unordered_map<CUgraphNode_st*, u64> done;
  for (auto* n : e->nodes) {  // captured in this order, so that what a node waits for has been placed before it
    u64 ready = begin;
    for (auto* d : n->deps) ready = std::max(ready, done.count(d) ? done[d] + ticks(cfg().gapNs) : begin);
    CUstream_st* on = n->stream && n->stream != e->origin ? n->stream : s;
    done[n] = run(n->work, on, ready, e->id, ((u64)e->id << 32) | n->index);
    last = std::max(last, done[n]);
  }
  s->end = last;
  return 0;
}

int launch(CUfunc_st* f, const Shape& shape, CUstream_st* s, void** args) {
  u64 threads = (u64)shape.b[0] * shape.b[1] * shape.b[2];
  if (!shape.g[0] || !shape.g[1] || !shape.g[2] || !threads || threads > 1024) return cudaErrorInvalidConfiguration;
  if (cfg().faults.refuseKernel.in(f->name)) return cudaErrorInvalidConfiguration;
  Work w;
  w.op = Op::kernel;
  w.func = f;
  w.shape = shape;
  if (args) w.shape.ns = std::max(w.shape.ns, memoryNs(bytesOfElementwise(f->name, args)));
  return submit(s, w);
}

}  // namespace fake
