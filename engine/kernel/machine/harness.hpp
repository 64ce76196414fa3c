// Feeds one case to a solution and times it; compiled with the solution, on the machine. Exit status: 0 done, 3 the GPU
// reported an error, 4 the files of the case cannot be used.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace steno {

inline void expect(hipError_t status, const char* what) {
  if (status == hipSuccess) return;
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", what, hipGetErrorString(status));
  std::_Exit(3);
}

class Case {
 public:
  // Arguments: the folder of the case, warm-ups, repeats (0: run once, untimed), then numbers in the order asked for.
  Case(int count, char** given) : folder_(given[1]), warm_ups_(std::atoi(given[2])), repeats_(std::atoi(given[3])) {
    words_.assign(given + 4, given + count);
  }

  size_t number() { return std::strtoull(words_.at(used_++).c_str(), nullptr, 10); }

  template <typename T>
  T parameter() {
    return static_cast<T>(std::strtod(words_.at(used_++).c_str(), nullptr));
  }

  template <typename T>
  const T* input(const char* name) {
    std::vector<char> bytes = read(name);
    void* device = nullptr;
    expect(hipMalloc(&device, bytes.size()), "memory for an input");
    expect(hipMemcpy(device, bytes.data(), bytes.size(), hipMemcpyHostToDevice), "copying an input");
    return static_cast<const T*>(device);
  }

  template <typename T>
  T* output(const char* name, size_t entries) {
    void* device = nullptr;
    expect(hipMalloc(&device, entries * sizeof(T)), "memory for an output");
    expect(hipMemset(device, 0xff, entries * sizeof(T)), "clearing an output");  // what is left unwritten is not right
    outputs_.push_back({name, device, entries * sizeof(T)});
    return static_cast<T*>(device);
  }

  template <typename Call>
  int run(Call call) {
    for (int i = 0; i < warm_ups_; ++i) call();
    if (repeats_ == 0) call();
    settle();
    if (repeats_ > 0) time(call);
    for (const Output& one : outputs_) {
      std::vector<char> bytes(one.bytes);
      expect(hipMemcpy(bytes.data(), one.device, one.bytes, hipMemcpyDeviceToHost), "copying an output");
      write(one.name, bytes.data(), bytes.size());
    }
    std::fflush(stdout);
    std::fflush(stderr);
    std::_Exit(0);  // whatever the solution registered for the end of the program is not run
  }

 private:
  struct Output {
    std::string name;
    void* device;
    size_t bytes;
  };

  template <typename Call>
  void time(Call call) {
    hipEvent_t from, to;
    expect(hipEventCreate(&from), "an event");
    expect(hipEventCreate(&to), "an event");
    std::string said;
    for (int i = 0; i < repeats_; ++i) {
      expect(hipEventRecord(from, nullptr), "an event");
      call();
      expect(hipEventRecord(to, nullptr), "an event");
      expect(hipEventSynchronize(to), "the solution");
      float milliseconds = 0.0f;
      expect(hipEventElapsedTime(&milliseconds, from, to), "an event");
      said += std::to_string(milliseconds) + "\n";
    }
    settle();
    write("-times", said.data(), said.size());
  }

  static void settle() {
    expect(hipGetLastError(), "the solution");
    expect(hipDeviceSynchronize(), "the solution");
  }

  std::vector<char> read(const char* name) const {
    std::FILE* file = std::fopen((folder_ + "/" + name + ".in").c_str(), "rb");
    if (file == nullptr) std::_Exit(4);
    std::fseek(file, 0, SEEK_END);
    std::vector<char> bytes(static_cast<size_t>(std::ftell(file)));
    std::fseek(file, 0, SEEK_SET);
    if (std::fread(bytes.data(), 1, bytes.size(), file) != bytes.size()) std::_Exit(4);
    std::fclose(file);
    return bytes;
  }

  void write(const std::string& name, const char* data, size_t bytes) const {
    std::FILE* file = std::fopen((folder_ + "/" + name + ".out").c_str(), "wb");
    if (file == nullptr || std::fwrite(data, 1, bytes, file) != bytes || std::fclose(file) != 0) std::_Exit(4);
  }

  std::string folder_;
  int warm_ups_, repeats_;
  std::vector<std::string> words_;
  size_t used_ = 0;
  std::vector<Output> outputs_;
};

}  // namespace steno
