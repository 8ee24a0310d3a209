// Sixteen float32 numbers in an array: for processors that have no file of their own here.
#pragma once

#include "types.h"

namespace nibblespec {

struct F32 {
  float lane[16];
};
struct Two {
  F32 a, b;
};

constexpr int TILE = 2;  // rows and columns of sums that registers hold
constexpr int STREAMS = 1;  // rows of words that are read side by side
// The same number, which the compiler does not read from memory again where it is used again.
inline const F32& in_register(const F32& x) { return x; }

template <class F>
inline F32 each(const F& value) {
  F32 result;
  for (int i = 0; i < 16; ++i) result.lane[i] = value(i);
  return result;
}

inline F32 set(float x) {
  return each([=](int) { return x; });
}
template <class T>
inline F32 load(const T* p) {
  return each([=](int i) { return widen(p[i]); });
}
template <class T>
inline void store(T* p, const F32& x) {
  for (int i = 0; i < 16; ++i) round_to(p + i, x.lane[i]);
}

inline F32 operator+(const F32& a, const F32& b) {
  return each([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline F32 operator-(const F32& a, const F32& b) {
  return each([&](int i) { return a.lane[i] - b.lane[i]; });
}
inline F32 operator*(const F32& a, const F32& b) {
  return each([&](int i) { return a.lane[i] * b.lane[i]; });
}
inline F32 operator/(const F32& a, const F32& b) {
  return each([&](int i) { return a.lane[i] / b.lane[i]; });
}
// a * b + c, in one rounding or in two.
inline F32 multiply_add(const F32& a, const F32& b, const F32& c) { return a * b + c; }
inline F32 min(const F32& a, const F32& b) {
  return each([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline F32 max(const F32& a, const F32& b) {
  return each([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline F32 abs(const F32& a) {
  return each([&](int i) { return float_of(bits_of(a.lane[i]) & 0x7fffffffu); });
}

// The sum of the lanes: halves first, lane i and lane i + 8; then quarters, and so on.
inline float sum(F32 x) {
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) x.lane[i] += x.lane[i + width];
  }
  return x.lane[0];
}
inline float largest(const F32& x) {
  float most = x.lane[0];
  for (const float lane : x.lane) most = lane > most ? lane : most;
  return most;
}

// Where lane i's bit `Stride` is clear a + b, where it is set a - b, of lanes Stride apart.
template <int Stride>
inline F32 butterfly(const F32& x) {
  return each([&](int i) {
    return i & Stride ? x.lane[i ^ Stride] - x.lane[i] : x.lane[i] + x.lane[i ^ Stride];
  });
}

inline F32 from_ints(const int32_t* p) {
  return each([=](int i) { return static_cast<float>(p[i]); });
}
// The last eight bits of whole numbers: int8 and uint8 alike.
inline void store_bytes(void* p, const F32& x) {
  auto* const bytes = static_cast<uint8_t*>(p);
  for (int i = 0; i < 16; ++i) bytes[i] = static_cast<uint8_t>(static_cast<int32_t>(x.lane[i]));
}
// 2^n for whole numbers n in -126 … 127.
inline F32 power_of_two(const F32& n) {
  return each([&](int i) {
    return float_of(static_cast<uint32_t>(static_cast<int32_t>(n.lane[i]) + 127) << 23);
  });
}

// The 32 nibbles of sixteen bytes, low nibble first.
inline Two nibbles(const uint8_t* p) {
  const auto half = [](const uint8_t* q) {
    return each([=](int i) { return static_cast<float>((q[i / 2] >> (4 * (i % 2))) & 15); });
  };
  return {half(p), half(p + 8)};
}
// 16 times the nibbles of hi plus those of lo.
inline Two nibble_pairs(const uint8_t* hi, const uint8_t* lo) {
  const Two high = nibbles(hi), low = nibbles(lo);
  return {high.a * set(16.0f) + low.a, high.b * set(16.0f) + low.b};
}
// Lane i: (words[index[i]] >> shift[i]) & mask. Eight words may be read.
inline F32 bit_fields(const uint32_t* words, const int32_t* index, const int32_t* shift,
                      uint32_t mask) {
  return each([=](int i) { return static_cast<float>((words[index[i]] >> shift[i]) & mask); });
}

// Sixteen numbers of 16 bits, and their choice by the 32 nibbles of sixteen bytes.
struct Table {
  uint16_t number[16];
};
template <class T>
inline Table table(const T*, const F32& x) {
  T rounded[16];
  store(rounded, x);
  Table result;
  std::memcpy(result.number, rounded, sizeof rounded);
  return result;
}
inline void look_up(void* out, const uint8_t* p, const Table& numbers) {
  auto* const to = static_cast<char*>(out);
  for (int i = 0; i < 16; ++i) {
    const uint16_t two[2] = {numbers.number[p[i] & 15], numbers.number[p[i] >> 4]};
    std::memcpy(to + 4 * i, two, sizeof two);
  }
}

// (q - zero) * scale in float32 for the codes q of four bits, and its choice by the sixteen codes
// of two words.
struct FloatTable {
  float number[16];
};
inline FloatTable float_table(float zero, float scale) {
  FloatTable result;
  for (int q = 0; q < 16; ++q) {
    const float difference = static_cast<float>(q) - zero;
    result.number[q] = difference * scale;
  }
  return result;
}
inline F32 look_up(const uint32_t* words, const FloatTable& numbers) {
  return each([&](int i) { return numbers.number[(words[i / 8] >> (4 * (i % 8))) & 15]; });
}

}  // namespace nibblespec
