// Sixteen float32 numbers in an AVX-512 register.
#pragma once

#include <immintrin.h>

#include "types.h"

namespace nibblespec {

struct F32 {
  __m512 v;
};
struct Two {
  F32 a, b;
};

constexpr int TILE = 4;  // rows and columns of sums that registers hold
constexpr int STREAMS = 4;  // rows of words that are read side by side
inline F32 in_register(F32 x) {
  asm("" : "+v"(x.v));
  return x;
}

inline F32 set(float x) { return {_mm512_set1_ps(x)}; }
inline F32 load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline F32 load(const f16* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline F32 load(const bf16* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}
inline void store(float* p, F32 x) { _mm512_storeu_ps(p, x.v); }
constexpr int NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
inline void store(f16* p, F32 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x.v, NEAREST));
}
inline __m256i round_bf16(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  sum = _mm512_mask_mov_epi32(sum, nan, _mm512_set1_epi32(0x7fc00000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(sum, 16));
}
inline __m256i rounded(F32 x) {
#ifdef __AVX512BF16__
  // The instruction rounds right, but takes subnormal numbers for zero.
  constexpr int subnormal = 0x20;
  if (__builtin_expect(_mm512_fpclass_ps_mask(x.v, subnormal) == 0, 1)) {
    return (__m256i)_mm512_cvtneps_pbh(x.v);
  }
#endif
  return round_bf16(x.v);
}
inline void store(bf16* p, F32 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), rounded(x));
}

inline F32 operator+(F32 a, F32 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline F32 operator-(F32 a, F32 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline F32 operator*(F32 a, F32 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline F32 operator/(F32 a, F32 b) { return {_mm512_div_ps(a.v, b.v)}; }
inline F32 multiply_add(F32 a, F32 b, F32 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline F32 min(F32 a, F32 b) { return {_mm512_min_ps(a.v, b.v)}; }
inline F32 max(F32 a, F32 b) { return {_mm512_max_ps(a.v, b.v)}; }
inline F32 abs(F32 a) { return {_mm512_abs_ps(a.v)}; }

inline __m256 upper_half(__m512 x) { return _mm512_extractf32x8_ps(x, 1); }
inline float sum(F32 x) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x.v), upper_half(x.v));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float largest(F32 x) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(x.v), upper_half(x.v));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

template <int Stride>
inline F32 butterfly(F32 x) {
  __m512 other;
  if constexpr (Stride == 1) {
    other = _mm512_permute_ps(x.v, 0xb1);
  } else if constexpr (Stride == 2) {
    other = _mm512_permute_ps(x.v, 0x4e);
  } else if constexpr (Stride == 4) {
    other = _mm512_shuffle_f32x4(x.v, x.v, 0xb1);
  } else {
    other = _mm512_shuffle_f32x4(x.v, x.v, 0x4e);
  }
  constexpr __mmask16 minus = Stride == 1   ? 0xaaaa
                              : Stride == 2 ? 0xcccc
                              : Stride == 4 ? 0xf0f0
                                            : 0xff00;
  return {_mm512_mask_sub_ps(_mm512_add_ps(x.v, other), minus, other, x.v)};
}

inline F32 from_ints(const int32_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_loadu_si512(p))};
}
inline void store_bytes(void* p, F32 x) {
  _mm_storeu_si128(static_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x.v)));
}
inline F32 power_of_two(F32 n) {
  const __m512i exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23))};
}

inline __m128i load128(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
inline F32 float_bytes(__m128i bytes) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes))};
}
inline Two interleave(__m128i even, __m128i odd) {
  return {float_bytes(_mm_unpacklo_epi8(even, odd)), float_bytes(_mm_unpackhi_epi8(even, odd))};
}
inline Two nibbles(const uint8_t* p) {
  const __m128i bytes = load128(p), low = _mm_set1_epi8(15);
  return interleave(_mm_and_si128(bytes, low), _mm_and_si128(_mm_srli_epi16(bytes, 4), low));
}
inline Two nibble_pairs(const uint8_t* hi, const uint8_t* lo) {
  const __m128i high = load128(hi), low = load128(lo), mask = _mm_set1_epi8(15);
  constexpr int select = 0xca;  // the second operand where the first has ones, else the third
  return interleave(
      _mm_ternarylogic_epi64(mask, low, _mm_slli_epi16(high, 4), select),
      _mm_ternarylogic_epi64(mask, _mm_srli_epi16(low, 4), high, select));
}
inline F32 bit_fields(const uint32_t* words, const int32_t* index, const int32_t* shift,
                      uint32_t mask) {
  const __m512i eight =
      _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(words)));
  const __m512i lanes = _mm512_permutexvar_epi32(_mm512_loadu_si512(index), eight);
  const __m512i codes = _mm512_and_si512(_mm512_srlv_epi32(lanes, _mm512_loadu_si512(shift)),
                                         _mm512_set1_epi32(static_cast<int32_t>(mask)));
  return {_mm512_cvtepi32_ps(codes)};
}

struct Table {
  __m512i v;  // twice the sixteen numbers
};
inline Table table(const bf16*, F32 x) { return {_mm512_broadcast_i64x4(rounded(x))}; }
inline Table table(const f16*, F32 x) {
  return {_mm512_broadcast_i64x4(_mm512_cvtps_ph(x.v, NEAREST))};
}
inline void look_up(void* out, const uint8_t* p, Table numbers) {
  const __m512i bytes = _mm512_cvtepu8_epi32(load128(p));
  // The low nibble in the lower half of 32 bits and the high nibble in the upper. A fifth bit of
  // the index says which copy of the table, and does not matter.
  const __m512i index = _mm512_or_si512(bytes, _mm512_slli_epi32(bytes, 12));
  _mm512_storeu_si512(out, _mm512_permutexvar_epi16(index, numbers.v));
}

struct FloatTable {
  __m512 v;
};
inline FloatTable float_table(float zero, float scale) {
  const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return {_mm512_mul_ps(_mm512_sub_ps(codes, _mm512_set1_ps(zero)), _mm512_set1_ps(scale))};
}
inline F32 look_up(const uint32_t* words, FloatTable numbers) {
  const __m512i first = _mm512_set1_epi32(static_cast<int32_t>(words[0]));
  const __m512i both = _mm512_mask_set1_epi32(first, 0xff00, static_cast<int32_t>(words[1]));
  const __m512i shift =
      _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
  // Of an index the last four bits count.
  return {_mm512_permutexvar_ps(_mm512_srlv_epi32(both, shift), numbers.v)};
}

}  // namespace nibblespec
