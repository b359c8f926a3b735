// Modules and launches of the driver.
#include "driver.h"

using namespace fake;

extern "C" {
CUresult cuModuleLoadData(CUmodule* m, const void* image) {
  CU(cuModuleLoadData);
  LIVE;
  *m = new CUmod_st;
  loadImage(*m, image);
  OK;
}
CUresult cuModuleLoadDataEx(CUmodule* m, const void* image, unsigned, CUjit_option*, void**) {
  CU(cuModuleLoadDataEx);
  LIVE;
  *m = new CUmod_st;
  loadImage(*m, image);
  OK;
}
CUresult cuModuleLoadFatBinary(CUmodule* m, const void*) {
  *m = new CUmod_st;
  return CUDA_SUCCESS;
}
CUresult cuModuleLoad(CUmodule* m, const char* path) {
  CU(cuModuleLoad);
  LIVE;
  FILE* f = fopen(path, "rb");
  if (!f) FAIL(CUDA_ERROR_FILE_NOT_FOUND);
  std::string all;
  char part[65536];
  for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;) all.append(part, n);
  fclose(f);
  all.append(64, '\0');
  *m = new CUmod_st;
  loadImage(*m, all.data());
  OK;
}
CUresult cuModuleUnload(CUmodule) {
  CU(cuModuleUnload);
  OK;
}
CUresult cuModuleGetFunction(CUfunction* f, CUmodule m, const char* name) {
  CU(cuModuleGetFunction);
  if (m->elf && !m->regs.count(name)) FAIL(CUDA_ERROR_NOT_FOUND);
  Lock l(mu);
  auto& found = m->funcs[name];
  if (!found) {
    found = new CUfunc_st;
    found->name = name;
    if (m->elf) found->regs = m->regs[name];
  }
  *f = found;
  OK;
}
CUresult cuModuleGetGlobal_v2(CUdeviceptr* p, size_t* n, CUmodule, const char*) {
  static char some[1 << 16];
  if (p) *p = (CUdeviceptr)some;
  if (n) *n = sizeof some;
  return CUDA_SUCCESS;
}
CUresult cuLibraryLoadData(CUlibrary* l, const void* code, CUjit_option*, void**, unsigned, CUlibraryOption*, void**,
                           unsigned) {
  auto* m = new CUmod_st;
  loadImage(m, code);
  *l = (CUlibrary)m;
  return CUDA_SUCCESS;
}
CUresult cuLibraryGetKernel(CUkernel* k, CUlibrary l, const char* name) {
  return cuModuleGetFunction((CUfunction*)k, (CUmodule)l, name);
}
CUresult cuLibraryGetModule(CUmodule* m, CUlibrary l) {
  *m = (CUmodule)l;
  return CUDA_SUCCESS;
}
CUresult cuLibraryUnload(CUlibrary) {
  return CUDA_SUCCESS;
}
CUresult cuKernelGetFunction(CUfunction* f, CUkernel k) {
  *f = (CUfunction)k;
  return CUDA_SUCCESS;
}
CUresult cuFuncGetName(const char** s, CUfunction f) {
  *s = f->name.c_str();
  return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int* v, CUfunction_attribute a, CUfunction f) {
  CU(cuFuncGetAttribute);
  switch (a) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *v = f->maxThreads; break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *v = f->smem; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *v = f->regs; break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *v = f->maxDyn; break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
    case CU_FUNC_ATTRIBUTE_PTX_VERSION: *v = cfg().model.major * 10 + cfg().model.minor; break;
    default: *v = 0;
  }
  OK;
}
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v) {
  CU(cuFuncSetAttribute);
  if (a == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) f->maxDyn = v;
  OK;
}
CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) {
  CU(cuFuncSetCacheConfig);
  OK;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* n, CUfunction f, int threads, size_t smem) {
  CU(cuOccupancyMaxActiveBlocksPerMultiprocessor);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(n, f, threads, smem);
  OK;
}
CUresult cuOccupancyMaxActiveClusters(int* n, CUfunction, const CUlaunchConfig*) {
  *n = cfg().model.sms;
  return CUDA_SUCCESS;
}
static Shape shapeOf(unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned smem) {
  Shape s;
  s.g[0] = gx;
  s.g[1] = gy;
  s.g[2] = gz;
  s.b[0] = bx;
  s.b[1] = by;
  s.b[2] = bz;
  s.dyn = smem;
  return s;
}
CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned smem, CUstream s, void**, void**) {
  CU(cuLaunchKernel);
  LIVE;
  FAIL(launch(f, shapeOf(gx, gy, gz, bx, by, bz, smem), streamOf(s)));
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* c, CUfunction f, void**, void**) {
  CU(cuLaunchKernelEx);
  LIVE;
  Shape shape =
      shapeOf(c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ, c->sharedMemBytes);
  for (unsigned i = 0; i < c->numAttrs; i++)
    if (c->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      shape.cluster[0] = c->attrs[i].value.clusterDim.x;
      shape.cluster[1] = c->attrs[i].value.clusterDim.y;
      shape.cluster[2] = c->attrs[i].value.clusterDim.z;
    }
  FAIL(launch(f, shape, streamOf(c->hStream)));
}
CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                   unsigned bz, unsigned smem, CUstream s, void**) {
  CU(cuLaunchCooperativeKernel);
  LIVE;
  FAIL(launch(f, shapeOf(gx, gy, gz, bx, by, bz, smem), streamOf(s)));
}
CUresult cuTensorMapEncodeTiled(CUtensorMap* t, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  memset(t, 0, sizeof *t);
  return CUDA_SUCCESS;
}
}
