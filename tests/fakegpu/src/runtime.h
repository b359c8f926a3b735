// What the parts of the CUDA runtime share; the driver does its copies and waits with the same functions.
#pragma once
#include "fake.h"

#include "gen_rt_best.inc"

// The call that a function is, for CUPTI; and its ways out.
#define RT(fn) Api api(CUPTI_CB_DOMAIN_RUNTIME_API, RTCB_##fn, #fn)
#define OK return api.ret(cudaSuccess)
#define FAIL(code) return api.ret((cudaError_t)(code))
// A call that a broken context refuses.
#define LIVE \
  if (int code = gate()) FAIL(code)
// A call that needs a device to be there.
#define SOME \
  if (int code = countError()) FAIL(code)

namespace fake {
CUfunc_st* funcOf(const void* host);
Shape shapeOf(dim3 grid, dim3 block, size_t dynamicSharedMemory);

Work copyWork(void* dst, const void* src, size_t n);
int copyOn(CUstream_st* s, Work w, bool blocking);
int setOn(CUstream_st* s, void* p, u32 value, int elem, size_t count, bool blocking);
int streamWait(CUstream_st* s, CUevent_st* e);
int eventRecord(CUevent_st* e, CUstream_st* s);
int streamSync(CUstream_st* s);

// Captures in progress that forbid unsafe calls of all threads (mode global), and whether this call is one of those.
extern int capturing;
int unsafeCall();
void endCaptureEverywhere(Capture* c);
}  // namespace fake
