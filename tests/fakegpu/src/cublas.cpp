// cuBLAS.
#include "blas.h"

using namespace fake;

namespace {
BlasHandle* of(cublasHandle_t h) {
  return (BlasHandle*)h;
}
bool fast(cublasHandle_t h) {
  return of(h)->mode & CUBLAS_TF32_TENSOR_OP_MATH;
}
}  // namespace

extern "C" {
cublasStatus_t cublasCreate_v2(cublasHandle_t* h) {
  *h = (cublasHandle_t) new BlasHandle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t h) {
  delete of(h);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetVersion_v2(cublasHandle_t, int* v) {
  *v = CUBLAS_VERSION;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t h, cudaStream_t s) {
  of(h)->stream = s;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetStream_v2(cublasHandle_t h, cudaStream_t* s) {
  *s = of(h)->stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t h, cublasMath_t m) {
  of(h)->mode = m;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetMathMode(cublasHandle_t h, cublasMath_t* m) {
  *m = (cublasMath_t)of(h)->mode;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t h, cublasPointerMode_t m) {
  of(h)->pointers = m;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t h, cublasPointerMode_t* m) {
  *m = (cublasPointerMode_t)of(h)->pointers;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetSmCountTarget(cublasHandle_t, int) {
  return CUBLAS_STATUS_SUCCESS;
}

#define GEMM(L, T, TYPE)                                                                                               \
  cublasStatus_t cublas##L##gemm_v2(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, \
                                    const T*, const T*, int, const T*, int, const T*, T*, int) {                       \
    return multiply({ta, tb, m, n, k, 1, TYPE, TYPE, TYPE, fast(h)}, of(h)->stream);                                   \
  }                                                                                                                    \
  cublasStatus_t cublas##L##gemmStridedBatched(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m,    \
                                               int n, int k, const T*, const T*, int, long long, const T*, int,        \
                                               long long, const T*, T*, int, long long, int batch) {                   \
    return multiply({ta, tb, m, n, k, batch, TYPE, TYPE, TYPE, fast(h)}, of(h)->stream);                               \
  }                                                                                                                    \
  cublasStatus_t cublas##L##gemmBatched(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n,    \
                                        int k, const T*, const T* const*, int, const T* const*, int, const T*,         \
                                        T* const*, int, int batch) {                                                   \
    return multiply({ta, tb, m, n, k, batch, TYPE, TYPE, TYPE, fast(h)}, of(h)->stream);                               \
  }                                                                                                                    \
  cublasStatus_t cublas##L##gemv_v2(cublasHandle_t h, cublasOperation_t t, int m, int n, const T*, const T*, int,      \
                                    const T*, int, const T*, T*, int) {                                                \
    return launchSimple(                                                                                               \
        t == CUBLAS_OP_N ? "void gemv2N_kernel<int, int, " #T ", " #T ", " #T ", " #T                                  \
                           ", 128, 4, 4, 4, 1, false, cublasGemvParamsEx<int, cublasGemvTensorStridedBatched<" #T      \
                           " const>, cublasGemvTensorStridedBatched<" #T " const>, cublasGemvTensorStridedBatched<" #T \
                           ">, " #T "> >(cublasGemvParamsEx<int, cublasGemvTensorStridedBatched<" #T                   \
                           " const>, cublasGemvTensorStridedBatched<" #T " const>, cublasGemvTensorStridedBatched<" #T \
                           ">, " #T ">)"                                                                               \
                         : "void gemv2T_kernel_val<int, int, " #T ", " #T ", " #T ", " #T                              \
                           ", 128, 16, 4, 4, false, false, cublasGemvParamsEx<int, cublasGemvTensorStridedBatched<" #T \
                           " const>, cublasGemvTensorStridedBatched<" #T " const>, cublasGemvTensorStridedBatched<" #T \
                           ">, " #T "> >(cublasGemvParamsEx<int, cublasGemvTensorStridedBatched<" #T                   \
                           " const>, cublasGemvTensorStridedBatched<" #T " const>, cublasGemvTensorStridedBatched<" #T \
                           ">, " #T ">, " #T ", " #T ")",                                                              \
        (t == CUBLAS_OP_N ? m : n) / 128 + 1, 128, (double)m * n * sizeof(T), of(h)->stream);                          \
  }
GEMM(S, float, CUDA_R_32F)
GEMM(D, double, CUDA_R_64F)
GEMM(C, cuComplex, CUDA_C_32F)
GEMM(Z, cuDoubleComplex, CUDA_C_64F)

cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                            const void*, const void*, cudaDataType a, int, const void*, cudaDataType b, int,
                            const void*, void*, cudaDataType c, int, cublasComputeType_t compute, cublasGemmAlgo_t) {
  return multiply({ta, tb, m, n, k, 1, a, b, c, fast(h) || compute == CUBLAS_COMPUTE_32F_FAST_TF32}, of(h)->stream);
}
cublasStatus_t cublasSgemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                             const float*, const void*, cudaDataType a, int, const void*, cudaDataType b, int,
                             const float*, void*, cudaDataType c, int) {
  return multiply({ta, tb, m, n, k, 1, a, b, c, fast(h)}, of(h)->stream);
}
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n,
                                          int k, const void*, const void*, cudaDataType a, int, long long, const void*,
                                          cudaDataType b, int, long long, const void*, void*, cudaDataType c, int,
                                          long long, int batch, cublasComputeType_t compute, cublasGemmAlgo_t) {
  return multiply({ta, tb, m, n, k, batch, a, b, c, fast(h) || compute == CUBLAS_COMPUTE_32F_FAST_TF32}, of(h)->stream);
}
// Two kernels: parts of the sum, then the sum of the parts.
static cublasStatus_t dot(cublasHandle_t h, int n, int size) {
  const char* parts =
      "void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensor<float const>, "
      "cublasGemvTensorStridedBatched<float> > >(cublasDotParams<cublasGemvTensor<float const>, "
      "cublasGemvTensorStridedBatched<float> >)";
  const char* sum =
      "void reduce_1Block_kernel<float, 128, 7, cublasGemvTensorStridedBatched<float>, "
      "cublasGemvTensorStridedBatched<float>, cublasGemvTensorStridedBatched<float> >(float const*, float, "
      "cublasGemvTensorStridedBatched<float>, int, float const*, float, cublasGemvTensorStridedBatched<float>, "
      "cublasPointerMode_t, cublasLtEpilogue_t, "
      "cublasGemvTensorStridedBatched<biasType<cublasGemvTensorStridedBatched<float>::value_type, float>::type const>)";
  cublasStatus_t e = launchSimple(parts, 1, 128, 2.0 * n * size, of(h)->stream);
  return e ? e : launchSimple(sum, 1, 128, 0, of(h)->stream);
}
cublasStatus_t cublasSdot_v2(cublasHandle_t h, int n, const float*, int, const float*, int, float*) {
  return dot(h, n, 4);
}
cublasStatus_t cublasDdot_v2(cublasHandle_t h, int n, const double*, int, const double*, int, double*) {
  return dot(h, n, 8);
}
cublasStatus_t cublasDotEx(cublasHandle_t h, int n, const void*, cudaDataType, int, const void*, cudaDataType, int,
                           void*, cudaDataType, cudaDataType) {
  return dot(h, n, 4);
}
}
