// Nested weights and the nested cache: codes of two nibble planes times the scale of their group.
#pragma once

#include "floats.h"
#include "parallel.h"

namespace nibblespec {

constexpr int64_t TWO = 2 * LANES;  // columns of sixteen bytes

// The codes of 32 columns: q4 for the draft (lo is null), 16 * q4 + qr for the target. Of fewer
// than sixteen bytes, `bytes` are read.
inline Two nested_codes(const uint8_t* hi, const uint8_t* lo, int64_t bytes) {
  uint8_t some_hi[LANES] = {}, some_lo[LANES] = {};
  if (bytes < LANES) {
    std::copy(hi, hi + bytes, some_hi);
    hi = some_hi;
    if (lo != nullptr) {
      std::copy(lo, lo + bytes, some_lo);
      lo = some_lo;
    }
  }
  const Two raw = lo == nullptr ? nibbles(hi) : nibble_pairs(hi, lo);
  const F32 excess = set(lo == nullptr ? 8.0f : 136.0f);  // 8 in each nibble
  return {raw.a - excess, raw.b - excess};
}

// One row whose groups are any number of columns: every column gets its own scale.
template <class T>
inline void row_of_any_groups(int64_t columns, int64_t group, const uint8_t* hi, const uint8_t* lo,
                              const float* scale, T* out) {
  float of_column[TWO] = {};
  int64_t g = -1, left = 0;
  for (int64_t k = 0; k < columns; k += TWO) {
    const int64_t lanes = std::min(TWO, columns - k);
    for (int64_t lane = 0; lane < lanes; ++lane, --left) {
      if (left == 0) {
        left = group;
        ++g;
      }
      of_column[lane] = scale[g];
    }
    const Two codes = nested_codes(hi + k / 2, lo == nullptr ? lo : lo + k / 2, lanes / 2);
    store_up_to(out + k, codes.a * load(of_column), lanes);
    if (lanes > LANES) {
      store_up_to(out + k + LANES, codes.b * load(of_column + LANES), lanes - LANES);
    }
  }
}

// One row whose groups are multiples of 32 columns.
template <class T>
inline void row_of_wide_groups(int64_t columns, int64_t group, const uint8_t* hi,
                               const uint8_t* lo, const float* scale, T* out) {
  for (int64_t k = 0; k < columns; k += group, ++scale) {
    const F32 step = set(*scale);
    if constexpr (sizeof(T) == 2) {
      if (lo == nullptr) {
        const Table weights = table(out, (iota() - set(8.0f)) * step);
        for (int64_t i = k; i < k + group; i += TWO) look_up(out + i, hi + i / 2, weights);
        continue;
      }
    }
    for (int64_t i = k; i < k + group; i += TWO) {
      const Two codes = nested_codes(hi + i / 2, lo == nullptr ? lo : lo + i / 2, LANES);
      store(out + i, codes.a * step);
      store(out + i + LANES, codes.b * step);
    }
  }
}

// hi, lo: [rows, columns / 2], lo null for the draft; scale: [rows, columns / group].
template <class T>
void nested_reconstruct(int64_t rows, int64_t columns, int64_t group, const uint8_t* hi,
                        const uint8_t* lo, const Floats& scale, T* out) {
  const F32 unit = set(lo == nullptr ? 1.0f : 0.0625f);
  const auto row = group % TWO == 0 ? row_of_wide_groups<T> : row_of_any_groups<T>;
  parallel(rows, grain_of(columns * 3), [&](int64_t begin, int64_t end) {
    Numbers scales;
    for (int64_t n = begin; n < end; ++n) {
      scale.widen(n * (columns / group), columns / group, &scales);
      for (size_t i = 0; i < scales.size(); i += LANES) {
        store(scales.data() + i, load(scales.data() + i) * unit);
      }
      const int64_t byte = n * (columns / 2);
      row(columns, group, hi + byte, lo == nullptr ? lo : lo + byte, scales.data(),
          out + n * columns);
    }
  });
}

}  // namespace nibblespec
