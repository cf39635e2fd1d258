// The text of tile programs: read back as it was, refused where it is wrong, and harmless in a model whatever it says.
#include <gtest/gtest.h>

#include <random>

#include "base/memory.h"
#include "tessera/tessera.h"
#include "tessera/tile.h"
#include "tile/program.h"

namespace tessera::tile::text_test {
namespace {

// One of most instructions.
constexpr const char* kMixed = R"(tile mixed(x: ptr<i32>, y: ptr<i32>, z: ptr<i32>, n: i32) {
  %4: i32 = program_id() [0]
  %5: i32 = constant {16_i32}()
  %6: i32 = map {x0 * x1}(%4, %5)
  %7: i32[16] = arange() [0, 16]
  %8: i32[16] = broadcast(%6)
  %9: i32[16] = map {x0 + x1}(%8, %7)
  %10: ptr<i32>[16] = broadcast(x)
  %11: ptr<i32>[16] = offset(%10, %9)
  %12: i32[16] = broadcast(n)
  %13: bool[16] = map {x0 < x1}(%9, %12)
  %14: i32 = constant {0_i32}()
  %15: i32[16] = broadcast(%14)
  %16: i32[16] = load(%11, %13, %15)
  %17: i32[16] = arange() [0, 16]
  %29, %30: i32, i32 = reduce(%16, %17) [0] { %18, %19, %20, %21 ->
    %22: bool = map {x1 < x0}(%18, %20)
    %23: bool = map {x0 == x1}(%18, %20)
    %24: bool = map {x0 < x1}(%19, %21)
    %25: bool = map {x0 && x1}(%23, %24)
    %26: bool = map {x0 || x1}(%22, %25)
    %27: i32 = map {select(x0, x1, x2)}(%26, %18, %20)
    %28: i32 = map {select(x0, x1, x2)}(%26, %19, %21)
    give %27, %28
  }
  %34: i32[16] = scan(%16) [0, 0] { %31, %32 ->
    %33: i32 = map {x0 + x1}(%31, %32)
    give %33
  }
  %35: i32[8, 2] = reshape(%16)
  %36, %37: i32[8], i32[8] = split(%35)
  %38: i32[8, 2] = join(%37, %36)
  %39: i32[16] = reshape(%38)
  %40: i32 = constant {2_i32}()
  %41: i32[16] = broadcast(%40)
  %42: i32[16] = map {x0 / x1}(%9, %41)
  %43: i32[16] = gather(%16, %42) [0]
  %44: i32[4, 4] = reshape(%39)
  %45: i8[4, 4] = map {i8(x0)}(%44)
  %46: i32[4, 4] = reshape(%43)
  %47: i32[4, 4] = permute(%46) [1, 0]
  %48: i8[4, 4] = map {i8(x0)}(%47)
  %49: i32[4, 4] = dot(%45, %48)
  %55: i32 = while(%30) { %50 ->
    %51: i32 = constant {2_i32}()
    %52: bool = map {x1 < x0}(%50, %51)
    give %52
  } {
    %53: i32 = constant {2_i32}()
    %54: i32 = map {x0 / x1}(%50, %53)
    give %54
  }
  %56: i32 = constant {3_i32}()
  %57: bool = map {x1 < x0}(%30, %56)
  %60: i32 = if(%57) {
    %58: i32 = constant {100_i32}()
    %59: i32 = map {x0 + x1}(%55, %58)
    give %59
  } {
    give %55
  }
  %61: i32 = constant {0_i32}()
  %62: i32 = constant {3_i32}()
  %70: i32[16] = for(%61, n, %62, %34) { %63, %64 ->
    %65: i32 = map {x0 * x1}(%63, %60)
    %66: i32 = reduce max(%16) [0]
    %67: i32 = map {x0 + x1}(%65, %66)
    %68: i32[16] = broadcast(%67)
    %69: i32[16] = map {x0 + x1}(%64, %68)
    give %69
  }
  %71: ptr<i32>[16] = broadcast(y)
  %72: ptr<i32>[16] = offset(%71, %9)
  %73: i32[16] = reshape(%49)
  %74: i32[16] = map {x0 + x1}(%70, %73)
  %75: i32[16] = flip(%16) [0]
  %76: i32[16] = map {x0 + x1}(%74, %75)
  %77: i32[16] = broadcast(n)
  %78: bool[16] = map {x0 < x1}(%9, %77)
  store(%72, %76, %78)
  %79: i32 = constant {3_i32}()
  %80: i32[16] = broadcast(%79)
  %81: i32[16] = map {bit_and(x0, x1)}(%9, %80)
  %82: ptr<i32>[16] = broadcast(z)
  %83: ptr<i32>[16] = offset(%82, %81)
  %84: i32[16] = broadcast(n)
  %85: bool[16] = map {x0 < x1}(%9, %84)
  %86: i32[16] = atomic add(%83, %16, %85)
}
)";

TEST(TileText, IsReadAsItWasWritten) {
    auto program = Program::parse(kMixed);
    ASSERT_TRUE(program.ok()) << program.error().to_string();
    EXPECT_EQ(program->to_string(), kMixed);
}

TEST(TileText, ANameMayBeAnything) {
    Builder b("a \"b\"");
    const Value x = b.parameter("x y", {.dtype = DType::f64, .pointer = true});
    ASSERT_TRUE(b.store(x, *b.load(x)).ok());
    const Program program = *b.finish();
    auto again = Program::parse(program.to_string());
    ASSERT_TRUE(again.ok()) << again.error().to_string();
    EXPECT_EQ(again->to_string(), program.to_string());
}

std::string error_of(const std::string& body) {
    auto program = Program::parse("tile f(p: ptr<f32>, n: i32) {" + body + "}");
    return program.ok() ? "none" : std::string(code_name(program.error().code())) + " " + program.error().message();
}

TEST(TileText, WhatIsWrongIsSaid) {
    struct Case {
        const char *body, *said;
    };
    for (const Case& c : std::vector<Case>{
             {"", "none"},
             {"%2: f32 = load(%2)", "E0302"},
             {"%2: f32 = load(p) %2: f32 = load(p)", "E0204"},
             {"%2: f32 = load(n)", "takes a pointer first"},
             {"%2: f32 = jump(p)", "there is no instruction"},
             {"%2: i32 = map {x0 + x1}(n)", "E0302"},
             {"%2: f32 = map {f32(x0)}(n) store(p, %2)", "none"},
             {"%2: i32 = map {f32(x0)}(n)", "gives i32, not f32"},
             {"%2: i32[3] = arange() [0, 4]", "gives i32[3], not i32[4]"},
             {"%2: i32 = program_id() [3]", "axis 3"},
             {"%2: i32 = if(n) { give n } { give n }", "its condition is no bool"},
             {"%2: i32 = for(n, n, n, n) { %3, %4 -> give %3 }", "none"},
             {"%2: i32 = for(n, n, n, n) { %3, %4 -> %5: f32 = load(p) give %5 }", "a region gives f32, not i32"},
             {"%2: i32 = for(n, n, n, n) { %3 -> give %3 }", "expected 2 arguments"},
             {"%2: i32 = for(n, n, n, n) { %3, %4 -> give %3 } %5: i32 = map {x0}(%4)", "is not given before"},
             {"%2: f32[2] = broadcast(p)", "gives f32[2], not ptr<f32>[2]"},
             {"%2: f32 = load(p) store(p, %2, n)", "a mask of another shape"},
             {"%2: i4 = load(p)", "there are no tiles of"},
         })
        EXPECT_NE(error_of(c.body).find(c.said), std::string::npos) << c.body << ": " << error_of(c.body);
}

// Damage that leaves much of a program well formed: other numbers, values, words and lines.
std::string damaged(std::string text, std::mt19937_64& random) {
    const auto any = [&](size_t n) { return static_cast<size_t>(random() % n); };
    const char* words[] = {"f32",
                           "i64",
                           "i32",
                           "bool",
                           "u8",
                           "min",
                           "max",
                           "rem",
                           "shr",
                           "exp",
                           "load",
                           "broadcast",
                           "0",
                           "-1",
                           "1",
                           "17",
                           "1048576",
                           "2147483648",
                           "4611686018427387904",
                           "x1",
                           "%9",
                           "%16",
                           "n",
                           "z"};
    for (size_t changes = 1 + (any(3) == 0); changes > 0; --changes) {
        const size_t at = any(text.size());
        const auto is_word = [&](size_t i) {
            return i < text.size() && (std::isalnum(text[i]) || text[i] == '_' || text[i] == '%');
        };
        size_t begin = at, end = at;
        while (begin > 0 && is_word(begin - 1)) --begin;
        while (is_word(end)) ++end;
        if (any(8) == 0 || begin == end)
            text[at] = "{}()[],:-> 0123"[any(15)];
        else if (text[begin] == '%' && any(4))
            text.replace(begin, end - begin, "%" + std::to_string(4 + any(84)));
        else
            text.replace(begin, end - begin, words[any(std::size(words))]);
    }
    return text;
}

std::string quoted(const std::string& text) {
    std::string made = "\"";
    for (char c : text) made += c == '"' || c == '\\' ? std::string("\\") + c : c == '\n' ? "\\n" : std::string(1, c);
    return made + "\"";
}

TEST(TileModels, DamagedKernelsGiveAnErrorOrAResult) {
    std::mt19937_64 random(20261117);
    set_memory_limit(int64_t{256} << 20);
    size_t read = 0, ran = 0, compiled = 0;
    const Tensor x = Tensor::of<int32_t>({20}, {7, 1, 8, 2, 9, 3, 10, 4, 11, 5, 12, 6, 0, 7, 1, 8, 2, 9, 3, 10});
    for (int i = 0; i < 3000; ++i) {
        const std::string text = i == 0 ? kMixed : damaged(kMixed, random);
        auto model = Model::parse(
            "graph g(x: i32[N]) { %a, %b = tile_kernel(x, arguments=[\"in0\", \"out0\", \"out1\", \"in0.d0\"], "
            "grid=[\"cdiv(in0.d0, 16)\"], outputs=[\"i32[in0.d0]\", \"i32[6]\"], kernel=" +
            quoted(text) + ")\n return %a, %b }");
        if (!model.ok()) continue;
        ++read;
        RunOptions options;
        options.max_work = 2'000'000;
        auto slow = model->run({{"x", x}}, options);
        if (!slow.ok()) continue;
        ++ran;
        if (compiled >= 20) continue;
        auto made = compile(*model, {.threads = 1, .cache = ""});
        ASSERT_TRUE(made.ok()) << made.error().to_string() << text;
        auto fast = made->run({{"x", x}});
        ASSERT_TRUE(fast.ok()) << fast.error().to_string() << text;
        ++compiled;
        if (i == 0) {
            EXPECT_EQ((*slow)[0].tensor(), (*fast)[0].tensor());
            EXPECT_EQ((*slow)[1].tensor(), (*fast)[1].tensor());
        }
    }
    printf("%zu of 3000 are read, %zu run, %zu were compiled\n", read, ran, compiled);
    EXPECT_GT(ran, 10u);
    EXPECT_LT(read, 3000u);
}

}  // namespace
}  // namespace tessera::tile::text_test
