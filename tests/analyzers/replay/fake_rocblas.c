/* A librocblas.so for tests. It computes in single precision on the CPU and has three solutions. One solution is wrong:
 * it leaves out one product of each sum.
 * Each GEMM adds a line to the file that FAKE_ROCBLAS_LOG names. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { F32 = 151, TRANSPOSED = 112, BY_INDEX = 1, RIGHT = -4711, OTHER = -17, WRONG = -23 };

int rocblas_create_handle(void **handle) { *handle = malloc(1); return 0; }
int rocblas_set_stream(void *handle, void *stream) { return stream ? 1 : 0; }
int rocblas_get_version_string(char *text, size_t size) { strncpy(text, "5.2.0.abc", size); return 0; }

static int list(int *found, int *count) {
    static const int all[] = {OTHER, RIGHT, WRONG};
    if (!found) { *count = 3; return 0; }
    for (int i = 0; i < *count; i++) found[i] = all[i];
    return 0;
}

static int product(int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb, float beta, const float *c, int ldc, float *d, int ldd, int index) {
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++) {
            double sum = 0;
            for (int l = index == WRONG; l < k; l++)
                sum += (double)a[ta == TRANSPOSED ? l + (int64_t)i * lda : i + (int64_t)l * lda] * b[tb == TRANSPOSED ? j + (int64_t)l * ldb : l + (int64_t)j * ldb];
            d[i + (int64_t)j * ldd] = alpha * sum + (beta ? beta * c[i + (int64_t)j * ldc] : 0);
        }
    return 0;
}

static void note(int index) {
    const char *path = getenv("FAKE_ROCBLAS_LOG");
    FILE *file = path ? fopen(path, "a") : 0;
    if (!file) return;
    fprintf(file, "%d\n", index);
    fclose(file);
}

#define TYPES (a_type == F32 && b_type == F32 && c_type == F32 && d_type == F32 && compute == F32)

int rocblas_gemm_ex_get_solutions(void *h, int ta, int tb, int m, int n, int k, const float *alpha, const float *a, int a_type, int lda, const float *b, int b_type, int ldb, const float *beta, const float *c, int c_type, int ldc, float *d, int d_type, int ldd, int compute, int algo, uint32_t flags, int *found, int *count) {
    return TYPES && algo == BY_INDEX ? list(found, count) : 6;
}
int rocblas_gemm_strided_batched_ex_get_solutions(void *h, int ta, int tb, int m, int n, int k, const float *alpha, const float *a, int a_type, int lda, int64_t sa, const float *b, int b_type, int ldb, int64_t sb, const float *beta, const float *c, int c_type, int ldc, int64_t sc, float *d, int d_type, int ldd, int64_t sd, int batch, int compute, int algo, uint32_t flags, int *found, int *count) {
    return TYPES && algo == BY_INDEX ? list(found, count) : 6;
}
int rocblas_gemm_ex(void *h, int ta, int tb, int m, int n, int k, const float *alpha, const float *a, int a_type, int lda, const float *b, int b_type, int ldb, const float *beta, const float *c, int c_type, int ldc, float *d, int d_type, int ldd, int compute, int algo, int index, uint32_t flags) {
    if (!TYPES || (algo == BY_INDEX) != (index != 0)) return 6;
    note(index);
    return product(ta, tb, m, n, k, *alpha, a, lda, b, ldb, *beta, c, ldc, d, ldd, index);
}
int rocblas_gemm_strided_batched_ex(void *h, int ta, int tb, int m, int n, int k, const float *alpha, const float *a, int a_type, int lda, int64_t sa, const float *b, int b_type, int ldb, int64_t sb, const float *beta, const float *c, int c_type, int ldc, int64_t sc, float *d, int d_type, int ldd, int64_t sd, int batch, int compute, int algo, int index, uint32_t flags) {
    if (!TYPES || (algo == BY_INDEX) != (index != 0)) return 6;
    note(index);
    for (int64_t z = 0; z < batch; z++)
        product(ta, tb, m, n, k, *alpha, a + z * sa, lda, b + z * sb, ldb, *beta, c + z * sc, ldc, d + z * sd, ldd, index);
    return 0;
}
