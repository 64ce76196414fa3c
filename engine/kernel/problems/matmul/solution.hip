// C = A × B, tiled through shared memory. A is M × K, B is K × N, C is M × N, all row by row.
#include <hip/hip_runtime.h>

constexpr int TILE = 16;

template <typename T>
__global__ void multiply(const T* a, const T* b, T* c, size_t m, size_t n, size_t k) {
  __shared__ T tile_a[TILE][TILE];
  __shared__ T tile_b[TILE][TILE];
  const size_t row = blockIdx.y * TILE + threadIdx.y;
  const size_t column = blockIdx.x * TILE + threadIdx.x;
  T sum = 0;
  for (size_t start = 0; start < k; start += TILE) {
    const size_t of_a = start + threadIdx.x, of_b = start + threadIdx.y;
    tile_a[threadIdx.y][threadIdx.x] = row < m && of_a < k ? a[row * k + of_a] : T(0);
    tile_b[threadIdx.y][threadIdx.x] = column < n && of_b < k ? b[of_b * n + column] : T(0);
    __syncthreads();
    for (int i = 0; i < TILE; ++i) sum += tile_a[threadIdx.y][i] * tile_b[i][threadIdx.x];
    __syncthreads();
  }
  if (row < m && column < n) c[row * n + column] = sum;
}

extern "C" void solution(const float* A, const float* B, float* C, size_t M, size_t N, size_t K) {
  const dim3 block(TILE, TILE), grid((N + TILE - 1) / TILE, (M + TILE - 1) / TILE);
  multiply<float><<<grid, block>>>(A, B, C, M, N, K);
}
