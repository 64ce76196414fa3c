// C = the transpose of A, in tiles of shared memory, so that reads and writes follow each other in memory.
#include <hip/hip_runtime.h>

constexpr int TILE = 32, ROWS = 8;  // each thread copies TILE / ROWS entries

template <typename T>
__global__ void transpose(const T* a, T* c, size_t m, size_t n) {
  __shared__ T tile[TILE][TILE + 1];  // one more, so that a column lies in different banks
  const int x = threadIdx.x, y = threadIdx.y;
  const size_t row = blockIdx.y * TILE, column = blockIdx.x * TILE;
  for (int i = y; i < TILE; i += ROWS)
    if (row + i < m && column + x < n) tile[i][x] = a[(row + i) * n + column + x];
  __syncthreads();
  for (int i = y; i < TILE; i += ROWS)
    if (column + i < n && row + x < m) c[(column + i) * m + row + x] = tile[x][i];
}

extern "C" void solution(const float* A, float* C, size_t M, size_t N) {
  const dim3 block(TILE, ROWS), grid((N + TILE - 1) / TILE, (M + TILE - 1) / TILE);
  transpose<float><<<grid, block>>>(A, C, M, N);
}
