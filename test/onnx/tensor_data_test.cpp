#include "onnx/tensor_data.h"

#include <gtest/gtest.h>

#include "base/output_file.h"
#include "onnx/dtypes.h"
#include "onnx/sample.h"

namespace tessera::onnx::tensor_data_test {
namespace {

namespace fs = std::filesystem;

template <typename T>
std::string code_of(const Result<T>& result) {
    return result.ok() ? "ok" : std::string(code_name(result.error().code()));
}

template <typename T>
std::vector<T> elements(const Result<TensorData>& data) {
    EXPECT_TRUE(data.ok()) << data.error().to_string();
    if (!data.ok()) return {};
    EXPECT_EQ(data->bytes.size(), data->count * sizeof(T));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data->bytes.data()) % std::min<size_t>(sizeof(T), 8), 0u);
    auto* first = reinterpret_cast<const T*>(data->bytes.data());
    return {first, first + data->count};
}

Tensor typed(DType dtype, std::vector<int64_t> dims) {
    Tensor t;
    t.name = "t";
    t.data_type = dtype_to_onnx(dtype);
    t.dims = std::move(dims);
    return t;
}

TEST(DTypes, GoBothWays) {
    for (int i = 0; i < kDTypeCount; ++i) {
        auto t = static_cast<DType>(i);
        EXPECT_EQ(dtype_from_onnx(dtype_to_onnx(t)), t);
    }
    for (int32_t n : {0, 27, 28, 29, -1}) EXPECT_FALSE(dtype_from_onnx(n).has_value());
    EXPECT_EQ(data_type_name(1), "FLOAT");
    EXPECT_EQ(data_type_name(99), "unknown type 99");
}

TEST(TensorData, RawDataIsViewedWhenAligned) {
    Tensor t = sample_tensor();
    auto data = tensor_data(t);
    EXPECT_EQ(elements<float>(data), (std::vector<float>{1, 2, 3, 4}));
    EXPECT_EQ(data->bytes.data(), t.raw_data.data());
    EXPECT_EQ(data->owner, t.raw_data.owner());
    EXPECT_EQ(data->dims, (std::vector<int64_t>{2, 2}));
}

TEST(TensorData, UnalignedDataIsCopied) {
    alignas(8) char room[64] = {};
    for (size_t shift = 0; shift < 8; ++shift) {
        std::vector<double> values{1.5, -2};
        std::memcpy(room + shift, values.data(), 16);
        Tensor t = typed(DType::f64, {2});
        t.raw_data = Bytes({room + shift, 16}, nullptr);
        auto data = tensor_data(t);
        EXPECT_EQ(elements<double>(data), values);
        EXPECT_EQ(data->bytes.data() == room, shift == 0);
    }
}

TEST(TensorData, TypedFields) {
    Tensor t = typed(DType::f32, {2});
    t.float_data = Bytes::own(bytes_of<float>({1, -2}));
    EXPECT_EQ(elements<float>(tensor_data(t)), (std::vector<float>{1, -2}));
    t = typed(DType::c64, {1});
    t.float_data = Bytes::own(bytes_of<float>({1, -2}));
    EXPECT_EQ(code_of(tensor_data(t)), "ok");
    t = typed(DType::c128, {1});
    t.double_data = Bytes::own(bytes_of<double>({1, -2}));
    EXPECT_EQ(tensor_data(t)->bytes, bytes_of<double>({1, -2}));
    t = typed(DType::i64, {2});
    t.int64_data = encode_varints({INT64_MIN, 5});
    EXPECT_EQ(elements<int64_t>(tensor_data(t)), (std::vector<int64_t>{INT64_MIN, 5}));
    t = typed(DType::u64, {1});
    t.uint64_data = encode_varints({-1});
    EXPECT_EQ(elements<uint64_t>(tensor_data(t)), (std::vector<uint64_t>{UINT64_MAX}));
    t = typed(DType::u32, {1});
    t.uint64_data = encode_varints({0xFFFFFFFF});
    EXPECT_EQ(elements<uint32_t>(tensor_data(t)), (std::vector<uint32_t>{0xFFFFFFFF}));
    t = typed(DType::i32, {2});
    t.int32_data = encode_varints({-7, INT32_MAX});
    EXPECT_EQ(elements<int32_t>(tensor_data(t)), (std::vector<int32_t>{-7, INT32_MAX}));
    t = typed(DType::i8, {2});
    t.int32_data = encode_varints({-7, 100});
    EXPECT_EQ(elements<int8_t>(tensor_data(t)), (std::vector<int8_t>{-7, 100}));
    t = typed(DType::boolean, {3});
    t.int32_data = encode_varints({0, 1, 256});
    EXPECT_EQ(elements<uint8_t>(tensor_data(t)), (std::vector<uint8_t>{0, 1, 1}));
    for (DType dtype : {DType::f16, DType::bf16}) {
        t = typed(dtype, {2});
        t.int32_data = encode_varints({0x3C00, 0xFC00});
        EXPECT_EQ(elements<uint16_t>(tensor_data(t)), (std::vector<uint16_t>{0x3C00, 0xFC00}));
    }
    for (DType dtype : {DType::f8e4m3fn, DType::f8e4m3fnuz, DType::f8e5m2, DType::f8e5m2fnuz, DType::f8e8m0}) {
        t = typed(dtype, {2});
        t.int32_data = encode_varints({0x7F, 0xFF});
        EXPECT_EQ(elements<uint8_t>(tensor_data(t)), (std::vector<uint8_t>{0x7F, 0xFF}));
    }
}

TEST(TensorData, Strings) {
    Tensor t = make_string_tensor("s", {2}, {"a", ""});
    EXPECT_EQ(tensor_data(t)->strings, (std::vector<std::string>{"a", ""}));
    t.string_data.pop_back();
    EXPECT_EQ(code_of(tensor_data(t)), "E0211");
    t.raw_data = Bytes::own("ab");
    EXPECT_EQ(code_of(tensor_data(t)), "E0211");
}

TEST(TensorData, PackedTypesTakeAByteEach) {
    Tensor t = typed(DType::i4, {3});
    t.raw_data = Bytes::own("\x8F\x07");
    EXPECT_EQ(elements<int8_t>(tensor_data(t)), (std::vector<int8_t>{-1, -8, 7}));
    t.raw_data = Bytes();
    t.int32_data = encode_varints({0x8F, 0x07});
    EXPECT_EQ(elements<int8_t>(tensor_data(t)), (std::vector<int8_t>{-1, -8, 7}));
    t.data_type = dtype_to_onnx(DType::u4);
    EXPECT_EQ(elements<uint8_t>(tensor_data(t)), (std::vector<uint8_t>{15, 8, 7}));
    t.data_type = dtype_to_onnx(DType::f4e2m1);
    EXPECT_EQ(elements<uint8_t>(tensor_data(t)), (std::vector<uint8_t>{15, 8, 7}));
    t = typed(DType::i2, {5});
    t.raw_data = Bytes::own(std::string("\xE4\x03", 2));
    EXPECT_EQ(elements<int8_t>(tensor_data(t)), (std::vector<int8_t>{0, 1, -2, -1, -1}));
    t.data_type = dtype_to_onnx(DType::u2);
    EXPECT_EQ(elements<uint8_t>(tensor_data(t)), (std::vector<uint8_t>{0, 1, 2, 3, 3}));
    t.raw_data = Bytes::own("\xE4");
    EXPECT_EQ(code_of(tensor_data(t)), "E0211");
}

TEST(TensorData, MakeTensorIsTheInverse) {
    for (int i = 0; i < kDTypeCount; ++i) {
        auto dtype = static_cast<DType>(i);
        if (dtype == DType::string) continue;
        bool small = dtype_bits(dtype) < 8;
        std::string bytes(5 * dtype_bytes(dtype), '\0');
        for (size_t k = 0; k < bytes.size(); ++k) bytes[k] = static_cast<char>(small ? k % 2 : k * 37);
        if (dtype == DType::i4 || dtype == DType::i2) bytes[1] = -2;
        Tensor t = make_tensor("t", dtype, {5}, Bytes::own(bytes));
        auto data = tensor_data(t);
        ASSERT_TRUE(data.ok()) << data.error().to_string();
        EXPECT_EQ(data->bytes, bytes) << dtype_name(dtype);
        EXPECT_EQ(*raw_data_size(t), t.raw_data.size());
    }
}

TEST(TensorData, BooleansAreZeroOrOne) {
    Tensor t = typed(DType::boolean, {3});
    t.raw_data = Bytes::own(std::string("\0\x02\x01", 3));
    EXPECT_EQ(elements<uint8_t>(tensor_data(t)), (std::vector<uint8_t>{0, 1, 1}));
}

TEST(TensorData, ShapesThatLie) {
    Tensor t = sample_tensor();
    for (std::vector<int64_t> dims : {std::vector<int64_t>{3}, {5}, {2, 3}, {}, {0}, {1000000000000}}) {
        t.dims = dims;
        EXPECT_EQ(code_of(tensor_data(t)), "E0211");
    }
    auto misfit = tensor_data(t);
    EXPECT_NE(misfit.error().message().find("4000000000000 bytes"), std::string::npos) << misfit.error().message();
    EXPECT_NE(misfit.error().message().find("has 16"), std::string::npos);
    EXPECT_EQ(misfit.error().where(), "tensor \"w\"");
    for (std::vector<int64_t> dims :
         {std::vector<int64_t>{-1}, {INT64_MAX, INT64_MAX}, {INT64_MAX}, {1 << 30, 1 << 30, 1 << 30}, {0, -1}}) {
        t.dims = dims;
        EXPECT_EQ(code_of(tensor_data(t)), "E0108");
    }
    t.dims = {INT64_MAX, INT64_MAX, 0};
    t.raw_data = Bytes();
    EXPECT_EQ(tensor_data(t)->count, 0);
    t = typed(DType::i64, {2});
    EXPECT_EQ(code_of(tensor_data(t)), "E0211");
    t.int64_data = encode_varints({1, 2, 3});
    EXPECT_EQ(code_of(tensor_data(t)), "E0211");
    t.int64_data = Bytes::own("\x01\x02\x80");
    EXPECT_EQ(code_of(tensor_data(t)), "E0211");
    t.int64_data = Bytes::own(std::string(12, '\xff') + "\x01\x02");
    EXPECT_EQ(code_of(tensor_data(t)), "E0211");
    for (int32_t unknown : {0, 27, 99, -1}) {
        t.data_type = unknown;
        EXPECT_EQ(code_of(tensor_data(t)), "E0213");
    }
}

class ExternalData : public testing::Test {
  protected:
    void SetUp() override {
        fs::create_directories(root.path / "model" / "sub");
        write(root.path / "secret.bin");
        write(root.path / "model" / "w.bin");
        write(root.path / "model" / "sub" / "w.bin");
        fs::create_symlink("../secret.bin", root.path / "model" / "link.bin");
        fs::create_symlink("..", root.path / "model" / "up");
        fs::create_symlink("w.bin", root.path / "model" / "inside.bin");
    }
    static void write(const fs::path& path) { ASSERT_TRUE(write_file(path, bytes_of<float>({0, 1, 2, 3})).ok()); }
    Result<TensorData> load(std::string location, std::string offset = "", std::string length = "") {
        Tensor t = typed(DType::f32, {2});
        t.data_location = Tensor::Location::External;
        t.external_data = {{"location", location}};
        if (!offset.empty()) t.external_data.push_back({"offset", offset});
        if (!length.empty()) t.external_data.push_back({"length", length});
        return tensor_data(t, source);
    }
    ScratchFolder root;
    DataSource source{root.path / "model"};
};

TEST_F(ExternalData, IsMappedOnceAndNotCopied) {
    auto a = load("w.bin", "0", "8"), b = load("w.bin", "8", "8");
    EXPECT_EQ(elements<float>(a), (std::vector<float>{0, 1}));
    EXPECT_EQ(elements<float>(b), (std::vector<float>{2, 3}));
    EXPECT_EQ(a->owner, b->owner);
    EXPECT_EQ(a->bytes.data() + 8, b->bytes.data());
    EXPECT_EQ(elements<float>(load("w.bin", "4")), (std::vector<float>{1, 2}));  // no length: what the shape takes
    EXPECT_EQ(code_of(load("sub/w.bin")), "ok");
    EXPECT_EQ(code_of(load("sub/../w.bin")), "ok");
    EXPECT_EQ(code_of(load("./w.bin")), "ok");
    EXPECT_EQ(code_of(load("inside.bin")), "ok");
    EXPECT_EQ(code_of(load("w.bin", "3", "8")), "ok");  // not aligned
}

TEST_F(ExternalData, StaysInTheFolder) {
    EXPECT_EQ(code_of(load("../secret.bin")), "E0106");
    EXPECT_EQ(code_of(load("sub/../../secret.bin")), "E0106");
    EXPECT_EQ(code_of(load((root.path / "secret.bin").string())), "E0106");
    EXPECT_EQ(code_of(load((root.path / "model" / "w.bin").string())), "E0106");
    EXPECT_EQ(code_of(load("link.bin")), "E0106");
    EXPECT_EQ(code_of(load("up/secret.bin")), "E0106");
    EXPECT_EQ(code_of(load("")), "E0106");
    EXPECT_EQ(code_of(load(std::string("w.bin\0x", 7))), "E0106");
    EXPECT_EQ(code_of(load(".")), "E0106");
}

TEST_F(ExternalData, StaysInTheFile) {
    EXPECT_EQ(code_of(load("none.bin")), "E0107");
    EXPECT_EQ(code_of(load("sub")), "E0107");
    EXPECT_EQ(code_of(load("w.bin", "17", "0")), "E0107");
    EXPECT_EQ(code_of(load("w.bin", "8", "9")), "E0107");
    EXPECT_EQ(code_of(load("w.bin", "8", "18446744073709551615")), "E0107");
    EXPECT_EQ(code_of(load("w.bin", "12")), "E0211");
    EXPECT_EQ(code_of(load("w.bin", "0", "4")), "E0211");
    EXPECT_EQ(code_of(load("w.bin", "-1", "8")), "E0206");
    EXPECT_EQ(code_of(load("w.bin", "0", "8x")), "E0206");
    EXPECT_EQ(code_of(load("w.bin", "99999999999999999999", "8")), "E0206");
    Tensor t = typed(DType::f32, {2});
    t.data_location = Tensor::Location::External;
    t.external_data = {{"location", "w.bin"}};
    EXPECT_EQ(code_of(tensor_data(t)), "E0107");  // a model from memory
}

SparseTensor sparse(std::vector<int64_t> dims, std::vector<int64_t> index_dims, std::vector<int64_t> indices) {
    SparseTensor s;
    s.values = make_tensor("s", DType::f32, {2}, Bytes::own(bytes_of<float>({5, 6})));
    s.indices = make_tensor("", DType::i64, std::move(index_dims), Bytes::own(bytes_of(indices)));
    s.dims = std::move(dims);
    return s;
}

TEST(SparseData, BecomesDense) {
    std::vector<float> expected{0, 0, 5, 0, 6, 0};
    EXPECT_EQ(elements<float>(dense_data(sparse({2, 3}, {2}, {2, 4}))), expected);
    EXPECT_EQ(elements<float>(dense_data(sparse({2, 3}, {2, 2}, {0, 2, 1, 1}))), expected);
}

TEST(SparseData, IsChecked) {
    EXPECT_EQ(code_of(dense_data(sparse({2, 3}, {2}, {2, 6}))), "E0406");
    EXPECT_EQ(code_of(dense_data(sparse({2, 3}, {2}, {-1, 0}))), "E0406");
    EXPECT_EQ(code_of(dense_data(sparse({2, 3}, {2, 2}, {0, 3, 1, 1}))), "E0406");
    EXPECT_EQ(code_of(dense_data(sparse({2, 3}, {3}, {0, 1, 2}))), "E0211");
    EXPECT_EQ(code_of(dense_data(sparse({2, 3}, {1, 2}, {0, 1}))), "E0211");
    EXPECT_EQ(code_of(dense_data(sparse({2, 3}, {2, 1}, {0, 1}))), "E0211");
    EXPECT_EQ(code_of(dense_data(sparse({1000000000000}, {2}, {0, 1}))), "E0108");
    EXPECT_EQ(code_of(dense_data(sparse({INT64_MAX, 2}, {2}, {0, 1}))), "E0108");
    EXPECT_EQ(code_of(dense_data(sparse({0}, {2}, {0, 1}))), "E0406");
    SparseTensor ints = sparse({2, 3}, {2}, {2, 4});
    ints.indices.data_type = dtype_to_onnx(DType::u64);
    EXPECT_EQ(code_of(dense_data(ints)), "E0211");
}

}  // namespace
}  // namespace tessera::onnx::tensor_data_test
