// Kernels of the libraries: their registration and launch.
#include "runtime.h"

#include <algorithm>
#include <thread>

using namespace fake;

namespace fake {
static std::unordered_map<const void*, CUfunc_st*>& registered() {
  static auto* m = new std::unordered_map<const void*, CUfunc_st*>;
  return *m;
}
CUfunc_st* funcOf(const void* host) {
  Lock l(mu);
  auto it = registered().find(host);
  if (it != registered().end()) return it->second;
  return (CUfunc_st*)host;  // a cudaKernel_t or cudaFunction_t
}
static std::unordered_map<const void*, std::pair<void*, size_t>>& variables() {
  static auto* m = new std::unordered_map<const void*, std::pair<void*, size_t>>;
  return *m;
}

Shape shapeOf(dim3 g, dim3 b, size_t smem) {
  Shape s;
  s.g[0] = g.x;
  s.g[1] = g.y;
  s.g[2] = g.z;
  s.b[0] = b.x;
  s.b[1] = b.y;
  s.b[2] = b.z;
  s.dyn = (u32)smem;
  return s;
}
}  // namespace fake

extern "C" {
void** __cudaRegisterFatBinary(void*) {
  return (void**)new void*[2]();
}
void __cudaRegisterFatBinaryEnd(void**) {
}
void __cudaUnregisterFatBinary(void**) {
}
char __cudaInitModule(void**) {
  return 1;
}
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  Lock l(mu);
  auto* f = new CUfunc_st;
  f->name = name;
  registered()[host] = f;
}
void __cudaRegisterVar(void**, char* host, char*, const char*, int, size_t size, int, int) {
  Lock l(mu);
  variables()[host] = {calloc(1, size ? size : 1), size};
}
void __cudaRegisterManagedVar(void**, void** host, char*, const char*, int, size_t size, int, int) {
  *host = calloc(1, size ? size : 1);
}
void __cudaRegisterHostVar(void**, const char*, char*, size_t) {
}

struct Call {
  dim3 g, b;
  size_t smem;
  cudaStream_t s;
};
static thread_local std::vector<Call> calls;
unsigned __cudaPushCallConfiguration(dim3 g, dim3 b, size_t smem, CUstream_st* s) {
  calls.push_back({g, b, smem, s});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* g, dim3* b, size_t* smem, void* s) {
  if (calls.empty()) return cudaErrorMissingConfiguration;
  Call c = calls.back();
  calls.pop_back();
  *g = c.g;
  *b = c.b;
  *smem = c.smem;
  *(cudaStream_t*)s = c.s;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* k, const void* host) {
  *k = (cudaKernel_t)funcOf(host);
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void* host, dim3 g, dim3 b, void** args, size_t smem, cudaStream_t s) {
  RT(cudaLaunchKernel);
  SOME;
  LIVE;
  FAIL(launch(funcOf(host), shapeOf(g, b, smem), streamOf(s), args));
}
cudaError_t __cudaLaunchKernel(cudaKernel_t k, dim3 g, dim3 b, void** args, size_t smem, cudaStream_t s) {
  RT(cudaLaunchKernel);
  SOME;
  LIVE;
  FAIL(launch((CUfunc_st*)k, shapeOf(g, b, smem), streamOf(s), args));
}
cudaError_t cudaLaunchCooperativeKernel(const void* host, dim3 g, dim3 b, void** args, size_t smem, cudaStream_t s) {
  RT(cudaLaunchCooperativeKernel);
  LIVE;
  FAIL(launch(funcOf(host), shapeOf(g, b, smem), streamOf(s), args));
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* host, void** args) {
  RT(cudaLaunchKernelExC);
  LIVE;
  Shape shape = shapeOf(c->gridDim, c->blockDim, c->dynamicSmemBytes);
  for (unsigned i = 0; i < c->numAttrs; i++)
    if (c->attrs[i].id == cudaLaunchAttributeClusterDimension) {
      shape.cluster[0] = c->attrs[i].val.clusterDim.x;
      shape.cluster[1] = c->attrs[i].val.clusterDim.y;
      shape.cluster[2] = c->attrs[i].val.clusterDim.z;
    }
  FAIL(launch(funcOf(host), shape, streamOf(c->stream), args));
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void* arg) {
  RT(cudaLaunchHostFunc);
  LIVE;
  Work w;
  w.op = Op::host;
  w.hostFn = fn;
  w.hostArg = arg;
  FAIL(submit(streamOf(s), w));
}
cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t fn, void* arg, unsigned) {
  RT(cudaStreamAddCallback);
  LIVE;
  u64 end = streamOf(s)->end;
  std::thread([=] {
    waitUntil(end);
    fn(s, cudaSuccess, arg);
  }).detach();
  OK;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void* host) {
  RT(cudaFuncGetAttributes);
  LIVE;
  memset(a, 0, sizeof *a);
  CUfunc_st* f = funcOf(host);
  a->maxThreadsPerBlock = f->maxThreads;
  a->numRegs = f->regs;
  a->sharedSizeBytes = f->smem;
  a->maxDynamicSharedSizeBytes = f->maxDyn;
  a->binaryVersion = a->ptxVersion = cfg().model.major * 10 + cfg().model.minor;
  a->preferredShmemCarveout = -1;
  OK;
}
cudaError_t cudaFuncSetAttribute(const void* host, cudaFuncAttribute attr, int value) {
  RT(cudaFuncSetAttribute);
  LIVE;
  if (attr == cudaFuncAttributeMaxDynamicSharedMemorySize) {
    int most = 0;
    deviceAttribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, currentDevice(), &most);
    if (value > most) FAIL(cudaErrorInvalidValue);
    funcOf(host)->maxDyn = value;
  }
  OK;
}
cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t, cudaFuncAttribute, int, int) {
  return cudaSuccess;
}
cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) {
  RT(cudaFuncSetCacheConfig);
  OK;
}
cudaError_t cudaFuncGetName(const char** name, const void* host) {
  *name = funcOf(host)->name.c_str();
  return cudaSuccess;
}
cudaError_t cudaGetFuncBySymbol(cudaFunction_t* f, const void* host) {
  RT(cudaGetFuncBySymbol);
  *f = (cudaFunction_t)funcOf(host);
  OK;
}
static int blocksPerSm(int threads, size_t smem) {
  int most = 0;
  deviceAttribute(cudaDevAttrMaxThreadsPerMultiProcessor, currentDevice(), &most);
  int n = threads > 0 ? most / ((threads + 31) / 32 * 32) : 0;
  if (smem) {
    int all = 0;
    deviceAttribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor, currentDevice(), &all);
    n = std::min<int>(n, all / (smem + 1024));
  }
  return std::min(n, 32);
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n, const void*, int threads, size_t smem) {
  RT(cudaOccupancyMaxActiveBlocksPerMultiprocessor);
  LIVE;
  *n = blocksPerSm(threads, smem);
  OK;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* n, const void*, int threads, size_t smem,
                                                                   unsigned) {
  RT(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
  LIVE;
  *n = blocksPerSm(threads, smem);
  OK;
}
cudaError_t cudaGetSymbolAddress(void** p, const void* symbol) {
  RT(cudaGetSymbolAddress);
  Lock l(mu);
  auto it = variables().find(symbol);
  if (it == variables().end()) FAIL(cudaErrorInvalidSymbol);
  *p = it->second.first;
  OK;
}
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* src, size_t n, size_t offset, cudaMemcpyKind) {
  RT(cudaMemcpyToSymbol);
  Lock l(mu);
  auto it = variables().find(symbol);
  if (it == variables().end()) FAIL(cudaErrorInvalidSymbol);
  memcpy((char*)it->second.first + offset, src, n);
  OK;
}
cudaError_t cudaLibraryLoadData(cudaLibrary_t* lib, const void* code, cudaJitOption*, void**, unsigned,
                                cudaLibraryOption*, void**, unsigned) {
  RT(cudaLibraryLoadData);
  auto* m = new CUmod_st;
  loadImage(m, code);
  *lib = (cudaLibrary_t)m;
  OK;
}
cudaError_t cudaLibraryGetKernel(cudaKernel_t* k, cudaLibrary_t, const char* name) {
  RT(cudaLibraryGetKernel);
  *k = (cudaKernel_t)makeKernel(name);
  OK;
}
cudaError_t cudaLibraryUnload(cudaLibrary_t) {
  RT(cudaLibraryUnload);
  OK;
}
}
