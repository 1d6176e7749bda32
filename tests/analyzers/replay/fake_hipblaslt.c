/* A libhipblaslt.so for tests. It computes in single precision on the CPU and has three solutions.
 * The first solution is slow. The last one is wrong: in D, or only in the further output of an epilogue with aux or a
 * bias gradient.
 * Each matmul adds a line to the file that FAKE_HIPBLASLT_LOG names. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int type; uint64_t rows, cols; int64_t ld, stride; int32_t batch; } Layout;
typedef struct { int32_t trans_a, trans_b, epilogue, pointer_mode, mode_a, mode_b; float *bias, *scale_a, *scale_b, *aux; int64_t aux_ld; } Desc;
typedef struct { int32_t index; uint8_t rest[12]; size_t max_workspace; size_t workspace; int32_t state; float waves; int32_t reserved[4]; } Result;

enum { SLOW = 4711, FAST = 17, WRONG = 23 };

double device_us; /* Clock of the device, µs. Only products advance it. Wrong products are the fastest. */

int hipblasLtCreate(void **handle) { *handle = malloc(1); return 0; }
int hipblasLtDestroy(void *handle) { free(handle); return 0; }
int hipblasLtGetVersion(void *handle, int *version) { *version = 100200; return 0; }
int hipblasLtGetGitRevision(void *handle, char *rev) { strcpy(rev, "fa4e"); return 0; }
int hipblasLtMatrixLayoutCreate(Layout **out, int type, uint64_t rows, uint64_t cols, int64_t ld) {
    Layout made = {type, rows, cols, ld, 0, 1};
    *out = malloc(sizeof made);
    **out = made;
    return 0;
}
int hipblasLtMatrixLayoutDestroy(const Layout *layout) { free((void *)layout); return 0; }
int hipblasLtMatrixLayoutSetAttribute(Layout *layout, int attr, const void *buf, size_t size) {
    if (attr == 0 && size == 4) memcpy(&layout->batch, buf, 4);
    else if (attr == 1 && size == 8) memcpy(&layout->stride, buf, 8);
    else return 3;
    return 0;
}
int hipblasLtMatmulDescCreate(Desc **out, int compute, int scale) {
    if (compute != 2 || scale != 0) return 7;
    *out = calloc(1, sizeof **out);
    return 0;
}
int hipblasLtMatmulDescDestroy(const Desc *desc) { free((void *)desc); return 0; }
int hipblasLtMatmulDescSetAttribute(Desc *desc, int attr, const void *buf, size_t size) {
    switch (attr) {
    case 0: memcpy(&desc->trans_a, buf, 4); return size == 4 ? 0 : 3;
    case 1: memcpy(&desc->trans_b, buf, 4); return size == 4 ? 0 : 3;
    case 2: memcpy(&desc->epilogue, buf, 4); return size == 4 ? 0 : 3;
    case 3: memcpy(&desc->bias, buf, 8); return size == 8 ? 0 : 3;
    case 4: case 12: case 22: return 0;
    case 5: memcpy(&desc->scale_a, buf, 8); return size == 8 ? 0 : 3;
    case 6: memcpy(&desc->scale_b, buf, 8); return size == 8 ? 0 : 3;
    case 10: memcpy(&desc->aux, buf, 8); return size == 8 ? 0 : 3;
    case 11: memcpy(&desc->aux_ld, buf, 8); return size == 8 ? 0 : 3;
    case 13: memcpy(&desc->pointer_mode, buf, 4); return size == 4 ? 0 : 3;
    case 31: memcpy(&desc->mode_a, buf, 4); return size == 4 ? 0 : 3;
    case 32: memcpy(&desc->mode_b, buf, 4); return size == 4 ? 0 : 3;
    }
    return 3;
}
int hipblasLtMatmulPreferenceCreate(void **out) { *out = calloc(1, 8); return 0; }
int hipblasLtMatmulPreferenceDestroy(void *pref) { free(pref); return 0; }
int hipblasLtMatmulPreferenceSetAttribute(void *pref, int attr, const void *buf, size_t size) {
    if (attr != 1 || size != 8) return 3;
    memcpy(pref, buf, 8);
    return 0;
}
int hipblasLtMatmulAlgoGetHeuristic(void *handle, Desc *desc, Layout *a, Layout *b, Layout *c, Layout *d, void *pref,
                                    int requested, Result results[], int *count) {
    int indices[3] = {SLOW, FAST, WRONG};
    if (d->rows >= 1024) requested = 0; /* the drift reference would take seconds here */
    for (*count = 0; *count < requested && *count < 3; ++*count) {
        Result *r = &results[*count];
        memset(r, 0, sizeof *r);
        r->index = indices[*count];
        r->workspace = 64 * *count;
        if (r->workspace > *(uint64_t *)pref) r->state = 7;
    }
    return 0;
}
static float element(const float *x, int64_t ld, int transposed, int64_t row, int64_t col) {
    return transposed ? x[col + row * ld] : x[row + col * ld];
}
int hipblasLtMatmul(void *handle, Desc *desc, const float *alpha, const float *a, Layout *la, const float *b, Layout *lb,
                    const float *beta, const float *c, Layout *lc, float *d, Layout *ld, const Result *algo, void *workspace,
                    size_t workspace_size, void *stream) {
    const char *path = getenv("FAKE_HIPBLASLT_LOG");
    int64_t k = desc->trans_a == 111 ? la->cols : la->rows;
    if (path) {
        FILE *log = fopen(path, "a");
        fprintf(log, "%d %zu\n", algo->index, workspace_size);
        fclose(log);
    }
    device_us += algo->index == SLOW ? 4000 : algo->index == FAST ? 800 : 100;
    for (int g = 0; g < ld->batch; ++g)
        for (int64_t j = 0; j < (int64_t)ld->cols; ++j)
            for (int64_t i = 0; i < (int64_t)ld->rows; ++i) {
                double sum = 0;
                for (int64_t p = 0; p < k - (algo->index == WRONG && !(desc->epilogue & 384) ? k / 2 : 0); ++p)
                    sum += (double)element(a + g * la->stride, la->ld, desc->trans_a != 111, i, p) *
                           element(b + g * lb->stride, lb->ld, desc->trans_b != 111, p, j);
                sum *= alpha[desc->pointer_mode == 4 ? i : 0];
                if (desc->scale_a) sum *= desc->scale_a[desc->mode_a == 3 ? i : 0];
                if (desc->scale_b) sum *= desc->scale_b[desc->mode_b == 3 ? j : 0];
                if (*beta != 0) sum += *beta * c[g * lc->stride + i + j * lc->ld];
                if (desc->epilogue & 4) sum += desc->bias[i];
                if (desc->epilogue & 128) desc->aux[i + j * desc->aux_ld] = (float)sum * (algo->index == WRONG && j == 3 ? 2 : 1);
                if ((desc->epilogue & 2) && sum < 0) sum = 0;
                d[g * ld->stride + i + j * ld->ld] = (float)sum;
            }
    for (int64_t i = 0; (desc->epilogue & 256) && i < (int64_t)ld->rows; ++i) {
        double sum = 0;
        for (int64_t p = 0; p < k - (algo->index == WRONG && i == 3); ++p) sum += element(a, la->ld, desc->trans_a != 111, i, p);
        desc->bias[i] = (float)sum;
    }
    return 0;
}
