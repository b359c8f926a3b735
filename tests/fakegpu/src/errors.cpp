// Names and texts of CUDA's errors.
#include "fake.h"

namespace fake {
static const struct {
  int code;
  const char* name;
} errors[] = {
#define X(c, n) {c, n},
#include "gen_errors.inc"
#undef X
};
const char* errorName(int code) {
  for (auto& e : errors)
    if (e.code == code) return e.name;
  return "unrecognized error code";
}
const char* errorText(int code) {
  switch (code) {
    case 0: return "no error";
    case 1: return "invalid argument";
    case 2: return "out of memory";
    case 3: return "initialization error";
    case 9: return "invalid configuration argument";
    case 35: return "CUDA driver version is insufficient for CUDA runtime version";
    case 34: return "CUDA driver is a stub library";
    case 36: return "API call is not supported in the installed CUDA driver";
    case 46: return "CUDA-capable device(s) is/are busy or unavailable";
    case 98: return "invalid device function";
    case 100: return "no CUDA-capable device is detected";
    case 101: return "invalid device ordinal";
    case 214: return "uncorrectable ECC error encountered";
    case 304: return "OS call failed or operation not supported on this OS";
    case 400: return "invalid resource handle";
    case 600: return "device not ready";
    case 700: return "an illegal memory access was encountered";
    case 704: return "peer access is already enabled";
    case 710: return "device-side assert triggered";
    case 719: return "unspecified launch failure";
    case 802: return "system not yet initialized";
    case 803: return "system has unsupported display driver / cuda driver combination";
    case 804: return "forward compatibility was attempted on non supported HW";
    case 999: return "unknown error";
    case 801: return "operation not supported";
    case 900: return "operation not permitted when stream is capturing";
    case 901: return "operation failed due to a previous error during capture";
    case 905: return "capture was not ended in the same stream as it began";
    case 907: return "operation not permitted on an event last recorded in a capturing stream";
    case 908: return "operation would make the legacy stream depend on a capturing blocking stream";
  }
  return errorName(code);
}

}  // namespace fake
