// Devices, errors, and what does not belong elsewhere.
#include "runtime.h"

using namespace fake;

extern "C" {
cudaError_t cudaGetDeviceCount(int* n) {
  RT(cudaGetDeviceCount);
  int code = countError();
  *n = code ? 0 : (int)cfg().visible.size();
  FAIL(code);
}
cudaError_t cudaGetDevice(int* d) {
  RT(cudaGetDevice);
  SOME;
  *d = currentDevice();
  OK;
}
cudaError_t cudaSetDevice(int d) {
  RT(cudaSetDevice);
  SOME;
  if (d < 0 || d >= (int)cfg().visible.size()) FAIL(cudaErrorInvalidDevice);
  LIVE;
  currentDevice() = d;
  touch(d);
  OK;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int dev) {
  RT(cudaGetDeviceProperties);
  if (dev < 0 || dev >= (int)cfg().visible.size()) FAIL(cudaErrorInvalidDevice);
  const Model& c = cfg().model;
  memset(p, 0, sizeof *p);
  auto of = [&](int attr) {
    int v = 0;
    deviceAttribute(attr, dev, &v);
    return v;
  };
  snprintf(p->name, sizeof p->name, "%s", cfg().name.c_str());
  uuid(dev, p->uuid.bytes);
  p->totalGlobalMem = cfg().memory;
  p->sharedMemPerBlock = 49152;
  p->regsPerBlock = 65536;
  p->warpSize = 32;
  p->memPitch = 2147483647;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->totalConstMem = 65536;
  p->major = c.major;
  p->minor = c.minor;
  p->textureAlignment = 512;
  p->multiProcessorCount = c.sms;
  p->canMapHostMemory = 1;
  p->concurrentKernels = 1;
  p->ECCEnabled = 1;
  p->pciBusID = 4 + dev;
  p->asyncEngineCount = 3;
  p->unifiedAddressing = 1;
  p->memoryBusWidth = c.busBits;
  p->l2CacheSize = (int)(c.l2MiB * (1 << 20));
  p->persistingL2CacheMaxSize = (int)(c.l2MiB * 0.75 * (1 << 20));
  p->maxThreadsPerMultiProcessor = of(cudaDevAttrMaxThreadsPerMultiProcessor);
  p->streamPrioritiesSupported = 1;
  p->globalL1CacheSupported = p->localL1CacheSupported = 1;
  p->sharedMemPerMultiprocessor = of(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  p->regsPerMultiprocessor = 65536;
  p->managedMemory = 1;
  p->concurrentManagedAccess = 1;
  p->computePreemptionSupported = 1;
  p->cooperativeLaunch = 1;
  p->sharedMemPerBlockOptin = of(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  p->maxBlocksPerMultiProcessor = 32;
  p->reservedSharedMemPerBlock = 1024;
  p->memoryPoolsSupported = 1;
  p->clusterLaunch = c.major >= 9;
  OK;
}
cudaError_t cudaDeviceGetAttribute(int* v, cudaDeviceAttr attr, int dev) {
  RT(cudaDeviceGetAttribute);
  FAIL(deviceAttribute(attr, dev, v));
}
cudaError_t cudaDeviceGetPCIBusId(char* out, int n, int dev) {
  RT(cudaDeviceGetPCIBusId);
  snprintf(out, n, "00000000:%02X:00.0", 4 + dev);
  OK;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int a, int b) {
  RT(cudaDeviceCanAccessPeer);
  *can = a != b;
  OK;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) {
  RT(cudaDeviceEnablePeerAccess);
  OK;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* most) {
  RT(cudaDeviceGetStreamPriorityRange);
  SOME;
  if (least) *least = 0;
  if (most) *most = -5;
  OK;
}
cudaError_t cudaDeviceSynchronize(void) {
  RT(cudaDeviceSynchronize);
  SOME;
  LIVE;
  if (int e = unsafeCall()) FAIL(e);
  int dev = currentDevice();
  touch(dev);
  u64 start = now();
  waitUntil(deviceEnd(dev));
  recordSync(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE, dev, CUPTI_SYNCHRONIZATION_INVALID_VALUE,
             CUPTI_SYNCHRONIZATION_INVALID_VALUE, start, now());
  LIVE;
  OK;
}
cudaError_t cudaDeviceReset(void) {
  return cudaSuccess;
}
cudaError_t cudaDeviceGetLimit(size_t* v, cudaLimit) {
  *v = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) {
  return cudaSuccess;
}
cudaError_t cudaSetDeviceFlags(unsigned) {
  return cudaSuccess;
}
cudaError_t cudaGetDeviceFlags(unsigned* f) {
  *f = 0;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* v) {
  RT(cudaDriverGetVersion);
  *v = CUDART_VERSION;
  OK;
}
cudaError_t cudaRuntimeGetVersion(int* v) {
  RT(cudaRuntimeGetVersion);
  *v = CUDART_VERSION;
  OK;
}
cudaError_t cudaProfilerStart(void) {
  RT(cudaProfilerStart);
  OK;
}
cudaError_t cudaProfilerStop(void) {
  RT(cudaProfilerStop);
  OK;
}
cudaError_t cudaGetLastError(void) {
  RT(cudaGetLastError);
  int e = broken() ? broken() : lastError;
  lastError = 0;
  return (cudaError_t)e;
}
cudaError_t cudaPeekAtLastError(void) {
  RT(cudaPeekAtLastError);
  return (cudaError_t)(broken() ? broken() : lastError);
}
const char* cudaGetErrorName(cudaError_t e) {
  RT(cudaGetErrorName);
  return errorName(e);
}
const char* cudaGetErrorString(cudaError_t e) {
  RT(cudaGetErrorString);
  return errorText(e);
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** fn, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* r) {
  RT(cudaGetDriverEntryPointByVersion);
  CUdriverProcAddressQueryResult found;
  cuGetProcAddress_v2(name, fn, CUDA_VERSION, 0, &found);
  if (r) *r = *fn ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  OK;
}
cudaError_t cudaGetDriverEntryPoint(const char* name, void** fn, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* r) {
  return cudaGetDriverEntryPointByVersion(name, fn, 0, flags, r);
}
}
