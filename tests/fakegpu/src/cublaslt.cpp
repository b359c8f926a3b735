// cuBLASLt: descriptors hold what a product needs to know of them, and there is one algorithm for everything.
#include <cublasLt.h>

#include "blas.h"

#include <new>

using namespace fake;

namespace {
struct Desc {
  cublasComputeType_t compute;
  int32_t ta = CUBLAS_OP_N, tb = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
};
struct Layout {
  cudaDataType type;
  uint64_t rows, cols;
  int32_t batch = 1;
};
static_assert(sizeof(Desc) <= sizeof(cublasLtMatmulDescOpaque_t));
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));
Desc* of(cublasLtMatmulDesc_t d) {
  return (Desc*)d;
}
Layout* of(cublasLtMatrixLayout_t d) {
  return (Layout*)d;
}
}  // namespace

extern "C" {
cublasStatus_t cublasLtCreate(cublasLtHandle_t* h) {
  *h = (cublasLtHandle_t) new BlasHandle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) {
  return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion(void) {
  return CUBLAS_VERSION;
}
cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t d, size_t, cublasComputeType_t c, cudaDataType_t) {
  new (d) Desc{c};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t c, cudaDataType_t t) {
  *d = new cublasLtMatmulDescOpaque_t;
  return cublasLtMatmulDescInit_internal(*d, sizeof **d, c, t);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  delete d;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t a, const void* v,
                                              size_t n) {
  if (a == CUBLASLT_MATMUL_DESC_TRANSA) memcpy(&of(d)->ta, v, 4);
  if (a == CUBLASLT_MATMUL_DESC_TRANSB) memcpy(&of(d)->tb, v, 4);
  if (a == CUBLASLT_MATMUL_DESC_EPILOGUE) memcpy(&of(d)->epilogue, v, 4);
  (void)n;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t l, size_t, cudaDataType t, uint64_t r,
                                                 uint64_t c, int64_t) {
  new (l) Layout{t, r, c};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* l, cudaDataType t, uint64_t r, uint64_t c,
                                          int64_t ld) {
  *l = new cublasLtMatrixLayoutOpaque_t;
  return cublasLtMatrixLayoutInit_internal(*l, sizeof **l, t, r, c, ld);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  delete l;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t a,
                                                const void* v, size_t) {
  if (a == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) memcpy(&of(l)->batch, v, 4);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) {
  *p = new cublasLtMatmulPreferenceOpaque_t();
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  delete p;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t, cublasComputeType_t, cudaDataType_t, cudaDataType_t,
                                      cudaDataType_t, cudaDataType_t, cudaDataType_t, int, cublasLtMatmulAlgo_t* a) {
  memset(a, 0, sizeof *a);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t* a, cublasLtMatmulHeuristicResult_t* r) {
  memset(r, 0, sizeof *r);
  r->algo = *a;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t*, cublasLtMatmulAlgoConfigAttributes_t,
                                                    void* v, size_t n, size_t* wrote) {
  memset(v, 0, n);
  if (wrote) *wrote = n;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t*, cublasLtMatmulAlgoConfigAttributes_t,
                                                    const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int most, cublasLtMatmulHeuristicResult_t r[],
                                              int* n) {
  *n = most > 0 ? 1 : 0;
  if (*n) {
    memset(&r[0], 0, sizeof r[0]);
    r[0].wavesCount = 1;
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t d, const void*, const void*,
                              cublasLtMatrixLayout_t a, const void*, cublasLtMatrixLayout_t b, const void*, const void*,
                              cublasLtMatrixLayout_t, void*, cublasLtMatrixLayout_t out, const cublasLtMatmulAlgo_t*,
                              void*, size_t, cudaStream_t s) {
  Product p;
  p.ta = (cublasOperation_t)of(d)->ta;
  p.tb = (cublasOperation_t)of(d)->tb;
  p.m = of(out)->rows;
  p.n = of(out)->cols;
  p.k = p.ta == CUBLAS_OP_N ? of(a)->cols : of(a)->rows;
  p.batch = of(out)->batch;
  p.a = of(a)->type;
  p.b = of(b)->type;
  p.d = of(out)->type;
  p.tf32 = of(d)->compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  p.epilogue = of(d)->epilogue;
  return multiply(p, s);
}
}
