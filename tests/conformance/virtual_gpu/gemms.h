// The GEMM kernels of hipBLASLt and rocBLAS that the virtual GPU computes: products in fp32 of f16, bf16, f32 and 8-bit
// operands with their scales, biases, activations and gradients, also those that split K over a workspace and the
// kernels that add the slices up.
//
// A kernel is known by its name and its operands by the argument buffer of the launch.  The layouts were read from what
// the libraries print under TENSILE_DB=0x40 (hipBLASLt 1.2.2, rocBLAS 5.2); numbers are little-endian u32, p is a
// pointer:
//
//   Cijk_A{ilk|lik}_B{ljk|jlk}_<in><out>S_BH…_UserArgs…  (lik, jlk: transposed)
//      gemm count, internal arguments (bits 0-13: slices of K), 8 more bytes, M, N, batch, K, p D, p C, p A, p B,
//      strides D1 D2 C1 C2 A1 A2 B1 B2, f32 alpha, f32 beta, [_SAB, _SABV: p scaleA, p scaleB], [_SCD: p scaleC,
//      p scaleD], [_SAV: p scaleAlphaVec], [_Bias: p bias, type, stride; _Bias_D: p sums alone],
//      [_Aux, _Grad: p E, strides E1 E2], [_HA: f32, f32, activation]
//      With more than one slice D is the workspace, [slice][batch][N][M] of f32, and nothing else is applied.
//   Cijk_<compute><out>…_PostGSU…
//      p D, p workspace, p C, [p bias], [_ScaleAB: p scaleA, p scaleB], [_ScaleCD: p scaleC, p scaleD],
//      [p scaleAlphaVec], f32 alpha, f32 beta, [f32, f32, activation], strides D1 D2 W1 W2 C1 C2, [bias stride], M, N,
//      batch, slices
//   Dijk_<sums><bias>_…_Reduction    p sums, p bias, M, N, leading dimension of the sums
//
// A gradient's bias (_Bias_A, _Bias_B) holds the sums over K of op(A)'s rows or op(B)'s columns; _Bias_D writes what D is
// before it is rounded, M by N in fp32, and _Reduction adds up its rows.
//
// rocBLAS, without _UserArgs:
//
//   Cijk_A…_KLA_…   u64 size of A, u64 size of B (assembly only; _KLS_, source: without), p D, p C, p A, p B, f32 alpha,
//      f32 beta, strides D1 D2 C1 C2 A1 A2 B1 B2, M, N, batch, K, …; the slices stand in the name (_GSU19_GSUAMB_)
//   … _PKA1_        u64, u64, p A, p B, f32 alpha, strides A1 A2 B1 B2, K, to a multiple of 8, p D, p C, f32 beta,
//      strides D1 D2 C1 C2, M, N, batch
//   Cijk_<out>_PostGSU…   p D, p workspace, p C, f32 alpha, f32 beta, strides D1 D2 W1 W2 C1 C2, M, N, batch, slices
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace vgpu {

enum class Type { f32, f16, bf16, f8, bf8, none };  // 8 bits as OCP defines them: e4m3fn and e5m2

inline Type type_of(char letter) {
    return letter == 'S' ? Type::f32 : letter == 'H' ? Type::f16 : letter == 'B' ? Type::bf16 : Type::none;
}
inline Type type_of_number(uint32_t tensiles) {
    return tensiles == 0 ? Type::f32 : tensiles == 4 ? Type::f16 : tensiles == 7 ? Type::bf16 : Type::none;
}

inline float from_8_bits(Type type, uint8_t bits) {
    const int fraction = type == Type::f8 ? 3 : 2, bias = type == Type::f8 ? 7 : 15;
    const int exponent = (bits & 0x7f) >> fraction, mantissa = bits & ((1 << fraction) - 1);
    if (type == Type::f8 ? (bits & 0x7f) == 0x7f : exponent == 31)
        return type == Type::f8 || mantissa ? NAN : bits & 0x80 ? -INFINITY : INFINITY;
    const int hidden = exponent ? 1 << fraction : 0;
    const float size = std::ldexp(float(hidden + mantissa), std::max(exponent, 1) - bias - fraction);
    return bits & 0x80 ? -size : size;
}
// To nearest, ties to even; what is too large becomes the largest.
inline uint8_t to_8_bits(Type type, float value) {
    const int fraction = type == Type::f8 ? 3 : 2, bias = type == Type::f8 ? 7 : 15;
    const uint8_t sign = std::signbit(value) ? 0x80 : 0;
    if (value != value) return 0x7f;
    if (value == 0) return sign;
    const float size = std::min(std::fabs(value), type == Type::f8 ? 448.f : 57344.f);
    int exponent = 0;
    std::frexp(size, &exponent);
    const int unit = std::max(exponent - 1, 1 - bias) - fraction;  // the last place's exponent
    const int steps = int(std::nearbyint(std::ldexp(size, -unit)));
    return uint8_t(sign | (steps + ((unit + fraction + bias - 1) << fraction)));
}

inline float load(Type type, const char* memory, int64_t index) {
    if (type == Type::f8 || type == Type::bf8) return from_8_bits(type, uint8_t(memory[index]));
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
    if (type == Type::f8 || type == Type::bf8) memory[index] = char(to_8_bits(type, value));
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

struct Scales {  // of one factor, or of one per row (or column); null: none
    char* memory = nullptr;
    bool each = false;
    float of(uint32_t index) const { return memory ? load(Type::f32, memory, each ? index : 0) : 1; }
};

enum class Activation : uint32_t { none = 0, gelu = 3, relu = 5, gelu_gradient = 8 };

struct Gemm {
    bool computed = false;  // false: a kernel of a kind that is not known here
    bool adds_up = false, trans_a = false, trans_b = false;
    uint32_t m = 0, n = 0, k = 0, batch = 0, slices = 1;
    float alpha = 1, beta = 0;
    Matrix a, b, c, d, e;  // e: what the activation's gradient reads, else what the activation read
    Scales scale_a, scale_b, scale_c, scale_d, scale_alpha;
    Matrix bias;             // its stride is that of a batch
    char bias_sums = 0;      // of what a gradient's bias holds the sums: a, b or d
    Activation activation = Activation::none;
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
    std::vector<Type> types;
    for (size_t at = 15; at < name.size() && name[at] != '_'; at++) {
        const bool short_ = name[at + 1] == '8';
        types.push_back(!short_ ? type_of(name[at]) : name[at] == 'F' ? Type::f8 : Type::bf8);
        at += short_;
    }
    if (has(name, "_BH_") && (types.size() == 3 || types.size() == 4)) {  // [A] B D compute
        gemm.a.type = types[0], gemm.b.type = types[types.size() - 3];
        gemm.c.type = gemm.d.type = types[types.size() - 2];
        const bool known = std::find(types.begin(), types.end(), Type::none) == types.end();
        return known && types.back() == Type::f32;
    }
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

inline bool known_activation(const Gemm& gemm) {
    const Activation x = gemm.activation;
    return x == Activation::none || x == Activation::gelu || x == Activation::relu ||
           (x == Activation::gelu_gradient && gemm.e.memory);
}

// One GEMM's arguments, from M on.
inline Gemm read_user_args(const std::string& name, uint32_t slices, Buffer& in) {
    Gemm gemm;
    gemm.slices = slices;
    gemm.m = in.u32(), gemm.n = in.u32(), gemm.batch = in.u32(), gemm.k = in.u32();
    const bool known = read_name(name, gemm);
    gemm.d.memory = in.pointer(), gemm.c.memory = in.pointer();
    gemm.a.memory = in.pointer(), gemm.b.memory = in.pointer();
    for (Matrix* matrix : {&gemm.d, &gemm.c, &gemm.a, &gemm.b}) matrix->layout(in);
    gemm.alpha = in.next<float>(), gemm.beta = in.next<float>();
    const bool gradient = has(name, "_Grad"), vectors = has(name, "_SABV");
    if (has(name, "_SAB")) gemm.scale_a = {in.pointer(), vectors}, gemm.scale_b = {in.pointer(), vectors};
    if (has(name, "_SCD")) gemm.scale_c.memory = in.pointer(), gemm.scale_d.memory = in.pointer();
    if (has(name, "_SAV_")) gemm.scale_alpha = {in.pointer(), true};
    const size_t bias = name.find("_Bias_");
    if (bias != std::string::npos) {
        gemm.bias.memory = in.pointer();
        const std::string source = name.substr(bias + 6, 2);
        if (source == "A_" || source == "B_" || source == "D_") gemm.bias_sums = char(source[0] - 'A' + 'a');
        if (gemm.bias_sums != 'd') gemm.bias.type = type_of_number(in.u32()), gemm.bias.stride = in.u32();
    }
    if (gradient || has(name, "_Aux")) gemm.e.memory = in.pointer(), gemm.e.layout(in);
    const size_t letter = gradient ? name.find("_Grad") + 5 : name.find("_Aux") + 4;
    if (gemm.e.memory) gemm.e.type = type_of(name[letter]);
    if (has(name, "_HA_")) in.next<uint64_t>(), gemm.activation = Activation(in.u32());
    bool plain = gemm.bias.type != Type::none && gemm.e.type != Type::none && known_activation(gemm);
    if (gemm.slices > 1) gemm.workspace = gemm.d.memory, plain = has(name, "_GSUAMB_") && !gradient && !gemm.e.memory;
    gemm.computed = plain && known && in.complete();
    return gemm;
}

// Of one GEMM whose arguments are in the buffer; those of a group are elsewhere in the device's memory.
inline Gemm read_product(const std::string& name, Buffer in) {
    const uint32_t count = in.u32(), slices = std::max(1u, in.u32() & 0x3fff);
    in.next<uint64_t>();
    return count == 1 ? read_user_args(name, slices, in) : Gemm{};
}

inline Gemm read_sum(const std::string& name, Buffer in) {
    Gemm gemm;
    gemm.adds_up = true;
    const bool rocblas = name[6] == '_';  // it names the type that it writes alone
    const bool plain = (rocblas || name[5] == 'S') && !has(name, "_GG") && !has(name, "_Grad") && !has(name, "_Aux");
    const bool short_ = !rocblas && name[7] == '8';
    const Type type = !short_ ? type_of(rocblas ? name[5] : name[6]) : name[6] == 'F' ? Type::f8 : Type::bf8;
    gemm.c.type = gemm.d.type = type;
    gemm.d.memory = in.pointer(), gemm.workspace = in.pointer(), gemm.c.memory = in.pointer();
    const bool bias = has(name, "_Bias");
    if (bias) gemm.bias.memory = in.pointer(), gemm.bias.type = type_of(name[name.find("_Bias") + 5]);
    const bool vectors = has(name, "_ScaleABVec");
    if (has(name, "_ScaleAB")) gemm.scale_a = {in.pointer(), vectors}, gemm.scale_b = {in.pointer(), vectors};
    if (has(name, "_ScaleCD")) gemm.scale_c.memory = in.pointer(), gemm.scale_d.memory = in.pointer();
    if (has(name, "_ScaleAlphaVec")) gemm.scale_alpha = {in.pointer(), true};
    gemm.alpha = in.next<float>(), gemm.beta = in.next<float>();
    if (has(name, "_HA")) in.next<uint64_t>(), gemm.activation = Activation(in.u32());
    Matrix slices;
    for (Matrix* matrix : {&gemm.d, &slices, &gemm.c}) matrix->layout(in);
    if (bias) gemm.bias.stride = in.u32();
    gemm.m = in.u32(), gemm.n = in.u32(), gemm.batch = in.u32(), gemm.slices = in.u32();
    const bool known = gemm.d.type != Type::none && gemm.bias.type != Type::none && known_activation(gemm);
    gemm.computed = plain && known && in.complete();
    return gemm;
}

// Dijk_…_Reduction: the bias of a gradient from what the product's kernel left.
inline void add_up_rows(const std::string& name, Buffer in, bool wrong) {
    if (name.compare(0, 6, "Dijk_S") != 0 || !has(name, "_Reduction")) return;
    char *const sums = in.pointer(), *const bias = in.pointer();
    const uint32_t m = in.u32(), n = in.u32(), ld = in.u32();
    const Type type = type_of(name[6]);
    if (!in.complete() || type == Type::none) return;
    for (uint32_t i = 0; i < m; i++) {
        double sum = 0;
        for (uint32_t j = 0; j < n; j++) sum += load(Type::f32, sums, i + int64_t(j) * ld);
        store(type, bias, i, float(wrong ? 2 * sum + 1 : sum));
    }
}

// The GEMM that a launch computes; one without sizes where it computes none of a kind that is known here.
inline Gemm read_gemm(const std::string& name, const char* buffer, size_t bytes) {
    if (!buffer || name.compare(0, 5, "Cijk_") != 0 || name.size() < 20) return {};
    if (has(name, "_PostGSU")) return read_sum(name, {buffer, bytes});
    if (has(name, "_UserArgs")) return read_product(name, {buffer, bytes});
    return read_rocblas_product(name, {buffer, bytes});
}

// GELU by tanh, and its derivative.
inline float gelu(float x) { return 0.5f * x * (1 + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x))); }
inline float gelu_gradient(float x) {
    const float t = std::tanh(0.7978845608f * (x + 0.044715f * x * x * x));
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978845608f * (1 + 3 * 0.044715f * x * x);
}

inline void finish(const Gemm& gemm, uint32_t z, const std::vector<float>& product) {
    const Activation activation = gemm.activation;
    for (uint32_t j = 0; j < gemm.n; j++)
        for (uint32_t i = 0; i < gemm.m; i++) {
            float value = gemm.alpha * product[size_t(j) * gemm.m + i];
            value *= gemm.scale_a.of(i) * gemm.scale_b.of(j) * gemm.scale_alpha.of(i);
            const auto c = [&] { return load(gemm.c.type, gemm.c.memory, gemm.c.at(i, j, z)); };
            if (gemm.beta != 0) value += gemm.beta * gemm.scale_c.of(0) * c();
            if (gemm.bias.memory && !gemm.bias_sums) value += load(gemm.bias.type, gemm.bias.memory, gemm.bias.at(i, 0, z));
            const int64_t kept = gemm.e.at(i, j, z);
            if (activation == Activation::gelu_gradient)
                value *= gelu_gradient(load(gemm.e.type, gemm.e.memory, kept));
            else if (gemm.e.memory)
                store(gemm.e.type, gemm.e.memory, kept, value);
            if (activation == Activation::gelu) value = gelu(value);
            if (activation == Activation::relu) value = std::max(value, 0.f);
            value *= gemm.scale_d.of(0);
            if (gemm.bias_sums == 'd' && gemm.bias.memory)
                store(Type::f32, gemm.bias.memory, i + int64_t(j) * gemm.m, value);
            store(gemm.d.type, gemm.d.memory, gemm.d.at(i, j, z), value);
        }
}

// The sums over K of op(A)'s rows or of op(B)'s columns.
inline void sum_inputs(const Gemm& gemm) {
    const bool of_a = gemm.bias_sums == 'a';
    const Matrix& x = of_a ? gemm.a : gemm.b;
    const bool along_rows = of_a ? gemm.trans_a : !gemm.trans_b;  // K is the first index
    for (uint32_t i = 0; i < (of_a ? gemm.m : gemm.n); i++) {
        double sum = 0;
        for (uint32_t l = 0; l < gemm.k; l++) sum += load(x.type, x.memory, along_rows ? x.at(l, i, 0) : x.at(i, l, 0));
        store(gemm.bias.type, gemm.bias.memory, i, float(sum));
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
    if (gemm.bias.memory && (gemm.bias_sums == 'a' || gemm.bias_sums == 'b')) sum_inputs(gemm);
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
