// The nested cache: one scale for each token and head, two nibble planes along head_dim.
#pragma once

#include "activations.h"

namespace nibblespec {

// Sixteen codes in -8 … 7, of which `count` (even) are packed two to a byte.
inline void pack_nibbles(uint8_t* out, F32 codes, int64_t count) {
  uint8_t excess[LANES];
  store_bytes(excess, codes + set(8.0f));
  for (int64_t j = 0; j < count / 2; ++j) {
    out[j] = static_cast<uint8_t>(excess[2 * j] | excess[2 * j + 1] << 4);
  }
}

// x: [vectors, width]. offset: float32 [heads, width] or null; vector v is that of head
// v / per_head % heads. hi, lo: [vectors, width / 2]; scale: [vectors].
inline void kv_quantize(int64_t vectors, int64_t width, const Floats& x, const float* offset,
                        int64_t heads, int64_t per_head, uint8_t* hi, uint8_t* lo,
                        float* scale) {
  parallel(vectors, grain_of(width * 4), [&](int64_t begin, int64_t end) {
    Numbers shifted;
    for (int64_t v = begin; v < end; ++v) {
      x.widen(v * width, width, &shifted);
      if (offset != nullptr) {
        const float* const of_head = offset + v / per_head % heads * width;
        for (int64_t d = 0; d < width; ++d) shifted[d] -= of_head[d];
      }
      scale[v] = std::max(largest_magnitude(shifted) / 7.0f, SMALLEST_SCALE);
      const F32 step = set(scale[v]), sixteenth = set(scale[v] / 16.0f);
      for (int64_t d = 0; d < width; d += LANES) {
        const int64_t lanes = std::min(LANES, width - d);
        const int64_t byte = (v * width + d) / 2;
        const F32 value = load(shifted.data() + d);
        const F32 q4 = max(set(-8.0f), min(set(7.0f), round_even(value / step)));
        const F32 remainder = value - q4 * step;  // two roundings
        F32 qr = round_even(remainder / sixteenth);
        // Not below 0 where q4 is -8: the lowest is then 0, and otherwise less than -8.
        const F32 lowest = max(set(-8.0f), (set(-7.0f) - q4) * set(8.0f) - set(8.0f));
        qr = max(lowest, min(set(7.0f), qr));
        pack_nibbles(hi + byte, q4, lanes);
        pack_nibbles(lo + byte, qr, lanes);
      }
    }
  });
}

}  // namespace nibblespec
