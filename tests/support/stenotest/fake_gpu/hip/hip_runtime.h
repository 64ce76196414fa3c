// A GPU whose memory is this machine's: the stand-in for HIP's header, and beside it the calls of virtual memory, in whose
// descriptors are files of memory.
#pragma once

#include_next <hip/hip_runtime.h>
#include <sys/mman.h>
#include <unistd.h>

#undef STENO_STAND_IN  // the harness takes this for a GPU

using hipMemGenericAllocationHandle_t = int;
enum hipMemAllocationType { hipMemAllocationTypePinned = 1 };
enum hipMemAllocationHandleType { hipMemHandleTypePosixFileDescriptor = 1 };
enum hipMemLocationType { hipMemLocationTypeDevice = 1 };
enum hipMemAccessFlags { hipMemAccessFlagsProtReadWrite = 3 };
enum hipMemAllocationGranularity_flags { hipMemAllocationGranularityRecommended = 1 };
struct hipMemLocation {
  hipMemLocationType type;
  int id;
};
struct hipMemAllocationProp {
  hipMemAllocationType type;
  hipMemAllocationHandleType requestedHandleType;
  hipMemLocation location;
};
struct hipMemAccessDesc {
  hipMemLocation location;
  hipMemAccessFlags flags;
};

inline hipError_t checked(bool well) { return steno_stand_in::noted(well ? hipSuccess : hipErrorInvalidValue); }

enum hipDeviceAttribute_t { hipDeviceAttributeIntegrated };
inline hipError_t hipDeviceGetAttribute(int* found, hipDeviceAttribute_t, int) {
  *found = 0;
  return hipSuccess;
}
inline hipError_t hipMemGetInfo(size_t* left, size_t* total) {
  *left = *total = 8 << 20;
  return hipSuccess;
}
inline hipError_t hipMemGetAllocationGranularity(size_t* found, const hipMemAllocationProp*, int) {
  *found = 2 << 20;
  return hipSuccess;
}
inline hipError_t hipMemCreate(int* made, size_t size, const hipMemAllocationProp*, unsigned long long) {
  *made = memfd_create("device", MFD_CLOEXEC);
  return checked(*made >= 0 && ftruncate(*made, static_cast<off_t>(size)) == 0);
}
inline hipError_t hipMemRelease(int of) { return checked(close(of) == 0); }
inline hipError_t hipMemExportToShareableHandle(void* to, int of, hipMemAllocationHandleType, unsigned long long) {
  return checked((*static_cast<int*>(to) = dup(of)) >= 0);
}
inline hipError_t hipMemImportFromShareableHandle(int* to, void* descriptor, hipMemAllocationHandleType) {
  return checked((*to = dup(static_cast<int>(reinterpret_cast<intptr_t>(descriptor)))) >= 0);
}
inline hipError_t hipMemAddressReserve(void** at, size_t size, size_t, void*, unsigned long long) {
  *at = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return checked(*at != MAP_FAILED);
}
inline hipError_t hipMemAddressFree(void* at, size_t size) { return checked(munmap(at, size) == 0); }
inline hipError_t hipMemMap(void* at, size_t size, size_t offset, int of, unsigned long long) {
  return checked(mmap(at, size, PROT_NONE, MAP_SHARED | MAP_FIXED, of, static_cast<off_t>(offset)) == at);
}
inline hipError_t hipMemUnmap(void* at, size_t size) {
  return checked(mmap(at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == at);
}
inline hipError_t hipMemSetAccess(void* at, size_t size, const hipMemAccessDesc*, size_t) {
  return checked(mprotect(at, size, PROT_READ | PROT_WRITE) == 0);
}
