// What CUPTI writes down: calls of the runtime and driver, and what the GPU "did".
#include "cupti_state.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace fake {
namespace {
std::atomic<bool> enabled[CUPTI_ACTIVITY_KIND_COUNT];
std::atomic<u32> nextCorrelation{1};
CUpti_ActivityThreadIdType threadIds = CUPTI_ACTIVITY_THREAD_ID_TYPE_DEFAULT;

struct Thread {
  int depth = 0;
  u32 correlation = 0;
  std::map<int, std::vector<u64>> external;
};
Thread& self() {
  static thread_local Thread* t = new Thread;
  return *t;
}
u32 threadId() {
  return threadIds == CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM ? (u32)syscall(SYS_gettid) : (u32)(uintptr_t)pthread_self();
}
// What CUPTI dates by its own clock where it should ask the profiler's: nanoseconds since the machine started.
u64 otherClock() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}
template <class T>
T blank(CUpti_ActivityKind kind) {
  T record;
  memset(&record, 0, sizeof record);
  record.kind = kind;
  return record;
}
}  // namespace

u32 correlation() {
  return self().correlation;
}
bool tracing(CUpti_ActivityKind k) {
  return enabled[k];
}

static void recordCall(const Api& call) {
  CuptiLock l(cuptiMutex);
  if (hushed(call.domain, call.cbid) || unseen(call.name)) return;
  Thread& t = self();
  u64 end = now();
  if (tracing(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION)) {
    for (auto& [kind, ids] : t.external) {
      if (ids.empty()) continue;
      auto x = blank<CUpti_ActivityExternalCorrelation>(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
      x.externalKind = (CUpti_ExternalCorrelationKind)kind;
      x.externalId = ids.back();
      x.correlationId = t.correlation;
      hold(x, end);
    }
  }
  bool runtime = call.domain == CUPTI_CB_DOMAIN_RUNTIME_API;
  auto r = blank<CUpti_ActivityAPI>(runtime ? CUPTI_ACTIVITY_KIND_RUNTIME : CUPTI_ACTIVITY_KIND_DRIVER);
  r.cbid = call.cbid;
  r.start = stamp(call.start);
  r.end = stamp(end);
  r.processId = getpid();
  r.threadId = threadId();
  r.correlationId = numberOfCall(call.name, t.correlation);
  r.returnValue = call.result;
  hold(r, end);
}

void recordNothing() {
  for (auto& e : enabled) e = false;
}

Api::Api(CUpti_CallbackDomain domain, u32 cbid, const char* name) : domain(domain), cbid(cbid), name(name) {
  Thread& t = self();
  outer = t.depth++ == 0;
  if (!outer) return;
  t.correlation = nextCorrelation++;
  tellSubscriber(*this, CUPTI_API_ENTER);
  start = now();
}
Api::~Api() {
  self().depth--;
  if (!outer) return;
  bool runtime = domain == CUPTI_CB_DOMAIN_RUNTIME_API;
  if (runtime && result) lastError = result;
  if (tracing(runtime ? CUPTI_ACTIVITY_KIND_RUNTIME : CUPTI_ACTIVITY_KIND_DRIVER)) recordCall(*this);
  tellSubscriber(*this, CUPTI_API_EXIT);
}

// What the records of all kinds of GPU work have in common, under the same names.
template <class T>
static T placed(CUpti_ActivityKind kind, const Ran& r) {
  T record = blank<T>(kind);
  record.start = stamp(r.start);
  record.end = stamp(r.end);
  record.deviceId = r.s->dev;
  record.contextId = contextId(r.s->dev);
  record.streamId = r.s->id;
  record.correlationId = r.graphId ? numberOfReplay(self().correlation) : self().correlation;
  record.graphNodeId = r.nodeId;
  record.graphId = r.graphId;
  return record;
}

static void recordKernel(const Ran& r) {
  CuptiLock l(cuptiMutex);
  Fate fate = fateOf(r);
  if (fate == Fate::lost) return;
  const Shape& shape = r.w->shape;
  auto k = placed<KernelRecord>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, r);
  if (fate == Fate::misdated) {
    k.start = otherClock();
    k.end = k.start + (u64)((r.end - r.start) / ticksPerNs());
  }
  k.completed = k.end;
  k.name = r.w->func->name.c_str();
  k.registersPerThread = r.w->func->regs;
  k.staticSharedMemory = r.w->func->smem;
  k.dynamicSharedMemory = shape.dyn;
  k.sharedMemoryExecuted = 32768;
  k.gridX = shape.g[0];
  k.gridY = shape.g[1];
  k.gridZ = shape.g[2];
  k.blockX = shape.b[0];
  k.blockY = shape.b[1];
  k.blockZ = shape.b[2];
  k.clusterX = shape.cluster[0];
  k.clusterY = shape.cluster[1];
  k.clusterZ = shape.cluster[2];
  static std::atomic<int64_t> grid{1};
  k.gridId = grid++;
  k.channelID = 8 + r.s->id % 8;
  k.channelType = CUPTI_CHANNEL_TYPE_COMPUTE;
  hold(k, r.end);
}

static void recordPeerCopy(const Ran& r) {
  const Work& w = *r.w;
  auto m = placed<CUpti_ActivityMemcpyPtoP4>(CUPTI_ACTIVITY_KIND_MEMCPY2, r);
  m.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_PTOP;
  m.srcKind = m.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  m.bytes = w.bytes;
  m.srcDeviceId = w.srcDev;
  m.srcContextId = contextId(w.srcDev);
  m.dstDeviceId = w.dstDev;
  m.dstContextId = contextId(w.dstDev);
  m.channelType = CUPTI_CHANNEL_TYPE_ASYNC_MEMCPY;
  hold(m, r.end);
}

static void recordCopy(const Ran& r) {
  const Work& w = *r.w;
  auto m = placed<CUpti_ActivityMemcpy6>(CUPTI_ACTIVITY_KIND_MEMCPY, r);
  m.copyKind = w.kind;
  m.srcKind = w.srcKind;
  m.dstKind = w.dstKind;
  m.flags = CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC;
  m.bytes = w.bytes;
  m.channelType = CUPTI_CHANNEL_TYPE_ASYNC_MEMCPY;
  m.copyCount = 1;
  hold(m, r.end);
}

static void recordFill(const Ran& r) {
  auto m = placed<CUpti_ActivityMemset4>(CUPTI_ACTIVITY_KIND_MEMSET, r);
  m.value = r.w->value;
  m.bytes = r.w->bytes;
  m.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  m.channelType = CUPTI_CHANNEL_TYPE_COMPUTE;
  hold(m, r.end);
}

void record(const Ran& r) {
  if (r.w->op == Op::kernel && (tracing(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) || tracing(CUPTI_ACTIVITY_KIND_KERNEL)))
    recordKernel(r);
  else if (r.w->op == Op::memcpy && tracing(CUPTI_ACTIVITY_KIND_MEMCPY))
    r.w->srcDev == r.w->dstDev ? recordCopy(r) : recordPeerCopy(r);
  else if (r.w->op == Op::memset && tracing(CUPTI_ACTIVITY_KIND_MEMSET))
    recordFill(r);
}

void recordSync(int type, int dev, u32 stream, u32 event, u64 start, u64 end) {
  if (!tracing(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION)) return;
  auto s = blank<CUpti_ActivitySynchronization2>(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
  s.type = (CUpti_ActivitySynchronizationType)type;
  s.start = stamp(start);
  s.end = stamp(end);
  s.correlationId = self().correlation;
  s.contextId = contextId(dev);
  s.streamId = stream;
  s.cudaEventId = event;
  hold(s, end);
}
void recordEvent(int dev, u32 stream, u32 event, u64 when) {
  if (!tracing(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION) && !tracing(CUPTI_ACTIVITY_KIND_CUDA_EVENT)) return;
  auto e = blank<CUpti_ActivityCudaEvent2>(CUPTI_ACTIVITY_KIND_CUDA_EVENT);
  e.correlationId = self().correlation;
  e.contextId = contextId(dev);
  e.streamId = stream;
  e.eventId = event;
  e.deviceId = dev;
  e.deviceTimestamp = stamp(when);
  hold(e, when);
}
}  // namespace fake
using namespace fake;

extern "C" {
CUptiResult cuptiActivityEnable(CUpti_ActivityKind k) {
  if (int e = refused("cuptiActivityEnable")) return (CUptiResult)e;
  if (k >= CUPTI_ACTIVITY_KIND_COUNT) return CUPTI_ERROR_INVALID_KIND;
  if (k == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL && !enabled[k]) sessionBegins();
  enabled[k] = true;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind k) {
  if (k < CUPTI_ACTIVITY_KIND_COUNT) enabled[k] = false;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind k, uint64_t id) {
  self().external[k].push_back(id);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind k, uint64_t* last) {
  auto& v = self().external[k];
  if (v.empty()) return CUPTI_ERROR_QUEUE_EMPTY;
  if (last) *last = v.back();
  v.pop_back();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiSetThreadIdType(CUpti_ActivityThreadIdType t) {
  threadIds = t;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetThreadIdType(CUpti_ActivityThreadIdType* t) {
  *t = threadIds;
  return CUPTI_SUCCESS;
}
}
