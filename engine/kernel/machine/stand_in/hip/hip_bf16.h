// bfloat16 for the stand-in: the upper half of a float, rounded to nearest even.
#pragma once

#include <cstdint>
#include <cstring>

#include "hip_runtime.h"

struct __hip_bfloat16 {
  uint16_t bits;
  __hip_bfloat16() = default;
  __hip_bfloat16(float value) : bits(pack(value)) {}
  __hip_bfloat16(double value) : __hip_bfloat16(static_cast<float>(value)) {}
  __hip_bfloat16(int value) : __hip_bfloat16(static_cast<float>(value)) {}
  operator float() const {
    const uint32_t f = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &f, 4);
    return value;
  }

  static uint16_t pack(float value) {
    uint32_t f;
    std::memcpy(&f, &value, 4);
    if ((f & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(f >> 16 | 0x40u);
    return static_cast<uint16_t>((f + 0x7fffu + (f >> 16 & 1u)) >> 16);
  }
};

inline float __bfloat162float(__hip_bfloat16 value) { return value; }
inline __hip_bfloat16 __float2bfloat16(float value) { return __hip_bfloat16(value); }
inline __hip_bfloat16 __hadd(__hip_bfloat16 a, __hip_bfloat16 b) { return float(a) + float(b); }
inline __hip_bfloat16 __hmul(__hip_bfloat16 a, __hip_bfloat16 b) { return float(a) * float(b); }
