// Devices and contexts of the driver, as torch's lazy loading and Triton ask for them.
#include "driver.h"

using namespace fake;

namespace fake {
CUcontext contextOf(int dev) {
  static CUctx_st contexts[maxDevices];
  contexts[dev].dev = dev;
  return &contexts[dev];
}
}  // namespace fake

extern "C" {
CUresult cuInit(unsigned) {
  return (CUresult)countError();
}
CUresult cuDriverGetVersion(int* v) {
  *v = CUDA_VERSION;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult e, const char** s) {
  *s = errorName(e);
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult e, const char** s) {
  *s = errorText(e);
  return CUDA_SUCCESS;
}
CUresult cuGetProcAddress_v2(const char* name, void** fn, int, cuuint64_t, CUdriverProcAddressQueryResult* r) {
  *fn = nullptr;
  std::string n = name;
  for (const char* suffix : {"_v2", ""})
    if (!*fn) *fn = symbol((n + suffix).c_str());
  if (r) *r = *fn ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *fn ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
CUresult cuGetExportTable(const void** t, const CUuuid*) {
  *t = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}
CUresult cuDeviceGetCount(int* n) {
  int code = countError();
  *n = code ? 0 : (int)cfg().visible.size();
  return (CUresult)code;
}
CUresult cuDeviceGet(CUdevice* d, int i) {
  if (i < 0 || i >= (int)cfg().visible.size()) return CUDA_ERROR_INVALID_DEVICE;
  *d = i;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* s, int n, CUdevice) {
  snprintf(s, n, "%s", cfg().name.c_str());
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid_v2(CUuuid* u, CUdevice d) {
  uuid(d, u->bytes);
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem_v2(size_t* n, CUdevice) {
  *n = limit();
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* v, CUdevice_attribute a, CUdevice d) {
  CU(cuDeviceGetAttribute);
  FAIL(deviceAttribute(a, d, v));
}
CUresult cuDeviceGetPCIBusId(char* s, int n, CUdevice d) {
  snprintf(s, n, "00000000:%02X:00.0", 4 + d);
  return CUDA_SUCCESS;
}
CUresult cuDeviceCanAccessPeer(int* can, CUdevice a, CUdevice b) {
  *can = a != b;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* c, CUdevice d) {
  CU(cuDevicePrimaryCtxRetain);
  touch(d);
  *c = contextOf(d);
  OK;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) {
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxReset_v2(CUdevice) {
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice, unsigned) {
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxGetState(CUdevice d, unsigned* flags, int* active) {
  CU(cuDevicePrimaryCtxGetState);
  if (flags) *flags = 0;
  *active = touched(d);
  OK;
}
CUresult cuCtxCreate_v4(CUcontext* c, CUctxCreateParams*, unsigned, CUdevice d) {
  touch(d);
  *c = contextOf(d);
  currentDevice() = d;
  return CUDA_SUCCESS;
}
CUresult cuCtxDestroy_v2(CUcontext) {
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* c) {
  CU(cuCtxGetCurrent);
  *c = touched(currentDevice()) ? contextOf(currentDevice()) : nullptr;
  OK;
}
CUresult cuCtxSetCurrent(CUcontext c) {
  CU(cuCtxSetCurrent);
  if (c) currentDevice() = c->dev;
  OK;
}
static thread_local std::vector<int> pushed;
CUresult cuCtxPushCurrent_v2(CUcontext c) {
  pushed.push_back(currentDevice());
  if (c) currentDevice() = c->dev;
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent_v2(CUcontext* c) {
  if (c) *c = contextOf(currentDevice());
  if (!pushed.empty()) {
    currentDevice() = pushed.back();
    pushed.pop_back();
  }
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* d) {
  *d = currentDevice();
  return CUDA_SUCCESS;
}
CUresult cuCtxGetLimit(size_t* v, CUlimit) {
  *v = 0;
  return CUDA_SUCCESS;
}
CUresult cuCtxSetLimit(CUlimit, size_t) {
  return CUDA_SUCCESS;
}
CUresult cuCtxGetId(CUcontext c, unsigned long long* id) {
  *id = contextId(c ? c->dev : currentDevice());
  return CUDA_SUCCESS;
}
CUresult cuCtxGetStreamPriorityRange(int* least, int* most) {
  if (least) *least = 0;
  if (most) *most = -5;
  return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize(void) {
  CU(cuCtxSynchronize);
  LIVE;
  waitUntil(deviceEnd(currentDevice()));
  FAIL(gate());
}
}
