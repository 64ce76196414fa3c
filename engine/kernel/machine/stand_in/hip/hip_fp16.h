// Half precision for the stand-in: stored in 16 bits, reckoned in float, rounded to nearest even.
#pragma once

#include <cstdint>
#include <cstring>

#include "hip_runtime.h"

struct __half {
  uint16_t bits;
  __half() = default;
  __half(float value) : bits(pack(value)) {}
  __half(double value) : __half(static_cast<float>(value)) {}
  __half(int value) : __half(static_cast<float>(value)) {}
  operator float() const { return unpack(bits); }
  __half& operator+=(float other) { return *this = __half(float(*this) + other); }
  __half& operator-=(float other) { return *this = __half(float(*this) - other); }
  __half& operator*=(float other) { return *this = __half(float(*this) * other); }
  __half& operator/=(float other) { return *this = __half(float(*this) / other); }

  static uint16_t pack(float value) {
    uint32_t f;
    std::memcpy(&f, &value, 4);
    const uint32_t sign = f >> 16 & 0x8000u;
    const uint32_t magnitude = f & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
    if (magnitude < 0x38800000u) {  // below the smallest normal half: a multiple of 2^-24
      const float scaled = std::nearbyint(std::fabs(value) * 16777216.0f);
      return static_cast<uint16_t>(sign | static_cast<uint32_t>(scaled));
    }
    const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    return static_cast<uint16_t>(sign | (rounded - 0x38000000u) >> 13);
  }

  static float unpack(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
    const uint32_t exponent = half >> 10 & 0x1fu, fraction = half & 0x3ffu;
    if (exponent == 0) {
      const float value = static_cast<float>(fraction) / 16777216.0f;
      return sign ? -value : value;
    }
    const uint32_t f = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | fraction << 13;
    float value;
    std::memcpy(&value, &f, 4);
    return value;
  }
};
using half = __half;

inline float __half2float(__half value) { return value; }
inline __half __float2half(float value) { return __half(value); }
inline __half __float2half_rn(float value) { return __half(value); }
inline __half __hadd(__half a, __half b) { return __half(float(a) + float(b)); }
inline __half __hsub(__half a, __half b) { return __half(float(a) - float(b)); }
inline __half __hmul(__half a, __half b) { return __half(float(a) * float(b)); }
inline __half __hdiv(__half a, __half b) { return __half(float(a) / float(b)); }
inline __half __hfma(__half a, __half b, __half c) { return __half(std::fma(float(a), float(b), float(c))); }
inline bool __hgt(__half a, __half b) { return float(a) > float(b); }
inline bool __hlt(__half a, __half b) { return float(a) < float(b); }
