// What cuBLAS and cuBLASLt share: a product, and the one kernel that it is.
#pragma once
#include <cublas_v2.h>

#include "fake.h"

namespace fake {
struct Product {
  cublasOperation_t ta, tb;
  long long m, n, k, batch = 1;
  cudaDataType a, b, d;
  bool tf32 = false;
  int epilogue = 1;
};
cublasStatus_t multiply(const Product& p, cudaStream_t s);
// A kernel of the library's that is not a product of two matrices; it reads and writes so many bytes.
cublasStatus_t launchSimple(const char* name, long long blocks, int threads, double bytes, cudaStream_t s);

struct BlasHandle {
  cudaStream_t stream = nullptr;
  int mode = 0, pointers = 0;
};
}  // namespace fake
