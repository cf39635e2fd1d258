// What TASO is known for, found from the bodies of the ops alone: each finding over a set of just the ops it needs, and
// proved for all sizes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>

#include "discover/discover.h"

namespace tessera::findings_test {
namespace {

const std::string kMatrices = R"(
world matrices
sizes m=2 k=3 n=4; m=3 k=2 n=1
var x y: [m, k]
var w v: [k, n]
)";
const std::string kImages = R"(
world images
sizes b=1 c=2 k=3 h=4 l=5; b=2 c=1 k=2 h=3 l=4
var x y: [b, c, h, l]
)";

Discovery discovered(const std::string& ops, int max_ops, int threads = 0) {
    const std::string path =
        (std::filesystem::temp_directory_path() /
         fmt::format("tessera-findings-{}.ops", testing::UnitTest::GetInstance()->current_test_info()->name()))
            .string();
    std::ofstream(path) << ops;
    DiscoverOptions options;
    options.ops = path;
    options.enumerate.max_ops = max_ops;
    options.enumerate.threads = threads;
    auto found = discover(options);
    EXPECT_TRUE(found.ok()) << found.error().to_string();
    std::filesystem::remove(path);
    return found.ok() ? std::move(*found) : Discovery{};
}

// "L => R" with the variables numbered as they come, and the same for "R => L".
std::vector<std::string> forms_of(const std::string& rule) {
    const size_t arrow = rule.find(" => ");
    std::vector<std::string> forms;
    for (std::string text : {rule, rule.substr(arrow + 4) + " => " + rule.substr(0, arrow)}) {
        static const std::regex kVariable(R"(\b[a-z]\b)");
        std::map<std::string, int> numbers;
        std::string out;
        auto at = text.cbegin();
        for (std::sregex_iterator it(text.begin(), text.end(), kVariable), end; it != end; ++it) {
            out.append(at, text.cbegin() + it->position());
            out += fmt::format("v{}", numbers.emplace(it->str(), numbers.size()).first->second);
            at = text.cbegin() + it->position() + 1;
        }
        out.append(at, text.cend());
        forms.push_back(out);
    }
    return forms;
}

// That one of the proved rules is this one, whatever its variables are called and whichever its left side is.
void expect_proved(const Discovery& found, const std::string& rule) {
    const std::string wanted = forms_of(rule)[0];
    std::string all;
    for (const FoundRule& r : found.rules) {
        std::string text = to_string(r.claim.rule);
        text = text.substr(text.find(": ") + 2);
        all += fmt::format("{}: {}\n", name_of(r.verdict), text);
        if (r.verdict != Proof::Verdict::Proved) continue;
        for (const std::string& form : forms_of(text))
            if (form == wanted) return;
    }
    ADD_FAILURE() << rule << " is not among\n" << all;
}

TEST(Findings, ProductsThatShareAnInputAreMerged) {
    Discovery found = discovered(kMatrices + R"(
op x, y: matmul(x, y)
op x, y: concat(x, y, axis=1)
op x: split.0(x, axis=1, num_outputs=2) if dim(x, 1) % 2 == 0
op x: split.1(x, axis=1, num_outputs=2) if dim(x, 1) % 2 == 0
)",
                                 3);
    expect_proved(found, "concat(matmul(x, v), matmul(x, w), axis=1) => matmul(x, concat(v, w, axis=1))");
    expect_proved(found,
                  "(part0@matmul(x, v), part1@matmul(x, w)) => split(matmul(x, concat(v, w, axis=1)), [dim(part0, 1), "
                  "dim(part1, 1)], axis=1)");
}

TEST(Findings, ConvolutionsThatShareAnInputAreMerged) {
    Discovery found = discovered(kImages + R"(
var w v: [k, c, 3, 3]
op x, w: conv(x, w, pads=[1, 1, 1, 1]) if dim(w, 2) == 3 and dim(x, 2) != 3
op x, y: concat(x, y, axis=0)
op x, y: concat(x, y, axis=1)
op x: split.0(x, axis=1, num_outputs=2) if dim(x, 1) % 2 == 0
op x: split.1(x, axis=1, num_outputs=2) if dim(x, 1) % 2 == 0
)",
                                 3);
    const std::string attrs = "strides=strides, pads=pads, dilations=dilations";
    expect_proved(found,
                  fmt::format("(part0@conv(x, v, {0}), part1@conv(x, w, {0})) => split(conv(x, concat(v, w, axis=0), "
                              "{0}), [dim(part0, 1), dim(part1, 1)], axis=1)",
                              attrs));
    // Over concatenations of images, of filters, and of channels.
    expect_proved(
        found,
        fmt::format("concat(conv(x, w, {0}), conv(y, w, {0}), axis=0) => conv(concat(x, y, axis=0), w, {0})", attrs));
    expect_proved(
        found,
        fmt::format("concat(conv(x, v, {0}), conv(x, w, {0}), axis=1) => conv(x, concat(v, w, axis=0), {0})", attrs));
}

TEST(Findings, ChannelsAreSummedByOneConvolution) {
    Discovery found = discovered(kImages + R"(
var w v: [k, c, 1, 1]
op x, w: conv(x, w) if dim(w, 2) == 1 and dim(x, 2) != 1
op x, y: concat(x, y, axis=1)
op x, y: add(x, y) if same_dims(x, y)
)",
                                 3);
    const std::string attrs = "strides=strides, pads=pads, dilations=dilations";
    expect_proved(found, fmt::format("conv(concat(y, x, axis=1), concat(v, w, axis=1), {0}) => add(conv(x, w, {0}), "
                                     "conv(y, v, {0}))",
                                     attrs));
    expect_proved(found, fmt::format("add(conv(x, w, {0}), conv(x, v, {0})) => conv(x, add(w, v), {0})", attrs));
}

// PET's case of unequal kernels: one grouped convolution, the smaller kernel padded.
TEST(Findings, UnequalKernelsBecomeOneGroupedConvolution) {
    Discovery found = discovered(R"(
world images
sizes b=1 c=2 k=3 h=4 l=5; b=2 c=1 k=2 h=5 l=4
var x y: [b, c, h, l]
var p: [k, c, 1, 1]
var w: [k, c, 3, 3]
op x, w: conv(x, w) if dim(w, 2) == 1 and dim(x, 2) != 1 and dim(x, 2) != 3 and dim(x, 1) == dim(w, 1)
op x, w: conv(x, w, pads=[1, 1, 1, 1]) if dim(w, 2) == 3 and dim(x, 2) != 1 and dim(x, 2) != 3 and dim(x, 1) == dim(w, 1)
op x, w: conv(x, w, group=2, pads=[1, 1, 1, 1]) if dim(w, 2) == 3 and dim(x, 2) != 1 and dim(x, 2) != 3 and dim(x, 1) % 2 == 0 and dim(w, 0) % 2 == 0
op w: pad(w, [0, 0, 1, 1, 0, 0, 1, 1]) if rank(w) == 4 and dim(w, 2) == 1
op x, y: concat(x, y, axis=0)
op x, y: concat(x, y, axis=1)
)",
                                 4);
    expect_proved(
        found,
        "conv(concat(y, x, axis=1), concat(pad(p, [0, 0, 1, 1, 0, 0, 1, 1]), w, axis=0), group=2, pads=[1, 1, "
        "1, 1], strides=strides) => concat(conv(y, p, strides=strides), conv(x, w, pads=[1, 1, 1, 1], "
        "strides=strides), axis=1)");
}

TEST(Findings, FiltersAreEnlargedAndThenMerged) {
    Discovery found = discovered(kImages + R"(
var w: [k, c, 3, 3]
var p: [k, c, 1, 1]
op x, w: conv(x, w) if dim(w, 2) == 1 and dim(x, 2) != 1 and dim(x, 2) != 3
op x, w: conv(x, w, pads=[1, 1, 1, 1]) if dim(w, 2) == 3 and dim(x, 2) != 1 and dim(x, 2) != 3
op w: pad(w, [0, 0, 1, 1, 0, 0, 1, 1]) if rank(w) == 4 and dim(w, 2) == 1
op x, y: concat(x, y, axis=0)
op x, y: concat(x, y, axis=1)
op x: split.0(x, axis=1, num_outputs=2) if dim(x, 1) % 2 == 0
op x: split.1(x, axis=1, num_outputs=2) if dim(x, 1) % 2 == 0
)",
                                 4);
    expect_proved(found,
                  "conv(x, pad(p, [0, 0, 1, 1, 0, 0, 1, 1]), pads=[1, 1, 1, 1], strides=strides) => conv(x, p, "
                  "strides=strides)");
    expect_proved(found,
                  "(part0@conv(x, p, strides=strides), part1@conv(x, w, pads=[1, 1, 1, 1], strides=strides)) => "
                  "split(conv(x, concat(pad(p, [0, 0, 1, 1, 0, 0, 1, 1]), w, axis=0), pads=[1, 1, 1, 1], "
                  "strides=strides), [dim(part0, 1), dim(part1, 1)], axis=1)");
}

TEST(Findings, ProductsAreDistributedFactoredAndTransposed) {
    Discovery found = discovered(kMatrices + R"(
op x, y: matmul(x, y)
op x, y: add(x, y) if same_dims(x, y)
op x: transpose(x, perm=[1, 0])
)",
                                 3);
    expect_proved(found, "add(matmul(x, w), matmul(x, v)) => matmul(x, add(w, v))");
    expect_proved(found, "add(matmul(x, w), matmul(y, w)) => matmul(add(x, y), w)");
    expect_proved(
        found, "matmul(transpose(w, perm=[1, 0]), transpose(x, perm=[1, 0])) => transpose(matmul(x, w), perm=[1, 0])");
}

TEST(Findings, ParallelConvolutionsAreOneGroupedOne) {
    Discovery found = discovered(kImages + R"(
var p q: [k, c, 1, 1]
op x, w: conv(x, w) if dim(w, 2) == 1 and dim(x, 2) != 1
op x, w: conv(x, w, group=2) if dim(w, 2) == 1 and dim(x, 2) != 1 and dim(x, 1) % 2 == 0 and dim(w, 0) % 2 == 0
op x, y: concat(x, y, axis=0)
op x, y: concat(x, y, axis=1)
)",
                                 3);
    const std::string attrs = "strides=strides, pads=pads, dilations=dilations";
    expect_proved(found,
                  fmt::format("conv(concat(y, x, axis=1), concat(q, p, axis=0), group=2, {0}) => concat(conv(y, q, "
                              "{0}), conv(x, p, {0}), axis=1)",
                              attrs));
    for (const FoundRule& r : found.rules)  // filters of groups are not simply concatenated
        EXPECT_NE(forms_of(to_string(r.claim.rule))[0],
                  forms_of("concat(conv(x, p, group=2), conv(x, q, group=2), axis=1) => conv(x, concat(p, q, axis=0), "
                           "group=2)")[0]);
}

TEST(Findings, AnAverageIsAConvolution) {
    Discovery found = discovered(kImages + R"(
constant d: [c, c]: div(expand(unsqueeze(eye_like(d), [2, 3]), [1, 1, 3, 3]), 9.0)
op x, w: conv(x, w, pads=[1, 1, 1, 1]) if dim(w, 2) == 3 and dim(x, 2) != 3
op x: average_pool(x, kernel_shape=[3, 3], pads=[1, 1, 1, 1]) if rank(x) == 4 and dim(x, 2) != 3
op x: average_pool(x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1) if rank(x) == 4 and dim(x, 2) != 3
)",
                                 2);
    // Without strides: with them, a window larger than the image has a size in a pool, and none in a convolution.
    expect_proved(found,
                  "conv(x, div(expand(unsqueeze(eye_like(d), [2, 3]), [1, 1, 3, 3]), 9.0), pads=pads, "
                  "dilations=dilations) => average_pool(x, kernel_shape=[3, 3], count_include_pad=1, pads=pads, "
                  "dilations=dilations)");
    for (const FoundRule& r : found.rules)
        if (r.claim.rule.pattern[0].name == "conv") {
            EXPECT_THAT(to_string(r.claim.rule), testing::HasSubstr("count_include_pad=1"));
        }
}

TEST(Findings, FilesAreTheSameForAnyThreads) {
    const std::string ops = kMatrices + R"(
op x, y: add(x, y) if same_dims(x, y)
op x: relu(x)
op x, y: matmul(x, y)
op x, y: div(x, y) if same_dims(x, y)
op x: transpose(x, perm=[1, 0])
op x, y: concat(x, y, axis=1)
op x: split.0(x, axis=1, num_outputs=2) if dim(x, 1) % 2 == 0
op x: split.1(x, axis=1, num_outputs=2) if dim(x, 1) % 2 == 0
)";
    std::vector<std::string> files;
    for (int threads : {1, 2}) {
        Discovery found = discovered(ops, 3, threads);
        files.push_back(rules_text(found, Proof::Verdict::Proved) + certificates_text(found) +
                        rules_text(found, Proof::Verdict::Unknown));
    }
    EXPECT_GT(files[0].size(), 10000u);
    EXPECT_EQ(files[0], files[1]);
}

TEST(Findings, WhatIsOnlyTestedSaysHowSure) {
    auto bound = [](const std::string& text) {
        Result<Claim> claim = read_claim(text);
        EXPECT_TRUE(claim.ok()) << claim.error().to_string();
        return test_bound(*claim, 3);
    };
    TestBound product = bound("a: mul(x, y) => mul(y, x) where x: [M], y: [M]");
    ASSERT_TRUE(product.per_size);
    EXPECT_NEAR(*product.per_size, -61 + std::log2(3.0), 1e-6);  // degree 2
    EXPECT_NEAR(*bound("b: div(mul(x, y), y) => x where x: [M], y: [M]").per_size, -61 + std::log2(3.0), 1e-6);
    EXPECT_LT(*bound("c: exp(add(x, y)) => exp(add(y, x)) where x: [M], y: [M]").per_size, -30);
    EXPECT_FALSE(bound("d: relu(relu(x)) => relu(x) where x: [M]").per_size);

    // The prover takes a fourth power for a function of which nothing is known.
    Discovery found = discovered(kMatrices + "op x, y: mul(x, y) if same_dims(x, y)\nop x: pow(x, 4.0)", 2);
    const std::string text = rules_text(found, Proof::Verdict::Unknown);
    auto rules = read_rules(text, "found");
    ASSERT_TRUE(rules.ok()) << rules.error().to_string();
    ASSERT_FALSE(rules->empty());
    for (const Rule& r : *rules) {
        EXPECT_EQ(r.evidence, Evidence::Tested);
        EXPECT_THAT(r.comment, testing::StartsWith("tested at 2 sizes; a difference at one of them is missed with"));
    }
}

}  // namespace
}  // namespace tessera::findings_test
