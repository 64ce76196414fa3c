// C = exp(A - largest) / sum, row by row; a block of threads for each row.
#include <hip/hip_runtime.h>

constexpr int THREADS = 64;

template <typename T>
__global__ void softmax(const T* a, T* c, size_t n) {
  __shared__ float parts[THREADS];
  const int thread = threadIdx.x;
  a += blockIdx.x * n;
  c += blockIdx.x * n;
  float most = static_cast<float>(a[0]);
  for (size_t i = thread; i < n; i += THREADS) most = fmaxf(most, static_cast<float>(a[i]));
  parts[thread] = most;
  for (int half = THREADS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) parts[thread] = fmaxf(parts[thread], parts[thread + half]);
  }
  __syncthreads();
  most = parts[0];
  __syncthreads();
  float sum = 0;
  for (size_t i = thread; i < n; i += THREADS) sum += expf(static_cast<float>(a[i]) - most);
  parts[thread] = sum;
  for (int half = THREADS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) parts[thread] += parts[thread + half];
  }
  __syncthreads();
  for (size_t i = thread; i < n; i += THREADS)
    c[i] = static_cast<T>(expf(static_cast<float>(a[i]) - most) / parts[0]);
}

extern "C" void solution(const float* A, float* C, size_t M, size_t N) {
  softmax<float><<<dim3(M), dim3(THREADS)>>>(A, C, N);
}
