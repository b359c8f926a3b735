// Reading the environment. What an earlier reading returned stays valid: other threads may be holding it.
#include "config.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace fake {
namespace {
const Model models[] = {
    {"h100", "NVIDIA H100 80GB HBM3", 9, 0, 132, 79.1, 50, 1980, 2619, 5120, 67, 67, 495, 989, 1979, 3350},
    {"a100", "NVIDIA A100-SXM4-80GB", 8, 0, 108, 79.1, 40, 1410, 1593, 5120, 19.5, 19.5, 156, 312, 312, 2039},
};

std::string text(const char* name) {
  const char* v = getenv(name);
  return v ? v : "";
}

double number(const char* name, double otherwise) {
  std::string v = text(name);
  return v.empty() ? otherwise : atof(v.c_str());
}

std::vector<std::string> list(const std::string& all) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < all.size();) {
    size_t comma = std::min(all.find(',', at), all.size());
    parts.push_back(all.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

// "a::b:3" is the name "a::b" and 3; without a number behind the last colon, `otherwise`.
std::pair<std::string, long> counted(const std::string& v, long otherwise) {
  size_t colon = v.rfind(':');
  bool has = colon != std::string::npos && colon + 1 < v.size() &&
             v.find_first_not_of("0123456789", colon + 1) == std::string::npos;
  return has ? std::make_pair(v.substr(0, colon), atol(v.c_str() + colon + 1)) : std::make_pair(v, otherwise);
}

Named named(const char* name, long otherwise) {
  auto [part, count] = counted(text(name), otherwise);
  return {part, count};
}

// The index that one entry of CUDA_VISIBLE_DEVICES stands for: a number, a UUID or its beginning; else -1.
int deviceOf(const std::string& entry, int count) {
  if (entry.rfind("GPU-", 0) == 0 || entry.rfind("MIG-", 0) == 0) {
    for (int i = 0; i < count; i++) {
      char uuid[64];
      snprintf(uuid, sizeof uuid, "%.4sfa4e0000-%04x-4%03x-8000-00000000%04x", entry.c_str(), CHECKOUT, machine(), i);
      if (std::string(uuid).rfind(entry, 0) == 0) return i;
    }
    return -1;
  }
  bool digits = !entry.empty() && entry.find_first_not_of("0123456789 ") == std::string::npos;
  int index = digits ? atoi(entry.c_str()) : -1;
  return index < count ? index : -1;
}

std::vector<int> visibleDevices(int count) {
  std::vector<int> all;
  const char* asked = getenv("CUDA_VISIBLE_DEVICES");
  if (!asked) {
    for (int i = 0; i < count; i++) all.push_back(i);
    return all;
  }
  for (const std::string& entry : list(asked)) {
    int index = deviceOf(entry, count);
    if (index < 0) break;  // what stands behind an entry that is not there does not count, as with CUDA
    all.push_back(index);
  }
  return all;
}

Faults readFaults() {
  Faults f;
  if (std::string drop = text("FAKEGPU_CUPTI_DROP"); !drop.empty()) {
    if (sscanf(drop.c_str(), "%ld:%ld", &f.dropSkip, &f.dropCount) != 2) {
      f.dropSkip = 0;
      f.dropCount = atol(drop.c_str());
    }
  }
  f.dropNamed = named("FAKEGPU_CUPTI_DROP_NAME", 1);
  f.dropEvery = (long)number("FAKEGPU_CUPTI_DROP_EVERY", 0);
  f.headAfterMs = number("FAKEGPU_CUPTI_HEAD", -1);
  if (std::string graph = text("FAKEGPU_CUPTI_DROP_GRAPH"); graph == "all")
    f.graphsUnseen = true;
  else
    sscanf(graph.c_str(), "%ld:%ld", &f.graphReplay, &f.graphKernel);
  f.graphNumbers = text("FAKEGPU_CUPTI_GRAPH_NUMBERS");
  f.unseenCalls = list(text("FAKEGPU_CUPTI_DROP_CALLS"));
  f.bufferRecords = (long)number("FAKEGPU_CUPTI_BUFFER", 0);
  for (const std::string& one : list(text("FAKEGPU_CUPTI_ERROR"))) {
    size_t colon = one.find(':');
    bool forOne = colon != std::string::npos;
    f.refusals.push_back({forOne ? one.substr(0, colon) : "", atoi(one.c_str() + (forOne ? colon + 1 : 0))});
  }
  f.failKernel = named("FAKEGPU_FAIL_KERNEL", 1);
  f.refuseKernel = named("FAKEGPU_REFUSE_KERNEL", 0);
  f.failCode = (int)number("FAKEGPU_FAIL_CODE", 700);
  f.initError = (int)number("FAKEGPU_INIT_ERROR", 0);
  f.lostAfter = (long)number("FAKEGPU_LOST_AFTER", 0);
  f.mig = number("FAKEGPU_MIG", 0) != 0;
  return f;
}

Model readModel(bool mig) {
  std::string key = text("FAKEGPU_DEVICE");
  Model m = models[0];
  for (const Model& one : models)
    if (key == one.key) m = one;
  if (!key.empty() && key != m.key)
    fprintf(stderr, "fakegpu: FAKEGPU_DEVICE=%s is not known, %s it is\n", key.c_str(), m.key);
  if (mig) {  // the smallest slice, 1g.10gb: a seventh of the compute, an eighth of the memory
    m.sms = 16;
    m.memoryGiB = 9.5;
    m.l2MiB /= 8;
    for (double* peak : {&m.fp64, &m.fp32, &m.tf32, &m.half, &m.fp8}) *peak /= 7;
    m.bandwidth /= 8;
  }
  if (double cc = number("FAKEGPU_CC", 0)) {
    m.major = (int)cc;
    m.minor = (int)(cc * 10 + 0.5) % 10;
  }
  m.sms = (int)number("FAKEGPU_SMS", m.sms);
  m.memoryGiB = number("FAKEGPU_MEM_GB", m.memoryGiB);
  return m;
}

Config read() {
  Config c;
  c.faults = readFaults();
  c.model = readModel(c.faults.mig);
  c.memory = (uint64_t)(c.model.memoryGiB * (1ull << 30));
  c.name = text("FAKEGPU_NAME");
  if (c.name.empty()) c.name = std::string(c.model.name) + (c.faults.mig ? " MIG 1g.10gb" : "");
  c.count = (int)number("FAKEGPU_COUNT", 1);
  c.kernelNs = number("FAKEGPU_KERNEL_NS", 3000);
  c.launchNs = number("FAKEGPU_LAUNCH_NS", 3000);
  c.gapNs = number("FAKEGPU_GAP_NS", 500);
  c.verbose = number("FAKEGPU_VERBOSE", 0) != 0;
  c.cuptiVersion = (uint32_t)number("FAKEGPU_CUPTI_VERSION", 0);
  for (const std::string& one : list(text("FAKEGPU_SLOW"))) {
    size_t eq = one.rfind('=');
    if (eq != std::string::npos) c.slow.push_back({one.substr(0, eq), atof(one.c_str() + eq + 1)});
  }
  c.visible = visibleDevices(c.count);
  return c;
}

std::atomic<const Config*>& current() {
  static std::atomic<const Config*> c{new Config(read())};
  return c;
}
}  // namespace

const Config& cfg() {
  return *current();
}
unsigned machine() {
  return (unsigned)number("FAKEGPU_MACHINE", 0) & 0xfff;
}
}  // namespace fake

// For a process that changes its own faults: after os.environ was changed, read it again.
extern "C" void fakegpu_reload() {
  fake::current() = new fake::Config(fake::read());
}
