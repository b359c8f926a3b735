// What CUPTI refuses and which records it loses, as the environment asks for it.
#include "cupti_state.h"

#include <algorithm>

namespace fake {
namespace {
// Counted from the moment when records of kernels are switched on; under CUPTI's lock.
struct Session {
  long kernels = 0, named = 0, head = 0, replays = 0, kernelsOfReplay = 0;
  u32 firstReplay = 0;
} session;
long sessions = 0;
// The calls of the last replay and of the one before, whether a session was open or not.
u32 lastReplay = 0, replayBefore = 0;
// Registrations of a callback for time stamps, and those before which the devices had been idle since the last one.
long registered = 0, registeredAfterIdle = 0;
}  // namespace

int refused(const char* function) {
  for (auto& [name, code] : cfg().faults.refusals)
    if (name.empty() || name == function) return code;
  return 0;
}

void sessionBegins() {
  CuptiLock l(cuptiMutex);
  session = Session();
  sessions++;
  session.head = registeredAfterIdle;
}

// pytorch#192021: kineto registers its callback anew for each session. In CUPTI 12.6U2 to 13.0 each registration but the
// first adds one to the records of kernels at the head of every session that are dated by another clock, which the
// profiler then finds outside its window; not where the GPU was kept busy between the two registrations.
void timestampsRegistered() {
  u64 idle = longestIdle();  // asked for before CUPTI's lock is taken: work takes the two locks in the other order
  CuptiLock l(cuptiMutex);
  double after = cfg().faults.headAfterMs;
  if (registered++ && after >= 0 && idle >= ticks(after * 1e6)) registeredAfterIdle++;
}

void replayBegins() {
  CuptiLock l(cuptiMutex);
  session.replays++;
  session.kernelsOfReplay = 0;
  replayBefore = lastReplay;
  lastReplay = correlation();
  if (session.replays == 1) session.firstReplay = lastReplay;
}

// CUPTI before 13.1 Update 1: "incorrect correlation IDs for cudaGraphLaunch API calls and their associated kernel launches
// in profiling sessions after the first session". Which ones these are the release notes do not say.
u32 numberOfReplay(u32 own) {
  const std::string& how = cfg().faults.graphNumbers;
  if (sessions < 2) return own;
  if (how == "previous") return replayBefore;
  if (how == "next") return own + 1;
  return how == "shared" ? session.firstReplay : own;
}
u32 numberOfCall(const std::string& call, u32 own) {
  return call == "cudaGraphLaunch" && cfg().faults.graphNumbers == "shared" ? numberOfReplay(own) : own;
}

Fate fateOf(const Ran& kernel) {
  const Faults& f = cfg().faults;
  const std::string& name = kernel.w->func->name;
  long index = session.kernels++;
  bool lost = index >= f.dropSkip && index < f.dropSkip + f.dropCount;
  lost |= f.dropNamed.in(name) && session.named++ < f.dropNamed.count;
  lost |= f.dropEvery > 0 && (index + 1) % f.dropEvery == 0;
  if (kernel.graphId) {
    long ofReplay = ++session.kernelsOfReplay;
    lost |= f.graphsUnseen || (session.replays == f.graphReplay && ofReplay == std::max(1l, f.graphKernel));
  }
  if (lost) return Fate::lost;
  return f.headAfterMs >= 0 && index < session.head ? Fate::misdated : Fate::kept;
}

bool unseen(const char* call) {
  const auto& names = cfg().faults.unseenCalls;
  return std::find(names.begin(), names.end(), call) != names.end();
}
}  // namespace fake
