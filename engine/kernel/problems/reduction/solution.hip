// C = the sum of each row of A; a block of threads for each row.
#include <hip/hip_runtime.h>

constexpr int THREADS = 64;

template <typename T, typename Sum>
__global__ void reduce(const T* a, T* c, size_t n) {
  __shared__ Sum parts[THREADS];
  const int thread = threadIdx.x;
  Sum sum = 0;
  for (size_t i = thread; i < n; i += THREADS) sum += static_cast<Sum>(a[blockIdx.x * n + i]);
  parts[thread] = sum;
  for (int half = THREADS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) parts[thread] += parts[thread + half];
  }
  if (thread == 0) c[blockIdx.x] = static_cast<T>(parts[0]);
}

extern "C" void solution(const float* A, float* C, size_t M, size_t N) {
  reduce<float, float><<<dim3(M), dim3(THREADS)>>>(A, C, N);
}
