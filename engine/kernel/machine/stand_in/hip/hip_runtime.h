// Stands in for HIP's own header where there is no GPU: kernels run on the CPU, block after block, so that what a
// solution computes can really be tried. The threads of a block take turns at __syncthreads(). Not there: wave
// operations (__shfl, __ballot), textures, several devices. It says nothing about the speed of a GPU.
#pragma once

#include <setjmp.h>
#include <time.h>
#include <ucontext.h>

#if __has_include(<bits/c++config.h>)
#include <bits/c++config.h>
#undef _GLIBCXX_USE_STD_SPEC_FUNCS  // Legendre, Riemann …: no GPU has them, and they are half of what <cmath> costs
#endif
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define STENO_STAND_IN 1
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define HIP_KERNEL_NAME(...) __VA_ARGS__
#define HIP_DYNAMIC_SHARED(type, name) type* name = reinterpret_cast<type*>(steno_stand_in::dynamic_shared())

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;
constexpr int warpSize = 64;

struct int2 { int x, y; };
struct int4 { int x, y, z, w; };
struct float2 { float x, y; };
struct float3 { float x, y, z; };
struct float4 { float x, y, z, w; };
struct double2 { double x, y; };
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float3 make_float3(float x, float y, float z) { return {x, y, z}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline double2 make_double2(double x, double y) { return {x, y}; }

enum hipError_t { hipSuccess = 0, hipErrorInvalidValue = 1, hipErrorOutOfMemory = 2, hipErrorInvalidConfiguration = 9 };
enum hipMemcpyKind { hipMemcpyHostToHost, hipMemcpyHostToDevice, hipMemcpyDeviceToHost, hipMemcpyDeviceToDevice, hipMemcpyDefault };
using hipStream_t = void*;
struct hipDeviceProp_t {
  char name[256];
  char gcnArchName[256];
  size_t totalGlobalMem, sharedMemPerBlock;
  int warpSize, multiProcessorCount, maxThreadsPerBlock;
};

namespace steno_stand_in {

inline hipError_t last_error = hipSuccess;
inline hipError_t noted(hipError_t error) {
  if (error != hipSuccess) last_error = error;
  return error;
}

constexpr size_t SHARED = 64 * 1024;
inline void* dynamic_shared() {
  alignas(64) static unsigned char memory[SHARED];
  return memory;
}

// A fiber runs threads of a block one after the other, until one of them waits at a barrier: then it is that thread's.
struct Fiber {
  ucontext_t context;
  jmp_buf here;
  bool begun = false;
  uint3 index{};
  Fiber* next = nullptr;  // of a list
  char stack[256 * 1024];
};

struct Block {
  void (*body)(void*) = nullptr;
  void* given = nullptr;  // what the body is called with
  unsigned next = 0, count = 0;
  jmp_buf scheduler;
  Fiber* running = nullptr;
  Fiber *free = nullptr, *waiting = nullptr, *last = nullptr;  // of those that wait
};
inline Block block;

inline uint3 index_of(unsigned i) {
  return {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
}

inline void work() {
  for (;;) {
    while (block.next < block.count) {
      threadIdx = block.running->index = index_of(block.next++);
      block.body(block.given);
    }
    Fiber* me = block.running;
    me->next = block.free;
    block.free = me;
    if (_setjmp(me->here) == 0) _longjmp(block.scheduler, 1);
  }
}

inline void resume(Fiber* fiber) {
  block.running = fiber;
  if (_setjmp(block.scheduler) == 0) {
    if (!fiber->begun) {
      fiber->begun = true;
      getcontext(&fiber->context);
      fiber->context.uc_stack.ss_sp = fiber->stack;
      fiber->context.uc_stack.ss_size = sizeof fiber->stack;
      makecontext(&fiber->context, work, 0);
      setcontext(&fiber->context);
    }
    threadIdx = fiber->index;
    _longjmp(fiber->here, 1);
  }
  block.running = nullptr;
}

inline void barrier() {
  Fiber* me = block.running;
  me->next = nullptr;
  (block.waiting == nullptr ? block.waiting : block.last->next) = me;
  block.last = me;
  if (_setjmp(me->here) == 0) _longjmp(block.scheduler, 1);
}

inline void run_block() {
  block.next = 0;
  block.count = blockDim.x * blockDim.y * blockDim.z;
  while (block.next < block.count) {
    Fiber* fiber = block.free == nullptr ? new Fiber : block.free;
    block.free = fiber->next;
    resume(fiber);
  }
  while (block.waiting != nullptr) {  // all that are left wait at the same barrier
    Fiber* round = block.waiting;
    block.waiting = nullptr;
    while (round != nullptr) {
      Fiber* fiber = round;
      round = fiber->next;
      resume(fiber);
    }
  }
}

template <typename Body>
hipError_t launch(dim3 grid, dim3 threads, size_t shared, Body body) {
  const size_t each = static_cast<size_t>(threads.x) * threads.y * threads.z;
  if (each == 0 || each > 1024 || grid.x == 0 || grid.y == 0 || grid.z == 0 || shared > SHARED)
    return noted(hipErrorInvalidConfiguration);
  gridDim = grid;
  blockDim = threads;
  block.body = [](void* given) { (*static_cast<Body*>(given))(); };  // std::function's header is slow to compile
  block.given = &body;
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, z};
        run_block();
      }
  return hipSuccess;
}

}  // namespace steno_stand_in

inline void __syncthreads() { steno_stand_in::barrier(); }
inline void __threadfence() {}
inline void __threadfence_block() {}

// The arguments are taken by value when the kernel is launched, as on a GPU.
#define hipLaunchKernelGGL(kernel, grid, threads, shared, stream, ...) \
  (void)steno_stand_in::launch((grid), (threads), (shared), [=]() { kernel(__VA_ARGS__); })

inline hipError_t hipMalloc(void** pointer, size_t bytes) {
  *pointer = std::malloc(bytes == 0 ? 1 : bytes);
  return steno_stand_in::noted(*pointer == nullptr ? hipErrorOutOfMemory : hipSuccess);
}
template <typename T>
hipError_t hipMalloc(T** pointer, size_t bytes) {
  return hipMalloc(reinterpret_cast<void**>(pointer), bytes);
}
template <typename T>
hipError_t hipHostMalloc(T** pointer, size_t bytes, unsigned = 0) {
  return hipMalloc(reinterpret_cast<void**>(pointer), bytes);
}
inline hipError_t hipFree(void* pointer) {
  std::free(pointer);
  return hipSuccess;
}
inline hipError_t hipHostFree(void* pointer) { return hipFree(pointer); }
inline hipError_t hipMemcpy(void* to, const void* from, size_t bytes, hipMemcpyKind) {
  std::memmove(to, from, bytes);
  return hipSuccess;
}
inline hipError_t hipMemcpyAsync(void* to, const void* from, size_t bytes, hipMemcpyKind kind, hipStream_t = nullptr) {
  return hipMemcpy(to, from, bytes, kind);
}
inline hipError_t hipMemset(void* to, int value, size_t bytes) {
  std::memset(to, value, bytes);
  return hipSuccess;
}
inline hipError_t hipMemsetAsync(void* to, int value, size_t bytes, hipStream_t = nullptr) {
  return hipMemset(to, value, bytes);
}
inline hipError_t hipDeviceSynchronize() { return hipSuccess; }
inline hipError_t hipGetLastError() {
  const hipError_t error = steno_stand_in::last_error;
  steno_stand_in::last_error = hipSuccess;
  return error;
}
inline hipError_t hipPeekAtLastError() { return steno_stand_in::last_error; }
inline const char* hipGetErrorString(hipError_t error) {
  switch (error) {
    case hipSuccess: return "no error";
    case hipErrorOutOfMemory: return "out of memory";
    case hipErrorInvalidConfiguration: return "invalid configuration argument";
    default: return "invalid argument";
  }
}
inline const char* hipGetErrorName(hipError_t error) { return hipGetErrorString(error); }
inline hipError_t hipGetDeviceCount(int* count) {
  *count = 1;
  return hipSuccess;
}
inline hipError_t hipGetDevice(int* device) {
  *device = 0;
  return hipSuccess;
}
inline hipError_t hipSetDevice(int) { return hipSuccess; }
inline hipError_t hipGetDeviceProperties(hipDeviceProp_t* found, int) {
  std::memset(found, 0, sizeof *found);
  std::strcpy(found->name, "CPU (Steno's stand-in for HIP)");
  std::strcpy(found->gcnArchName, "cpu");
  found->sharedMemPerBlock = steno_stand_in::SHARED;
  found->warpSize = warpSize;
  found->multiProcessorCount = 1;
  found->maxThreadsPerBlock = 1024;
  return hipSuccess;
}
inline hipError_t hipStreamCreate(hipStream_t* stream) {
  *stream = nullptr;
  return hipSuccess;
}
inline hipError_t hipStreamDestroy(hipStream_t) { return hipSuccess; }
inline hipError_t hipStreamSynchronize(hipStream_t) { return hipSuccess; }

struct steno_event {
  timespec at;
};
using hipEvent_t = steno_event*;
inline hipError_t hipEventCreate(hipEvent_t* event) {
  *event = new steno_event();
  return hipSuccess;
}
inline hipError_t hipEventDestroy(hipEvent_t event) {
  delete event;
  return hipSuccess;
}
inline hipError_t hipEventRecord(hipEvent_t event, hipStream_t = nullptr) {
  clock_gettime(CLOCK_MONOTONIC, &event->at);
  return hipSuccess;
}
inline hipError_t hipEventSynchronize(hipEvent_t) { return hipSuccess; }
inline hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t from, hipEvent_t to) {
  *milliseconds = (to->at.tv_sec - from->at.tv_sec) * 1e3f + (to->at.tv_nsec - from->at.tv_nsec) * 1e-6f;
  return hipSuccess;
}

// One thread runs at a time, so that plain arithmetic is atomic.
template <typename T, typename U>
T atomicAdd(T* to, U value) {
  const T before = *to;
  *to = static_cast<T>(before + static_cast<T>(value));
  return before;
}
template <typename T, typename U>
T atomicSub(T* to, U value) {
  const T before = *to;
  *to = static_cast<T>(before - static_cast<T>(value));
  return before;
}
template <typename T>
T atomicMax(T* to, T value) {
  const T before = *to;
  if (value > before) *to = value;
  return before;
}
template <typename T>
T atomicMin(T* to, T value) {
  const T before = *to;
  if (value < before) *to = value;
  return before;
}
template <typename T>
T atomicExch(T* to, T value) {
  const T before = *to;
  *to = value;
  return before;
}
template <typename T>
T atomicCAS(T* to, T compare, T value) {
  const T before = *to;
  if (before == compare) *to = value;
  return before;
}

// C's own names, as a GPU's library has them without std::.
template <typename T>
T __ldg(const T* from) { return *from; }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
template <typename A, typename B>
auto max(A a, B b) -> decltype(a + b) { return a < b ? b : a; }
template <typename A, typename B>
auto min(A a, B b) -> decltype(a + b) { return b < a ? b : a; }
