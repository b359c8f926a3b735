// A matrix product is one kernel, with a name and a way of being launched that a real library could have chosen.
#include <cublasLt.h>

#include "blas.h"

#include <algorithm>
#include <cmath>

#include "gen_cu_best.inc"
#include "gen_rt_best.inc"

namespace fake {
namespace {
const char* letters(cudaDataType t) {
  switch ((int)t) {
    case CUDA_R_16F: return "h";
    case CUDA_R_16BF: return "t";
    case CUDA_R_32F: return "s";
    case CUDA_R_64F: return "d";
    case CUDA_R_8F_E4M3: return "q";
    case CUDA_R_8F_E5M2: return "r";
    case CUDA_C_32F: return "c";
    case CUDA_C_64F: return "z";
    case CUDA_R_8I: return "i8";
  }
  return "s";
}
int bytesOf(cudaDataType t) {
  switch ((int)t) {
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2:
    case CUDA_R_8I: return 1;
    case CUDA_R_16F:
    case CUDA_R_16BF: return 2;
    case CUDA_R_64F:
    case CUDA_C_32F: return 8;
    case CUDA_C_64F: return 16;
  }
  return 4;
}
bool eightBits(cudaDataType t) {
  return bytesOf(t) == 1;
}
const char* epilogueOf(int epilogue) {
  switch (epilogue) {
    case CUBLASLT_EPILOGUE_BIAS: return "_bias";
    case CUBLASLT_EPILOGUE_RELU_BIAS: return "_bias_relu";
    case CUBLASLT_EPILOGUE_GELU_BIAS: return "_bias_gelu";
    case CUBLASLT_EPILOGUE_RELU: return "_relu";
  }
  return "";
}

enum class Way { runtime, runtimeEx, driverEx };  // cudaLaunchKernel, cudaLaunchKernelExC, cuLaunchKernelEx

struct Choice {
  Way way = Way::runtime;
  int threads = 128, tileM, tileN;
  char name[512];
};

void nameFloat(Choice& c, const Product& p, char ta, char tb) {
  bool hopper = cfg().model.major >= 9;
  if (!p.tf32 && hopper) {
    snprintf(c.name, sizeof c.name,
             "sm80_xmma_gemm_f32f32_f32f32_f32_%c%c_n_tilesize%dx%dx8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_"
             "execute_kernel__5x_cublas",
             ta, tb, c.tileM, c.tileN);
  } else if (!p.tf32) {
    snprintf(c.name, sizeof c.name, "ampere_sgemm_%dx%d_%c%c", c.tileM, c.tileN, ta, tb);
  } else if (hopper) {
    c.way = Way::runtimeEx;
    c.threads = 384;
    snprintf(c.name, sizeof c.name,
             "sm90_xmma_gemm_f32f32_tf32f32_f32_%c%c_n_tilesize%dx%dx32_warpgroupsize1x1x1_execute_segment_k_off_"
             "kernel__5x_cublas",
             ta, tb, c.tileM, c.tileN);
  } else {
    char kernel[128];
    snprintf(kernel, sizeof kernel, "cutlass_80_tensorop_s1688gemm_%dx%d_16x6_%c%c_align4", c.tileM, c.tileN, ta, tb);
    snprintf(c.name, sizeof c.name, "void cutlass::Kernel2<%s>(%s::Params)", kernel, kernel);
  }
}

void nameHalf(Choice& c, const Product& p, char ta, char tb) {
  if (cfg().model.major < 9) {
    const char* io = p.a == CUDA_R_16BF ? "bf16" : "fp16";
    snprintf(c.name, sizeof c.name, "ampere_%s_s16816gemm_%s_%dx%d_ldg8_f2f_stages_64x3_%c%c", io, io, c.tileM, c.tileN,
             ta, tb);
    return;
  }
  c.way = Way::driverEx;
  c.threads = 384;
  char types[16];
  if (eightBits(p.a))
    snprintf(types, sizeof types, "%s%ss%s%s", letters(p.a), letters(p.b), letters(p.d), letters(p.d));
  else
    snprintf(types, sizeof types, "%ss%s", letters(p.a), letters(p.d));
  snprintf(c.name, sizeof c.name, "nvjet_%s_%dx%d_%dx6_2x1_v_bz%s_%c%cT", types, c.tileM, c.tileN,
           eightBits(p.a) ? 128 : 64, epilogueOf(p.epilogue), ta - 32, tb - 32);
}

Choice choose(const Product& p) {
  Choice c;
  char ta = p.ta == CUBLAS_OP_N ? 'n' : 't', tb = p.tb == CUBLAS_OP_N ? 'n' : 't';
  c.tileM = p.m <= 64 ? 64 : 128;
  c.tileN = p.n <= 64 ? 64 : 128;
  if (p.a == CUDA_R_64F || p.a == CUDA_C_32F || p.a == CUDA_C_64F) {
    c.tileM = c.tileN = 64;
    char kernel[128];
    snprintf(kernel, sizeof kernel, "cutlass_80_%s%sgemm_64x64_16x3_%c%c_align1",
             p.a == CUDA_R_64F ? "tensorop_" : "simt_", letters(p.a), ta, tb);
    snprintf(c.name, sizeof c.name, "void cutlass::Kernel2<%s>(%s::Params)", kernel, kernel);
  } else if (p.a == CUDA_R_32F) {
    nameFloat(c, p, ta, tb);
  } else {
    nameHalf(c, p, ta, tb);
  }
  return c;
}

double peakOf(const Product& p) {
  const Model& m = cfg().model;
  if (p.a == CUDA_R_64F || p.a == CUDA_C_64F) return m.fp64;
  if (p.a == CUDA_R_32F || p.a == CUDA_C_32F) return p.tf32 ? m.tf32 : m.fp32;
  return eightBits(p.a) ? m.fp8 : m.half;
}

// A multiprocessor computes one tile at a time at 70 % of its share of the peak; the last wave costs as much as a full
// one. Unless moving the matrices takes longer.
double durationOf(const Product& p, const Choice& c) {
  const Model& model = cfg().model;
  double tiles = std::ceil((double)p.m / c.tileM) * std::ceil((double)p.n / c.tileN) * p.batch;
  double tileNs = 2.0 * c.tileM * c.tileN * p.k / (0.7 * peakOf(p) * 1e3 / model.sms);
  double moved = (double)p.batch * ((double)p.m * p.k * bytesOf(p.a) + (double)p.k * p.n * bytesOf(p.b) +
                                    (double)p.m * p.n * bytesOf(p.d));
  return std::max(std::ceil(tiles / model.sms) * tileNs, memoryNs(moved));
}
}  // namespace

cublasStatus_t multiply(const Product& p, cudaStream_t s) {
  if (p.m == 0 || p.n == 0 || p.batch == 0) return CUBLAS_STATUS_SUCCESS;
  Choice c = choose(p);
  Shape shape;
  shape.g[0] = (u32)((p.m + c.tileM - 1) / c.tileM);
  shape.g[1] = (u32)((p.n + c.tileN - 1) / c.tileN);
  shape.g[2] = (u32)p.batch;
  shape.b[0] = c.threads;
  shape.dyn = c.way == Way::runtime ? 49152 : 200000;
  if (c.way == Way::driverEx) {
    shape.cluster[0] = 2;
    shape.cluster[1] = shape.cluster[2] = 1;
  }
  shape.ns = durationOf(p, c);
  CUfunc_st* f = makeKernel(c.name);
  f->regs = c.way == Way::runtime ? 122 : 168;
  auto call = [&](CUpti_CallbackDomain domain, u32 cbid, const char* name) {
    Api api(domain, cbid, name);
    if (int e = gate()) return api.ret(e);
    return api.ret(launch(f, shape, streamOf(s)));
  };
  int e = c.way == Way::driverEx    ? call(CUPTI_CB_DOMAIN_DRIVER_API, CUCB_cuLaunchKernelEx, "cuLaunchKernelEx")
          : c.way == Way::runtimeEx ? call(CUPTI_CB_DOMAIN_RUNTIME_API, RTCB_cudaLaunchKernelExC, "cudaLaunchKernelExC")
                                    : call(CUPTI_CB_DOMAIN_RUNTIME_API, RTCB_cudaLaunchKernel, "cudaLaunchKernel");
  return e ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t launchSimple(const char* name, long long blocks, int threads, double bytes, cudaStream_t s) {
  Shape shape;
  shape.g[0] = (u32)std::max<long long>(1, blocks);
  shape.b[0] = threads;
  shape.ns = memoryNs(bytes);
  Api api(CUPTI_CB_DOMAIN_RUNTIME_API, RTCB_cudaLaunchKernel, "cudaLaunchKernel");
  int e = gate();
  if (!e) e = launch(makeKernel(name), shape, streamOf(s));
  return api.ret(e) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
}  // namespace fake
