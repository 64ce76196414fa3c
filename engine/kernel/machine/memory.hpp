// Where the tensors of a batch lie: in files that the judge shares, and on a GPU in memory of the judge's own process, whose
// descriptors come over a Unix socket. Used by the harness and by the judge's process.
#pragma once

#include <fcntl.h>
#include <hip/hip_runtime.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace steno {

inline void expect(hipError_t status, const char* what) {
  if (status == hipSuccess) return;
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", what, hipGetErrorString(status));
  std::_Exit(3);
}

[[noreturn]] inline void leave(int status) {
  std::fflush(stdout);
  std::fflush(stderr);
  std::_Exit(status);  // whatever the solution registered for the end of the program is not run
}

// A file of the judge, mapped: every call has as many bytes of it.
class SharedFile {
 public:
  void map(const char* folder, const char* name, bool writes, size_t each, size_t calls) {
    unmap();
    each_ = each;
    size_ = each * calls ? each * calls : 1;
    char path[512];
    std::snprintf(path, sizeof path, "%s/%s", folder, name);
    const int file = open(path, (writes ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    void* found = mmap(nullptr, size_, writes ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0);
    if (file < 0 || found == MAP_FAILED) leave(4);
    close(file);
    start_ = static_cast<char*>(found);
  }

  void unmap() {
    if (size_ > 0) munmap(start_, size_);
    size_ = 0;
  }

  char* at(size_t call, size_t offset) const { return start_ + call * each_ + offset; }

 private:
  char* start_ = nullptr;
  size_t each_ = 0, size_ = 0;
};

#ifndef STENO_STAND_IN

// Use device 0, as everybody here does; memory is the driver's, which must know of this process first.
inline void use_device() {
  int devices = 0;
  expect(hipGetDeviceCount(&devices), "the GPU");
  expect(hipSetDevice(0), "the GPU");
  expect(hipFree(nullptr), "the GPU");
}

// Memory of the device that two processes map: one makes it, the other takes its descriptor.
class DeviceMemory {
 public:
  // Addresses for so many calls of so many bytes; there is nothing behind them yet.
  void reserve(size_t each, size_t calls) {
    give_back();
    size_t grain = 0;
    const hipMemAllocationProp wanted = properties();
    expect(hipMemGetAllocationGranularity(&grain, &wanted, hipMemAllocationGranularityRecommended), "the device's memory");
    each_ = each;
    reserved_ = (each * calls / grain + 1) * grain;
    void* found = nullptr;
    expect(hipMemAddressReserve(&found, reserved_, 0, nullptr, 0), "addresses for the tensors");
    start_ = static_cast<char*>(found);
  }

  // Make the memory, of the whole reserve.
  void make() {
    const hipMemAllocationProp wanted = properties();
    expect(hipMemCreate(&handle_, reserved_, &wanted, 0), "memory for the tensors");
    map(reserved_);
  }

  // A descriptor of it for another process.
  int share() const {
    int found = -1;
    expect(hipMemExportToShareableHandle(&found, handle_, hipMemHandleTypePosixFileDescriptor, 0), "sharing the tensors");
    return found;
  }

  // Map memory that another process made, in place of what is mapped; closes the descriptor.
  void take(int descriptor, size_t bytes) {
    unmap();
    if (bytes > reserved_) leave(4);
#if defined(HIP_VERSION) && HIP_VERSION < 70100000  // of ROCm before 7.1: a pointer to it
    void* const given = &descriptor;
#else
    void* const given = reinterpret_cast<void*>(static_cast<uintptr_t>(descriptor));
#endif
    expect(hipMemImportFromShareableHandle(&handle_, given, hipMemHandleTypePosixFileDescriptor), "the tensors");
    close(descriptor);
    map(bytes);
  }

  void give_back() {
    unmap();
    if (reserved_ > 0) expect(hipMemAddressFree(start_, reserved_), "addresses of the tensors");
    reserved_ = 0;
  }

  char* at(size_t call, size_t offset) const { return start_ + call * each_ + offset; }
  size_t bytes() const { return mapped_; }

 private:
  static hipMemAllocationProp properties() {
    hipMemAllocationProp wanted{};
    wanted.type = hipMemAllocationTypePinned;
    wanted.requestedHandleType = hipMemHandleTypePosixFileDescriptor;
    wanted.location.type = hipMemLocationTypeDevice;  // device 0
    return wanted;
  }

  void map(size_t bytes) {
    expect(hipMemMap(start_, bytes, 0, handle_, 0), "mapping the tensors");
    mapped_ = bytes;
    hipMemAccessDesc access{};
    access.location = properties().location;
    access.flags = hipMemAccessFlagsProtReadWrite;
    expect(hipMemSetAccess(start_, bytes, &access, 1), "mapping the tensors");
  }

  void unmap() {
    if (mapped_ == 0) return;
    expect(hipMemUnmap(start_, mapped_), "the mapping of the tensors");
    expect(hipMemRelease(handle_), "the memory of the tensors");
    mapped_ = 0;
  }

  char* start_ = nullptr;
  size_t each_ = 0, reserved_ = 0, mapped_ = 0;
  hipMemGenericAllocationHandle_t handle_{};
};

// What the judge's process sends when a batch begins; two descriptors come with it.
struct Release {
  uint64_t calls, inputs, outputs;  // the latter: bytes of the memory
};

inline int connected(const char* folder) {
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::snprintf(to.sun_path, sizeof to.sun_path, "%s/memory", folder);
  const int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (made < 0 || connect(made, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) leave(4);
  return made;
}

constexpr size_t MOST_DESCRIPTORS = 2;

struct Message {
  Message(void* data, size_t size) : piece{data, size} {
    head.msg_iov = &piece;
    head.msg_iovlen = 1;
    head.msg_control = room;
    head.msg_controllen = sizeof room;
  }
  msghdr head{};
  iovec piece;
  alignas(cmsghdr) char room[CMSG_SPACE(MOST_DESCRIPTORS * sizeof(int))] = {};
};

// Send a message with `count` descriptors; false: nobody takes it.
inline bool send_all(int to, void* data, size_t size, const int* descriptors, size_t count) {
  Message message(data, size);
  message.head.msg_controllen = CMSG_SPACE(count * sizeof(int));
  cmsghdr* const control = CMSG_FIRSTHDR(&message.head);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(count * sizeof(int));
  std::memcpy(CMSG_DATA(control), descriptors, count * sizeof(int));
  return sendmsg(to, &message.head, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(size);
}

// Receive a message of exactly this size; how many descriptors came with it; -1: the other side is gone.
inline int receive_all(int from, void* data, size_t size, int* descriptors) {
  Message message(data, size);
  if (recvmsg(from, &message.head, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(size)) return -1;
  const cmsghdr* const control = CMSG_FIRSTHDR(&message.head);
  if (control == nullptr || control->cmsg_type != SCM_RIGHTS) return 0;
  const size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
  std::memcpy(descriptors, CMSG_DATA(control), count * sizeof(int));
  return static_cast<int>(count);
}

#endif

}  // namespace steno
