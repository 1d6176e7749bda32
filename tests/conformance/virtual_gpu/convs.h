// MIOpen's kernels that the virtual GPU computes: the naive convolutions, and what its GEMM solvers launch around
// rocBLAS's products.  The layouts follow from the sources that MIOpen 3.5.1 hands to hiprtc; p is a pointer:
//
//   naive_conv_ab_{packed|nonpacked}_{fwd|bwd|wrw}_{nchw|nhwc|ncdhw|ndhwc}_<in>_<sum>_<out>
//      p image, p weights, f64 alpha, f64 beta, p out, u64 strides of the three (smallest first; 5 each, in 3-D 6),
//      i32 [depth] height width of the image, n, k and c of a group, then of the output, stride, dilation, pad, filter
//      as many each, groups
//   Im2d2Col_v2    i32 elements, p image, u64 offset, i32 h w, filter, output, pad, stride, dilation (two each),
//      p columns, i32 channels of a group, blocks in x, blocks
//   Col2Im2dU      p columns, i32 output, filter, pad, stride, dilation (two each), c h w, p image, u32 offset
//   Im3d2Col       p image, u32 offset, channels, size, filter, output, pad, stride, dilation (three each), p columns
//   Col2Im3dU      p columns, u32 output, filter, pad, stride, dilation (three each), channels, size, p image, u64 offset
//   SubTensorOpWithScalar1d   p tensor, a scalar of its type, at 12: i32 offset, stride, length
//   OpTensorFwdBias   p y, p bias, u64 channels, p output, i32 n, strides of image and channel, pixels of an image, factors
//      of y, the bias and what the output holds, in its type, u64 offsets of the three
//   MIOpenConvBwdB    p dy, p bias, u32 channels, strides of channel and image, quads of pixels of a channel, pixels in the
//      last quad (0: four), quads of the batch
//
// All but the first name no element type: the options with which their module was compiled do.
#pragma once
#include "gemms.h"

namespace vgpu {

inline Type type_of_word(const std::string& word) {
    return word == "float" ? Type::f32 : word == "half" ? Type::f16 : word == "ushort" ? Type::bf16 : Type::none;
}
inline Type type_of_options(const std::string& options) {
    const size_t at = options.find("-DMIOPEN_TYPE=");
    if (at != std::string::npos) return type_of_word(options.substr(at + 14, options.find(' ', at) - at - 14));
    if (has(options, "-DMIOPEN_USE_FP16=1")) return Type::f16;
    if (has(options, "-DMIOPEN_USE_BFP16=1")) return Type::bf16;
    return has(options, "-DMIOPEN_USE_FP32=1") ? Type::f32 : Type::none;
}

struct Tensor {  // of a group of a convolution: [outer][channel][pixel], strides in elements
    char* memory = nullptr;
    Type type = Type::none;
    int64_t outers = 0, channels = 0, size[3] = {1, 1, 1};               // pixels: width, height, depth
    int64_t outer = 0, channel = 0, group = 0, pixel[3] = {0, 0, 0};  // strides

    int64_t pixels() const { return size[0] * size[1] * size[2]; }
    template <class Visit>
    void each(int64_t of_group, Visit visit) const {
        for (int64_t o = 0, flat = 0; o < outers; o++)
            for (int64_t c = 0; c < channels; c++)
                for (int64_t p = 0; p < pixels(); p++, flat++)
                    visit(flat, of_group * group + o * outer + c * channel + p % size[0] * pixel[0] +
                                    p / size[0] % size[1] * pixel[1] + p / size[0] / size[1] * pixel[2]);
    }
    std::vector<double> read(int64_t of_group) const {
        std::vector<double> values(outers * channels * pixels());
        each(of_group, [&](int64_t flat, int64_t at) { values[flat] = load(type, memory, at); });
        return values;
    }
};

struct Conv {
    char direction = 0;  // f, b or w; 0: no kernel of this kind
    Tensor image, weights, out;
    int64_t groups = 1, stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1}, pad[3] = {0, 0, 0};
    double alpha = 1, beta = 0;

    double multiplications() const {
        return double(groups) * double(out.outers * out.channels * out.pixels()) * double(image.channels * weights.pixels());
    }
    std::string sizes() const {
        char text[160];
        std::snprintf(text, sizeof text, " n=%d c=%d h=%d w=%d k=%d y=%d x=%d ", int(image.outers),
                      int(image.channels * groups), int(image.size[1]), int(image.size[0]), int(out.channels * groups),
                      int(weights.size[1]), int(weights.size[0]));
        return text;
    }
};

inline Conv read_conv(const std::string& name, const char* buffer, size_t bytes) {
    Conv conv;
    const size_t at = name.find("packed_");
    if (!buffer || name.compare(0, 11, "naive_conv_") != 0 || at == std::string::npos) return conv;
    const std::string rest = name.substr(at + 11), layout = rest.substr(0, rest.find('_'));
    const Type type = type_of_word(rest.substr(layout.size() + 1, rest.find('_', layout.size() + 1) - layout.size() - 1));
    const bool deep = layout.size() == 5, last = layout.back() == 'c';
    const int axes = deep ? 3 : 2;
    Buffer in(buffer, bytes);
    conv.image.memory = in.pointer(), conv.weights.memory = in.pointer();
    conv.alpha = in.next<double>(), conv.beta = in.next<double>();
    conv.out.memory = in.pointer();
    for (Tensor* tensor : {&conv.image, &conv.weights, &conv.out}) {
        Tensor& t = *tensor;
        const bool weights = tensor == &conv.weights;
        t.type = type;
        if (last) t.channel = in.next<int64_t>();
        if (last && !weights) t.group = in.next<int64_t>();
        for (int axis = 0; axis < axes; axis++) t.pixel[axis] = in.next<int64_t>();
        if (!last) t.channel = in.next<int64_t>();
        if (!last && !weights) t.group = in.next<int64_t>();
        t.outer = in.next<int64_t>();
        if (weights) t.group = in.next<int64_t>();
    }
    const auto along = [&](int64_t* values) {
        for (int axis = axes - 1; axis >= 0; axis--) values[axis] = in.next<int32_t>();
    };
    along(conv.image.size);
    const int64_t n = in.next<int32_t>(), k = in.next<int32_t>(), c = in.next<int32_t>();
    along(conv.out.size), along(conv.stride), along(conv.dilation), along(conv.pad), along(conv.weights.size);
    conv.groups = in.next<int32_t>();
    conv.image.outers = conv.out.outers = n;
    conv.weights.outers = conv.out.channels = k;
    conv.image.channels = conv.weights.channels = c;
    if (in.complete() && type != Type::none) conv.direction = name[at + 7];
    return conv;
}

// The image's pixel of each output pixel and tap; -1: in the padding.
inline std::vector<int64_t> taps_of(const Conv& conv) {
    const int64_t outs = conv.out.pixels(), taps = conv.weights.pixels();
    std::vector<int64_t> pixel(outs * taps, -1);
    for (int64_t o = 0; o < outs; o++)
        for (int64_t t = 0; t < taps; t++) {
            int64_t flat = 0, scale = 1, o_left = o, t_left = t;
            bool inside = true;
            for (int axis = 0; axis < 3; axis++) {
                const int64_t at = o_left % conv.out.size[axis] * conv.stride[axis] - conv.pad[axis] +
                                   t_left % conv.weights.size[axis] * conv.dilation[axis];
                inside &= at >= 0 && at < conv.image.size[axis];
                flat += at * scale;
                scale *= conv.image.size[axis];
                o_left /= conv.out.size[axis], t_left /= conv.weights.size[axis];
            }
            if (inside) pixel[o * taps + t] = flat;
        }
    return pixel;
}

inline void compute(const Conv& conv, bool wrong) {
    const int64_t outs = conv.out.pixels(), taps = conv.weights.pixels(), pixels = conv.image.pixels();
    const std::vector<int64_t> pixel = taps_of(conv);
    const Tensor& target = conv.direction == 'f' ? conv.out : conv.direction == 'b' ? conv.image : conv.weights;
    for (int64_t g = 0; g < conv.groups; g++) {
        std::vector<double> image = conv.image.read(g), weights = conv.weights.read(g), out = conv.out.read(g);
        std::vector<double>& sums = conv.direction == 'f' ? out : conv.direction == 'b' ? image : weights;
        std::fill(sums.begin(), sums.end(), 0.);
        for (int64_t n = 0; n < conv.image.outers; n++)
            for (int64_t k = 0; k < conv.out.channels; k++)
                for (int64_t c = 0; c < conv.image.channels; c++) {
                    double* x = &image[(n * conv.image.channels + c) * pixels];
                    double* w = &weights[(k * conv.image.channels + c) * taps];
                    double* y = &out[(n * conv.out.channels + k) * outs];
                    for (int64_t o = 0; o < outs; o++)
                        for (int64_t t = 0; t < taps; t++) {
                            const int64_t i = pixel[o * taps + t];
                            if (i < 0) continue;
                            if (conv.direction == 'f') y[o] += x[i] * w[t];
                            if (conv.direction == 'b') x[i] += y[o] * w[t];
                            if (conv.direction == 'w') w[t] += y[o] * x[i];
                        }
                }
        if (wrong)
            for (size_t i = sums.size() / 2; i < sums.size(); i++) sums[i] = 2 * sums[i] + 1;
        target.each(g, [&](int64_t flat, int64_t at) {
            double value = conv.alpha * sums[flat];
            if (conv.beta != 0) value += conv.beta * load(target.type, target.memory, at);
            store(target.type, target.memory, at, float(value));
        });
    }
}

struct Axes {  // depth, height, width; in 2-D the depth is 1
    int64_t d = 1, h = 1, w = 1;
    int64_t all() const { return d * h * w; }
    Axes at(int64_t flat) const { return {flat / (h * w), flat / w % h, flat % w}; }
    int64_t flat(const Axes& x) const { return (x.d * h + x.h) * w + x.w; }
    bool hold(const Axes& x) const { return x.d >= 0 && x.d < d && x.h >= 0 && x.h < h && x.w >= 0 && x.w < w; }
};

struct Columns {  // an image as columns [channel][tap][output pixel]
    char *image = nullptr, *columns = nullptr;
    int64_t offset = 0, channels = 0;
    Axes size, filter, out, pad{0, 0, 0}, stride, dilation;

    // visit(column's element, image's element, whether it lies inside)
    template <class Visit>
    void each(Visit visit) const {
        const int64_t taps = filter.all(), outs = out.all();
        for (int64_t row = 0; row < channels * taps; row++)
            for (int64_t o = 0; o < outs; o++) {
                const Axes to = out.at(o), tap = filter.at(row % taps);
                const Axes from{to.d * stride.d - pad.d + tap.d * dilation.d,
                                to.h * stride.h - pad.h + tap.h * dilation.h,
                                to.w * stride.w - pad.w + tap.w * dilation.w};
                visit(row * outs + o, offset + row / taps * size.all() + size.flat(from), size.hold(from));
            }
    }
};

inline Axes pair(Buffer& in) {
    const int64_t h = in.next<int32_t>();
    return {1, h, in.next<int32_t>()};
}
inline Axes triple(Buffer& in) {
    const int64_t d = in.u32(), h = in.u32();
    return {d, h, in.u32()};
}

inline void to_columns(const Columns& c, Type type) {
    c.each([&](int64_t column, int64_t image, bool inside) {
        store(type, c.columns, column, inside ? load(type, c.image, image) : 0);
    });
}

inline void image_to_columns(Buffer in, size_t groups, Type type) {
    Columns c;
    in.next<uint64_t>();  // its elements, and padding
    c.image = in.pointer(), c.offset = in.next<int64_t>();
    c.size = pair(in), c.filter = pair(in), c.out = pair(in);
    c.pad = pair(in), c.pad.d = 0, c.stride = pair(in), c.dilation = pair(in);
    c.columns = in.pointer();
    const int32_t of_group = in.next<int32_t>();
    in.next<int32_t>();
    const int32_t blocks = in.next<int32_t>();
    if (!in.complete() || blocks <= 0) return;
    c.channels = int64_t(groups) / blocks * (blocks == 1 && c.stride.h * c.stride.w == 1 ? of_group : 1);
    to_columns(c, type);
}

inline void deep_image_to_columns(Buffer in, Type type) {
    Columns c;
    c.image = in.pointer(), c.offset = in.u32(), c.channels = in.u32();
    c.size = triple(in), c.filter = triple(in), c.out = triple(in);
    c.pad = triple(in), c.stride = triple(in), c.dilation = triple(in);
    in.align();
    c.columns = in.pointer();
    if (in.complete()) to_columns(c, type);
}

inline void to_image(const Columns& c, Type type) {
    std::vector<double> sums(size_t(c.channels * c.size.all()));
    c.each([&](int64_t column, int64_t image, bool inside) {
        if (inside) sums[size_t(image - c.offset)] += load(type, c.columns, column);
    });
    for (size_t i = 0; i < sums.size(); i++) store(type, c.image, c.offset + int64_t(i), float(sums[i]));
}

inline void columns_to_image(Buffer in, Type type) {
    Columns c;
    c.columns = in.pointer();
    c.out = pair(in), c.filter = pair(in), c.pad = pair(in), c.pad.d = 0, c.stride = pair(in), c.dilation = pair(in);
    c.channels = in.next<int32_t>(), c.size = pair(in);
    in.align();
    c.image = in.pointer(), c.offset = in.u32();
    if (in.complete()) to_image(c, type);
}

inline void columns_to_deep_image(Buffer in, Type type) {
    Columns c;
    c.columns = in.pointer();
    c.out = triple(in), c.filter = triple(in), c.pad = triple(in), c.stride = triple(in), c.dilation = triple(in);
    c.channels = in.u32(), c.size = triple(in);
    in.align();
    c.image = in.pointer(), c.offset = in.next<int64_t>();
    if (in.complete()) to_image(c, type);
}

inline void set_to_zero(Buffer in, Type type) {
    char* const tensor = in.pointer();
    const uint32_t scalar = in.u32();
    const int32_t offset = in.next<int32_t>(), stride = in.next<int32_t>(), length = in.next<int32_t>();
    if (!in.complete() || (type == Type::f32 ? scalar : scalar & 0xffff)) return;
    for (int64_t i = 0; i < length; i++) store(type, tensor, offset + i * stride, 0);
}

inline void add_bias(Buffer in, Type type) {
    char *const y = in.pointer(), *const bias = in.pointer();
    const int64_t channels = in.next<int64_t>();
    char* const out = in.pointer();
    const int32_t n = in.next<int32_t>(), image = in.next<int32_t>(), channel = in.next<int32_t>();
    in.next<int32_t>();
    float factors[3] = {};
    for (float& factor : factors) {
        char scalar[4] = {};
        for (int i = 0; i < (type == Type::f32 ? 4 : 2); i++) scalar[i] = in.next<char>();
        factor = load(type, scalar, 0);
    }
    in.align();
    int64_t offsets[3] = {};
    for (int64_t& offset : offsets) offset = in.next<int64_t>();
    if (!in.complete() || channel <= 0) return;
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t p = 0; p < channel; p++) {
                const int64_t at = i * image + c * channel + p;
                float value = factors[0] * load(type, y, offsets[0] + at) + factors[1] * load(type, bias, offsets[1] + c);
                if (factors[2] != 0) value += factors[2] * load(type, out, offsets[2] + at);
                store(type, out, offsets[2] + at, value);
            }
}

inline void sum_bias(Buffer in, Type type, bool wrong) {
    char *const dy = in.pointer(), *const bias = in.pointer();
    const uint32_t channels = in.u32(), channel = in.u32(), image = in.u32();
    const uint32_t quads = in.u32(), last = in.u32(), all = in.u32();
    if (!in.complete() || !quads) return;
    const uint32_t pixels = 4 * (quads - 1) + (last ? last : 4);
    for (uint32_t c = 0; c < channels; c++) {
        double sum = 0;
        for (int64_t i = 0; i < all / quads; i++)
            for (uint32_t p = 0; p < pixels; p++) sum += load(type, dy, i * image + int64_t(c) * channel + p);
        store(type, bias, c, float(wrong ? 2 * sum + 1 : sum));
    }
}

// What is launched besides the naive solvers' convolutions and the GEMM solvers' products.
inline void compute_beside(const std::string& name, const std::string& options, Buffer in, size_t groups, bool wrong) {
    const Type type = type_of_options(options);
    if (type == Type::none) return;
    if (name == "Im2d2Col_v2") image_to_columns(in, groups, type);
    if (name == "Im3d2Col") deep_image_to_columns(in, type);
    if (name == "Col2Im2dU") columns_to_image(in, type);
    if (name == "Col2Im3dU") columns_to_deep_image(in, type);
    if (name == "SubTensorOpWithScalar1d") set_to_zero(in, type);
    if (name == "OpTensorFwdBias") add_bias(in, type);
    if (name == "MIOpenConvBwdB") sum_bias(in, type, wrong);
}

}  // namespace vgpu
