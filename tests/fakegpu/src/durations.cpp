// How long work takes: from bytes and the pretended device's bandwidth, where the caller knows no better.
#include "fake.h"

#include <algorithm>

namespace fake {
double memoryNs(double bytes) {
  return bytes / (0.85 * cfg().model.bandwidth);  // GB/s are bytes per nanosecond
}

static bool has(const std::string& name, const char* part) {
  return name.find(part) != std::string::npos;
}

// What one of torch's elementwise kernels reads and writes. Its first argument is the number of elements, its name
// tells how many tensors there are (the length of the array of their pointers) and nearly always of which type.
double bytesOfElementwise(const std::string& name, void** args) {
  if (!has(name, "elementwise_kernel")) return 0;
  double tensors = 0;
  for (const char* array : {"arrayIPcLm", "ArrayIPcLi"}) {
    size_t at = name.find(array);
    if (at != std::string::npos) tensors = atoi(name.c_str() + at + strlen(array));
  }
  double size = has(name, "BFloat16") || has(name, "4Half") ? 2 : has(name, "IdE") || has(name, "IlE") ? 8 : 4;
  return std::max(tensors, 1.0) * size * *(int*)args[0];
}

double durationNs(const Work& w) {
  const Config& c = cfg();
  double bandwidth = c.model.bandwidth;
  if (w.op == Op::kernel) {
    for (auto& [part, ns] : c.slow)
      if (has(w.func->name, part.c_str())) return ns;
    if (w.shape.ns) return std::max(c.kernelNs, w.shape.ns);
    // Nothing is known: as much traffic for each thread as explains its being there.
    double threads = 1;
    for (int i = 0; i < 3; i++) threads *= (double)w.shape.g[i] * w.shape.b[i];
    return std::max(c.kernelNs, memoryNs(threads * 32));
  }
  // Copies within the device read and write; across the bus there are 25 GB/s.
  if (w.op == Op::memcpy) return 1000 + (w.srcKind == w.dstKind ? 2 * w.bytes / bandwidth : w.bytes / 25.0);
  if (w.op == Op::memset) return 900 + w.bytes / (0.85 * bandwidth);
  return 0;
}
}  // namespace fake
