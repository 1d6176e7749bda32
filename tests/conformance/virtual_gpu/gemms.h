// The GEMM kernels of hipBLASLt and rocBLAS that the virtual GPU computes: plain products in fp32 of f16, bf16 and f32
// operands, also those that split K over a workspace and the kernels that add the slices up.
//
// A kernel is known by its name and its operands by the argument buffer of the launch.  The layouts were read from what
// the libraries print under TENSILE_DB=0x40 (hipBLASLt 1.2.2, rocBLAS 5.2); numbers are little-endian u32, p is a
// pointer:
//
//   Cijk_A{ilk|lik}_B{ljk|jlk}_<in><out>S_BH…_UserArgs…  (lik, jlk: transposed)
//      gemm count, internal arguments (bits 0-13: slices of K), 8 more bytes, M, N, batch, K, p D, p C, p A, p B,
//      strides D1 D2 C1 C2 A1 A2 B1 B2, f32 alpha, f32 beta, [p scaleAlphaVec], [p bias, type, stride], …
//      With more than one slice D is the workspace, [slice][batch][N][M] of f32, and alpha and beta are not applied.
//   Cijk_<compute><out>…_PostGSU…
//      p D, p workspace, p C, [p bias], [p scaleAlphaVec], f32 alpha, f32 beta, [f32, f32, activation],
//      strides D1 D2 W1 W2 C1 C2, [bias stride], M, N, batch, slices
//
// rocBLAS, without _UserArgs:
//
//   Cijk_A…_KLA_…   u64 size of A, u64 size of B (assembly only; _KLS_, source: without), p D, p C, p A, p B, f32 alpha,
//      f32 beta, strides D1 D2 C1 C2 A1 A2 B1 B2, M, N, batch, K, …; the slices stand in the name (_GSU19_GSUAMB_)
//   … _PKA1_        u64, u64, p A, p B, f32 alpha, strides A1 A2 B1 B2, K, to a multiple of 8, p D, p C, f32 beta,
//      strides D1 D2 C1 C2, M, N, batch
//   Cijk_<out>_PostGSU…   p D, p workspace, p C, f32 alpha, f32 beta, strides D1 D2 W1 W2 C1 C2, M, N, batch, slices
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace vgpu {

enum class Type { f32, f16, bf16, none };

inline Type type_of(char letter) {
    return letter == 'S' ? Type::f32 : letter == 'H' ? Type::f16 : letter == 'B' ? Type::bf16 : Type::none;
}
inline size_t bytes_of(Type type) { return type == Type::f32 ? 4 : 2; }

inline float load(Type type, const char* memory, int64_t index) {
    if (type == Type::f32) return reinterpret_cast<const float*>(memory)[index];
    if (type == Type::f16) return float(reinterpret_cast<const _Float16*>(memory)[index]);
    const uint32_t bits = uint32_t(reinterpret_cast<const uint16_t*>(memory)[index]) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}
inline void store(Type type, char* memory, int64_t index, float value) {
    if (type == Type::f32) reinterpret_cast<float*>(memory)[index] = value;
    if (type == Type::f16) reinterpret_cast<_Float16*>(memory)[index] = _Float16(value);
    if (type != Type::bf16) return;
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;  // to nearest, ties to even
    reinterpret_cast<uint16_t*>(memory)[index] = value == value ? uint16_t(rounded) : 0x7fc0;
}

class Buffer {  // an argument buffer, read from front to back
  public:
    Buffer(const char* begin, size_t bytes) : begin_(begin), at_(begin), end_(begin + bytes) {}
    template <class T>
    T next() {
        T value{};
        if (at_ + sizeof(T) > end_) return short_ = true, value;
        std::memcpy(&value, at_, sizeof(T));
        at_ += sizeof(T);
        return value;
    }
    uint32_t u32() { return next<uint32_t>(); }
    void align() { at_ += -size_t(at_ - begin_) & 7; }
    char* pointer() { return next<char*>(); }
    bool complete() const { return !short_; }

  private:
    const char *begin_, *at_, *end_;
    bool short_ = false;
};

struct Matrix {
    char* memory = nullptr;
    Type type = Type::f32;
    uint32_t ld = 0, stride = 0;
    void layout(Buffer& in) { ld = in.u32(), stride = in.u32(); }
    int64_t at(uint32_t row, uint32_t column, uint32_t batch) const {
        return row + int64_t(column) * ld + int64_t(batch) * stride;
    }
};

struct Gemm {
    bool computed = false;  // false: a kernel of a kind that is not known here
    bool adds_up = false, trans_a = false, trans_b = false;
    uint32_t m = 0, n = 0, k = 0, batch = 0, slices = 1;
    float alpha = 1, beta = 0;
    Matrix a, b, c, d;
    char* workspace = nullptr;

    std::string sizes() const {
        char text[160];
        const char* form = adds_up ? " gsu=%u m=%u n=%u batch=%u " : " gsu=%u m=%u n=%u batch=%u k=%u ";
        std::snprintf(text, sizeof text, form, slices, m, n, batch, k);
        return text;
    }
    double multiplications() const { return double(m) * n * batch * (adds_up ? slices : k); }
    int64_t slot(uint32_t slice, uint32_t z) const { return int64_t(m) * n * (z + int64_t(batch) * slice); }
};

inline bool has(const std::string& name, const char* word) { return name.find(word) != std::string::npos; }

// What the name states; whether it is one in fp32 of known types.
inline bool read_name(const std::string& name, Gemm& gemm) {
    gemm.trans_a = name.compare(5, 4, "Alik") == 0;
    gemm.trans_b = name.compare(10, 4, "Bjlk") == 0;
    gemm.a.type = gemm.b.type = type_of(name[15]);
    const bool mixed = has(name, "_BH_"), single = name.compare(15, 4, "S_B_") == 0 || name.compare(15, 3, "SB_") == 0;
    gemm.c.type = gemm.d.type = mixed ? type_of(name[16]) : gemm.a.type;
    const bool fp32 = (mixed && name[17] == 'S') || single;
    return fp32 && gemm.a.type != Type::none && gemm.d.type != Type::none;
}

inline Gemm read_rocblas_product(const std::string& name, Buffer in) {
    Gemm gemm;
    const size_t slices = name.find("_GSU");
    if (slices != std::string::npos) gemm.slices = uint32_t(std::max(1, std::atoi(name.c_str() + slices + 4)));
    if (has(name, "_KLA_")) in.next<uint64_t>(), in.next<uint64_t>();
    const auto operands = [&] { gemm.a.memory = in.pointer(), gemm.b.memory = in.pointer(); };
    const auto results = [&] { gemm.d.memory = in.pointer(), gemm.c.memory = in.pointer(); };
    if (has(name, "_PKA1_")) {
        operands(), gemm.alpha = in.next<float>(), gemm.a.layout(in), gemm.b.layout(in), gemm.k = in.u32();
        in.align(), results(), gemm.beta = in.next<float>(), gemm.d.layout(in), gemm.c.layout(in);
        gemm.m = in.u32(), gemm.n = in.u32(), gemm.batch = in.u32();
    } else {
        results(), operands(), gemm.alpha = in.next<float>(), gemm.beta = in.next<float>();
        for (Matrix* matrix : {&gemm.d, &gemm.c, &gemm.a, &gemm.b}) matrix->layout(in);
        gemm.m = in.u32(), gemm.n = in.u32(), gemm.batch = in.u32(), gemm.k = in.u32();
    }
    if (gemm.slices > 1) gemm.workspace = gemm.d.memory;
    const bool plain = !has(name, "_GB_") && (gemm.slices == 1 || has(name, "_GSUAMB_"));  // _GB_: arrays of pointers
    gemm.computed = read_name(name, gemm) && plain && in.complete();
    return gemm;
}

inline Gemm read_product(const std::string& name, Buffer in) {
    Gemm gemm;
    if (in.u32() != 1) return gemm;  // grouped, or arguments in device memory
    gemm.slices = std::max(1u, in.u32() & 0x3fff);
    in.next<uint64_t>();
    gemm.m = in.u32(), gemm.n = in.u32(), gemm.batch = in.u32(), gemm.k = in.u32();
    const bool known = read_name(name, gemm);
    gemm.d.memory = in.pointer(), gemm.c.memory = in.pointer();
    gemm.a.memory = in.pointer(), gemm.b.memory = in.pointer();
    for (Matrix* matrix : {&gemm.d, &gemm.c, &gemm.a, &gemm.b}) matrix->layout(in);
    gemm.alpha = in.next<float>(), gemm.beta = in.next<float>();
    bool plain = !has(name, "_SAB") && !has(name, "_Grad");
    if (has(name, "_SAV_")) plain &= !in.pointer();
    if (has(name, "_Bias_")) plain &= !in.pointer();
    if (gemm.slices > 1) gemm.workspace = gemm.d.memory, plain = has(name, "_GSUAMB_");
    gemm.computed = plain && known && in.complete();
    return gemm;
}

inline Gemm read_sum(const std::string& name, Buffer in) {
    Gemm gemm;
    gemm.adds_up = true;
    const bool rocblas = name[6] == '_';  // it names the type that it writes alone
    bool plain = (rocblas || name[5] == 'S') && !has(name, "_Scale") && !has(name, "_GG") && !has(name, "_Grad");
    gemm.c.type = gemm.d.type = type_of(rocblas ? name[5] : name[6]);
    gemm.d.memory = in.pointer(), gemm.workspace = in.pointer(), gemm.c.memory = in.pointer();
    const bool bias = has(name, "_Bias");
    if (bias) plain &= !in.pointer();
    if (has(name, "_ScaleAlphaVec")) plain = !has(name, "_ScaleAB") && !has(name, "_ScaleCD") && !in.pointer();
    gemm.alpha = in.next<float>(), gemm.beta = in.next<float>();
    if (has(name, "_HA")) in.next<uint64_t>(), plain &= in.u32() == 0;
    Matrix slices;
    for (Matrix* matrix : {&gemm.d, &slices, &gemm.c}) matrix->layout(in);
    if (bias) in.u32();
    gemm.m = in.u32(), gemm.n = in.u32(), gemm.batch = in.u32(), gemm.slices = in.u32();
    gemm.computed = plain && gemm.d.type != Type::none && in.complete();
    return gemm;
}

inline Gemm read_gemm(const std::string& name, const char* buffer, size_t bytes) {
    if (!buffer || name.compare(0, 5, "Cijk_") != 0 || name.size() < 20) return {};
    if (has(name, "_PostGSU")) return read_sum(name, {buffer, bytes});
    return has(name, "_UserArgs") ? read_product(name, {buffer, bytes}) : read_rocblas_product(name, {buffer, bytes});
}

inline void finish(const Gemm& gemm, uint32_t z, const std::vector<float>& product) {
    for (uint32_t j = 0; j < gemm.n; j++)
        for (uint32_t i = 0; i < gemm.m; i++) {
            float value = gemm.alpha * product[size_t(j) * gemm.m + i];
            if (gemm.beta != 0) value += gemm.beta * load(gemm.c.type, gemm.c.memory, gemm.c.at(i, j, z));
            store(gemm.d.type, gemm.d.memory, gemm.d.at(i, j, z), value);
        }
}

inline void multiply(const Gemm& gemm, uint32_t z, uint32_t from, uint32_t to, std::vector<float>& product) {
    std::fill(product.begin(), product.end(), 0.f);
    std::vector<float> column(gemm.m);  // of A, so that the inner loop runs along M
    for (uint32_t l = from; l < to; l++) {
        for (uint32_t i = 0; i < gemm.m; i++)
            column[i] = load(gemm.a.type, gemm.a.memory, gemm.trans_a ? gemm.a.at(l, i, z) : gemm.a.at(i, l, z));
        for (uint32_t j = 0; j < gemm.n; j++) {
            const float b = load(gemm.b.type, gemm.b.memory, gemm.trans_b ? gemm.b.at(j, l, z) : gemm.b.at(l, j, z));
            float* sums = &product[size_t(j) * gemm.m];
            for (uint32_t i = 0; i < gemm.m; i++) sums[i] += column[i] * b;
        }
    }
}

inline void compute(const Gemm& gemm, bool wrong) {
    std::vector<float> product(size_t(gemm.m) * gemm.n);
    for (uint32_t z = 0; z < gemm.batch; z++) {
        if (gemm.adds_up) {
            std::fill(product.begin(), product.end(), 0.f);
            for (uint32_t slice = 0; slice < gemm.slices; slice++)
                for (size_t i = 0; i < product.size(); i++)
                    product[i] += reinterpret_cast<float*>(gemm.workspace)[gemm.slot(slice, z) + int64_t(i)];
            finish(gemm, z, product);
            continue;
        }
        for (uint32_t slice = 0; slice < gemm.slices; slice++) {
            const uint64_t k = gemm.k;
            multiply(gemm, z, uint32_t(k * slice / gemm.slices), uint32_t(k * (slice + 1) / gemm.slices), product);
            if (wrong)
                for (size_t i = product.size() / 2; i < product.size(); i++) product[i] = 2 * product[i] + 1;
            if (gemm.slices == 1)
                finish(gemm, z, product);
            else
                std::memcpy(gemm.workspace + 4 * gemm.slot(slice, z), product.data(), 4 * product.size());
        }
    }
}

}  // namespace vgpu
