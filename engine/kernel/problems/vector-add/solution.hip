// C = A + B.
#include <hip/hip_runtime.h>

template <typename T>
__global__ void add(const T* a, const T* b, T* c, size_t n) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

extern "C" void solution(const float* A, const float* B, float* C, size_t N) {
  const unsigned threads = 256;
  add<float><<<dim3((N + threads - 1) / threads), dim3(threads)>>>(A, B, C, N);
}
