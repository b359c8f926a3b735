// CUPTI's callbacks on calls, and what it says about itself.
#include "cupti_state.h"

#include <set>

namespace fake {
namespace {
struct Subscriber {
  CUpti_CallbackFunc fn = nullptr;
  void* data = nullptr;
  bool live = false;
  std::set<std::pair<int, u32>> ids;
  std::set<int> domains;
} subscriber;
std::atomic<bool> subscribed{false};

typedef std::set<std::pair<int, u32>> Calls;
Calls& unwanted() {
  static auto* s = new Calls;
  return *s;
}
CUptiResult want(CUpti_CallbackDomain domain, CUpti_CallbackId id, bool on) {
  CuptiLock l(cuptiMutex);
  if (on)
    unwanted().erase({domain, id});
  else
    unwanted().insert({domain, id});
  return CUPTI_SUCCESS;
}
void subscriptionChanged() {
  subscribed = subscriber.live && (!subscriber.ids.empty() || !subscriber.domains.empty());
}

struct Call {
  u32 cbid;
  const char* name;
};
const Call runtimeCalls[] = {
#define X(name, id) {id, name},
#include "gen_rt_cbid.inc"
};
const Call driverCalls[] = {
#include "gen_cu_cbid.inc"
#undef X
};
template <size_t N>
const char* nameOf(const Call (&calls)[N], u32 id) {
  for (auto& call : calls)
    if (call.cbid == id) return call.name;
  return nullptr;
}
}  // namespace

bool hushed(CUpti_CallbackDomain domain, u32 cbid) {
  return unwanted().count({domain, cbid}) != 0;
}

void tellSubscriber(Api& a, CUpti_ApiCallbackSite site) {
  if (!subscribed) return;
  CUpti_CallbackFunc fn;
  {
    CuptiLock l(cuptiMutex);
    if (!subscriber.live || (!subscriber.domains.count(a.domain) && !subscriber.ids.count({a.domain, a.cbid}))) return;
    fn = subscriber.fn;
  }
  CUpti_CallbackData d;
  memset(&d, 0, sizeof d);
  u64 data = 0;
  d.callbackSite = site;
  d.functionName = a.name;
  d.functionReturnValue = &a.result;
  d.correlationId = correlation();
  d.correlationData = &data;
  d.contextUid = contextId(currentDevice());
  fn(subscriber.data, a.domain, a.cbid, &d);
}
}  // namespace fake
using namespace fake;

extern "C" {
CUptiResult cuptiGetVersion(u32* v) {
  *v = cfg().cuptiVersion ? cfg().cuptiVersion : CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute, size_t*, void*) {
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetAttribute(CUpti_ActivityAttribute, size_t*, void*) {
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnableCudaEventDeviceTimestamps(uint8_t) {
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId id, uint8_t on) {
  return want(CUPTI_CB_DOMAIN_RUNTIME_API, id, on);
}
CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId id, uint8_t on) {
  return want(CUPTI_CB_DOMAIN_DRIVER_API, id, on);
}
CUptiResult cuptiActivityFlushPeriod(u32) {
  return CUPTI_SUCCESS;
}
CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* s, CUpti_CallbackFunc fn, void* data) {
  if (int e = refused("cuptiSubscribe")) return (CUptiResult)e;
  CuptiLock l(cuptiMutex);
  if (subscriber.live) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  subscriber = Subscriber();
  subscriber.fn = fn;
  subscriber.data = data;
  subscriber.live = true;
  *s = (CUpti_SubscriberHandle)&subscriber;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle) {
  CuptiLock l(cuptiMutex);
  subscriber.live = false;
  subscriptionChanged();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiEnableCallback(u32 on, CUpti_SubscriberHandle, CUpti_CallbackDomain d, CUpti_CallbackId id) {
  CuptiLock l(cuptiMutex);
  if (on)
    subscriber.ids.insert({d, id});
  else
    subscriber.ids.erase({d, id});
  subscriptionChanged();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiEnableDomain(u32 on, CUpti_SubscriberHandle, CUpti_CallbackDomain d) {
  CuptiLock l(cuptiMutex);
  if (on)
    subscriber.domains.insert(d);
  else
    subscriber.domains.erase(d);
  subscriptionChanged();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiFinalize(void) {
  CuptiLock l(cuptiMutex);
  recordNothing();
  subscriber.live = false;
  subscriptionChanged();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain d, u32 id, const char** name) {
  *name = d == CUPTI_CB_DOMAIN_RUNTIME_API  ? nameOf(runtimeCalls, id)
          : d == CUPTI_CB_DOMAIN_DRIVER_API ? nameOf(driverCalls, id)
                                            : nullptr;
  return *name ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}
CUptiResult cuptiGetResultString(CUptiResult r, const char** s) {
  switch ((int)r) {
#define X(code, name) \
  case code: *s = name; return CUPTI_SUCCESS;
#include "gen_cupti_errors.inc"
#undef X
  }
  return CUPTI_ERROR_INVALID_PARAMETER;
}
CUptiResult cuptiGetLastError(void) {
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetDeviceId(CUcontext c, u32* d) {
  *d = c ? c->dev : currentDevice();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetContextId(CUcontext c, u32* id) {
  *id = contextId(c ? c->dev : currentDevice());
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetStreamId(CUcontext, CUstream s, u32* id) {
  *id = streamOf(s)->id;
  return CUPTI_SUCCESS;
}
}
