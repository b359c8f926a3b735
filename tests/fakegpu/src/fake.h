// fakegpu: a CUDA device that does nothing. Shared state: clock, streams, events, graphs, memory, kernels, CUPTI.
#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cupti.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "config.h"

typedef uint64_t u64;
typedef uint32_t u32;

// A kernel: registered by a fat binary's stub, or found in a module. Also CUkernel and cudaKernel_t.
struct CUfunc_st {
  std::string name;
  int regs = 32, smem = 0, maxDyn = 49152, maxThreads = 1024;
  int nparams = 0;
};
struct CUmod_st {
  std::map<std::string, CUfunc_st*> funcs;
  std::map<std::string, int> regs;
  bool elf = false;
};
struct CUctx_st {
  int dev;
};

struct Shape {
  u32 g[3] = {1, 1, 1}, b[3] = {1, 1, 1};
  u32 dyn = 0;
  u32 cluster[3] = {0, 0, 0};
  double ns = 0;  // how long it runs, where the caller knows
};

enum class Op { kernel, memcpy, memset, host, empty, child };
struct Work {  // one thing that a stream does
  Op op = Op::empty;
  CUfunc_st* func = nullptr;
  Shape shape;
  void* dst = nullptr;
  const void* src = nullptr;
  size_t bytes = 0, dpitch = 0, spitch = 0, width = 0, height = 0;
  u32 value = 0;
  int elem = 1;
  int kind = 0, srcKind = 0, dstKind = 0, srcDev = 0, dstDev = 0;
  void (*hostFn)(void*) = nullptr;
  void* hostArg = nullptr;
};
struct CUgraphNode_st {
  Work work;
  std::vector<CUgraphNode_st*> deps;
  u32 index = 0;
  struct CUstream_st* stream = nullptr;  // where it was captured
  struct CUgraph_st* graph = nullptr;
};
struct CUgraph_st {
  u32 id = 0;
  std::vector<CUgraphNode_st*> nodes;
  std::vector<std::pair<void (*)(void*), void*>> owned;
};
struct CUgraphExec_st {
  u32 id = 0;
  CUgraph_st* graph = nullptr;
  struct CUstream_st* origin = nullptr;
  std::vector<CUgraphNode_st*> nodes;
};
struct Capture {
  u64 id;
  CUgraph_st* graph;
  struct CUstream_st* origin;
  int mode;
  bool broken = false, over = false;
  unsigned long thread;
};
struct CUstream_st {
  int dev = 0;
  u32 id = 0;
  unsigned flags = 0;
  int priority = 0;
  u64 end = 0;
  std::deque<u64> pending;  // ends of the work that was queued and not yet over when somebody last looked
  Capture* cap = nullptr;
  std::vector<CUgraphNode_st*> capDeps;
  bool dead = false;
};
struct CUevent_st {
  unsigned flags = 0;
  u32 id = 0;
  int dev = 0;
  bool recorded = false;
  u64 time = 0;
  u32 streamId = 0;
  Capture* cap = nullptr;
  std::vector<CUgraphNode_st*> capDeps;
};

namespace fake {
constexpr int maxDevices = 64;
extern std::recursive_mutex mu;
typedef std::lock_guard<std::recursive_mutex> Lock;

u64 now();  // ticks of the time stamp counter
double ticksPerNs();
u64 ticks(double ns);
void waitUntil(u64 t);
u64 stamp(u64 t);  // a tick in the unit of CUPTI's time stamps

int& currentDevice();  // of this thread
CUstream_st* streamOf(cudaStream_t s);
CUstream_st* newStream(unsigned flags, int priority);
CUstream_st* nullStream(int dev);
std::vector<CUstream_st*>& streams();
u64 deviceEnd(int dev);
u64 longestIdle();  // for which no device had work since this was asked last
u32 contextId(int dev);
void touch(int dev);  // the primary context is there from now on
bool touched(int dev);

// Do, or in a capture note, a piece of work. Returns an error code (same values for runtime and driver).
int submit(CUstream_st* s, Work w, u64* end = nullptr);
// What is wrong with the device, 0 if nothing: for calls that need a context; for those that need a device; the sticky
// error alone.
int gate();
int countError();
int broken();
void setSticky(int code);
bool lost();
long launches();  // kernels so far
void countLaunch(const CUfunc_st& f, u64 end);

int allocate(void** p, size_t n, int type);
int release(void* p);
struct Alloc {
  uintptr_t at;
  size_t size;
  int type, dev;  // type: cudaMemoryType
};
bool find(const void* p, Alloc* out);
void noteCopied(const void* to, size_t n);
bool isNumberOfOld(const void* from, size_t n);
u64 used(int dev);
u64 limit();
int deviceAttribute(int attr, int dev, int* value);
void uuid(int dev, char out[16]);

int captureBroken(CUstream_st* s);
int launchGraph(CUgraphExec_st* e, CUstream_st* s);
CUfunc_st* makeKernel(const std::string& name);
int launch(CUfunc_st* f, const Shape& shape, CUstream_st* s, void** args = nullptr);
double memoryNs(double bytes);
double bytesOfElementwise(const std::string& name, void** args);
double durationNs(const Work& w);
void loadImage(CUmod_st* m, const void* image);

// CUPTI's side
struct Api {  // one call of the runtime or driver API; nested ones are not told, as with CUPTI
  Api(CUpti_CallbackDomain domain, u32 cbid, const char* name);
  ~Api();
  template <class T>
  T ret(T code) {
    result = (int)code;
    return code;
  }
  CUpti_CallbackDomain domain;
  u32 cbid;
  const char* name;
  int result = 0;
  bool outer;
  u64 start;
};
u32 correlation();
bool tracing(CUpti_ActivityKind k);
struct Ran {  // GPU work with its place in time
  const Work* w;
  CUstream_st* s;
  u64 start, end;
  u32 graphId;
  u64 nodeId;
};
void record(const Ran& r);
void replayBegins();
void recordSync(int type, int dev, u32 stream, u32 event, u64 start, u64 end);
void recordEvent(int dev, u32 stream, u32 event, u64 when);
void* symbol(const char* name);
const char* errorName(int code);
const char* errorText(int code);
int unsupported(const char* name, int code);
extern thread_local int lastError;
}  // namespace fake
