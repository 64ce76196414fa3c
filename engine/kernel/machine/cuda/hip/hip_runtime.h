// HIP's names for what CUDA calls otherwise, as far as the harness and the judge's process use them.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#define hipError_t cudaError_t
#define hipSuccess cudaSuccess
#define hipEvent_t cudaEvent_t
#define hipGetErrorString cudaGetErrorString
#define hipGetLastError cudaGetLastError
#define hipMalloc cudaMalloc
#define hipFree cudaFree
#define hipMemset cudaMemset
#define hipMemGetInfo cudaMemGetInfo
#define hipGetDeviceCount cudaGetDeviceCount
#define hipSetDevice cudaSetDevice
#define hipDeviceGetAttribute cudaDeviceGetAttribute
#define hipDeviceAttributeIntegrated cudaDevAttrIntegrated
#define hipMemcpy cudaMemcpy
#define hipMemcpyHostToDevice cudaMemcpyHostToDevice
#define hipMemcpyDeviceToHost cudaMemcpyDeviceToHost
#define hipDeviceSynchronize cudaDeviceSynchronize
#define hipEventCreate cudaEventCreate
#define hipEventDestroy cudaEventDestroy
#define hipEventRecord cudaEventRecord
#define hipEventSynchronize cudaEventSynchronize
#define hipEventElapsedTime cudaEventElapsedTime
#define hipLaunchKernelGGL(kernel, grid, threads, shared, stream, ...) \
  kernel<<<(grid), (threads), (shared), (stream)>>>(__VA_ARGS__)

#define hipMemAllocationProp CUmemAllocationProp
#define requestedHandleType requestedHandleTypes
#define hipMemAccessDesc CUmemAccessDesc
#define hipMemGenericAllocationHandle_t CUmemGenericAllocationHandle
#define hipMemAllocationTypePinned CU_MEM_ALLOCATION_TYPE_PINNED
#define hipMemHandleTypePosixFileDescriptor CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
#define hipMemLocationTypeDevice CU_MEM_LOCATION_TYPE_DEVICE
#define hipMemAccessFlagsProtReadWrite CU_MEM_ACCESS_FLAGS_PROT_READWRITE
#define hipMemAllocationGranularityRecommended CU_MEM_ALLOC_GRANULARITY_RECOMMENDED

// Virtual memory is the driver's, which is looked up when it is needed: so a program without one starts, and says so.
namespace steno_driver {
template <typename Call, typename... Given>
cudaError_t call(const char* name, Given... given) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  Call* const found = driver == nullptr ? nullptr : reinterpret_cast<Call*>(dlsym(driver, name));
  return found == nullptr ? cudaErrorInsufficientDriver : static_cast<cudaError_t>(found(given...));
}
inline CUdeviceptr address(void* of) { return reinterpret_cast<CUdeviceptr>(of); }
}  // namespace steno_driver
#define STENO_DRIVER(name, ...) steno_driver::call<decltype(name)>(#name, __VA_ARGS__)

#define hipMemCreate(...) STENO_DRIVER(cuMemCreate, __VA_ARGS__)
#define hipMemRelease(...) STENO_DRIVER(cuMemRelease, __VA_ARGS__)
#define hipMemGetAllocationGranularity(...) STENO_DRIVER(cuMemGetAllocationGranularity, __VA_ARGS__)
#define hipMemExportToShareableHandle(...) STENO_DRIVER(cuMemExportToShareableHandle, __VA_ARGS__)
#define hipMemImportFromShareableHandle(...) STENO_DRIVER(cuMemImportFromShareableHandle, __VA_ARGS__)
#define hipMemAddressReserve(at, size, align, address, flags) \
  STENO_DRIVER(cuMemAddressReserve, reinterpret_cast<CUdeviceptr*>(at), size, align, CUdeviceptr{0}, flags)
#define hipMemAddressFree(at, size) STENO_DRIVER(cuMemAddressFree, steno_driver::address(at), size)
#define hipMemMap(at, ...) STENO_DRIVER(cuMemMap, steno_driver::address(at), __VA_ARGS__)
#define hipMemUnmap(at, size) STENO_DRIVER(cuMemUnmap, steno_driver::address(at), size)
#define hipMemSetAccess(at, ...) STENO_DRIVER(cuMemSetAccess, steno_driver::address(at), __VA_ARGS__)
