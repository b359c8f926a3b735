// What the environment asks for: which device is pretended, how fast it is, and which faults it has.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fake {
// The published figures of a device: what torch is told, and what durations are computed from.
struct Model {
  const char* key;
  const char* name;
  int major, minor, sms;
  double memoryGiB, l2MiB;
  int clockMHz, memoryClockMHz, busBits;
  double fp64, fp32, tf32, half, fp8;  // dense peaks in TFLOP/s
  double bandwidth;                    // GB/s
};

struct Named {  // "substring:count"
  std::string part;
  long count = 0;
  bool in(const std::string& name) const { return !part.empty() && name.find(part) != std::string::npos; }
};

// Each fault stands in the README with the variable that asks for it.
struct Faults {
  // Records of kernels that CUPTI loses
  long dropSkip = 0, dropCount = 0;
  Named dropNamed;
  long dropEvery = 0;
  double headAfterMs = -1;  // below 0: never
  bool graphsUnseen = false;
  long graphReplay = 0, graphKernel = 0;
  std::string graphNumbers;
  std::vector<std::string> unseenCalls;
  long bufferRecords = 0;
  std::vector<std::pair<std::string, int>> refusals;  // function ("" for all that can refuse), code

  // The device
  Named failKernel, refuseKernel;
  int failCode = 700;
  int initError = 0;
  long lostAfter = 0;
  bool mig = false;
};

struct Config {
  Model model;
  int count;
  uint64_t memory;
  std::string name;
  double kernelNs, launchNs, gapNs;
  std::vector<std::pair<std::string, double>> slow;
  bool verbose;
  uint32_t cuptiVersion;  // 0: that of the headers
  std::vector<int> visible;  // physical index of each visible device
  Faults faults;
};
const Config& cfg();
// The number of the machine that the devices are of: 12 bits of their UUIDs.
unsigned machine();
}  // namespace fake
