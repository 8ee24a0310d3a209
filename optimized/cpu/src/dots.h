// Integer products of nibble planes with int8 activations, per unit of 32 columns.
//
// The planes hold excess codes, q4 + 8 and qr + 8, and that is what is multiplied here: 8 (draft)
// or 136 (target) times the sum of the unit's activations has to be taken off. Everything is exact
// modulo 2^32.
//
// Activations come apart into even and odd columns, as the low and high nibbles of a plane are:
// int8 [tokens, stride] each, zeros past the last column up to a multiple of 64.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <algorithm>

#include "types.h"

namespace nibblespec {

constexpr int64_t UNIT = 32;           // columns
constexpr int64_t UNIT_BYTES = UNIT / 2;  // of a plane

struct Tokens {
  const int8_t* even;
  const int8_t* odd;
  int64_t stride;
};

#if defined(__AVX512VNNI__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define NIBBLESPEC_VNNI


// The sums of each four lanes of a, b, c, d: those of a first.
inline __m512i sum_by_four(__m512i a, __m512i b, __m512i c, __m512i d) {
  const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
  // Lane 4·j + v is now the sum of the j-th four lanes of the v-th operand.
  const __m512i sums =
      _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_epi32(order, sums);
}

// out[s] = the sum of units 4·s … 4·s + 3, less excess[s], for sixteen s; modulo 2^32.
inline void add_fours(const int32_t* units, const int32_t* excess, int32_t* out) {
  const __m512i sums =
      sum_by_four(_mm512_loadu_si512(units), _mm512_loadu_si512(units + 16),
                  _mm512_loadu_si512(units + 32), _mm512_loadu_si512(units + 48));
  _mm512_storeu_si512(out, _mm512_sub_epi32(sums, _mm512_loadu_si512(excess)));
}

struct Codes64 {
  __m512i even, odd;
};

inline __m512i plane_bytes(const uint8_t* p, int64_t count) {
  return count >= 64 ? _mm512_loadu_si512(p)
                     : _mm512_maskz_loadu_epi8((uint64_t{1} << std::max<int64_t>(count, 0)) - 1, p);
}

template <bool Target>
inline Codes64 excess_codes(const uint8_t* hi, const uint8_t* lo, int64_t count) {
  const __m512i mask = _mm512_set1_epi8(15);
  const __m512i high = plane_bytes(hi, count);
  if constexpr (Target) {
    const __m512i low = plane_bytes(lo, count);
    constexpr int select = 0xca;  // the second operand where the first has ones, else the third
    return {_mm512_ternarylogic_epi64(mask, low, _mm512_slli_epi16(high, 4), select),
            _mm512_ternarylogic_epi64(mask, _mm512_srli_epi16(low, 4), high, select)};
  } else {
    return {_mm512_and_si512(high, mask), _mm512_and_si512(_mm512_srli_epi16(high, 4), mask)};
  }
}

// The products of 16 units, of which those of `bytes` bytes are there: all of them if Full.
template <bool Target, int Count, bool Full>
inline void four_registers(const uint8_t* hi, const uint8_t* lo, int64_t bytes, const Tokens& x,
                           int64_t at, int32_t* out, int64_t out_stride) {
  __m512i dot[Count][4];
  unrolled<4>([&](auto v) NIBBLESPEC_INLINE {
    const int64_t left = Full ? 64 : bytes - v * 64;
    const Codes64 codes = excess_codes<Target>(hi + v * 64, lo + v * 64, left);
    unrolled<Count>([&](auto m) NIBBLESPEC_INLINE {
      dot[m][v] = _mm512_setzero_si512();
      if (left > 0) {
        const int64_t token = m * x.stride + at + v * 64;
        dot[m][v] = _mm512_dpbusd_epi32(dot[m][v], codes.even, _mm512_loadu_si512(x.even + token));
        dot[m][v] = _mm512_dpbusd_epi32(dot[m][v], codes.odd, _mm512_loadu_si512(x.odd + token));
      }
    });
  });
  unrolled<Count>([&](auto m) NIBBLESPEC_INLINE {
    _mm512_storeu_si512(out + m * out_stride + at / UNIT_BYTES,
                        sum_by_four(dot[m][0], dot[m][1], dot[m][2], dot[m][3]));
  });
}

// out: [Count, out_stride], a product for each unit.
template <bool Target, int Count>
inline void unit_dots(const uint8_t* hi, const uint8_t* lo, int64_t bytes, const Tokens& x,
                      int32_t* out, int64_t out_stride) {
  for (int64_t at = 0; at < bytes; at += 4 * 64) {
    const int64_t left = bytes - at;
    if (left >= 4 * 64) {
      four_registers<Target, Count, true>(hi + at, lo + at, left, x, at, out, out_stride);
    } else {
      four_registers<Target, Count, false>(hi + at, lo + at, left, x, at, out, out_stride);
    }
  }
}

#elif defined(__AVX2__)

inline __m128i unit_bytes(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}

// Products of nibbles with int8: at most 2·15·128 in each sum of two, far from int16's limit.
inline __m128i nibble_dot(__m128i plane, __m128i even, __m128i odd, __m128i weight) {
  const __m128i mask = _mm_set1_epi8(15);
  const __m128i low = _mm_and_si128(plane, mask);
  const __m128i high = _mm_and_si128(_mm_srli_epi16(plane, 4), mask);
  const __m128i sums = _mm_add_epi16(_mm_maddubs_epi16(low, even), _mm_maddubs_epi16(high, odd));
  return _mm_madd_epi16(sums, weight);
}

inline int32_t sum_of_four(__m128i x) {
  x = _mm_add_epi32(x, _mm_shuffle_epi32(x, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(x, _mm_shuffle_epi32(x, 0xb1)));
}

template <bool Target, int Count>
inline void unit_dots(const uint8_t* hi, const uint8_t* lo, int64_t bytes, const Tokens& x,
                      int32_t* out, int64_t out_stride) {
  const __m128i high_weight = _mm_set1_epi16(Target ? 16 : 1), low_weight = _mm_set1_epi16(1);
  for (int64_t at = 0; at < bytes; at += UNIT_BYTES) {
    for (int m = 0; m < Count; ++m) {
      const int64_t token = m * x.stride + at;
      const __m128i even = unit_bytes(x.even + token), odd = unit_bytes(x.odd + token);
      __m128i dot = nibble_dot(unit_bytes(hi + at), even, odd, high_weight);
      if constexpr (Target) {
        dot = _mm_add_epi32(dot, nibble_dot(unit_bytes(lo + at), even, odd, low_weight));
      }
      out[m * out_stride + at / UNIT_BYTES] = sum_of_four(dot);
    }
  }
}

#else

template <bool Target, int Count>
inline void unit_dots(const uint8_t* hi, const uint8_t* lo, int64_t bytes, const Tokens& x,
                      int32_t* out, int64_t out_stride) {
  for (int64_t at = 0; at < bytes; at += UNIT_BYTES) {
    for (int m = 0; m < Count; ++m) {
      const int64_t token = m * x.stride;
      int32_t dot = 0;
      for (int64_t j = at; j < at + UNIT_BYTES; ++j) {
        const int32_t even = Target ? (hi[j] & 15) * 16 + (lo[j] & 15) : hi[j] & 15;
        const int32_t odd = Target ? (hi[j] >> 4) * 16 + (lo[j] >> 4) : hi[j] >> 4;
        dot += even * x.even[token + j] + odd * x.odd[token + j];
      }
      out[m * out_stride + at / UNIT_BYTES] = dot;
    }
  }
}

#endif

#ifndef NIBBLESPEC_VNNI
inline void add_fours(const int32_t* units, const int32_t* excess, int32_t* out) {
  for (int s = 0; s < 16; ++s) {
    uint32_t total = 0;
    for (int i = 0; i < 4; ++i) total += static_cast<uint32_t>(units[4 * s + i]);
    out[s] = static_cast<int32_t>(total - static_cast<uint32_t>(excess[s]));
  }
}
#endif

}  // namespace nibblespec
