// Memory of the driver.
#include "driver.h"

#include <sys/mman.h>

using namespace fake;

extern "C" {
CUresult cuMemAlloc_v2(CUdeviceptr* p, size_t n) {
  CU(cuMemAlloc_v2);
  LIVE;
  FAIL(allocate((void**)p, n, cudaMemoryTypeDevice));
}
CUresult cuMemFree_v2(CUdeviceptr p) {
  CU(cuMemFree_v2);
  FAIL(release((void*)p));
}
CUresult cuMemAllocHost_v2(void** p, size_t n) {
  CU(cuMemAllocHost_v2);
  FAIL(allocate(p, n, cudaMemoryTypeHost));
}
CUresult cuMemHostAlloc(void** p, size_t n, unsigned) {
  CU(cuMemHostAlloc);
  FAIL(allocate(p, n, cudaMemoryTypeHost));
}
CUresult cuMemFreeHost(void* p) {
  CU(cuMemFreeHost);
  FAIL(release(p));
}
CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  *total = limit();
  *free = limit() - used(currentDevice());
  return CUDA_SUCCESS;
}
CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* n, CUdeviceptr p) {
  Alloc a;
  if (!find((void*)p, &a)) return CUDA_ERROR_INVALID_VALUE;
  if (base) *base = a.at;
  if (n) *n = a.size;
  return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr d, const void* s, size_t n) {
  CU(cuMemcpyHtoD_v2);
  LIVE;
  FAIL(copyOn(nullStream(currentDevice()), copyWork((void*)d, s, n), true));
}
CUresult cuMemcpyDtoH_v2(void* d, CUdeviceptr s, size_t n) {
  CU(cuMemcpyDtoH_v2);
  LIVE;
  FAIL(copyOn(nullStream(currentDevice()), copyWork(d, (void*)s, n), true));
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream st) {
  CU(cuMemcpyDtoDAsync_v2);
  LIVE;
  FAIL(copyOn(streamOf(st), copyWork((void*)d, (void*)s, n), false));
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr d, const void* s, size_t n, CUstream st) {
  CU(cuMemcpyHtoDAsync_v2);
  LIVE;
  FAIL(copyOn(streamOf(st), copyWork((void*)d, s, n), false));
}
CUresult cuMemcpyDtoHAsync_v2(void* d, CUdeviceptr s, size_t n, CUstream st) {
  CU(cuMemcpyDtoHAsync_v2);
  LIVE;
  FAIL(copyOn(streamOf(st), copyWork(d, (void*)s, n), false));
}
CUresult cuMemsetD8Async(CUdeviceptr d, unsigned char v, size_t n, CUstream s) {
  CU(cuMemsetD8Async);
  LIVE;
  FAIL(setOn(streamOf(s), (void*)d, v, 1, n, false));
}
CUresult cuMemsetD32Async(CUdeviceptr d, unsigned v, size_t n, CUstream s) {
  CU(cuMemsetD32Async);
  LIVE;
  FAIL(setOn(streamOf(s), (void*)d, v, 4, n, false));
}
CUresult cuPointerGetAttribute(void* out, CUpointer_attribute a, CUdeviceptr p) {
  CU(cuPointerGetAttribute);
  Alloc found;
  bool have = find((void*)p, &found);
  switch (a) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      if (!have) FAIL(CUDA_ERROR_INVALID_VALUE);
      *(CUcontext*)out = contextOf(found.dev);
      break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      if (!have) FAIL(CUDA_ERROR_INVALID_VALUE);
      *(int*)out = found.type == cudaMemoryTypeDevice ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!have) FAIL(CUDA_ERROR_INVALID_VALUE);
      *(CUdeviceptr*)out = p;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      if (!have) FAIL(CUDA_ERROR_INVALID_VALUE);
      *(int*)out = found.dev;
      break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: *(u64*)out = have ? found.at : 0; break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr*)out = have ? found.at : 0; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t*)out = have ? found.size : 0; break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned*)out = 0; break;
    case CU_POINTER_ATTRIBUTE_MAPPED: *(int*)out = 1; break;
    default: FAIL(CUDA_ERROR_NOT_SUPPORTED);
  }
  OK;
}
CUresult cuPointerSetAttribute(const void*, CUpointer_attribute, CUdeviceptr) {
  return CUDA_SUCCESS;
}
CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute* which, void** out, CUdeviceptr p) {
  for (unsigned i = 0; i < n; i++) cuPointerGetAttribute(out[i], which[i], p);
  return CUDA_SUCCESS;
}
// Virtual memory: one handle stands for a size; mapping makes the reserved range readable.
CUresult cuMemGetAllocationGranularity(size_t* n, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  *n = 2 << 20;
  return CUDA_SUCCESS;
}
CUresult cuMemAddressReserve(CUdeviceptr* p, size_t n, size_t, CUdeviceptr, unsigned long long) {
  void* at = mmap(nullptr, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  *p = (CUdeviceptr)at;
  return at == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr p, size_t n) {
  munmap((void*)p, n);
  return CUDA_SUCCESS;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle* h, size_t n, const CUmemAllocationProp*, unsigned long long) {
  CU(cuMemCreate);
  *h = n;
  OK;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle) {
  CU(cuMemRelease);
  OK;
}
CUresult cuMemMap(CUdeviceptr p, size_t n, size_t, CUmemGenericAllocationHandle, unsigned long long) {
  CU(cuMemMap);
  mprotect((void*)p, n, PROT_READ | PROT_WRITE);
  OK;
}
CUresult cuMemUnmap(CUdeviceptr p, size_t n) {
  CU(cuMemUnmap);
  madvise((void*)p, n, MADV_DONTNEED);
  OK;
}
CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
  return CUDA_SUCCESS;
}
}
