// The few functions of NVML that torch and this project ask for. A library of its own: libnvidia-ml.so.1.
//
// It comes in three ages: OLD (driver 450) has no process list of version 3 and knows clock reasons only as throttle
// reasons, NEW has dropped the older name, and the ordinary one has both.
#include <dirent.h>
#include <dlfcn.h>
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {
enum {
  ok = 0,
  invalidArgument = 2,
  notSupported = 3,
  noPermission = 4,
  notFound = 6,
  insufficientSize = 7,
  gpuIsLost = 15
};

// Index + 1 for a device; beyond that many, the slice of it.
typedef void* Device;
constexpr long slice = 1000;

unsigned number(const char* name, unsigned otherwise) {
  const char* v = getenv(name);
  return v && *v ? (unsigned)strtoul(v, nullptr, 0) : otherwise;
}
int count() {
  return (int)number("FAKEGPU_COUNT", 1);
}
bool mig() {
  return number("FAKEGPU_MIG", 0) != 0;
}
long indexOf(Device d) {
  return ((long)d - 1) % slice;
}
bool isSlice(Device d) {
  return (long)d > slice;
}
Device sliceOf(long index) {
  return (Device)(index + 1 + slice);
}
// As in config.cpp and device.cpp. The name of a device that is cut into slices is not the name of the slice.
std::string uuid(Device d) {
  char text[64];
  const char* form = isSlice(d) ? "MIG-fa4e0000-%04x-4%03x-8000-00000000%04lx"
                     : mig()    ? "GPU-fa4e0001-%04x-4%03x-8000-00000000%04lx"
                                : "GPU-fa4e0000-%04x-4%03x-8000-00000000%04lx";
  snprintf(text, sizeof text, form, CHECKOUT, number("FAKEGPU_MACHINE", 0) & 0xfff, indexOf(d));
  return text;
}

// FAKEGPU_NVML_ERROR=[function:]code,...
int refused(const char* function) {
  const char* spec = getenv("FAKEGPU_NVML_ERROR");
  for (const char* at = spec; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : nullptr) {
    std::string one(at, strcspn(at, ","));
    size_t colon = one.find(':');
    if (colon == std::string::npos) return atoi(one.c_str());
    if (one.substr(0, colon) == function) return atoi(one.c_str() + colon + 1);
  }
  return ok;
}
bool lost() {
  static auto* ask = (int (*)())dlsym(RTLD_DEFAULT, "fakegpu_lost");
  return ask && ask();
}
int copy(const std::string& from, char* to, unsigned room) {
  if (from.size() + 1 > room) return insufficientSize;
  memcpy(to, from.c_str(), from.size() + 1);
  return ok;
}

// Other processes of this device: those that the pretended driver noted down, and as many more as
// FAKEGPU_NVML_PROCESSES says; none at all with "none", as in a container.
template <class Add>
void forEachProcess(Device d, Add add) {
  const char* spec = getenv("FAKEGPU_NVML_PROCESSES");
  if (spec && !strcmp(spec, "none")) return;
  if (DIR* dir = opendir("/dev/shm/fakegpu")) {
    while (dirent* e = readdir(dir)) {
      long device, pid;
      if (sscanf(e->d_name, "%ld.%ld", &device, &pid) == 2 && device == indexOf(d) && kill((pid_t)pid, 0) == 0)
        add((unsigned)pid);
    }
    closedir(dir);
  }
  for (unsigned i = number("FAKEGPU_NVML_PROCESSES", 0); i > 0; i--) add(4242 + i);
}
struct Process1 {
  unsigned pid;
  unsigned long long used;
};
struct Process {
  unsigned pid;
  unsigned long long used;
  unsigned gpuInstance, computeInstance;
};
template <class P>
int processes(Device d, unsigned* n, P* p) {
  unsigned room = *n, here = 0;
  forEachProcess(d, [&](unsigned pid) {
    if (p && here < room) {
      p[here] = P();
      p[here].pid = pid;
      p[here].used = 1ull << 30;
    }
    here++;
  });
  *n = here;
  return here && (room < here || !p) ? insufficientSize : ok;
}
}  // namespace

#define REFUSALS \
  if (int code = refused(__func__)) return code
#define DEVICE \
  REFUSALS;    \
  if (lost()) return gpuIsLost
#define WHOLE \
  DEVICE;     \
  if (isSlice(d)) return notSupported

extern "C" {
int nvmlInit_v2() {
  REFUSALS;
  return ok;
}
int nvmlInit() {
  REFUSALS;
  return ok;
}
int nvmlInitWithFlags(unsigned) {
  REFUSALS;
  return ok;
}
int nvmlShutdown() {
  return ok;
}
const char* nvmlErrorString(int code) {
  switch (code) {
    case ok: return "Success";
    case invalidArgument: return "Invalid Argument";
    case notSupported: return "Not Supported";
    case noPermission: return "Insufficient Permissions";
    case notFound: return "Not Found";
    case insufficientSize: return "Insufficient Size";
    case gpuIsLost: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
  }
  return "Unknown Error";
}
int nvmlSystemGetDriverVersion(char* s, unsigned n) {
  REFUSALS;
  return copy("580.65.06", s, n);
}
int nvmlSystemGetNVMLVersion(char* s, unsigned n) {
  REFUSALS;
  return copy("13.580.65.06", s, n);
}
int nvmlSystemGetCudaDriverVersion_v2(int* v) {
  REFUSALS;
  *v = 13000;
  return ok;
}
int nvmlSystemGetCudaDriverVersion(int* v) {
  return nvmlSystemGetCudaDriverVersion_v2(v);
}
int nvmlDeviceGetCount_v2(unsigned* n) {
  REFUSALS;
  *n = count();
  return ok;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned i, Device* d) {
  DEVICE;
  if ((int)i >= count()) return invalidArgument;
  *d = (Device)(i + 1ul);
  return ok;
}
int nvmlDeviceGetHandleByUUID(const char* text, Device* d) {
  DEVICE;
  for (long i = 0; i < count(); i++) {
    if (uuid((Device)(i + 1)) == text) return *d = (Device)(i + 1), ok;
    if (mig() && uuid(sliceOf(i)) == text) return *d = sliceOf(i), ok;
  }
  return notFound;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, Device* d) {
  DEVICE;
  unsigned domain, b, slot;
  if (sscanf(bus, "%x:%x:%x", &domain, &b, &slot) != 3 || b < 4 || (int)b - 4 >= count()) return notFound;
  *d = (Device)(b - 3ul);
  return ok;
}
int nvmlDeviceGetUUID(Device d, char* s, unsigned n) {
  DEVICE;
  return copy(uuid(d), s, n);
}
int nvmlDeviceGetName(Device d, char* s, unsigned n) {
  DEVICE;
  static auto* name = (const char* (*)())dlsym(RTLD_DEFAULT, "fakegpu_name");
  return copy(name ? name() : "NVIDIA GPU", s, n);
}
int nvmlDeviceGetIndex(Device d, unsigned* i) {
  WHOLE;
  *i = (unsigned)indexOf(d);
  return ok;
}
int nvmlDeviceGetMigMode(Device d, unsigned* current, unsigned* pending) {
  WHOLE;
  *current = *pending = mig();
  return ok;
}
int nvmlDeviceIsMigDeviceHandle(Device d, unsigned* is) {
  DEVICE;
  *is = isSlice(d);
  return ok;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device d, Device* whole) {
  DEVICE;
  if (!isSlice(d)) return invalidArgument;
  *whole = (Device)(indexOf(d) + 1);
  return ok;
}
#ifndef NVML_NEW
int nvmlDeviceGetCurrentClocksThrottleReasons(Device d, unsigned long long* r) {
  WHOLE;
  *r = number("FAKEGPU_NVML_THROTTLE", 0);
  return ok;
}
#endif
#ifndef NVML_OLD
int nvmlDeviceGetCurrentClocksEventReasons(Device d, unsigned long long* r) {
  WHOLE;
  *r = number("FAKEGPU_NVML_THROTTLE", 0);
  return ok;
}
#endif
int nvmlDeviceGetClockInfo(Device d, unsigned kind, unsigned* mhz) {
  WHOLE;
  *mhz = kind == 2 ? 2619 : 1755;
  return ok;
}
int nvmlDeviceGetMaxClockInfo(Device d, unsigned kind, unsigned* mhz) {
  WHOLE;
  *mhz = kind == 2 ? 2619 : 1980;
  return ok;
}
int nvmlDeviceGetComputeMode(Device d, unsigned* mode) {
  WHOLE;
  *mode = number("FAKEGPU_NVML_COMPUTE_MODE", 0);
  return ok;
}
int nvmlDeviceGetComputeRunningProcesses(Device d, unsigned* n, Process1* p) {
  DEVICE;
  return processes(d, n, p);
}
int nvmlDeviceGetComputeRunningProcesses_v2(Device d, unsigned* n, Process* p) {
  DEVICE;
  return processes(d, n, p);
}
#ifndef NVML_OLD
int nvmlDeviceGetComputeRunningProcesses_v3(Device d, unsigned* n, Process* p) {
  DEVICE;
  return processes(d, n, p);
}
#endif
int nvmlDeviceGetNvLinkRemoteDeviceType(Device, unsigned, int*) {
  return notSupported;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device, unsigned, void*) {
  return notSupported;
}
int nvmlDeviceGetGpuFabricInfoV(Device, void*) {
  return notSupported;
}
int nvmlDeviceGetP2PStatus(Device, Device, int, int* s) {
  *s = 0;
  return ok;
}
struct Memory {
  unsigned long long total, free, used;
};
int nvmlDeviceGetMemoryInfo(Device, Memory* m) {
  REFUSALS;
  if (lost()) return gpuIsLost;
  *m = {84939481088ull, 84000000000ull, 939481088ull};
  return ok;
}
struct Utilization {
  unsigned gpu, memory;
};
int nvmlDeviceGetUtilizationRates(Device d, Utilization* u) {
  WHOLE;
  *u = {0, 0};
  return ok;
}
int nvmlDeviceGetTemperature(Device d, int, unsigned* t) {
  WHOLE;
  *t = 40;
  return ok;
}
int nvmlDeviceGetPowerUsage(Device d, unsigned* mw) {
  WHOLE;
  *mw = 90000;
  return ok;
}
int nvmlDeviceGetNumaNodeId(Device, unsigned*) {
  return notSupported;
}
}
