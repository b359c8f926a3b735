// From records to the buffers that the profiler hands in and gets back.
#include "cupti_state.h"

#include <time.h>
#include <x86intrin.h>

namespace fake {
std::recursive_mutex cuptiMutex;
namespace {
CUpti_BuffersCallbackRequestFunc request;
CUpti_BuffersCallbackCompleteFunc complete;
enum { realtime, tsc } unit = realtime;

struct Held {
  u64 ready;
  std::vector<char> bytes;
};
std::deque<Held> held;

struct Buffer {
  uint8_t* at = nullptr;
  size_t size = 0, used = 0;
  long records = 0;
};
std::deque<Buffer> open;  // asked for and not yet given back
long unheldRecords;       // since the last buffer was asked for
size_t dropped;

size_t sizeOf(u32 kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: return sizeof(KernelRecord);
    case CUPTI_ACTIVITY_KIND_MEMCPY: return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMCPY2: return sizeof(CUpti_ActivityMemcpyPtoP4);
    case CUPTI_ACTIVITY_KIND_MEMSET: return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER: return sizeof(CUpti_ActivityAPI);
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: return sizeof(CUpti_ActivityExternalCorrelation);
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: return sizeof(CUpti_ActivitySynchronization2);
    case CUPTI_ACTIVITY_KIND_CUDA_EVENT: return sizeof(CUpti_ActivityCudaEvent2);
  }
  return 0;
}

bool askForBuffer() {
  Buffer b;
  size_t most = 0;
  request(&b.at, &b.size, &most);
  if (!b.at) return false;
  open.push_back(b);
  return true;
}

void giveBack() {
  Buffer b = open.front();
  open.pop_front();
  complete(nullptr, 0, b.at, b.size, b.used);
}

void put(const std::vector<char>& record) {
  size_t n = (record.size() + 7) & ~(size_t)7;
  long most = cfg().faults.bufferRecords;
  while (!open.empty() && (open.front().used + n > open.front().size || (most && open.front().records >= most)))
    giveBack();
  if (open.empty() && !askForBuffer()) {
    dropped++;
    return;
  }
  Buffer& b = open.front();
  memcpy(b.at + b.used, record.data(), record.size());
  b.used += n;
  b.records++;
}
}  // namespace

void hold(const void* record, size_t size, u64 ready) {
  CuptiLock l(cuptiMutex);
  if (!request) return;
  // CUPTI asks for its first buffer as soon as there is something to say. With FAKEGPU_CUPTI_BUFFER it asks for another
  // one each so many records, as it does when records come faster than it gives buffers back; told to do without, it
  // drops what it has no room for.
  long most = cfg().faults.bufferRecords;
  if (open.empty() || (most && unheldRecords >= most)) {
    if (askForBuffer()) {
      unheldRecords = 0;
    } else {
      dropped++;
      return;
    }
  }
  unheldRecords++;
  held.push_back({ready, std::vector<char>((const char*)record, (const char*)record + size)});
}

u64 stamp(u64 t) {
  if (unit == tsc) return t;
  timespec ts;
  clock_gettime(CLOCK_REALTIME, &ts);
  return ts.tv_sec * 1000000000ull + ts.tv_nsec + (int64_t)((double)(int64_t)(t - now()) / ticksPerNs());
}
}  // namespace fake
using namespace fake;

extern "C" {
CUptiResult cuptiGetTimestamp(uint64_t* t) {
  *t = stamp(now());
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc r, CUpti_BuffersCallbackCompleteFunc c) {
  if (int e = refused("cuptiActivityRegisterCallbacks")) return (CUptiResult)e;
  CuptiLock l(cuptiMutex);
  request = r;
  complete = c;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc f) {
  timestampsRegistered();
  CuptiLock l(cuptiMutex);
  unit = realtime;
  if (f) {  // kineto's is the time stamp counter, and so is our own clock
    int64_t off = (int64_t)(f() - __rdtsc());
    if (off < 100000000 && off > -100000000) unit = tsc;
  }
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityFlushAll(u32 flag) {
  CuptiLock l(cuptiMutex);
  if (!request) return CUPTI_SUCCESS;
  u64 n = now();
  std::deque<Held> later;
  for (auto& h : held) {
    if (h.ready <= n || (flag & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED))
      put(h.bytes);
    else
      later.push_back(std::move(h));
  }
  held.swap(later);
  while (!open.empty()) giveBack();
  unheldRecords = 0;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityFlush(CUcontext, u32, u32 flag) {
  return cuptiActivityFlushAll(flag);
}
CUptiResult cuptiActivityGetNextRecord(uint8_t* b, size_t valid, CUpti_Activity** r) {
  uint8_t* at = b;
  if (*r) {
    size_t n = sizeOf((*r)->kind);
    if (!n) return CUPTI_ERROR_INVALID_KIND;
    at = (uint8_t*)*r + ((n + 7) & ~(size_t)7);
  }
  if (at >= b + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *r = (CUpti_Activity*)at;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, u32, size_t* n) {
  CuptiLock l(cuptiMutex);
  *n = dropped;
  dropped = 0;
  return CUPTI_SUCCESS;
}
}
