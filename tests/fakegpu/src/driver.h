// What the parts of the CUDA driver share.
#pragma once
#include "fake.h"

#include "gen_cu_best.inc"

#define CU(fn) Api api(CUPTI_CB_DOMAIN_DRIVER_API, CUCB_##fn, #fn)
#define OK return api.ret(CUDA_SUCCESS)
#define FAIL(code) return api.ret((CUresult)(code))
#define LIVE \
  if (int code = gate()) FAIL(code)

namespace fake {
CUcontext contextOf(int dev);

// The runtime does copies and waits, see runtime.h.
Work copyWork(void* dst, const void* src, size_t n);
int copyOn(CUstream_st* s, Work w, bool blocking);
int setOn(CUstream_st* s, void* p, u32 value, int elem, size_t count, bool blocking);
int streamWait(CUstream_st* s, CUevent_st* e);
int eventRecord(CUevent_st* e, CUstream_st* s);
int streamSync(CUstream_st* s);
}  // namespace fake
