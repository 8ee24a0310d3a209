// The online Hadamard transform in its canonical float32 evaluation.
//
// Butterflies at the strides 1, 2, 4, …: as long as each stage combines the numbers that the text
// says, the order within a stage does not change a bit. Multiply-adds neither, for a matrix of ±1,
// whose products are exact.
#pragma once

#include "floats.h"
#include "parallel.h"

namespace nibblespec {

template <int Stride>
inline void stage_within(float* x, int64_t n) {
  for (int64_t i = 0; i < n; i += LANES) store(x + i, butterfly<Stride>(load(x + i)));
}

// Walsh–Hadamard of every `m` of the n numbers at x, unscaled; m is a power of two and room is
// left up to a multiple of sixteen numbers.
inline void walsh_hadamard(float* x, int64_t n, int64_t m) {
  if (m > 1) stage_within<1>(x, n);
  if (m > 2) stage_within<2>(x, n);
  if (m > 4) stage_within<4>(x, n);
  if (m > 8) stage_within<8>(x, n);
  for (int64_t stride = LANES; stride < m; stride *= 2) {
    for (int64_t start = 0; start < n; start += 2 * stride) {
      for (int64_t i = start; i < start + stride; i += LANES) {
        const F32 a = load(x + i), b = load(x + i + stride);
        store(x + i, a + b);
        store(x + i + stride, a - b);
      }
    }
  }
}

// y[i] = Σ matrix[i, l]·x[l] for `Rows` rows i, columns j … j + 15, summed in the order of l.
template <int Rows>
inline void mix(const float* matrix, const float* x, int64_t order, int64_t m, F32* y) {
  F32 sum[Rows];
  unrolled<Rows>([&](auto i) NIBBLESPEC_INLINE { sum[i] = set(matrix[i * order]) * load(x); });
  for (int64_t l = 1; l < order; ++l) {
    const F32 value = load(x + l * m);
    unrolled<Rows>([&](auto i) NIBBLESPEC_INLINE {
      sum[i] = multiply_add(set(matrix[i * order + l]), value, sum[i]);
    });
  }
  unrolled<Rows>([&](auto i) NIBBLESPEC_INLINE { y[i] = sum[i]; });
}

constexpr int64_t MIXED_ROWS = 4;

// x, out: [tokens, order * m]; matrix: float32 [order, order], or null with order 1.
template <class T>
void hadamard(int64_t tokens, int64_t order, int64_t m, const Floats& x, const float* matrix,
              float scale, T* out) {
  const int64_t n = order * m;
  const int64_t room = (n + LANES - 1) / LANES * LANES;
  if (matrix == nullptr) {
    parallel(tokens, grain_of(n * 16), [&](int64_t begin, int64_t end) {
      Numbers y;
      for (int64_t token = begin; token < end; ++token) {
        x.widen(token * n, n, &y);
        walsh_hadamard(y.data(), room, m);
        for (int64_t i = 0; i < n; i += LANES) {
          store_up_to(out + token * n + i, load(y.data() + i) * set(scale), n - i);
        }
      }
    });
    return;
  }
  // The matrix takes many times the work of the butterflies: its rows are shared out too. Rows of
  // fewer than sixteen columns may be read past their end, hence the room.
  Numbers transformed(tokens * n + LANES);
  parallel(tokens, grain_of(n * 16), [&](int64_t begin, int64_t end) {
    Numbers y;
    for (int64_t token = begin; token < end; ++token) {
      x.widen(token * n, n, &y);
      walsh_hadamard(y.data(), room, m);
      std::copy_n(y.data(), n, transformed.data() + token * n);
    }
  });
  const int64_t blocks = (order + MIXED_ROWS - 1) / MIXED_ROWS;
  parallel(tokens * blocks, grain_of(n * MIXED_ROWS), [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t token = block / blocks, first = block % blocks * MIXED_ROWS;
      const int64_t rows = std::min(MIXED_ROWS, order - first);
      for (int64_t j = 0; j < m; j += LANES) {
        F32 y[MIXED_ROWS];
        const float* const columns = transformed.data() + token * n + j;
        const float* const of_rows = matrix + first * order;
        if (rows == MIXED_ROWS) {
          mix<MIXED_ROWS>(of_rows, columns, order, m, y);
        } else {
          for (int64_t i = 0; i < rows; ++i) {
            mix<1>(of_rows + i * order, columns, order, m, y + i);
          }
        }
        for (int64_t i = 0; i < rows; ++i) {
          store_up_to(out + token * n + (first + i) * m + j, y[i] * set(scale), m - j);
        }
      }
    }
  });
}

}  // namespace nibblespec
