// Memory of the device: zeroed memory of the host that is not there until it is touched.
#include "fake.h"

#include <sys/mman.h>

#include <iterator>

namespace fake {
static std::map<uintptr_t, Alloc>& allocs() {
  static auto* m = new std::map<uintptr_t, Alloc>;
  return *m;
}
static u64 usedBy[maxDevices];
u64 used(int dev) {
  return usedBy[dev];
}
u64 limit() {
  return cfg().memory;
}
int allocate(void** p, size_t n, int type) {
  Lock l(mu);
  *p = nullptr;
  if (n == 0) return 0;
  size_t size = (n + 0xffff) & ~(size_t)0xffff;
  int dev = currentDevice();
  if (type == cudaMemoryTypeDevice && usedBy[dev] + size > limit()) return 2;
  // 2 MiB aligned, as the allocator of a device does for large blocks; not there until touched.
  size_t align = size >= (2u << 20) ? (2u << 20) : 4096;
  char* raw =
      (char*)mmap(nullptr, size + align, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return 2;
  char* at = (char*)(((uintptr_t)raw + align - 1) & ~(align - 1));
  if (at > raw) munmap(raw, at - raw);
  munmap(at + size, raw + align - at);
  allocs()[(uintptr_t)at] = {(uintptr_t)at, size, type, dev};
  if (type == cudaMemoryTypeDevice) usedBy[dev] += size;
  touch(dev);
  *p = at;
  return 0;
}
// Kernels write nothing, so that what was copied into memory stays there when torch uses the memory for something else.
// Read as a number of elements, it would have torch allocate and copy gigabytes. A read as short as a number's
// therefore finds what was copied there only if no kernel was launched since, or if the copy was of just this number;
// else 0.
namespace {
struct Copied {
  uintptr_t end;
  long launches;
};
std::map<uintptr_t, Copied>& copied() {
  static auto* m = new std::map<uintptr_t, Copied>;
  return *m;
}
void forget(uintptr_t at, uintptr_t end) {
  auto it = copied().lower_bound(at);
  if (it != copied().begin()) {
    auto before = std::prev(it);
    Copied old = before->second;
    if (old.end > at) before->second.end = at;
    if (old.end > end) copied()[end] = old;
  }
  while (it != copied().end() && it->first < end) {
    Copied old = it->second;
    it = copied().erase(it);
    if (old.end > end) copied()[end] = old;
  }
}
}  // namespace

int release(void* p) {
  if (!p) return 0;
  Lock l(mu);
  auto it = allocs().find((uintptr_t)p);
  if (it == allocs().end()) return 1;
  if (it->second.type == cudaMemoryTypeDevice) usedBy[it->second.dev] -= it->second.size;
  munmap((void*)it->second.at, it->second.size);
  forget(it->second.at, it->second.at + it->second.size);
  allocs().erase(it);
  return 0;
}
bool find(const void* p, Alloc* out) {
  Lock l(mu);
  auto it = allocs().upper_bound((uintptr_t)p);
  if (it == allocs().begin()) return false;
  --it;
  if ((uintptr_t)p >= it->second.at + it->second.size) return false;
  *out = it->second;
  return true;
}

void noteCopied(const void* to, size_t n) {
  Alloc home;
  if (!find(to, &home) || home.type != cudaMemoryTypeDevice) return;
  Lock l(mu);
  uintptr_t at = (uintptr_t)to;
  forget(at, at + n);
  copied()[at] = {at + n, launches()};
}
bool isNumberOfOld(const void* from, size_t n) {
  constexpr size_t number = 16;
  Alloc home;
  if (n > number || !find(from, &home) || home.type != cudaMemoryTypeDevice) return false;
  Lock l(mu);
  uintptr_t at = (uintptr_t)from;
  auto it = copied().upper_bound(at);
  if (it == copied().begin()) return true;
  --it;
  bool same = it->first == at && it->second.end == at + n;
  bool fresh = it->second.end >= at + n && it->second.launches == launches();
  return !same && !fresh;
}
}  // namespace fake
