// Number formats of the arrays, and conversions that are exact or round to nearest even, once.
//
// All of it is plain integer and float32 arithmetic, right for every value, subnormals included,
// on any processor; simd_*.h have the same for sixteen numbers at a time.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

// Of functions whose callbacks keep sums in registers: a call that is not inlined costs that.
#define NIBBLESPEC_INLINE __attribute__((always_inline))

namespace nibblespec {

template <class F, int... I>
NIBBLESPEC_INLINE inline void call_each(const F& function, std::integer_sequence<int, I...>) {
  (function(std::integral_constant<int, I>()), ...);
}

// Call function(0), function(1), … function(Count - 1), each of them a constant: an array with
// no other index than constants is kept in registers, which a loop does not ensure.
template <int Count, class F>
NIBBLESPEC_INLINE inline void unrolled(const F& function) {
  call_each(function, std::make_integer_sequence<int, Count>());
}

struct f16 {
  uint16_t bits;
};
struct bf16 {
  uint16_t bits;
};

inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline float widen(float value) { return value; }

inline float widen(bf16 value) { return float_of(static_cast<uint32_t>(value.bits) << 16); }

inline float widen(f16 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(value.bits & 0x7fffu) << 13;
  // 2^112 moves the exponent from float16's bias to float32's; exact, for subnormals too.
  const uint32_t finite = bits_of(float_of(magnitude) * 0x1p112f);
  const bool special = magnitude >= 0x0f800000u;  // infinity or NaN
  return float_of((special ? magnitude | 0x7f800000u : finite) | sign);
}

inline void round_to(float* out, float value) { *out = value; }

inline void round_to(bf16* out, float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  // A NaN with all bits set would carry over into the sign.
  out->bits = static_cast<uint16_t>(value != value ? 0x7fc0u : rounded);
}

inline void round_to(f16* out, float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t rounded;
  if (magnitude > 0x7f800000u) {
    rounded = 0x7e00u;  // NaN
  } else if (magnitude >= 0x477ff000u) {
    rounded = 0x7c00u;  // 65520 and above: infinity
  } else if (magnitude < 0x38800000u) {
    // Below 2^-14: the sum with 0.5 has a unit of 2^-24, float16's smallest subnormal.
    rounded = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    rounded = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  }
  out->bits = static_cast<uint16_t>(rounded | sign);
}

}  // namespace nibblespec
