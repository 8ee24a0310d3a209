// Sixteen float32 numbers in two AVX registers, a (lanes 0 … 7) and b (lanes 8 … 15).
#pragma once

#include <immintrin.h>

#include "types.h"

namespace nibblespec {

struct F32 {
  __m256 a, b;
};
struct Two {
  F32 a, b;
};

inline __m256i load256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
inline __m128i load128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline void store128(void* p, __m128i x) { _mm_storeu_si128(static_cast<__m128i*>(p), x); }

constexpr int TILE = 2;  // rows and columns of sums that registers hold
constexpr int STREAMS = 1;  // rows of words that are read side by side
inline F32 in_register(F32 x) {
  asm("" : "+x"(x.a), "+x"(x.b));
  return x;
}

inline F32 set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F32 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline F32 load(const f16* p) {
  return {_mm256_cvtph_ps(load128(p)), _mm256_cvtph_ps(load128(p + 8))};
}
inline __m256 widen_bf16(const bf16* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(p)), 16));
}
inline F32 load(const bf16* p) { return {widen_bf16(p), widen_bf16(p + 8)}; }
inline void store(float* p, F32 x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
constexpr int NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
inline void store(f16* p, F32 x) {
  store128(p, _mm256_cvtps_ph(x.a, NEAREST));
  store128(p + 8, _mm256_cvtps_ph(x.b, NEAREST));
}
inline __m256i round_bf16(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
  const __m256 quiet = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
  return _mm256_srli_epi32(
      _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(sum), quiet, nan)), 16);
}
inline void store(bf16* p, F32 x) {
  const __m256i packed = _mm256_packus_epi32(round_bf16(x.a), round_bf16(x.b));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}

inline F32 operator+(F32 x, F32 y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline F32 operator-(F32 x, F32 y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline F32 operator*(F32 x, F32 y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline F32 operator/(F32 x, F32 y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline F32 multiply_add(F32 x, F32 y, F32 z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
inline F32 min(F32 x, F32 y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline F32 max(F32 x, F32 y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline F32 abs(F32 x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}

inline float sum(F32 x) {
  const __m256 eight = _mm256_add_ps(x.a, x.b);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float largest(F32 x) {
  const __m256 eight = _mm256_max_ps(x.a, x.b);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

template <int Stride>
inline __m256 butterfly_half(__m256 x) {
  if constexpr (Stride == 1) {
    const __m256 other = _mm256_permute_ps(x, 0xb1);
    return _mm256_blend_ps(_mm256_add_ps(x, other), _mm256_sub_ps(other, x), 0xaa);
  } else if constexpr (Stride == 2) {
    const __m256 other = _mm256_permute_ps(x, 0x4e);
    return _mm256_blend_ps(_mm256_add_ps(x, other), _mm256_sub_ps(other, x), 0xcc);
  } else {
    const __m256 other = _mm256_permute2f128_ps(x, x, 0x01);
    return _mm256_blend_ps(_mm256_add_ps(x, other), _mm256_sub_ps(other, x), 0xf0);
  }
}
template <int Stride>
inline F32 butterfly(F32 x) {
  if constexpr (Stride == 8) {
    return {_mm256_add_ps(x.a, x.b), _mm256_sub_ps(x.a, x.b)};
  } else {
    return {butterfly_half<Stride>(x.a), butterfly_half<Stride>(x.b)};
  }
}

inline F32 from_ints(const int32_t* p) {
  return {_mm256_cvtepi32_ps(load256(p)), _mm256_cvtepi32_ps(load256(p + 8))};
}
inline __m256i last_bytes(__m256 x) {
  return _mm256_and_si256(_mm256_cvtps_epi32(x), _mm256_set1_epi32(255));
}
inline void store_bytes(void* p, F32 x) {
  const __m256i shorts = _mm256_packus_epi32(last_bytes(x.a), last_bytes(x.b));
  const __m256i ordered = _mm256_permute4x64_epi64(shorts, 0xd8);
  store128(p, _mm_packus_epi16(_mm256_castsi256_si128(ordered),
                               _mm256_extracti128_si256(ordered, 1)));
}
inline __m256 power_of_two_half(__m256 n) {
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
}
inline F32 power_of_two(F32 n) { return {power_of_two_half(n.a), power_of_two_half(n.b)}; }

inline F32 float_bytes(__m128i bytes) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)))};
}
inline Two interleave(__m128i even, __m128i odd) {
  return {float_bytes(_mm_unpacklo_epi8(even, odd)), float_bytes(_mm_unpackhi_epi8(even, odd))};
}
inline __m128i low_nibbles(__m128i x) { return _mm_and_si128(x, _mm_set1_epi8(15)); }
inline __m128i high_nibbles(__m128i x) { return low_nibbles(_mm_srli_epi16(x, 4)); }
inline Two nibbles(const uint8_t* p) {
  return interleave(low_nibbles(load128(p)), high_nibbles(load128(p)));
}
inline Two nibble_pairs(const uint8_t* hi, const uint8_t* lo) {
  const __m128i high = load128(hi), low = load128(lo), upper = _mm_set1_epi8(-16);
  return interleave(
      _mm_or_si128(_mm_and_si128(_mm_slli_epi16(high, 4), upper), low_nibbles(low)),
      _mm_or_si128(_mm_and_si128(high, upper), high_nibbles(low)));
}
inline __m256 bit_fields_half(__m256i words, const int32_t* index, const int32_t* shift,
                              __m256i mask) {
  const __m256i lanes = _mm256_permutevar8x32_epi32(words, load256(index));
  return _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srlv_epi32(lanes, load256(shift)), mask));
}
inline F32 bit_fields(const uint32_t* words, const int32_t* index, const int32_t* shift,
                      uint32_t mask) {
  const __m256i eight = load256(words);
  const __m256i low_bits = _mm256_set1_epi32(static_cast<int32_t>(mask));
  return {bit_fields_half(eight, index, shift, low_bits),
          bit_fields_half(eight, index + 8, shift + 8, low_bits)};
}

struct Table {
  __m256i low, high;  // the lower and the upper bytes of the sixteen numbers, each twice
};
inline __m256i rounded(const f16*, F32 x) {
  return _mm256_set_m128i(_mm256_cvtps_ph(x.b, NEAREST), _mm256_cvtps_ph(x.a, NEAREST));
}
inline __m256i rounded(const bf16*, F32 x) {
  const __m256i packed = _mm256_packus_epi32(round_bf16(x.a), round_bf16(x.b));
  return _mm256_permute4x64_epi64(packed, 0xd8);
}
template <class T>
inline Table table(const T* dtype, F32 x) {
  const __m256i numbers = rounded(dtype, x), low = _mm256_set1_epi16(255);
  const __m256i bytes =
      _mm256_packus_epi16(_mm256_and_si256(numbers, low), _mm256_srli_epi16(numbers, 8));
  // The packing leaves: low bytes of 0 … 7, high bytes of 0 … 7, low of 8 … 15, high of 8 … 15.
  return {_mm256_permute4x64_epi64(bytes, 0x88), _mm256_permute4x64_epi64(bytes, 0xdd)};
}
inline void look_up(void* out, const uint8_t* p, Table numbers) {
  const __m128i even = low_nibbles(load128(p)), odd = high_nibbles(load128(p));
  const __m256i codes =
      _mm256_set_m128i(_mm_unpackhi_epi8(even, odd), _mm_unpacklo_epi8(even, odd));
  const __m256i low = _mm256_shuffle_epi8(numbers.low, codes);
  const __m256i high = _mm256_shuffle_epi8(numbers.high, codes);
  const __m256i first = _mm256_unpacklo_epi8(low, high), second = _mm256_unpackhi_epi8(low, high);
  auto* const to = static_cast<__m256i*>(out);
  _mm256_storeu_si256(to, _mm256_permute2x128_si256(first, second, 0x20));
  _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(first, second, 0x31));
}

struct FloatTable {
  __m256 zero, scale;  // sixteen numbers are no table here: to compute them is as quick
};
inline FloatTable float_table(float zero, float scale) {
  return {_mm256_set1_ps(zero), _mm256_set1_ps(scale)};
}
inline __m256 weigh_word(uint32_t word, FloatTable numbers) {
  const __m256i shift = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
  const __m256i lanes = _mm256_srlv_epi32(_mm256_set1_epi32(static_cast<int32_t>(word)), shift);
  const __m256 codes = _mm256_cvtepi32_ps(_mm256_and_si256(lanes, _mm256_set1_epi32(15)));
  return _mm256_mul_ps(_mm256_sub_ps(codes, numbers.zero), numbers.scale);
}
inline F32 look_up(const uint32_t* words, FloatTable numbers) {
  return {weigh_word(words[0], numbers), weigh_word(words[1], numbers)};
}

}  // namespace nibblespec
