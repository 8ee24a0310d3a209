// Attention over the nested cache, a query at a time: scores of all keys that it sees, their
// exponentials, the weighted sum of the values. Two passes over the cache; every sum has an order
// that neither the other queries nor the rest of the cache can change.
#pragma once

#include "nested.h"

namespace nibblespec {

struct NestedCache {
  int64_t length;       // L: positions
  const uint8_t *k_hi, *k_lo, *v_hi, *v_lo;  // [heads, L, width / 2]; lo null for the draft
  const float *k_scale, *v_scale;            // [heads, L]
};

struct Attention {
  int64_t batch_heads;  // batches times heads of the cache
  int64_t heads;        // of the cache
  int64_t shared;       // query heads for each of them
  int64_t queries, width, position;
  NestedCache cache;
  const float* q;       // [batch_heads, shared, queries, width]
  const float* offset;  // [heads, width], or null
  float scale;
};

// e^a for a ≤ 0: 2^n·p(r), r = a - n·ln 2 in two parts, p the Taylor polynomial of degree 7 on
// |r| ≤ ln 2 / 2. The polynomial's own error is below 2^-27, that of its evaluation below 2^-22.5,
// and e^0 is 1. What is below 2^-126 becomes 0.
inline F32 exponential(F32 a) {
  a = max(a, set(-104.0f));
  const F32 n = round_even(a * set(1.44269504f));
  // 0.693359375 has nine bits, so that its product with n is exact.
  const F32 r = (a - n * set(0.693359375f)) - n * set(-2.12194440e-4f);
  F32 p = set(1.0f / 5040);
  for (const float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) {
    p = multiply_add(p, r, set(c));
  }
  const F32 low = set(-126.0f);
  const F32 power = power_of_two(max(n, low));
  // 1 where n ≥ -126, 0 below.
  const F32 kept = max(set(0.0f), min(set(1.0f), n - set(-127.0f)));
  return p * power * kept;
}

// Codes of a row of the cache as float32 numbers, [width] and zeros to a multiple of 32.
inline void cache_codes(const uint8_t* hi, const uint8_t* lo, int64_t width, float* out) {
  for (int64_t d = 0; d < width; d += TWO) {
    const int64_t lanes = std::min(TWO, width - d);
    const Two codes = nested_codes(hi + d / 2, lo == nullptr ? lo : lo + d / 2, lanes / 2);
    store(out + d, keep(codes.a, lanes));
    store(out + d + LANES, keep(codes.b, std::max<int64_t>(lanes - LANES, 0)));
  }
}

inline float dot(const float* a, const float* b, int64_t padded) {
  F32 total = set(0.0f);
  for (int64_t d = 0; d < padded; d += LANES) {
    total = multiply_add(load(a + d), load(b + d), total);
  }
  return sum(total);
}

// Scores to weights, in place; their sum is returned. `count` numbers, room to a multiple of 16.
inline float exponentials(float* scores, int64_t count) {
  const float most = *std::max_element(scores, scores + count);
  F32 total = set(0.0f);
  for (int64_t j = 0; j < count; j += LANES) {
    const F32 weights = keep(exponential(load(scores + j) - set(most)), count - j);
    store(scores + j, weights);
    total = total + weights;
  }
  return sum(total);
}

constexpr int64_t QUERY_BLOCK = 16;  // queries that share one unpacking of the cache

// Queries first … first + count - 1, of the shared · queries that read one head of the cache.
template <class T>
void attend(const Attention& call, int64_t head, int64_t first, int64_t count, T* out) {
  const NestedCache& cache = call.cache;
  const int64_t padded = (call.width + TWO - 1) / TWO * TWO;
  const int64_t bytes = call.width / 2;
  const float unit = cache.k_lo == nullptr ? 1.0f : 0.0625f;
  const int64_t place = (head * call.shared * call.queries + first) * call.width;
  std::vector<int64_t> seen(count);
  for (int64_t i = 0; i < count; ++i) seen[i] = call.position + (first + i) % call.queries + 1;
  const int64_t most = *std::max_element(seen.begin(), seen.end());
  const int64_t room = (most + LANES - 1) / LANES * LANES;
  Numbers codes(padded), queries(count * padded), scores(count * room);
  for (int64_t i = 0; i < count; ++i) {
    std::copy_n(call.q + place + i * call.width, call.width, queries.data() + i * padded);
  }

  const auto read = [&](const uint8_t* hi, const uint8_t* lo, int64_t at) {
    cache_codes(hi + at * bytes, lo == nullptr ? lo : lo + at * bytes, call.width, codes.data());
  };
  for (int64_t j = 0; j < most; ++j) {
    const int64_t at = head * cache.length + j;
    read(cache.k_hi, cache.k_lo, at);
    const float step = cache.k_scale[at] * unit;
    for (int64_t i = 0; i < count; ++i) {
      if (j < seen[i]) {
        const float product = dot(queries.data() + i * padded, codes.data(), padded);
        scores[i * room + j] = product * step * call.scale;
      }
    }
  }
  Numbers sums(count), totals(count * padded);
  for (int64_t i = 0; i < count; ++i) sums[i] = exponentials(scores.data() + i * room, seen[i]);
  for (int64_t j = 0; j < most; ++j) {
    const int64_t at = head * cache.length + j;
    read(cache.v_hi, cache.v_lo, at);
    const float step = cache.v_scale[at] * unit;
    for (int64_t i = 0; i < count; ++i) {
      if (j >= seen[i]) continue;
      const F32 weight = set(scores[i * room + j] * step);
      float* const total = totals.data() + i * padded;
      for (int64_t d = 0; d < padded; d += LANES) {
        store(total + d, multiply_add(weight, load(codes.data() + d), load(total + d)));
      }
    }
  }
  const float* const offset =
      call.offset == nullptr ? nullptr : call.offset + head % call.heads * call.width;
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t d = 0; d < call.width; ++d) {
      const float mean = totals[i * padded + d] / sums[i];
      round_to(out + place + i * call.width + d, offset == nullptr ? mean : mean + offset[d]);
    }
  }
}

template <class T>
void attention(const Attention& call, T* out) {
  const int64_t of_head = call.shared * call.queries;
  const int64_t blocks = (of_head + QUERY_BLOCK - 1) / QUERY_BLOCK;
  parallel(call.batch_heads * blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block % blocks * QUERY_BLOCK;
      attend(call, block / blocks, first, std::min(QUERY_BLOCK, of_head - first), out);
    }
  });
}

}  // namespace nibblespec
