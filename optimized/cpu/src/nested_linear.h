// The nested layer: an integer product for each segment, times the scales of the groups in which
// it lies, summed in float32. What a token gets does not depend on how many there are.
#pragma once

#include "dots.h"
#include "floats.h"
#include "parallel.h"

namespace nibblespec {

struct NestedLayer {
  int64_t tokens, rows, columns, x_group, group;
  const int8_t* xq;     // [tokens, columns]
  const float* sx;      // [tokens, columns / x_group]
  const uint8_t* hi;    // [rows, columns / 2]
  const uint8_t* lo;    // the same, or null for the draft
  const f16* scale;     // [rows, columns / group]
  const f16* bias;      // [rows], or null
};

inline float weight_unit(const NestedLayer& layer) { return layer.lo == nullptr ? 1.0f : 0.0625f; }

// Segments of one width, a multiple of a unit: the narrower of two groups of which one divides the
// other. 2^16 columns of products below 2^15 stay within an int32.
inline bool in_units(const NestedLayer& layer) {
  const int64_t width = std::min(layer.x_group, layer.group);
  return layer.x_group % width == 0 && layer.group % width == 0 && width % UNIT == 0 &&
         width <= 65536;
}

// What all rows of weights need of the activations.
struct SplitTokens {
  Lines<int8_t> even, odd;  // [tokens, stride]
  Lines<int32_t> excess;    // [tokens, padded]: to take off the products of excess codes
  Numbers scale;       // [tokens, padded]: of each segment, and zeros
  int64_t stride, segments, padded;
};

inline SplitTokens split_tokens(const NestedLayer& layer, int64_t width) {
  SplitTokens x;
  x.stride = (layer.columns / 2 + 63) / 64 * 64;
  x.segments = layer.columns / width;
  x.padded = (x.segments + LANES - 1) / LANES * LANES;
  x.even.resize(layer.tokens * x.stride);
  x.odd.resize(layer.tokens * x.stride);
  x.excess.resize(layer.tokens * x.padded);
  x.scale.resize(layer.tokens * x.padded);
  const int32_t excess = layer.lo == nullptr ? 8 : 136;
  parallel(layer.tokens, grain_of(layer.columns * 4), [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      const int8_t* const token = layer.xq + m * layer.columns;
      for (int64_t j = 0; j < layer.columns / 2; ++j) {
        x.even[m * x.stride + j] = token[2 * j];
        x.odd[m * x.stride + j] = token[2 * j + 1];
      }
      for (int64_t s = 0; s < x.segments; ++s) {
        int32_t total = 0;
        for (int64_t k = s * width; k < (s + 1) * width; ++k) total += token[k];
        x.excess[m * x.padded + s] = excess * total;
        x.scale[m * x.padded + s] =
            layer.sx[m * (layer.columns / layer.x_group) + s * width / layer.x_group];
      }
    }
  });
  return x;
}

// The scale of every segment of a row, and zeros.
inline void segment_scales(const NestedLayer& layer, int64_t row, int64_t width,
                           Numbers* wide, float* out) {
  const int64_t groups = layer.columns / layer.group;
  Floats{FLOAT16, layer.scale}.widen(row * groups, groups, wide);
  const float unit = weight_unit(layer);
  const int64_t repeats = layer.group / width;
  for (int64_t g = 0; g < groups; ++g) {
    std::fill_n(out + g * repeats, repeats, (*wide)[g] * unit);
  }
}

// Products of units, modulo 2^32, added up to products of segments. Units and segments are zero
// past the last, up to a multiple of sixteen segments.
inline void add_units(const int32_t* units, int64_t per_segment, int64_t padded,
                      const int32_t* excess, int32_t* out) {
  if (per_segment == 4) {
    for (int64_t s = 0; s < padded; s += LANES) add_fours(units + 4 * s, excess + s, out + s);
    return;
  }
  for (int64_t s = 0; s < padded; ++s) {
    uint32_t total = 0;
    for (int64_t i = 0; i < per_segment; ++i) {
      total += static_cast<uint32_t>(units[s * per_segment + i]);
    }
    out[s] = static_cast<int32_t>(total - static_cast<uint32_t>(excess[s]));
  }
}

inline float scaled_sum(const int32_t* dots, const float* sx, const float* sw, int64_t padded) {
  F32 total = set(0.0f);
  for (int64_t s = 0; s < padded; s += LANES) {
    total = multiply_add(from_ints(dots + s), load(sx + s) * load(sw + s), total);
  }
  return sum(total);
}

constexpr int64_t ROW_BLOCK = 16;   // rows of weights that all tokens pass by while in the cache
constexpr int TOKEN_BLOCK = 4;      // tokens that share one unpacking of the codes

template <bool Target, class T>
void nested_linear_in_units(const NestedLayer& layer, T* out) {
  const int64_t width = std::min(layer.x_group, layer.group);
  const int64_t bytes = layer.columns / 2;
  const SplitTokens x = split_tokens(layer, width);
  const int64_t units = x.padded * (width / UNIT) + LANES;
  const int64_t grain = grain_of(layer.columns * (1 + layer.tokens));
  parallel(layer.rows, grain, [&](int64_t begin, int64_t end) {
    Numbers wide, scales(ROW_BLOCK * x.padded);
    Lines<int32_t> unit_products(TOKEN_BLOCK * units), products(x.padded);
    const auto some = [&](auto count, int64_t first, int64_t last, int64_t m) {
      const Tokens tokens = {x.even.data() + m * x.stride, x.odd.data() + m * x.stride, x.stride};
      for (int64_t row = first; row < last; ++row) {
        unit_dots<Target, count()>(layer.hi + row * bytes, layer.lo + (Target ? row * bytes : 0),
                                   bytes, tokens, unit_products.data(), units);
        for (int64_t i = 0; i < count(); ++i) {
          const int64_t token = (m + i) * x.padded;
          add_units(unit_products.data() + i * units, width / UNIT, x.padded,
                    x.excess.data() + token, products.data());
          const float y = scaled_sum(products.data(), x.scale.data() + token,
                                     scales.data() + (row - first) * x.padded, x.padded);
          const float bias = layer.bias == nullptr ? 0.0f : widen(layer.bias[row]);
          round_to(out + (m + i) * layer.rows + row, y + bias);
        }
      }
    };
    for (int64_t first = begin; first < end; first += ROW_BLOCK) {
      const int64_t last = std::min(first + ROW_BLOCK, end);
      for (int64_t row = first; row < last; ++row) {
        segment_scales(layer, row, width, &wide, scales.data() + (row - first) * x.padded);
      }
      int64_t m = 0;
      for (; m + TOKEN_BLOCK <= layer.tokens; m += TOKEN_BLOCK) {
        some(std::integral_constant<int, TOKEN_BLOCK>(), first, last, m);
      }
      for (; m < layer.tokens; ++m) some(std::integral_constant<int, 1>(), first, last, m);
    }
  });
}

// Any two group widths: segments end where either group does.
template <class T>
void nested_linear_in_segments(const NestedLayer& layer, T* out) {
  parallel(layer.rows, grain_of(layer.columns * (1 + layer.tokens)), [&](int64_t begin,
                                                                         int64_t end) {
    std::vector<int16_t> codes(layer.columns);
    const int64_t bytes = layer.columns / 2;
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t j = 0; j < bytes; ++j) {
        const uint8_t high = layer.hi[row * bytes + j];
        const int16_t even = (high & 15) - 8, odd = (high >> 4) - 8;
        if (layer.lo == nullptr) {
          codes[2 * j] = even;
          codes[2 * j + 1] = odd;
        } else {
          const uint8_t low = layer.lo[row * bytes + j];
          codes[2 * j] = even * 16 + (low & 15) - 8;
          codes[2 * j + 1] = odd * 16 + (low >> 4) - 8;
        }
      }
      for (int64_t m = 0; m < layer.tokens; ++m) {
        const int8_t* const token = layer.xq + m * layer.columns;
        float y = 0.0f;
        for (int64_t k = 0; k < layer.columns;) {
          const int64_t x_group = k / layer.x_group, group = k / layer.group;
          const int64_t stop = std::min((x_group + 1) * layer.x_group, (group + 1) * layer.group);
          int64_t dot = 0;
          for (; k < stop; ++k) dot += static_cast<int32_t>(token[k]) * codes[k];
          const float sx = layer.sx[m * (layer.columns / layer.x_group) + x_group];
          const float sw = widen(layer.scale[row * (layer.columns / layer.group) + group]);
          y += static_cast<float>(dot) * (sx * (sw * weight_unit(layer)));
        }
        const float bias = layer.bias == nullptr ? 0.0f : widen(layer.bias[row]);
        round_to(out + m * layer.rows + row, y + bias);
      }
    }
  });
}

template <class T>
void nested_linear(const NestedLayer& layer, T* out) {
  if (!in_units(layer)) {
    nested_linear_in_segments(layer, out);
  } else if (layer.lo == nullptr) {
    nested_linear_in_units<false>(layer, out);
  } else {
    nested_linear_in_units<true>(layer, out);
  }
}

}  // namespace nibblespec
