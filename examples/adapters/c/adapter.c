/* An adapter of the exec protocol (spec/exec_protocol.md) in C11 and its standard library:
 *
 *     cc -std=c11 -O2 -ffp-contract=off adapter.c -lm -o adapter
 *     nibblespec conformance --backend exec:./adapter
 *
 * It computes what is exact: packing, planes, reconstruction, activations, the KV cache, the
 * integer linear layer and the Hadamard transform. float must be binary32, without excess
 * precision, and no product and sum may be contracted into one operation.
 */
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if FLT_EVAL_METHOD != 0
#error "float operations have to be rounded to float: try -msse2 -mfpmath=sse"
#endif

enum { LINE = 65536, AXES = 8, MOST_ARRAYS = 8 };

typedef struct {
    char name[16], dtype[16];
    int axes;
    size_t shape[AXES], size; /* size in bytes */
    unsigned char *bytes;
} Array;

static char line[LINE + 1];
static Array given[MOST_ARRAYS], results[MOST_ARRAYS];
static int given_count, result_count;
static char problem[128];

static void die(const char *why) {
    fprintf(stderr, "adapter: %s\n", why);
    exit(1);
}

static void *allocate(size_t size) {
    void *memory = malloc(size ? size : 1);
    if (!memory) die("out of memory");
    return memory;
}

/* ---- reading a line: keys are where the protocol says, so that no JSON reader is needed ---- */

static const char *value_of(const char *text, const char *key) {
    char quoted[32];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *found = strstr(text, quoted);
    return found ? found + strlen(quoted) : NULL;
}

static long integer(const char *text, const char *key) {
    const char *found = value_of(text, key);
    return found ? strtol(found, NULL, 10) : 0;
}

static void word(const char *text, const char *key, char *copy, size_t size) {
    const char *found = value_of(text, key);
    size_t length = found && *found == '"' ? strcspn(++found, "\"") : 0;
    if (length >= size) length = size - 1;
    if (length) memcpy(copy, found, length);
    copy[length] = 0;
}

static void read_arrays(void) {
    const char *at = value_of(line, "arrays");
    given_count = 0;
    if (!at) return;
    while ((at = strchr(at, '{')) && given_count < MOST_ARRAYS) {
        Array *one = &given[given_count++];
        word(at, "name", one->name, sizeof one->name);
        word(at, "dtype", one->dtype, sizeof one->dtype);
        one->size = (size_t)integer(at, "bytes");
        one->axes = 0;
        const char *axis = strchr(value_of(at, "shape"), '[') + 1;
        while (*axis != ']' && one->axes < AXES) {
            char *end;
            one->shape[one->axes++] = (size_t)strtoull(axis, &end, 10);
            axis = *end == ',' ? end + 1 : end;
        }
        one->bytes = allocate(one->size);
        if (fread(one->bytes, 1, one->size, stdin) != one->size) die("a payload is cut off");
        at = strchr(at, '}');
    }
}

static const Array *array(const char *name) {
    for (int i = 0; i < given_count; i++)
        if (!strcmp(given[i].name, name)) return &given[i];
    return NULL;
}

static Array *add_result(const char *dtype, int axes, const size_t *shape, size_t element) {
    Array *one = &results[result_count++];
    snprintf(one->dtype, sizeof one->dtype, "%s", dtype);
    one->axes = axes;
    one->size = element;
    for (int i = 0; i < axes; i++) one->size *= one->shape[i] = shape[i];
    one->bytes = allocate(one->size);
    return one;
}

/* ---- numbers ---- */

static uint32_t bits_of(float x) { uint32_t b; memcpy(&b, &x, 4); return b; }
static float float_of(uint32_t b) { float x; memcpy(&x, &b, 4); return x; }

static float from_half(uint32_t h) {
    int exponent = (int)(h >> 10) & 31, fraction = (int)h & 1023;
    float x = exponent == 31 ? (fraction ? NAN : INFINITY)
              : exponent     ? ldexpf((float)(1024 + fraction), exponent - 25)
                             : ldexpf((float)fraction, -24);
    return h & 0x8000 ? -x : x;
}

static float from_e4m3fn(uint32_t b) {
    int exponent = (int)(b >> 3) & 15, fraction = (int)b & 7;
    float x = (b & 127) == 127 ? NAN
              : exponent       ? ldexpf((float)(8 + fraction), exponent - 10)
                               : ldexpf((float)fraction, -9);
    return b & 128 ? -x : x;
}

static uint32_t to_half(float x) {
    uint32_t sign = bits_of(x) >> 16 & 0x8000, magnitude = bits_of(x) & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) return sign | 0x7E00; /* NaN */
    if (magnitude >= 0x477FF000) return sign | 0x7C00; /* 65520 and more is infinity */
    if (magnitude < 0x38800000) return sign | (uint32_t)rintf(fabsf(x) * 16777216.0f);
    return sign | (magnitude - 0x38000000 + 0xFFF + (magnitude >> 13 & 1)) >> 13;
}

static uint32_t to_bfloat(float x) {
    uint32_t b = bits_of(x);
    if ((b & 0x7FFFFFFF) > 0x7F800000) return b >> 16 | 0x40; /* NaN stays one */
    return (b + 0x7FFF + (b >> 16 & 1)) >> 16;
}

static size_t width_of(const char *dtype) {
    return !strcmp(dtype, "float32") ? 4 : !strncmp(dtype, "float8", 6) ? 1 : 2;
}

/* Element i of an array of floating-point numbers. */
static float number(const Array *from, size_t i) {
    uint32_t b = 0;
    size_t width = width_of(from->dtype);
    memcpy(&b, from->bytes + width * i, width);
    if (width == 4) return float_of(b);
    if (!strcmp(from->dtype, "bfloat16")) return float_of(b << 16);
    if (!strcmp(from->dtype, "float8_e4m3fn")) return from_e4m3fn(b);
    return from_half(width == 1 ? b << 8 : b); /* float8_e5m2 is half of a half */
}

static void set_number(Array *to, size_t i, float x) {
    size_t width = width_of(to->dtype);
    uint32_t b = width == 4 ? bits_of(x) : !strcmp(to->dtype, "float16") ? to_half(x) : to_bfloat(x);
    memcpy(to->bytes + width * i, &b, width);
}

/* ---- codes ---- */

static uint32_t unpacked(const Array *words, size_t i, unsigned nbits) {
    size_t per_word = 32 / nbits;
    uint32_t one;
    memcpy(&one, words->bytes + 4 * (i / per_word), 4);
    return one >> nbits * (i % per_word) & ((1u << nbits) - 1);
}

static int nibble(const Array *plane, size_t i) {
    return (plane->bytes[i / 2] >> 4 * (i % 2) & 15) - 8;
}

static void set_nibble(Array *plane, size_t i, int code) {
    unsigned char shifted = (unsigned char)((code + 8) << 4 * (i % 2));
    plane->bytes[i / 2] = i % 2 ? plane->bytes[i / 2] | shifted : shifted;
}

static int clipped(float x, int low, int high) {
    return x < (float)low ? low : x > (float)high ? high : (int)x;
}

/* ---- operations ---- */

static void pack_words(void) {
    const Array *codes = array("codes");
    unsigned nbits = (unsigned)integer(line, "nbits");
    size_t per_word = 32 / nbits, count = (codes->size + per_word - 1) / per_word;
    Array *words = add_result("int32", 1, &count, 4);
    for (size_t w = 0; w < count; w++) {
        uint32_t one = 0;
        for (size_t i = w * per_word; i < (w + 1) * per_word && i < codes->size; i++)
            one |= (uint32_t)codes->bytes[i] << nbits * (i % per_word);
        memcpy(words->bytes + 4 * w, &one, 4);
    }
}

static void unpack_words(void) {
    size_t count = (size_t)integer(line, "count");
    Array *codes = add_result("uint8", 1, &count, 1);
    for (size_t i = 0; i < count; i++)
        codes->bytes[i] = (unsigned char)unpacked(array("words"), i, (unsigned)integer(line, "nbits"));
}

static void dashq_reconstruct(void) {
    const Array *words = array("words"), *scale = array("scale"), *zero = array("zero");
    char dtype[16];
    word(line, "dtype", dtype, sizeof dtype);
    size_t shape[2] = {(size_t)integer(line, "out_features"), (size_t)integer(line, "in_features")};
    size_t stored = (size_t)integer(line, "quant_in_features");
    size_t group = (size_t)integer(line, "group_size");
    unsigned nbits = (unsigned)integer(line, "nbits");
    Array *weight = add_result(dtype, 2, shape, width_of(dtype));
    for (size_t n = 0; n < shape[0]; n++)
        for (size_t k = 0; k < shape[1]; k++) {
            size_t i = n * stored + k, g = i / group;
            float difference = (float)unpacked(words, i, nbits) - number(zero, g);
            set_number(weight, n * shape[1] + k, difference * number(scale, g));
        }
}

static void pack_planes(void) {
    for (int p = 0; p < 2; p++) {
        const Array *codes = array(p ? "qr" : "q4");
        size_t shape[2] = {codes->shape[0], codes->shape[1] / 2};
        Array *plane = add_result("uint8", 2, shape, 1);
        for (size_t i = 0; i < codes->size; i++) set_nibble(plane, i, (signed char)codes->bytes[i]);
    }
}

static void unpack_planes(void) {
    for (int p = 0; p < 2; p++) {
        const Array *plane = array(p ? "lo" : "hi");
        size_t shape[2] = {plane->shape[0], plane->shape[1] * 2};
        Array *codes = add_result("int8", 2, shape, 1);
        for (size_t i = 0; i < codes->size; i++)
            codes->bytes[i] = (unsigned char)nibble(plane, i);
    }
}

/* The low plane, or NULL in the draft, which does not look at it. */
static const Array *low_plane(void) {
    char plane[8];
    word(line, "plane", plane, sizeof plane);
    return strcmp(plane, "draft") ? array("lo") : NULL;
}

static int nested_code(const Array *hi, const Array *lo, size_t i) {
    return lo ? 16 * nibble(hi, i) + nibble(lo, i) : nibble(hi, i);
}

/* A weight or a cache: each scale is that of a run of equally many codes. */
static void reconstruct(const char *dtype) {
    const Array *hi = array("hi"), *lo = low_plane(), *scale = array("scale");
    size_t shape[AXES], scales = scale->size / width_of(scale->dtype);
    memcpy(shape, hi->shape, sizeof shape);
    shape[hi->axes - 1] *= 2;
    Array *values = add_result(dtype, hi->axes, shape, width_of(dtype));
    for (size_t i = 0; i < 2 * hi->size; i++) {
        float s = number(scale, i / (2 * hi->size / scales));
        set_number(values, i, (float)nested_code(hi, lo, i) * (lo ? s / 16 : s));
    }
}

static void nested_reconstruct(void) {
    char dtype[16];
    word(line, "dtype", dtype, sizeof dtype);
    reconstruct(dtype);
}

static void kv_dequantize(void) { reconstruct("float32"); }

static void quantize_activations(void) {
    const Array *x = array("x");
    long group = integer(line, "group");
    size_t width = group < 0 ? x->shape[1] : (size_t)group;
    size_t shape[2] = {x->shape[0], x->shape[1] / width};
    Array *codes = add_result("int8", 2, x->shape, 1), *scales = add_result("float32", 2, shape, 4);
    for (size_t g = 0; g < shape[0] * shape[1]; g++) {
        float largest = 0;
        for (size_t i = g * width; i < (g + 1) * width; i++)
            largest = fmaxf(largest, fabsf(number(x, i)));
        float scale = fmaxf(largest / 127, 1e-8f);
        for (size_t i = g * width; i < (g + 1) * width; i++)
            codes->bytes[i] = (unsigned char)clipped(rintf(number(x, i) / scale), -128, 127);
        set_number(scales, g, scale);
    }
}

static void nested_linear(void) {
    const Array *xq = array("xq"), *sx = array("sx"), *hi = array("hi"), *lo = low_plane();
    const Array *scale = array("scale"), *bias = array("bias");
    char dtype[16];
    word(line, "dtype", dtype, sizeof dtype);
    size_t shape[2] = {xq->shape[0], hi->shape[0]}, columns = xq->shape[1];
    size_t weight_width = columns / scale->shape[1], x_width = columns / sx->shape[1];
    Array *y = add_result(dtype, 2, shape, width_of(dtype));
    for (size_t m = 0; m < shape[0]; m++)
        for (size_t n = 0; n < shape[1]; n++) {
            double sum = 0;
            long long dot = 0;
            for (size_t k = 0; k < columns; k++) {
                dot += (signed char)xq->bytes[m * columns + k] * nested_code(hi, lo, n * columns + k);
                if ((k + 1) % weight_width && (k + 1) % x_width) continue;
                float sw = number(scale, n * scale->shape[1] + k / weight_width);
                float s = number(sx, m * sx->shape[1] + k / x_width);
                sum += (double)dot * ((double)s * (lo ? sw / 16 : sw));
                dot = 0;
            }
            set_number(y, m * shape[1] + n, (float)(bias ? sum + number(bias, n) : sum));
        }
}

static void hadamard(void) {
    const Array *x = array("x"), *matrix = array("had_k");
    char dtype[16];
    word(line, "dtype", dtype, sizeof dtype);
    Array *y = add_result(dtype, x->axes, x->shape, width_of(dtype));
    size_t n = x->shape[x->axes - 1], order = matrix ? matrix->shape[0] : 1, m = n / order;
    float *row = allocate(4 * n), factor = (float)(1 / sqrt((double)n));
    for (size_t begin = 0; begin < x->size / width_of(x->dtype); begin += n) {
        for (size_t i = 0; i < n; i++) row[i] = number(x, begin + i);
        for (size_t stride = 1; stride < m; stride *= 2)
            for (size_t i = 0; i < n; i++) {
                if (i % m & stride) continue;
                float a = row[i], b = row[i + stride];
                row[i] = a + b;
                row[i + stride] = a - b;
            }
        for (size_t i = 0; i < n; i++) {
            float sum = matrix ? 0 : row[i];
            for (size_t l = 0; matrix && l < order; l++)
                sum += number(matrix, i / m * order + l) * row[l * m + i % m];
            set_number(y, begin + i, sum * factor);
        }
    }
    free(row);
}

static void kv_quantize(void) {
    const Array *x = array("x"), *offset = array("offset");
    size_t shape[AXES], width = x->shape[x->axes - 1];
    size_t tokens = x->shape[x->axes - 2], heads = x->shape[x->axes - 3];
    memcpy(shape, x->shape, sizeof shape);
    shape[x->axes - 1] /= 2;
    Array *hi = add_result("uint8", x->axes, shape, 1), *lo = add_result("uint8", x->axes, shape, 1);
    Array *scales = add_result("float32", x->axes - 1, shape, 4);
    float *d = allocate(4 * width);
    for (size_t r = 0; r < scales->size / 4; r++) {
        float largest = 0;
        for (size_t i = 0; i < width; i++) {
            d[i] = number(x, r * width + i);
            if (offset) d[i] -= number(offset, r / tokens % heads * width + i);
            largest = fmaxf(largest, fabsf(d[i]));
        }
        float scale = fmaxf(largest / 7, 1e-8f);
        for (size_t i = 0; i < width; i++) {
            int q4 = clipped(rintf(d[i] / scale), -8, 7);
            float product = (float)q4 * scale, rest = d[i] - product;
            set_nibble(hi, r * width + i, q4);
            set_nibble(lo, r * width + i, clipped(rintf(rest / (scale / 16)), q4 == -8 ? 0 : -8, 7));
        }
        set_number(scales, r, scale);
    }
    free(d);
}

/* ---- answers ---- */

#define ALL(X)                                                                                 \
    X(pack_words) X(unpack_words) X(dashq_reconstruct) X(pack_planes) X(unpack_planes)         \
    X(nested_reconstruct) X(quantize_activations) X(nested_linear) X(hadamard) X(kv_quantize)  \
    X(kv_dequantize)

static void echo(void) {
    for (int i = 0; i < given_count; i++) {
        Array *one = add_result(given[i].dtype, given[i].axes, given[i].shape, 0);
        one->size = given[i].size;
        free(one->bytes);
        one->bytes = given[i].bytes;
        given[i].bytes = NULL;
    }
}

static void compute(const char *call) {
#define TRY(operation) if (!strcmp(call, #operation)) { operation(); return; }
    ALL(TRY)
    TRY(echo)
    snprintf(problem, sizeof problem, "%s: not implemented", call);
}

static void hello(long id) {
#define LISTED(operation) ",\"" #operation "\""
    static const char names[] = ALL(LISTED);
    printf("{\"id\":%ld,\"protocol\":1,\"name\":\"c-example\",\"version\":\"1\",\"device\":\"cpu\","
           "\"capabilities\":{\"operations\":[%s],\"dashq_rounding\":\"fused\"}}\n", id, names + 1);
}

static void answer(long id) {
    char call[32];
    word(line, "call", call, sizeof call);
    if (!strcmp(call, "hello")) { hello(id); return; }
    compute(call);
    if (*problem) { printf("{\"id\":%ld,\"error\":\"%s\"}\n", id, problem); return; }
    size_t payload = 0;
    printf("{\"id\":%ld,\"arrays\":[", id);
    for (int r = 0; r < result_count; r++) {
        printf("%s{\"dtype\":\"%s\",\"shape\":[", r ? "," : "", results[r].dtype);
        for (int i = 0; i < results[r].axes; i++) printf("%s%zu", i ? "," : "", results[r].shape[i]);
        printf("]}");
        payload += results[r].size;
    }
    printf("],\"payload\":%zu}\n", payload);
    for (int r = 0; r < result_count; r++) fwrite(results[r].bytes, 1, results[r].size, stdout);
}

int main(void) {
    while (fgets(line, sizeof line, stdin)) {
        result_count = 0;
        *problem = 0;
        read_arrays();
        answer(integer(line, "id"));
        if (fflush(stdout)) die(strerror(errno));
        for (int i = 0; i < given_count; i++) free(given[i].bytes);
        for (int i = 0; i < result_count; i++) free(results[i].bytes);
    }
    return 0;
}
