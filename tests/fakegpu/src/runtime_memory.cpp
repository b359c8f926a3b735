// Memory, copies and fills.
#include "runtime.h"

using namespace fake;

namespace fake {
static int memoryKind(const void* p, int* dev) {
  Alloc a;
  if (!find(p, &a)) return CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
  *dev = a.dev;
  if (a.type == cudaMemoryTypeDevice) return CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  if (a.type == cudaMemoryTypeManaged) return CUPTI_ACTIVITY_MEMORY_KIND_MANAGED;
  return CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
}

Work copyWork(void* dst, const void* src, size_t n) {
  Work w;
  w.op = Op::memcpy;
  w.dst = dst;
  w.src = src;
  w.bytes = n;
  w.srcDev = w.dstDev = currentDevice();
  int srcDev = w.srcDev, dstDev = w.dstDev;
  w.srcKind = memoryKind(src, &srcDev);
  w.dstKind = memoryKind(dst, &dstDev);
  bool fromDevice = w.srcKind == CUPTI_ACTIVITY_MEMORY_KIND_DEVICE,
       toDevice = w.dstKind == CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  if (fromDevice && toDevice) {
    w.srcDev = srcDev;
    w.dstDev = dstDev;
  }
  w.kind = fromDevice ? (toDevice ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOD : CUPTI_ACTIVITY_MEMCPY_KIND_DTOH)
                      : (toDevice ? CUPTI_ACTIVITY_MEMCPY_KIND_HTOD : CUPTI_ACTIVITY_MEMCPY_KIND_HTOH);
  return w;
}
int copyOn(CUstream_st* s, Work w, bool blocking) {
  if (!w.bytes) return 0;
  bool capturing = s->cap != nullptr;
  bool pageable = w.srcKind == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE || w.dstKind == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
  if (capturing && (blocking || pageable)) return captureBroken(s);
  u64 end = 0;
  if (int e = submit(s, w, &end)) return e;
  // Pageable memory to the host: the call waits; from the host: it is staged, and the call goes on.
  if (!capturing && (blocking || w.dstKind == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE)) waitUntil(end);
  return gate();
}
int setOn(CUstream_st* s, void* p, u32 value, int elem, size_t count, bool blocking) {
  if (!count) return 0;
  Work w;
  w.op = Op::memset;
  w.dst = p;
  w.value = value;
  w.elem = elem;
  w.bytes = count * elem;
  u64 end = 0;
  if (int e = submit(s, w, &end)) return e;
  if (blocking) waitUntil(end);
  return 0;
}
}  // namespace fake

extern "C" {
cudaError_t cudaMalloc(void** p, size_t n) {
  RT(cudaMalloc);
  SOME;
  LIVE;
  if (int e = unsafeCall()) FAIL(e);
  FAIL(allocate(p, n, cudaMemoryTypeDevice));
}
cudaError_t cudaFree(void* p) {
  RT(cudaFree);
  LIVE;
  if (int e = unsafeCall()) FAIL(e);
  if (p) waitUntil(deviceEnd(currentDevice()));
  FAIL(release(p));
}
cudaError_t cudaMallocAsync(void** p, size_t n, cudaStream_t) {
  RT(cudaMallocAsync);
  LIVE;
  FAIL(allocate(p, n, cudaMemoryTypeDevice));
}
cudaError_t cudaFreeAsync(void* p, cudaStream_t s) {
  RT(cudaFreeAsync);
  LIVE;
  waitUntil(streamOf(s)->end);
  FAIL(release(p));
}
cudaError_t cudaMallocManaged(void** p, size_t n, unsigned) {
  RT(cudaMallocManaged);
  LIVE;
  FAIL(allocate(p, n, cudaMemoryTypeManaged));
}
cudaError_t cudaHostAlloc(void** p, size_t n, unsigned) {
  RT(cudaHostAlloc);
  SOME;
  LIVE;
  FAIL(allocate(p, n, cudaMemoryTypeHost));
}
cudaError_t cudaMallocHost(void** p, size_t n) {
  RT(cudaMallocHost);
  LIVE;
  FAIL(allocate(p, n, cudaMemoryTypeHost));
}
cudaError_t cudaFreeHost(void* p) {
  RT(cudaFreeHost);
  FAIL(release(p));
}
static std::map<uintptr_t, size_t> pinned;
cudaError_t cudaHostRegister(void* p, size_t n, unsigned) {
  RT(cudaHostRegister);
  Lock l(mu);
  pinned[(uintptr_t)p] = n;
  OK;
}
cudaError_t cudaHostUnregister(void* p) {
  RT(cudaHostUnregister);
  Lock l(mu);
  pinned.erase((uintptr_t)p);
  OK;
}
cudaError_t cudaHostGetDevicePointer(void** d, void* h, unsigned) {
  *d = h;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  RT(cudaMemGetInfo);
  SOME;
  LIVE;
  touch(currentDevice());
  *total = limit();
  *free = limit() - used(currentDevice());
  OK;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
  RT(cudaPointerGetAttributes);
  memset(a, 0, sizeof *a);
  Alloc found;
  if (find(p, &found)) {
    a->type = (cudaMemoryType)found.type;
    a->device = found.dev;
    a->devicePointer = (void*)p;
    if (found.type != cudaMemoryTypeDevice) a->hostPointer = (void*)p;
  } else {
    a->type = cudaMemoryTypeUnregistered;
    a->device = -2;
    a->hostPointer = (void*)p;
  }
  OK;
}
cudaError_t cudaMemcpy(void* dst, const void* src, size_t n, cudaMemcpyKind) {
  RT(cudaMemcpy);
  LIVE;
  FAIL(copyOn(nullStream(currentDevice()), copyWork(dst, src, n), true));
}
cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t n, cudaMemcpyKind, cudaStream_t s) {
  RT(cudaMemcpyAsync);
  LIVE;
  FAIL(copyOn(streamOf(s), copyWork(dst, src, n), false));
}
cudaError_t cudaMemcpyPeerAsync(void* dst, int, const void* src, int, size_t n, cudaStream_t s) {
  RT(cudaMemcpyPeerAsync);
  LIVE;
  FAIL(copyOn(streamOf(s), copyWork(dst, src, n), false));
}
cudaError_t cudaMemcpy2DAsync(void* dst, size_t dp, const void* src, size_t sp, size_t w, size_t h, cudaMemcpyKind,
                              cudaStream_t s) {
  RT(cudaMemcpy2DAsync);
  LIVE;
  Work c = copyWork(dst, src, w * h);
  c.dpitch = dp;
  c.spitch = sp;
  c.width = w;
  c.height = h;
  FAIL(copyOn(streamOf(s), c, false));
}
cudaError_t cudaMemset(void* p, int v, size_t n) {
  RT(cudaMemset);
  LIVE;
  FAIL(setOn(nullStream(currentDevice()), p, v, 1, n, false));
}
cudaError_t cudaMemsetAsync(void* p, int v, size_t n, cudaStream_t s) {
  RT(cudaMemsetAsync);
  LIVE;
  FAIL(setOn(streamOf(s), p, v, 1, n, false));
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* p, int) {
  RT(cudaDeviceGetDefaultMemPool);
  static int pool;
  *p = (cudaMemPool_t)&pool;
  OK;
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* v) {
  *(u64*)v = 0;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t) {
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) {
  return cudaSuccess;
}
cudaError_t cudaDeviceGetGraphMemAttribute(int, cudaGraphMemAttributeType, void* v) {
  *(u64*)v = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceSetGraphMemAttribute(int, cudaGraphMemAttributeType, void*) {
  return cudaSuccess;
}
}
