// What the parts of the pretended CUPTI share: the records that wait for a buffer, the subscriber, the session.
#pragma once
#include "fake.h"

// kineto reads a prefix of the struct that its own CUPTI brought; CUDA 13.1 made it longer.
#if CUPTI_API_VERSION >= 130100
typedef CUpti_ActivityKernel11 KernelRecord;
#else
typedef CUpti_ActivityKernel10 KernelRecord;
#endif

namespace fake {
extern std::recursive_mutex cuptiMutex;
typedef std::lock_guard<std::recursive_mutex> CuptiLock;

// A record that is told once `ready` has come: CUPTI writes a kernel's record when the kernel is over.
void hold(const void* record, size_t size, u64 ready);
template <class T>
void hold(const T& record, u64 ready) {
  hold(&record, sizeof record, ready);
}

void recordNothing();  // switches all kinds of records off

// Whether the profiler wants no records of this call.
bool hushed(CUpti_CallbackDomain domain, u32 cbid);

void tellSubscriber(Api& call, CUpti_ApiCallbackSite site);

// Faults
int refused(const char* function);
void sessionBegins();         // records of kernels are switched on
void timestampsRegistered();  // the profiler gave a clock of its own
enum class Fate { kept, lost, misdated };
Fate fateOf(const Ran& kernel);
bool unseen(const char* call);
// The correlation ids that a replay's operations and its call are recorded with.
u32 numberOfReplay(u32 own);
u32 numberOfCall(const std::string& call, u32 own);
}  // namespace fake
