// F32: sixteen float32 numbers, in the widest form that the processor has. Two: two of them.
//
// The three forms have the same functions; simd_generic.h says what each of them does. Every
// operation but multiply_add is one IEEE operation in each lane, and no two are contracted
// (-ffp-contract=off).
#pragma once

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && \
    defined(__AVX512VL__)
#define NIBBLESPEC_SIMD "AVX-512"
#include "simd_avx512.h"
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define NIBBLESPEC_SIMD "AVX2"
#include "simd_avx2.h"
#else
#define NIBBLESPEC_SIMD "generic"
#include "simd_generic.h"
#endif

#include <algorithm>
#include <new>
#include <type_traits>
#include <vector>

namespace nibblespec {

constexpr int64_t LANES = 16;

// Scratch memory, aligned so that no load of 64 bytes crosses a cache line.
template <class T>
struct CacheLines {
  using value_type = T;
  static constexpr std::align_val_t line{64};
  CacheLines() = default;
  template <class U>
  explicit CacheLines(const CacheLines<U>&) {}
  T* allocate(std::size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), line)); }
  void deallocate(T* p, std::size_t) { ::operator delete(p, line); }
  friend bool operator==(const CacheLines&, const CacheLines&) { return true; }
  friend bool operator!=(const CacheLines&, const CacheLines&) { return false; }
};
template <class T>
using Lines = std::vector<T, CacheLines<T>>;
using Numbers = Lines<float>;

using Full = std::integral_constant<int64_t, LANES>;

// 0, 1, 2, … 15.
inline F32 iota() {
  alignas(64) static constexpr float numbers[LANES] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                       8, 9, 10, 11, 12, 13, 14, 15};
  return load(numbers);
}

// The n < 16 numbers at p, and zeros.
template <class T>
inline F32 load_some(const T* p, int64_t n) {
  T padded[LANES] = {};
  std::copy(p, p + n, padded);
  return load(padded);
}

// The first n < 16 numbers of x.
template <class T>
inline void store_some(T* p, F32 x, int64_t n) {
  T all[LANES];
  store(all, x);
  std::copy(all, all + n, p);
}

// The first n lanes of x, and zeros.
inline F32 keep(F32 x, int64_t n) {
  if (n >= LANES) return x;
  float all[LANES];
  store(all, x);
  return load_some(all, n);
}

template <class T>
inline F32 load_up_to(const T* p, int64_t n) {
  return n >= LANES ? load(p) : load_some(p, n);
}

template <class T>
inline void store_up_to(T* p, F32 x, int64_t n) {
  n >= LANES ? store(p, x) : store_some(p, x, n);
}

inline void store_bytes_up_to(int8_t* p, F32 x, int64_t n) {
  if (n >= LANES) return store_bytes(p, x);
  int8_t all[LANES];
  store_bytes(all, x);
  std::copy(all, all + n, p);
}

// The nearest whole number, ties to even, of |x| < 2^22: its unit is 1 once 1.5·2^23 is added.
inline F32 round_even(F32 x) { return (x + set(12582912.0f)) - set(12582912.0f); }

}  // namespace nibblespec
