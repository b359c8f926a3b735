// The clock: the time stamp counter, which kineto asks too.
#include "fake.h"

#include <time.h>
#include <x86intrin.h>

#include <thread>

namespace fake {
static u64 mono() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}
static const u64 tsc0 = __rdtsc();
static const u64 mono0 = mono();

u64 now() {
  return __rdtsc();
}

double ticksPerNs() {
  static const double rate = [] {
    while (mono() - mono0 < 30000000) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    u64 m = mono(), t = __rdtsc();
    return double(t - tsc0) / double(m - mono0);
  }();
  return rate;
}
u64 ticks(double ns) {
  return (u64)(ns * ticksPerNs());
}

void waitUntil(u64 t) {
  for (;;) {
    u64 n = now();
    if (n >= t) return;
    double ns = (t - n) / ticksPerNs();
    if (ns > 100000)
      std::this_thread::sleep_for(std::chrono::nanoseconds((u64)(ns - 60000)));
    else
      __builtin_ia32_pause();
  }
}

}  // namespace fake
