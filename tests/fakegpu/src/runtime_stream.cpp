// Streams and events.
#include "runtime.h"

#include <algorithm>

using namespace fake;

namespace fake {
int streamWait(CUstream_st* s, CUevent_st* e) {
  Lock l(mu);
  if (!e->recorded) return 0;
  if (e->cap) {
    if (s->cap && s->cap != e->cap) return cudaErrorStreamCaptureMerge;
    s->cap = e->cap;
    for (auto* n : e->capDeps)
      if (std::find(s->capDeps.begin(), s->capDeps.end(), n) == s->capDeps.end()) s->capDeps.push_back(n);
    return 0;
  }
  if (s->cap) {
    s->cap->broken = true;
    return cudaErrorStreamCaptureIsolation;
  }
  s->end = std::max(s->end, e->time);
  recordSync(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT, s->dev, s->id, e->id, now(), now());
  return 0;
}
int eventRecord(CUevent_st* e, CUstream_st* s) {
  Lock l(mu);
  e->recorded = true;
  e->streamId = s->id;
  e->dev = s->dev;
  if (s->cap) {
    if (s->cap->broken) return cudaErrorStreamCaptureInvalidated;
    e->cap = s->cap;
    e->capDeps = s->capDeps;
    return 0;
  }
  e->cap = nullptr;
  e->time = std::max(s->end, now() + ticks(cfg().launchNs / 2));
  if (s == nullStream(s->dev)) e->time = std::max(e->time, s->end);
  recordEvent(s->dev, s->id, e->id, e->time);
  return 0;
}
int streamSync(CUstream_st* s) {
  if (s->cap) return captureBroken(s);
  u64 start = now();
  waitUntil(s->end);
  recordSync(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE, s->dev, s->id, CUPTI_SYNCHRONIZATION_INVALID_VALUE,
             start, now());
  return gate();
}
}  // namespace fake

extern "C" {
cudaError_t cudaStreamCreate(cudaStream_t* s) {
  RT(cudaStreamCreate);
  LIVE;
  *s = newStream(0, 0);
  OK;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags) {
  RT(cudaStreamCreateWithFlags);
  LIVE;
  *s = newStream(flags, 0);
  OK;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned flags, int priority) {
  RT(cudaStreamCreateWithPriority);
  LIVE;
  *s = newStream(flags, priority);
  OK;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  RT(cudaStreamDestroy);
  streamOf(s)->dead = true;
  OK;
}
cudaError_t cudaStreamGetPriority(cudaStream_t s, int* p) {
  RT(cudaStreamGetPriority);
  *p = streamOf(s)->priority;
  OK;
}
cudaError_t cudaStreamGetFlags(cudaStream_t s, unsigned* f) {
  RT(cudaStreamGetFlags);
  *f = streamOf(s)->flags;
  OK;
}
cudaError_t cudaStreamGetId(cudaStream_t s, unsigned long long* id) {
  RT(cudaStreamGetId);
  *id = streamOf(s)->id;
  OK;
}
cudaError_t cudaStreamQuery(cudaStream_t s) {
  RT(cudaStreamQuery);
  LIVE;
  CUstream_st* st = streamOf(s);
  if (st->cap) FAIL(captureBroken(st));
  FAIL(now() < st->end ? cudaErrorNotReady : cudaSuccess);
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  RT(cudaStreamSynchronize);
  SOME;
  LIVE;
  FAIL(streamSync(streamOf(s)));
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  RT(cudaStreamWaitEvent);
  LIVE;
  FAIL(streamWait(streamOf(s), e));
}
static cudaEvent_t newEvent(unsigned flags) {
  static std::atomic<u32> next{1};
  auto* e = new CUevent_st;
  e->flags = flags;
  e->id = next++;
  e->dev = currentDevice();
  return e;
}
cudaError_t cudaEventCreate(cudaEvent_t* e) {
  RT(cudaEventCreate);
  LIVE;
  *e = newEvent(0);
  OK;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned flags) {
  RT(cudaEventCreateWithFlags);
  LIVE;
  *e = newEvent(flags);
  OK;
}
cudaError_t cudaEventDestroy(cudaEvent_t) {
  RT(cudaEventDestroy);
  OK;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  RT(cudaEventRecord);
  LIVE;
  FAIL(eventRecord(e, streamOf(s)));
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned) {
  RT(cudaEventRecordWithFlags);
  LIVE;
  FAIL(eventRecord(e, streamOf(s)));
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  RT(cudaEventQuery);
  LIVE;
  if (e->cap) FAIL(cudaErrorCapturedEvent);
  FAIL(e->recorded && now() < e->time ? cudaErrorNotReady : cudaSuccess);
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  RT(cudaEventSynchronize);
  LIVE;
  if (e->cap) FAIL(cudaErrorCapturedEvent);
  u64 start = now();
  if (e->recorded) waitUntil(e->time);
  recordSync(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE, e->dev, e->streamId, e->id, start, now());
  LIVE;
  OK;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) {
  RT(cudaEventElapsedTime);
  LIVE;
  if (!a->recorded || !b->recorded || (a->flags & cudaEventDisableTiming) || (b->flags & cudaEventDisableTiming))
    FAIL(cudaErrorInvalidResourceHandle);
  if (now() < a->time || now() < b->time) FAIL(cudaErrorNotReady);
  *ms = (float)((double)(int64_t)(b->time - a->time) / ticksPerNs() / 1e6);
  OK;
}
}
