// What CUPTI refuses and which records it loses, as the environment asks for it.
#include "cupti_state.h"

#include <algorithm>

namespace fake {
namespace {
// Counted from the moment when records of kernels are switched on; under CUPTI's lock.
struct Session {
  long kernels = 0, named = 0, head = 0, replays = 0, kernelsOfReplay = 0;
} session;
long idleStarts = 0;  // sessions that began after idle time
bool first = true;
}  // namespace

int refused(const char* function) {
  for (auto& [name, code] : cfg().faults.refusals)
    if (name.empty() || name == function) return code;
  return 0;
}

void sessionBegins() {
  u64 busyUntil = 0;  // asked for before CUPTI's lock is taken: work takes the two locks in the other order
  for (int d = 0; d < (int)cfg().visible.size(); d++) busyUntil = std::max(busyUntil, deviceEnd(d));
  CuptiLock l(cuptiMutex);
  session = Session();
  // pytorch#192021: registered anew after idle time, CUPTI 12.6U2 to 13.0 dates as many records at the head of a
  // session by another clock as there were such registrations; the profiler then finds them outside its window.
  double after = cfg().faults.headAfterMs;
  if (!first && after >= 0 && now() > busyUntil + ticks(after * 1e6)) idleStarts++;
  session.head = idleStarts;
  first = false;
}

void replayBegins() {
  CuptiLock l(cuptiMutex);
  session.replays++;
  session.kernelsOfReplay = 0;
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
