// Programs that equal another almost everywhere: PET's cases, each found by enumeration, corrected, and proved for all
// sizes; corrections that are spoiled; and where two programs agree at sizes that are numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "discover/check/check_certificate.h"
#include "discover/check/verify_rule.h"
#include "discover/correct/boxes.h"
#include "discover/correct/mutants.h"
#include "discover/correct/mutate.h"
#include "discover/correct/picture.h"
#include "discover/prove/comprehension.h"
#include "discover/truth.h"
#include "source_dir.h"

namespace tessera::correct_test {
namespace {

using testing::HasSubstr;

Claim claim_of(const std::string& text) {
    auto claim = read_claim(text);
    EXPECT_TRUE(claim.ok()) << (claim.ok() ? "" : claim.error().to_string());
    return claim.ok() ? std::move(*claim) : Claim{};
}

// The claim that an original is itself.
Claim original(const std::string& term, const std::string& shapes) {
    return claim_of(fmt::format("original: {0} => {0} where {1}", term, shapes));
}

struct Found {
    MutantClaim mutant;
    Corrected corrected;
};

// The mutants of an original that are corrected and proved.
std::vector<Found> found_for(const Claim& claim) {
    auto mutants = find_mutants(claim);
    EXPECT_TRUE(mutants.ok()) << (mutants.ok() ? "" : mutants.error().to_string());
    std::vector<Found> found;
    if (!mutants.ok()) return found;
    for (const MutantClaim& m : mutants->list) {
        auto corrected = correct(m.claim);
        if (corrected.ok() && corrected->proved()) found.push_back({m, std::move(*corrected)});
    }
    return found;
}

std::string strips_of(const Corrected& c) {
    std::string text;
    for (const Strip& s : c.strips) text += fmt::format("{}:{}..{} ", s.axis, to_string(s.begin), to_string(s.end));
    return text;
}

// That a mutant with these parts is among them, with these strips; its rule verifies and holds by the evaluator.
void expect_found(const std::vector<Found>& found, const std::vector<std::string>& parts, const std::string& strips) {
    std::string all;
    for (const Found& f : found) {
        const std::string text = to_string(f.mutant.claim.rule);
        all += strips_of(f.corrected) + text + "\n";
        if (strips_of(f.corrected) != strips) continue;
        if (!std::all_of(parts.begin(), parts.end(), [&](const auto& p) { return text.find(p) != text.npos; }))
            continue;
        Rule rule = to_rule(f.corrected.claim);
        rule.evidence = Evidence::Proved;
        const std::string entry = certificate_entry(f.corrected.claim, f.corrected.proof.certificate);
        auto certificates = read_certificates(entry, "test");
        ASSERT_TRUE(certificates.ok()) << certificates.error().to_string();
        const Status verified = verify_rule(rule, *certificates);
        EXPECT_TRUE(verified.ok()) << verified.error().to_string();
        EXPECT_EQ(evaluated(f.corrected.claim, 3, 20), Truth::Agrees) << to_string(rule);
        return;
    }
    ADD_FAILURE() << "not among\n" << all;
}

// PET's running example: a pair of images side by side, whose border columns are corrected.
TEST(Correct, ImagesSideBySide) {
    const auto found = found_for(original("conv(x, w, pads=[1, 1, 1, 1])", "x: [2*N,C,H,W], w: [M,C,3,3]"));
    expect_found(found, {"perm=[1, 2, 3, 0, 4]", "2 * dim(x, 3)"}, "3:0..1 3:W + 1..W + 2 ");
    expect_found(found, {"perm=[1, 2, 0, 3, 4]", "2 * dim(x, 2)"}, "2:0..1 2:H + 1..H + 2 ");
}

// A large image as a batch of small ones: the rows and columns where tiles meet are corrected.
TEST(Correct, TilesOfALargeImage) {
    const auto found = found_for(original("conv(x, w, pads=[1, 1, 1, 1])", "x: [N,C,2*H,2*W], w: [M,C,3,3]"));
    expect_found(found, {"2 * dim(x, 0)", "dim(x, 2) / 2"}, "2:H + 1..H + 3 ");
    expect_found(found, {"2 * dim(x, 0)", "dim(x, 3) / 2"}, "3:W + 1..W + 3 ");
    // The halves of the rows side by side, along two axes.
    expect_found(found, {"dim(x, 2) / 2", "2 * dim(x, 3)"}, "2:H + 1..H + 3 3:0..1 3:2*W + 3..2*W + 4 ");
}

// A dilated convolution as a regular one of phases, one axis after the other.
TEST(Correct, DilatedToRegular) {
    const auto found =
        found_for(original("conv(x, w, pads=[2, 2, 2, 2], dilations=[2, 2])", "x: [N,C,2*H,2*W], w: [M,C,3,3]"));
    expect_found(found, {"moved1 = conv(moved0, w, pads=[1, 2, 1, 2], dilations=[1, 2])"}, "");
    expect_found(found, {"moved1 = conv(moved0, w, pads=[2, 1, 2, 1], dilations=[2, 1])"}, "");
    const auto rest =
        found_for(original("conv(x, w, pads=[1, 2, 1, 2], dilations=[1, 2])", "x: [N,C,H,2*W], w: [M,C,3,3]"));
    expect_found(rest, {"moved1 = conv(moved0, w, pads=[1, 1, 1, 1])"}, "");
}

TEST(Correct, StridedToStrideOne) {
    const auto found =
        found_for(original("conv(x, w, pads=[1, 1, 1, 1], strides=[2, 2])", "x: [N,C,2*H,2*W], w: [M,C,3,3]"));
    expect_found(found, {"conv(x, w, pads=[1, 1, 1, 1], strides=[1, 2])", "slice(moved0"}, "");
    expect_found(found, {"conv(x, w, pads=[1, 1, 1, 1], strides=[2, 1])", "slice(moved0"}, "");
}

// The taps along the frames become channels, the frames images: a convolution of images.
TEST(Correct, VideosToImages) {
    expect_found(found_for(original("conv(x, w, pads=[1, 1, 1, 1, 1, 1])", "x: [N,C,T,H,W], w: [M,C,3,3,3]")),
                 {"conv(reshape(transpose(concat(slice(pad(x, [0, 0, 1, 0, 0, 0, 0, 1, 0, 0])", "pads=[1, 1, 1, 1])"},
                 "");
    expect_found(found_for(original("conv(x, w, b, pads=[1, 1, 1, 1, 1, 1], strides=[1, 2, 2])",
                                    "x: [N,C,T,2*H,2*W], w: [M,C,3,3,3], b: [M]")),
                 {"3 * dim(x, 1), dim(x, 3)", "perm=[0, 2, 1, 3, 4]), [dim(w, 0), 3 * dim(w, 1)", "strides=[2, 2]"},
                 "");
}

TEST(Correct, WhatADilationDoesNotDivideIsPadded) {
    const auto both =
        found_for(original("conv(x, w, pads=[2, 2, 2, 2], dilations=[2, 2])", "x: [N,C,H,W], w: [M,C,3,3]"));
    expect_found(both, {"conv(pad(x, [0, 0, 0, 0, 0, 0, 1, 1])", "[2, 3], [1, 1])"}, "");
    const auto one =
        found_for(original("conv(x, w, pads=[1, 3, 1, 3], dilations=[1, 3])", "x: [N,C,H,W], w: [M,C,3,3]"));
    expect_found(one, {"conv(pad(x, [0, 0, 0, 0, 0, 0, 0, 1])"}, "");
    expect_found(one, {"conv(pad(x, [0, 0, 0, 0, 0, 0, 0, 2])"}, "");
}

TEST(Correct, StackedMatricesToOneProduct) {
    const auto found = found_for(original("matmul(x, w)", "x: [B,M,K], w: [K,N]"));
    expect_found(found, {"matmul(moved0, w)", "[1, dim(x, 0) * dim(x, 1), dim(x, 2)]"}, "");
}

// Sizes of a model are numbers, far beyond those at which mutants are looked for.
TEST(Correct, StackedMatricesOfAModel) {
    auto sides = build_sides(original("matmul(x, w)", "x: [16,128,768], w: [768,768]"));
    ASSERT_TRUE(sides.ok());
    const std::vector<MutationTarget> targets = find_targets(*sides->graph);
    ASSERT_EQ(targets.size(), 1u);
    EXPECT_EQ(targets[0].sizes.size(), 4u);  // rows, stacks, columns and what is summed over
    Mutation counts;
    const auto rules = mutant_rules_of(targets[0], {}, counts);
    ASSERT_FALSE(rules.empty()) << fmt::format("{}", fmt::join(counts.refused, "; "));
    EXPECT_TRUE(rules[0].corrected.proved());
    EXPECT_EQ(rules[0].share, 0);
}

TEST(Correct, BiasesAreTakenAlong) {
    const auto found = found_for(original("conv(x, w, b, pads=[1, 1, 1, 1])", "x: [2*N,C,H,W], w: [M,C,3,3], b: [M]"));
    expect_found(found, {"conv(moved0, w, b, pads=[1, 1, 1, 1])"}, "3:0..1 3:W + 1..W + 2 ");
}

// Every rule that is shipped has a certificate that replays, and holds by the evaluator.
TEST(Correct, ShippedRulesVerify) {
    const std::string stem = source_dir() + "/rules/found/corrected";
    auto rules = load_rules(stem + ".rules");
    ASSERT_TRUE(rules.ok()) << rules.error().to_string();
    auto certificates = load_certificates(stem + ".cert");
    ASSERT_TRUE(certificates.ok()) << certificates.error().to_string();
    EXPECT_GE(rules->size(), 30u);
    EXPECT_EQ(rules->size(), certificates->size());
    for (const Rule& rule : *rules) {
        const Status verified = verify_rule(rule, *certificates);
        EXPECT_TRUE(verified.ok()) << verified.error().to_string();
        EXPECT_EQ(evaluated({rule, certificates->at(rule.name).shapes}, 9, 6), Truth::Agrees) << rule.name;
    }
}

// What is mutated of a graph, and how often its parts are.
TEST(Correct, ThePartsOfAMutantAreMutatedToo) {
    const Claim dilated = claim_of(
        "conv: conv(x, w, pads=[2, 2, 2, 2], dilations=[2, 2]) => conv(x, w, pads=[2, 2, 2, 2], dilations=[2, 2]) "
        "where x: [1,8,12,16], w: [4,8,3,3]");
    auto sides = build_sides(dilated);
    ASSERT_TRUE(sides.ok());
    auto found = mutate(*sides->graph, {.seconds = 60, .most_of_target = 2});
    ASSERT_TRUE(found.ok());
    EXPECT_TRUE(found->complete);
    std::string all;
    for (const MutantRule& r : found->rules) all += to_string(r.rule) + "\n";
    EXPECT_THAT(all, HasSubstr("conv(x:float, w:float, dilations=[2, 2], pads=[2, 2, 2, 2]) =>"));
    EXPECT_THAT(all, HasSubstr("conv(x:float, w:float, dilations=[1, 2], pads=[1, 2, 1, 2]) =>"));
    EXPECT_THAT(all, HasSubstr("(dim(x, 2) % 2) == 0"));
}

TEST(Correct, OddImagesLoseTheirDilationToo) {
    auto sides =
        build_sides(original("conv(x, w, dilations=[2, 2], pads=[2, 2, 2, 2])", "x: [1,8,13,15], w: [4,8,3,3]"));
    ASSERT_TRUE(sides.ok());
    auto found = mutate(*sides->graph, {.seconds = 60});
    ASSERT_TRUE(found.ok());
    std::string all;
    for (const MutantRule& r : found->rules) all += to_string(r.rule) + "\n";
    EXPECT_THAT(all, HasSubstr("conv(pad(x, [0, 0, 0, 0, 0, 0, 1, 1])"));
    EXPECT_THAT(all, HasSubstr("conv(x:float, w:float, dilations=[1, 2], pads=[1, 2, 1, 2]) =>"));
}

// ---- what is remembered

struct Memory {
    std::map<std::string, std::string> texts;
    MutateOptions options() {
        MutateOptions o{.seconds = 60};
        o.recall = [this](const std::string& key) {
            auto found = texts.find(key);
            return found == texts.end() ? std::nullopt : std::optional(found->second);
        };
        o.remember = [this](const std::string& key, const std::string& text) { texts[key] = text; };
        return o;
    }
};

std::vector<std::string> texts_of(const Mutation& found) {
    std::vector<std::string> texts;
    for (const MutantRule& r : found.rules)
        texts.push_back(fmt::format("{} {} {} {} {}", to_string(r.rule), name_of(r.rule.evidence),
                                    boxes_text(r.corrected), boxes_picture(r.corrected, r.sizes), r.share));
    return texts;
}

TEST(Correct, WhatWasFoundIsRememberedByItsContent) {
    auto sides = build_sides(original("conv(x, w, pads=[1, 1, 1, 1])", "x: [4,2,6,6], w: [3,2,3,3]"));
    ASSERT_TRUE(sides.ok());
    Memory memory;
    auto first = mutate(*sides->graph, memory.options());
    ASSERT_TRUE(first.ok());
    ASSERT_FALSE(first->rules.empty());
    EXPECT_EQ(first->remembered, 0u);
    EXPECT_EQ(memory.texts.size(), first->targets);
    auto second = mutate(*sides->graph, memory.options());
    ASSERT_TRUE(second.ok());
    EXPECT_EQ(second->remembered, first->targets);
    EXPECT_EQ(second->terms, 0);
    EXPECT_EQ(texts_of(*second), texts_of(*first));
    // Another size is another content.
    auto other = build_sides(original("conv(x, w, pads=[1, 1, 1, 1])", "x: [4,2,6,8], w: [3,2,3,3]"));
    auto third = mutate(*other->graph, memory.options());
    ASSERT_TRUE(third.ok());
    EXPECT_EQ(third->remembered, 0u);
}

TEST(Correct, WhatIsRememberedIsNotBelieved) {
    auto sides = build_sides(original("conv(x, w, pads=[1, 1, 1, 1])", "x: [4,2,6,6], w: [3,2,3,3]"));
    ASSERT_TRUE(sides.ok());
    Memory memory;
    MutateOptions options = memory.options();
    options.rounds = 1;
    auto first = mutate(*sides->graph, options);
    ASSERT_TRUE(first.ok());
    const auto texts = memory.texts;
    int spoiled = 0;
    for (const auto& [from, to] : {std::pair<std::string, std::string>{"pads=[1, 1, 1, 0]", "pads=[1, 0, 1, 1]"},
                                   {"\n| ", "\n| reorder "},
                                   {"strip ", "stripe "},
                                   {"done\n", ""},
                                   {"end\n", ""}})
        for (const auto& [key, text] : texts) {
            const size_t at = text.find(from);
            if (at == text.npos) continue;
            memory.texts = texts;
            memory.texts[key].replace(at, from.size(), to);
            auto again = mutate(*sides->graph, options);
            ASSERT_TRUE(again.ok());
            EXPECT_LT(again->remembered, first->targets) << from;
            EXPECT_EQ(texts_of(*again), texts_of(*first)) << from;
            ++spoiled;
        }
    EXPECT_GE(spoiled, 5);
}

// ---- at sizes that are numbers

// Images that alternate in the batch are put side by side: a proof for all sizes is not found, one for these is.
TEST(Correct, WhatHoldsAtTheSizesAtHandSaysSo) {
    auto sides = build_sides(original("conv(x, w, pads=[1, 1, 1, 1])", "x: [4,2,6,6], w: [3,2,3,3]"));
    ASSERT_TRUE(sides.ok());
    auto found = mutate(*sides->graph, {.seconds = 60, .rounds = 1, .most_of_target = 12});
    ASSERT_TRUE(found.ok());
    bool some = false;
    for (const MutantRule& r : found->rules) {
        if (r.for_all_sizes) continue;
        some = true;
        EXPECT_THAT(to_string(r.rule), HasSubstr("dim(x, 3) == 6"));
        EXPECT_EQ(evaluated(r.corrected.claim, 5, 4), Truth::Agrees) << to_string(r.rule);
        EXPECT_EQ(r.rule.evidence == Evidence::Proved, r.corrected.proved());
    }
    EXPECT_TRUE(some);
}

const char* const kSideBySide =
    "pair: conv(x, w, pads=[1, 1, 1, 1]) => let a = reshape(transpose(reshape(x, [2, {0} / 2, 2, {1}, {2}]), perm=[1, "
    "2, "
    "3, 0, 4]), [{0} / 2, 2, {1}, 2 * {2}]), b = conv(a, w, pads=[1, 1, 1, 1]) in reshape(transpose(reshape(b, [{0} / "
    "2, "
    "3, {1}, 2, {2}]), perm=[3, 0, 1, 2, 4]), [{0}, 3, {1}, {2}]) where x: [{0},2,{1},{2}], w: [3,2,3,3]";

TEST(Boxes, DifferWhereTheImagesMeet) {
    for (auto [n, h, w] : {std::array{2, 4, 5}, {4, 3, 6}, {2, 1, 2}}) {
        auto boxes = compare_boxes(claim_of(fmt::format(fmt::runtime(kSideBySide), n, h, w)));
        ASSERT_TRUE(boxes.ok()) << boxes.error().to_string();
        EXPECT_FALSE(boxes->equal());
        // The last column of the first half of the images, and the first column of the others.
        EXPECT_EQ(boxes->differing(), n * 3 * h) << n << " " << h << " " << w;
        int64_t all = 0;
        for (const Box& b : boxes->all) all += b.elements();
        EXPECT_EQ(all, n * 3 * h * w);
    }
}

TEST(Boxes, APaddedConvolutionHasNine) {
    auto boxes = compare_boxes(claim_of(
        "same: conv(x, w, pads=[1, 1, 1, 1]) => conv(x, w, pads=[1, 1, 1, 1]) where x: [2,3,9,11], w: [4,3,3,3]"));
    ASSERT_TRUE(boxes.ok()) << boxes.error().to_string();
    EXPECT_EQ(boxes->all.size(), 9u);
    EXPECT_TRUE(boxes->equal());
    EXPECT_LE(boxes->points, 9 * 5);
}

TEST(Boxes, RefuseWhatTheyCannotDecide) {
    auto refusal = [](const std::string& text, const BoxOptions& options = {}) {
        auto boxes = compare_boxes(claim_of(text), options);
        return boxes.ok() ? "decided" : boxes.error().message();
    };
    EXPECT_THAT(refusal("r: relu(x) => relu(x) where x: [2,3]"), HasSubstr("not multi-linear"));
    EXPECT_THAT(refusal("q: mul(x, x) => mul(x, x) where x: [2,3]"), HasSubstr("squares an input"));
    EXPECT_THAT(refusal("n: matmul(x, w) => matmul(x, w) where x: [M,K], w: [K,N]"), HasSubstr("no numbers"));
    EXPECT_THAT(refusal(fmt::format(fmt::runtime(kSideBySide), 4, 6, 6), {.most_boxes = 3}), HasSubstr("more than 3"));
    EXPECT_THAT(refusal(fmt::format(fmt::runtime(kSideBySide), 4, 6, 6), {.most_steps = 50}), HasSubstr("steps"));
    EXPECT_EQ(refusal("e: matmul(x, w) => matmul(x, w) where x: [0,2], w: [2,3]"), "decided");
}

// ---- bad input

TEST(Correct, RefusesWhatIsNoProduct) {
    auto mutants = find_mutants(original("relu(x)", "x: [N,C]"));
    ASSERT_FALSE(mutants.ok());
    EXPECT_THAT(mutants.error().message(), HasSubstr("not a product"));
    EXPECT_TRUE(find_targets(*build_sides(original("relu(x)", "x: [2,3]"))->graph).empty());
}

TEST(Correct, SaysWhyAMutantIsRefused) {
    auto everywhere = correct(claim_of("w: matmul(x, w) => matmul(x, add(w, w)) where x: [M,K], w: [K,N]"));
    ASSERT_TRUE(everywhere.ok());
    EXPECT_FALSE(everywhere->proved());
    EXPECT_THAT(everywhere->refused, HasSubstr("whole of the output"));
    // Columns H and L of an axis of H + L + 2, whose order nothing says.
    auto unordered = find_differences(claim_of(
        "u: matmul(x, w) => let y = matmul(x, w), a = concat(slice(y, [0], [dim(x, 0)], [1], [1]), pad(slice(y, "
        "[dim(x, 0) + 1], [dim(w, 1)], [1], [1]), [0, 1, 0, 0]), axis=1) in concat(slice(a, [0], [dim(w, 1) - "
        "dim(x, 0) - 2], [1], [1]), pad(slice(a, [dim(w, 1) - dim(x, 0) - 1], [dim(w, 1)], [1], [1]), [0, 1, 0, "
        "0]), axis=1) where x: [H,K], w: [K,H + L + 2]"));
    ASSERT_TRUE(unordered.ok()) << unordered.error().to_string();
    EXPECT_FALSE(unordered->everywhere_equal);
    EXPECT_THAT(unordered->refused, HasSubstr("cannot be ordered"));
    auto limited = correct(claim_of("l: conv(x, w, pads=[1, 1, 1, 1]) => conv(x, w, pads=[1, 1, 1, 1], strides=[1, 1]) "
                                    "where x: [N,C,H,W], w: [M,C,3,3]"),
                           {.max_questions = 1});
    ASSERT_TRUE(limited.ok());
    EXPECT_FALSE(limited->proved());
    EXPECT_THAT(limited->refused + limited->proof.reason, HasSubstr("questions"));
}

TEST(Correct, AProofThatHasNoTimeIsNone) {
    const Claim claim = claim_of(
        "l: conv(x, w, pads=[1, 1, 1, 1]) => conv(x, w, pads=[1, 1, 1, 1], strides=[1, 1]) where x: [N,C,H,W], w: "
        "[M,C,3,3]");
    const Deadline past = Deadline::in(-1);
    auto proof = prove(claim, {.until = past});
    ASSERT_TRUE(proof.ok());
    EXPECT_FALSE(proof->proved());
    EXPECT_THAT(proof->reason, HasSubstr("no more time"));
    auto corrected = correct(claim, {.until = past});
    ASSERT_TRUE(corrected.ok());
    EXPECT_FALSE(corrected->proved());
    EXPECT_THAT(corrected->refused, HasSubstr("no more time"));
    EXPECT_TRUE(correct(claim)->proved());
    const Claim numbers = claim_of(
        "l: conv(x, w, pads=[1, 1, 1, 1]) => conv(x, w, pads=[1, 1, 1, 1], strides=[1, 1]) where x: [2,3,9,9], w: "
        "[4,3,3,3]");
    EXPECT_THAT(compare_boxes(numbers, {.until = past}).error().message(), HasSubstr("no more time"));
    EXPECT_TRUE(compare_boxes(numbers)->equal());
}

TEST(Correct, StopsAtItsLimit) {
    auto sides = build_sides(original("conv(x, w, pads=[1, 1, 1, 1])", "x: [2,2,8,8], w: [2,2,3,3]"));
    ASSERT_TRUE(sides.ok());
    auto found = mutate(*sides->graph, {.seconds = 0});
    ASSERT_TRUE(found.ok());
    EXPECT_FALSE(found->complete);
    EXPECT_TRUE(found->rules.empty());
    std::atomic<bool> stop{true};
    EXPECT_FALSE(mutate(*sides->graph, {.cancel = &stop}).ok());
}

TEST(Correct, DrawsItsBoxes) {
    const auto found = found_for(original("conv(x, w, pads=[1, 1, 1, 1])", "x: [2*N,C,H,W], w: [M,C,3,3]"));
    ASSERT_FALSE(found.empty());
    const Corrected& c = found.front().corrected;
    EXPECT_THAT(boxes_text(c), HasSubstr("recomputed: axis"));
    SymbolValues sizes;
    for (const std::string& s : size_symbols(c.claim)) sizes[s] = 5;
    const std::string svg = boxes_picture(c, sizes);
    EXPECT_THAT(svg, HasSubstr("<svg xmlns"));
    EXPECT_EQ(std::count(svg.begin(), svg.end(), '<'), std::count(svg.begin(), svg.end(), '>'));
    EXPECT_THAT(svg, HasSubstr("#d1495b"));
}

// ---- corrections that are spoiled

// The strips with one left out, or off by a row or two at one end or at both.
std::vector<std::vector<Strip>> spoiled_strips(const std::vector<Strip>& strips) {
    std::vector<std::vector<Strip>> all;
    for (size_t i = 0; i < strips.size(); ++i) {
        auto changed = [&](int64_t begin, int64_t end) {
            all.push_back(strips);
            all.back()[i].begin = strips[i].begin + begin;
            all.back()[i].end = strips[i].end + end;
        };
        all.push_back(strips);
        all.back().erase(all.back().begin() + static_cast<std::ptrdiff_t>(i));
        for (int64_t by : {-2, -1, 1, 2}) changed(by, by);
        changed(1, 0);
        changed(0, -1);
        changed(1, 1);
    }
    return all;
}

// The texts with the bounds of one slice moved together, or with the padding of one axis moved from one end to the
// other.
std::vector<std::string> spoiled_texts(const std::string& text) {
    std::vector<std::string> all;
    const size_t begin = text.find(" => ");
    static const std::regex kSlice(R"(\[([^\[\]]+)\], \[([^\[\]]+)\], \[\d\], \[1\])"),
        kPads(R"(pads=\[(\d), (\d), (\d), (\d)\])");
    auto replaced = [&](const std::smatch& m, const std::string& by) {
        if (static_cast<size_t>(m.position()) > begin)
            all.push_back(text.substr(0, static_cast<size_t>(m.position())) + by + m.suffix().str());
    };
    for (std::sregex_iterator it(text.begin(), text.end(), kSlice), end; it != end; ++it)
        for (const char* by : {" + 1", " - 1", " + 2", " - 2"}) {
            std::string m = it->str();
            m.replace(static_cast<size_t>(it->position(2) - it->position()), it->str(2).size(), it->str(2) + by);
            m.replace(static_cast<size_t>(it->position(1) - it->position()), it->str(1).size(), it->str(1) + by);
            replaced(*it, m);
        }
    for (std::sregex_iterator it(text.begin(), text.end(), kPads), end; it != end; ++it) {
        std::array<int, 4> p{};
        for (size_t i = 0; i < 4; ++i) p[i] = std::stoi(it->str(i + 1));
        for (auto [from, to] : {std::pair{0, 2}, {2, 0}, {1, 3}, {3, 1}, {0, 1}, {1, 2}}) {
            std::array<int, 4> q = p;
            q[size_t(from)] -= 1;
            q[size_t(to)] += 1;
            if (q[size_t(from)] >= 0) replaced(*it, fmt::format("pads=[{}, {}, {}, {}]", q[0], q[1], q[2], q[3]));
        }
    }
    return all;
}

// The shapes with sizes from 0 on, odd ones, and ones that are one larger.
std::vector<std::map<std::string, Shape>> spoiled_shapes(const Claim& claim) {
    std::vector<std::map<std::string, Shape>> all;
    for (const std::string& s : size_symbols(claim))
        for (int64_t by : {-1, -2, -3}) {
            auto shapes = claim.shapes;
            for (auto& [name, shape] : shapes)
                for (int64_t d = 0; d < shape.rank(); ++d) shape[d] = substitute(shape[d], {{s, symbol(s) + by}});
            all.push_back(std::move(shapes));
        }
    for (const auto& [name, shape] : claim.shapes)
        for (int64_t d = 0; d < shape.rank(); ++d)
            for (int64_t by : {1, 2}) {
                auto shapes = claim.shapes;
                shapes.at(name)[d] = shape[d] + by;
                all.push_back(std::move(shapes));
            }
    return all;
}

TEST(Correct, SpoiledCorrectionsAreNeverAccepted) {
    std::vector<Found> found;
    for (const auto& [term, shapes] :
         {std::pair{"conv(x, w, pads=[1, 1, 1, 1])", "x: [2*N,C,H,W], w: [M,C,3,3]"},
          {"conv(x, w, pads=[1, 1, 1, 1])", "x: [N,C,2*H,2*W], w: [M,C,3,3]"},
          {"conv(x, w, pads=[2, 2, 2, 2], dilations=[2, 2])", "x: [N,C,2*H,2*W], w: [M,C,3,3]"},
          {"conv(x, w, pads=[1, 1, 1, 1], strides=[2, 2])", "x: [N,C,2*H,2*W], w: [M,C,3,3]"},
          {"conv(x, w, pads=[1, 1, 1, 1], strides=[2, 1])", "x: [2*N,C,H,W], w: [M,C,3,3]"},
          {"conv(x, w, pads=[2, 2, 2, 2])", "x: [2*N,C,H,W], w: [M,C,5,5]"},
          {"conv(x, w, pads=[2, 2, 2, 2])", "x: [N,C,2*H,2*W], w: [M,C,5,5]"},
          {"conv(x, w, pads=[1, 0, 2, 1])", "x: [2*N,C,H,2*W], w: [M,C,3,3]"},
          {"conv(x, w, pads=[0, 1, 0, 1])", "x: [2*N,C,2*H,W], w: [M,C,1,3]"},
          {"conv(x, w, pads=[1, 1, 1, 1], dilations=[2, 2])", "x: [N,C,2*H,2*W], w: [M,C,3,3]"}})
        for (Found& f : found_for(original(term, shapes))) found.push_back(std::move(f));
    ASSERT_GE(found.size(), 8u);
    int differ = 0, tried = 0;
    for (const Found& f : found) {
        const Claim& claim = f.corrected.claim;
        ASSERT_TRUE(check_certificate(claim, f.corrected.proof.certificate).ok());
        std::vector<Claim> spoiled;
        auto add_texts = [&](const Claim& of, size_t step) {
            const std::vector<std::string> texts = spoiled_texts(to_string(of.rule));
            for (size_t i = 0; i < texts.size(); i += step)
                if (Result<Rules> read = read_rules(texts[i], "spoiled"); read.ok())
                    spoiled.push_back({std::move(read->front()), of.shapes, of.values});
        };
        add_texts(claim, 1);
        const Claim mutant{f.mutant.claim.rule, claim.shapes, claim.values};
        for (const auto& strips : spoiled_strips(f.corrected.strips))
            if (Result<Claim> made = with_strips_recomputed(mutant, strips); made.ok()) {
                spoiled.push_back(*made);
                add_texts(*made, 5);  // and then once more
            }
        for (auto& shapes : spoiled_shapes(claim)) spoiled.push_back({claim.rule, std::move(shapes), claim.values});
        for (const Claim& s : spoiled) {
            ++tried;
            if (evaluated(s, 7, 6) != Truth::Differs) continue;
            ++differ;
            EXPECT_FALSE(check_certificate(s, f.corrected.proof.certificate).ok()) << to_string(s);
            const Result<Proof> proof = prove(s, {.max_questions = 300});
            EXPECT_FALSE(proof.ok() && proof->proved()) << to_string(s);
            const Result<Corrected> again = correct(s, {.max_questions = 300});
            if (again.ok() && again->proved()) {  // corrected once more: then it must hold
                EXPECT_NE(evaluated(again->claim, 11, 8), Truth::Differs) << to_string(again->claim);
            }
        }
    }
    RecordProperty("spoiled", differ);
    fmt::print("{} of {} spoiled claims differ from the original, and none is accepted\n", differ, tried);
    EXPECT_GE(differ, 1000);
}

}  // namespace
}  // namespace tessera::correct_test
