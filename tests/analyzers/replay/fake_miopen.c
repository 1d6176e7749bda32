/* A libMIOpen.so for tests. It computes two-dimensional convolutions in single precision on the CPU, in all three
 * directions.
 * The first solver is slow. Of the others one is wrong, one needs a workspace, one is offered only if the find-db is off,
 * and one fails.
 * Each run adds a line to the file that FAKE_MIOPEN_LOG names. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int type, n, length[4], stride[4]; } Tensor;
typedef struct { int pad[2], stride[2], dilation[2], groups; } Conv;
typedef struct { float time; size_t workspace; uint64_t id; int algorithm; } Solution;

enum { OK = 0, BAD = 3, INTERNAL = 5, UNSUPPORTED = 8 };
enum { F, B, W };
enum { UNKNOWN = 900, HIDDEN = 16, FAILING = 25 };
static const uint64_t SLOW[3] = {91, 97, 102}, FAST[3] = {137, 155, 156}, WRONG[3] = {85, 86, 87};
static uint64_t compiled[16];
static int compiled_count;
double device_us; /* Clock of the device, µs. Only convolutions advance it. Wrong solvers are the fastest. */

int miopenGetVersion(size_t *major, size_t *minor, size_t *patch) { *major = 3, *minor = 4, *patch = 0; return OK; }
int miopenCreateWithStream(void **handle, void *stream) { *handle = malloc(1); return OK; }
int miopenCreateTensorDescriptor(Tensor **t) { *t = calloc(1, sizeof **t); return OK; }
int miopenSetTensorDescriptor(Tensor *t, int type, int n, const int *length, const int *stride) {
    if (type != 1 || n != 4) return UNSUPPORTED;
    t->type = type, t->n = n;
    memcpy(t->length, length, sizeof t->length);
    memcpy(t->stride, stride, sizeof t->stride);
    return OK;
}
int miopenCreateConvolutionDescriptor(Conv **c) { *c = calloc(1, sizeof **c); return OK; }
int miopenInitConvolutionNdDescriptor(Conv *c, int n, const int *pad, const int *stride, const int *dilation, int mode) {
    if (n != 2 || mode != 0) return BAD;
    for (int i = 0; i < 2; ++i) c->pad[i] = pad[i], c->stride[i] = stride[i], c->dilation[i] = dilation[i];
    return OK;
}
int miopenSetConvolutionGroupCount(Conv *c, int groups) { c->groups = groups; return OK; }

static int list(int direction, Solution out[8]) {
    const char *off = getenv("MIOPEN_DEBUG_DISABLE_FIND_DB");
    Solution all[5] = {{9, 0, SLOW[direction], 0}, {1, 0, FAST[direction], 5}, {2, 0, WRONG[direction], 1},
                       {3, 4096, UNKNOWN, 1}, {4, 0, FAILING, 1}};
    int count = 5;
    memcpy(out, all, sizeof all);
    if (off && *off == '1') {
        Solution hidden = {1, 0, HIDDEN, 1};
        memmove(out + 1, out, sizeof all);
        out[0] = hidden;
        count = 6;
    }
    return count;
}
static int get(int direction, size_t most, size_t *count, Solution *out) {
    Solution all[8];
    *count = list(direction, all);
    if (*count > most) *count = most;
    memcpy(out, all, *count * sizeof *all);
    return OK;
}
static int compile(uint64_t id) { compiled[compiled_count++ % 16] = id; return OK; }

static float *at(float *data, const Tensor *t, int n, int c, int h, int w) {
    return data + (int64_t)n * t->stride[0] + (int64_t)c * t->stride[1] + (int64_t)h * t->stride[2] + (int64_t)w * t->stride[3];
}
/* Add every product of the convolution to the output of the direction. */
static void convolve(int direction, const Conv *c, const Tensor *tx, float *x, const Tensor *tw, float *w, const Tensor *ty, float *y) {
    int in = tw->length[1], out = tw->length[0] / c->groups;
    for (int n = 0; n < ty->length[0]; ++n)
    for (int k = 0; k < ty->length[1]; ++k)
    for (int i = 0; i < in; ++i)
    for (int oh = 0; oh < ty->length[2]; ++oh)
    for (int ow = 0; ow < ty->length[3]; ++ow)
    for (int fh = 0; fh < tw->length[2]; ++fh)
    for (int fw = 0; fw < tw->length[3]; ++fw) {
        int h = oh * c->stride[0] - c->pad[0] + fh * c->dilation[0], v = ow * c->stride[1] - c->pad[1] + fw * c->dilation[1];
        if (h < 0 || v < 0 || h >= tx->length[2] || v >= tx->length[3]) continue;
        float *px = at(x, tx, n, k / out * in + i, h, v), *pw = at(w, tw, k, i, fh, fw), *py = at(y, ty, n, k, oh, ow);
        if (direction == F) *py += *px * *pw;
        else if (direction == B) *px += *py * *pw;
        else *pw += *px * *py;
    }
}
static void zero(const Tensor *t, float *data) {
    for (int n = 0; n < t->length[0]; ++n)
    for (int c = 0; c < t->length[1]; ++c)
    for (int h = 0; h < t->length[2]; ++h)
    for (int w = 0; w < t->length[3]; ++w) *at(data, t, n, c, h, w) = 0;
}
static int run(int direction, const Conv *c, const Tensor *tx, float *x, const Tensor *tw, float *w, const Tensor *ty, float *y,
               void *workspace, size_t size, uint64_t id) {
    const char *path = getenv("FAKE_MIOPEN_LOG");
    int built = 0;
    for (int i = 0; i < 16; ++i) built |= compiled[i] == id;
    if (!built || (id == UNKNOWN && (size < 4096 || !workspace))) return BAD;
    if (path) {
        FILE *log = fopen(path, "a");
        fprintf(log, "%c %d %zu\n", "FBW"[direction], (int)id, size);
        fclose(log);
    }
    if (id == FAILING) return INTERNAL;
    device_us += id == SLOW[direction] ? 4000 : id == FAST[direction] ? 800 : id == WRONG[direction] ? 100 : 2000;
    zero(direction == F ? ty : direction == B ? tx : tw, direction == F ? y : direction == B ? x : w);
    if (id != WRONG[direction]) convolve(direction, c, tx, x, tw, w, ty, y);
    return OK;
}

#define COMMON(NAME, D)                                                                                                            \
    int miopenConvolution##NAME##GetSolutionCount(void *h, Tensor *a, Tensor *b, Conv *c, Tensor *o, size_t *n) {                  \
        Solution all[8];                                                                                                           \
        *n = list(D, all);                                                                                                         \
        return OK;                                                                                                                 \
    }                                                                                                                              \
    int miopenConvolution##NAME##GetSolution(void *h, Tensor *a, Tensor *b, Conv *c, Tensor *o, size_t most, size_t *n, Solution *s) { \
        return get(D, most, n, s);                                                                                                 \
    }                                                                                                                              \
    int miopenConvolution##NAME##CompileSolution(void *h, Tensor *a, Tensor *b, Conv *c, Tensor *o, uint64_t id) { return compile(id); }
COMMON(Forward, F)
COMMON(BackwardData, B)
COMMON(BackwardWeights, W)

int miopenConvolutionForwardImmediate(void *h, Tensor *tw, float *w, Tensor *tx, float *x, Conv *c, Tensor *ty, float *y, void *ws, size_t size, uint64_t id) {
    return run(F, c, tx, x, tw, w, ty, y, ws, size, id);
}
int miopenConvolutionBackwardDataImmediate(void *h, Tensor *ty, float *y, Tensor *tw, float *w, Conv *c, Tensor *tx, float *x, void *ws, size_t size, uint64_t id) {
    return run(B, c, tx, x, tw, w, ty, y, ws, size, id);
}
int miopenConvolutionBackwardWeightsImmediate(void *h, Tensor *ty, float *y, Tensor *tx, float *x, Conv *c, Tensor *tw, float *w, void *ws, size_t size, uint64_t id) {
    return run(W, c, tx, x, tw, w, ty, y, ws, size, id);
}
