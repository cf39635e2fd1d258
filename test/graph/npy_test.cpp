#include "graph/npy.h"

#include <gtest/gtest.h>

#include "base/numeric.h"

namespace tessera::npy_test {
namespace {

std::string file(std::string_view header, std::string_view data, int version = 1) {
    std::string bytes = "\x93NUMPY";
    bytes += static_cast<char>(version);
    bytes += '\0';
    for (int i = 0; i < (version == 1 ? 2 : 4); ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
    return bytes + std::string(header) + std::string(data);
}

TEST(npy, every_element_type_comes_back) {
    for (int k = 0; k < kDTypeCount; ++k) {
        DType t = static_cast<DType>(k);
        for (Sizes sizes : {Sizes{}, Sizes{0}, Sizes{5}, Sizes{2, 3}, Sizes{2, 0, 4}}) {
            auto made = Tensor::zeros(t, sizes);
            ASSERT_TRUE(made.ok());
            for (int64_t i = 0; i < made->elements(); ++i) {
                if (t == DType::string)
                    made->mutable_strings()[i] = i % 2 ? "aß漢😀" : "";
                else if (is_complex(t))
                    static_cast<unsigned char*>(made->mutable_data())[i * dtype_bytes(t)] =
                        static_cast<unsigned char>(i);
                else
                    made->set_real(i, i % 2);
            }
            auto bytes = npy_bytes(*made);
            ASSERT_TRUE(bytes.ok());
            EXPECT_EQ(bytes->find('\n') % 64, 63u);
            auto back = read_npy(*bytes, t);
            ASSERT_TRUE(back.ok()) << dtype_name(t) << ": " << back.error().to_string();
            EXPECT_TRUE(*back == *made) << dtype_name(t) << to_string(sizes);
        }
    }
}

TEST(npy, big_endian_and_fortran_order) {
    const char data[] = {0, 1, 0, 4, 0, 2, 0, 5, 0, 3, 0, 6};
    auto t = read_npy(file("{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }\n", {data, sizeof data}));
    ASSERT_TRUE(t.ok()) << t.error().to_string();
    EXPECT_EQ(t->dtype(), DType::i16);
    EXPECT_EQ(t->to_ints(), (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
}

TEST(npy, later_versions_and_loose_headers) {
    for (int version : {2, 3}) {
        auto t = read_npy(file("{\"shape\":(2L,),'fortran_order':False,'descr':'|u1'}", "\x07\x08", version));
        ASSERT_TRUE(t.ok()) << t.error().to_string();
        EXPECT_EQ(t->to_ints(), (std::vector<int64_t>{7, 8}));
    }
}

TEST(npy, raw_bytes_take_the_expected_type) {
    std::string f = file("{'descr': '<V1', 'fortran_order': False, 'shape': (2,), }", "\x0f\x01");
    EXPECT_FALSE(read_npy(f).ok());
    EXPECT_FALSE(read_npy(f, DType::f32).ok());
    auto t = read_npy(f, DType::i4);
    ASSERT_TRUE(t.ok());
    EXPECT_EQ(t->to_ints(), (std::vector<int64_t>{-1, 1}));
    std::string two =
        file("{'descr': '<V2', 'fortran_order': False, 'shape': (1,), }", std::string_view("\x80\x3f", 2));
    auto b = read_npy(two);
    ASSERT_TRUE(b.ok());
    EXPECT_EQ(b->dtype(), DType::bf16);
    EXPECT_EQ(b->real_at(0), 1.0);
}

TEST(npy, what_is_malformed_is_E0110) {
    const std::string good = file("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n", std::string(8, 'x'));
    ASSERT_TRUE(read_npy(good).ok());
    for (size_t n = 0; n < good.size(); ++n) {
        auto t = read_npy(std::string_view(good).substr(0, n));
        ASSERT_FALSE(t.ok()) << n;
        EXPECT_EQ(t.error().code(), Code::E0110);
    }
    for (const char* header :
         {"", "{", "{}", "[]", "{'descr': '<f4'}", "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (2,)}",
          "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}",
          "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}",
          "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4294967296)}",
          "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
          "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}",
          "{'descr': '|O', 'fortran_order': False, 'shape': (2,)}",
          "{'descr': '<f16', 'fortran_order': False, 'shape': (2,)}",
          "{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (1,)}",
          "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}",
          "{'descr': '<U99999999999', 'fortran_order': False, 'shape': (2,)}",
          "{'descr': '<U0', 'fortran_order': False, 'shape': (1000000000000,)}",
          "{'descr': '<U1', 'fortran_order': False, 'shape': (2,)}"}) {
        auto t = read_npy(file(header, std::string(8, '\xff')));
        ASSERT_FALSE(t.ok()) << header;
        EXPECT_EQ(t.error().code(), Code::E0110) << header;
    }
    EXPECT_EQ(read_npy_file("no/such/file.npy").error().code(), Code::E0101);
}

}  // namespace
}  // namespace tessera::npy_test
