#include "graph/ops/image_decoder.h"

#include <algorithm>
#include <cstdlib>

#include "graph/evaluate/evaluate.h"

namespace tessera {
namespace {

// Pixels as red, green and blue; empty where the stream is damaged.
struct Image {
    int64_t height = 0, width = 0;
    std::vector<uint8_t> rgb;
};

constexpr int64_t kMaxSide = 1 << 16;

// The stream, read without ever leaving it: what lies outside is 0 and makes it bad.
class Reader {
  public:
    explicit Reader(std::span<const uint8_t> bytes) : bytes_(bytes) {}
    uint8_t byte(int64_t at) {
        if (at < 0 || at >= int64_t(bytes_.size())) {
            bad_ = true;
            return 0;
        }
        return bytes_[size_t(at)];
    }
    int64_t number(int64_t at, int64_t length, bool big_endian = false) {
        uint64_t v = 0;
        for (int64_t i = 0; i < length; ++i) v |= uint64_t(byte(at + i)) << 8 * (big_endian ? length - 1 - i : i);
        return int64_t(v);
    }
    bool starts_with(std::string_view magic) const {
        return bytes_.size() >= magic.size() && std::equal(magic.begin(), magic.end(), bytes_.begin(),
                                                           [](char a, uint8_t b) { return uint8_t(a) == b; });
    }
    bool bad() const { return bad_; }
    void spoil() { bad_ = true; }

  private:
    std::span<const uint8_t> bytes_;
    bool bad_ = false;
};

// An image whose pixel (row, column) has its channels where `at` says; one channel is grey.
template <typename At>
Image read_pixels(Reader& in, int64_t height, int64_t width, int64_t channels, At at) {
    if (height < 1 || width < 1 || height > kMaxSide || width > kMaxSide || in.bad()) return {};
    in.byte(at(height - 1, width - 1, channels - 1));
    in.byte(at(0, 0, channels - 1));
    if (in.bad()) return {};  // before anything is made of that size
    Image image{height, width, {}};
    image.rgb.reserve(size_t(height * width * 3));
    for (int64_t r = 0; r < height; ++r)
        for (int64_t c = 0; c < width; ++c)
            for (int64_t i = 0; i < 3; ++i) image.rgb.push_back(in.byte(at(r, c, std::min(i, channels - 1))));
    return in.bad() ? Image{} : image;
}

// Bitmaps of 24 or 32 bits a pixel, blue first, rows padded to four bytes and mostly from the bottom up.
std::optional<Image> read_bmp(Reader& in) {
    int64_t start = in.number(10, 4), width = int32_t(in.number(18, 4)), height = int32_t(in.number(22, 4));
    int64_t bits = in.number(28, 2), compression = in.number(30, 4);
    if ((bits != 24 && bits != 32) || compression != 0) return std::nullopt;
    int64_t rows = std::abs(height), pixel = bits / 8, stride = (width * pixel + 3) / 4 * 4;
    return read_pixels(in, rows, width, 3, [=](int64_t r, int64_t c, int64_t i) {
        return start + (height > 0 ? rows - 1 - r : r) * stride + c * pixel + 2 - i;
    });
}

// P5 (grey) and P6 (colour), 8 bits a channel.
std::optional<Image> read_pnm(Reader& in) {
    int64_t channels = in.byte(1) == '6' ? 3 : 1, at = 2;
    auto space = [](uint8_t c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; };
    auto number = [&] {
        while (!in.bad() && (space(in.byte(at)) || in.byte(at) == '#')) {
            if (in.byte(at) == '#')
                while (!in.bad() && in.byte(at) != '\n') ++at;
            ++at;
        }
        int64_t v = 0;
        for (; !in.bad() && in.byte(at) >= '0' && in.byte(at) <= '9' && v < kMaxSide; ++at)
            v = v * 10 + in.byte(at) - '0';
        return v;
    };
    int64_t width = number(), height = number(), most = number();
    if (most != 255 || !space(in.byte(at))) return std::nullopt;
    int64_t start = at + 1;
    return read_pixels(in, height, width, channels,
                       [=](int64_t r, int64_t c, int64_t i) { return start + (r * width + c) * channels + i; });
}

// Strips of 8 bits a channel, interleaved; the first picture of the file.
std::optional<Image> read_tiff(Reader& in) {
    bool big = in.byte(0) == 'M';
    int64_t directory = in.number(4, 4, big), entries = in.number(directory, 2, big);
    int64_t width = 0, height = 0, bits = 8, compression = 1, channels = 1, rows = kMaxSide, strips = 0, strip_size = 0,
            strip_count = 0, photometric = 1;
    for (int64_t i = 0; i < entries && !in.bad(); ++i) {
        int64_t at = directory + 2 + 12 * i, tag = in.number(at, 2, big), type = in.number(at + 2, 2, big);
        int64_t count = in.number(at + 4, 4, big), size = type == 3 ? 2 : type == 4 ? 4 : 1;
        int64_t place = count * size <= 4 ? at + 8 : in.number(at + 8, 4, big), value = in.number(place, size, big);
        switch (tag) {
            case 256: width = value; break;
            case 257: height = value; break;
            case 258: bits = value; break;
            case 259: compression = value; break;
            case 262: photometric = value; break;
            case 273: strips = place, strip_size = size, strip_count = count; break;
            case 277: channels = value; break;
            case 278: rows = std::clamp<int64_t>(value, 1, kMaxSide); break;
            case 284:
                if (value != 1) return std::nullopt;
                break;
            default: break;
        }
    }
    if (compression != 1 || bits != 8 || channels < 1 || channels > 4 || photometric < 1 || photometric > 2)
        return std::nullopt;
    return read_pixels(in, height, width, channels, [=, &in](int64_t r, int64_t c, int64_t i) {
        int64_t strip = r / rows;
        if (strip >= strip_count) in.spoil();
        int64_t start = in.number(strips + strip * strip_size, strip_size, big);
        return start + ((r % rows) * width + c) * channels + i;
    });
}

Result<std::vector<Datum>> decode(const OpView& op, EvalContext& ctx) {
    const Tensor& stream = ctx.tensor(0);
    Reader in(stream.as<uint8_t>());
    std::optional<Image> image;
    if (in.starts_with("BM"))
        image = read_bmp(in);
    else if (in.starts_with("P5") || in.starts_with("P6"))
        image = read_pnm(in);
    else if (in.starts_with(std::string_view("II*\0", 4)) || in.starts_with(std::string_view("MM\0*", 4)))
        image = read_tiff(in);
    if (!image)
        return op.error(Code::E0409, "only uncompressed images are decoded: BMP, PGM, PPM and TIFF")
            .hint("decode the image before the model, and feed it the pixels");
    const std::string& format = op.string("pixel_format");
    int64_t channels = format == "Grayscale" ? 1 : 3;
    TRY(ctx.spend(int64_t(image->rgb.size())));
    Tensor y = TRY(Tensor::zeros(DType::u8, {image->height, image->width, channels}));
    auto out = y.mutable_as<uint8_t>();
    for (int64_t p = 0; p < image->height * image->width; ++p) {
        const uint8_t* c = &image->rgb[size_t(3 * p)];
        if (channels == 1)
            out[size_t(p)] = uint8_t((c[0] * 19595 + c[1] * 38470 + c[2] * 7471 + 32768) >> 16);
        else
            for (size_t i = 0; i < 3; ++i) out[size_t(3 * p) + i] = c[format == "BGR" ? 2 - i : i];
    }
    return std::vector<Datum>{y};
}

}  // namespace

OpDef image_decoder_op() {
    return {
        .name = "image_decoder",
        .inputs = {"encoded_stream: u8"},
        .outputs = {"image: u8"},
        .attrs = {string_attr("pixel_format", "RGB").one_of({"RGB", "BGR", "Grayscale"})},
        .onnx = "ImageDecoder",
        .infer = [](const OpView& op) -> Result<Types> {
            if (op.rank(0) != 1) return op.shape_error("needs a vector of bytes, has {}", op.shape(0));
            const std::string& format = op.string("pixel_format");
            return op.like(0, {op.fresh(0, 0), op.fresh(0, 1), format == "Grayscale" ? 1 : 3});
        },
        .evaluate = decode,
        .no_kernel = "decodes a file format",
    };
}

}  // namespace tessera
