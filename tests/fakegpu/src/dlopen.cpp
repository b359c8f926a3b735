// FAKEGPU_NVML: which NVML a process finds. dlopen is the one door to it, for torch as for ctypes.
#include "fake.h"

#include <dlfcn.h>

namespace fake {
static std::string besideUs(const std::string& file) {
  Dl_info us;
  dladdr((void*)&cfg, &us);
  std::string path = us.dli_fname;
  return path.substr(0, path.rfind('/') + 1) + file;
}

// The file that stands for this one: itself, nearly always.
__attribute__((noinline)) static const char* standIn(const char* file) {
  const char* wanted = getenv("FAKEGPU_NVML");
  if (!file || !wanted || !*wanted || !strstr(file, "libnvidia-ml.so")) return file;
  static thread_local std::string path;
  path = strcmp(wanted, "absent") ? besideUs(std::string("nvml-") + wanted + "/libnvidia-ml.so.1")
                                  : "/nonexistent/libnvidia-ml.so.1";
  return path.c_str();
}
}  // namespace fake

// Nothing may stand between the call of the real dlopen and the return: it is then a jump, so that the real one sees
// its caller's address, from which it takes the folders to look in (RUNPATH).
extern "C" void* dlopen(const char* file, int flags) {
  static auto* real = (void* (*)(const char*, int))dlsym(RTLD_NEXT, "dlopen");
  return real(fake::standIn(file), flags);
}
