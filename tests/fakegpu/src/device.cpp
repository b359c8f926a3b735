// Devices, their streams, and whether they still work.
#include "fake.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace fake {
std::recursive_mutex mu;
thread_local int lastError = 0;

int& currentDevice() {
  static thread_local int d = 0;
  return d;
}
static bool touchedDev[maxDevices];
// Who has a context, for the fake NVML: a file per process and device in /dev/shm/fakegpu.
static void announce(int dev) {
  mkdir("/dev/shm/fakegpu", 0777);
  int physical = cfg().visible.empty() ? dev : cfg().visible[dev];
  std::string path = "/dev/shm/fakegpu/" + std::to_string(physical) + "." + std::to_string(getpid());
  int f = open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
  if (f >= 0) close(f);
}
static struct Leave {
  ~Leave() {
    for (int d = 0; d < maxDevices; d++)
      if (touchedDev[d])
        unlink(("/dev/shm/fakegpu/" + std::to_string(cfg().visible.empty() ? d : cfg().visible[d]) + "." +
                std::to_string(getpid()))
                   .c_str());
  }
} leave;
void touch(int dev) {
  if (touchedDev[dev]) return;
  touchedDev[dev] = true;
  announce(dev);
}
bool touched(int dev) {
  return touchedDev[dev];
}
u32 contextId(int dev) {
  return dev + 1;
}

std::vector<CUstream_st*>& streams() {
  static auto* v = new std::vector<CUstream_st*>;
  return *v;
}
CUstream_st* nullStream(int dev) {
  static CUstream_st* null[maxDevices];
  Lock l(mu);
  if (!null[dev]) {
    null[dev] = new CUstream_st;
    null[dev]->dev = dev;
    null[dev]->id = 7;
    streams().push_back(null[dev]);
  }
  return null[dev];
}
CUstream_st* streamOf(cudaStream_t s) {
  if ((uintptr_t)s <= 2) return nullStream(currentDevice());
  return s;
}
CUstream_st* newStream(unsigned flags, int priority) {
  Lock l(mu);
  static u32 next[maxDevices];
  int dev = currentDevice();
  auto* s = new CUstream_st;
  s->dev = dev;
  s->id = 13 + 4 * next[dev]++;
  s->flags = flags;
  s->priority = priority;
  streams().push_back(s);
  touch(dev);
  return s;
}
u64 deviceEnd(int dev) {
  Lock l(mu);
  u64 end = 0;
  for (auto* s : streams())
    if (s->dev == dev) end = std::max(end, s->end);
  return end;
}

// ---- what is wrong with the device

static std::atomic<int> sticky{0};
static int pendingSticky = 0;
static u64 pendingAt = 0;
static long failing = 0;
static std::atomic<long> launched{0};

void setSticky(int code) {
  sticky = code;
}
long launches() {
  return launched;
}
bool lost() {
  long after = cfg().faults.lostAfter;
  return after > 0 && launched >= after;
}
void countLaunch(const CUfunc_st& f, u64 end) {
  launched++;
  const Faults& faults = cfg().faults;
  if (!faults.failKernel.in(f.name) || ++failing != faults.failKernel.count) return;
  pendingSticky = faults.failCode;
  pendingAt = end;
}
int broken() {
  if (!sticky && pendingSticky && now() >= pendingAt) sticky = pendingSticky;
  return sticky;
}
int gate() {
  if (lost()) return cudaErrorDevicesUnavailable;
  if (int code = broken()) return code;
  return cfg().faults.initError;
}
// Without a driver, or with one that does not fit, there is not even a number of devices. Other errors, such as a
// device in exclusive use, are told by the first call that needs a context.
int countError() {
  switch (int code = cfg().faults.initError) {
    case cudaErrorInitializationError:
    case cudaErrorStubLibrary:
    case cudaErrorInsufficientDriver:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorNoDevice:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorUnknown: return code;
  }
  return cfg().visible.empty() ? cudaErrorNoDevice : 0;
}

// ---- properties

void uuid(int dev, char out[16]) {
  memset(out, 0, 16);
  int p = cfg().visible.empty() ? dev : cfg().visible[dev];
  unsigned char high = machine() >> 8, low = machine() & 255;
  // As in config.cpp and nvml.cpp.
  const unsigned char head[] = {0xfa, 0x4e, 0, 0, CHECKOUT >> 8, CHECKOUT & 255, (unsigned char)(0x40 | high), low, 0x80};
  memcpy(out, head, sizeof head);
  out[14] = (char)(p >> 8);
  out[15] = (char)p;
}
int deviceAttribute(int attr, int dev, int* value) {
  const Model& c = cfg().model;
  if (dev < 0 || dev >= (int)cfg().visible.size()) return 101;
  switch (attr) {
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: *value = 1024; break;
    case cudaDevAttrMaxBlockDimZ: *value = 64; break;
    case cudaDevAttrMaxGridDimX: *value = 2147483647; break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: *value = 65535; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 49152; break;
    case cudaDevAttrTotalConstantMemory: *value = 65536; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMaxPitch: *value = 2147483647; break;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = 65536; break;
    case cudaDevAttrClockRate: *value = c.clockMHz * 1000; break;
    case cudaDevAttrMemoryClockRate: *value = c.memoryClockMHz * 1000; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = c.busBits; break;
    case cudaDevAttrTextureAlignment: *value = 512; break;
    case cudaDevAttrMultiProcessorCount: *value = c.sms; break;
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrEccEnabled:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrGlobalL1CacheSupported:
    case cudaDevAttrLocalL1CacheSupported:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrComputePreemptionSupported:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrMemoryPoolsSupported: *value = 1; break;
    case cudaDevAttrPciBusId: *value = 4 + dev; break;
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrPciDomainId: *value = 0; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = c.major == 8 && c.minor > 0 ? 1536 : 2048; break;
    case cudaDevAttrL2CacheSize: *value = (int)(c.l2MiB * (1 << 20)); break;
    case cudaDevAttrAsyncEngineCount: *value = 3; break;
    case cudaDevAttrComputeCapabilityMajor: *value = c.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = c.minor; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = c.major >= 9 ? 233472 : 167936; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = c.major >= 9 ? 232448 : 166912; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = 32; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = 1024; break;
    case cudaDevAttrClusterLaunch: *value = c.major >= 9; break;
    default: *value = 0;
  }
  return 0;
}

void* symbol(const char* name) {
  static void* self = [] {
    Dl_info info;
    dladdr((void*)&symbol, &info);
    return dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_NOW);
  }();
  return dlsym(self, name);
}

int unsupported(const char* name, int code) {
  if (cfg().verbose) fprintf(stderr, "fakegpu: %s is not there\n", name);
  return code;
}
}  // namespace fake

extern "C" {
void fakegpu_set_sticky(int code) {
  fake::setSticky(code);
}
// The pretended NVML asks.
int fakegpu_lost() {
  return fake::lost();
}
const char* fakegpu_name() {
  return fake::cfg().name.c_str();
}
}
