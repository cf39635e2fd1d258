#include "discover/check/verify_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "discover/check/check_arithmetic.h"
#include "discover/check/check_certificate.h"
#include "discover/check/check_exactness.h"
#include "discover/prove/prove.h"

namespace tessera::certificate_test {
namespace {

using testing::HasSubstr;

constexpr const char* kMerge =
    "merge [reassociates, proved]: concat(relu(matmul(x, y)), relu(matmul(x, z)), axis=1) => "
    "relu(matmul(x, concat(y, z, axis=1))) where x: [M,K], y: [K,N], z: [K,L]";

struct Proven {
    Claim claim;
    Certificate certificate;
};

Proven proven(const std::string& text) {
    Result<Claim> claim = read_claim(text);
    EXPECT_TRUE(claim.ok()) << claim.error().to_string();
    Result<Proof> proof = prove(*claim);
    EXPECT_TRUE(proof.ok() && proof->proved()) << text;
    return {*claim, proof->certificate};
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

std::string joined(const std::vector<std::string>& lines) {
    std::string out;
    for (const std::string& line : lines) out += line + "\n";
    return out;
}

TEST(Certificate, DeepArithmeticIsRefused) {
    std::string text = "1";
    for (int i = 0; i < 100000; ++i) text = "max(" + text;
    checker::Names names;
    EXPECT_THROW((void)names.parse(text), checker::Refused);
}

TEST(Certificate, MissingStepIsRefused) {
    Proven p = proven(kMerge);
    std::vector<std::string> lines = lines_of(p.certificate.text);
    ASSERT_GT(lines.size(), 5u);
    for (size_t i = 0; i < lines.size(); ++i) {
        std::vector<std::string> fewer = lines;
        fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
        EXPECT_FALSE(check_certificate(p.claim, {joined(fewer)}).ok()) << "without " << lines[i];
    }
}

TEST(Certificate, ChangedNumbersAreRefusedOrHarmless) {
    Proven p = proven(kMerge);
    int refused = 0, changed = 0;
    for (size_t i = 0; i < p.certificate.text.size(); ++i) {
        Certificate other = p.certificate;
        char& c = other.text[i];
        if (c < '0' || c > '9') continue;
        c = c == '9' ? '0' : static_cast<char>(c + 1);
        ++changed;
        refused += !check_certificate(p.claim, other).ok();
    }
    EXPECT_GT(refused, changed * 3 / 4);
}

TEST(Certificate, SaysWhichStep) {
    Proven p = proven(kMerge);
    std::vector<std::string> lines = lines_of(p.certificate.text);
    lines.insert(lines.begin() + 1, "drop 1");
    Status status = check_certificate(p.claim, {joined(lines)});
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message(), HasSubstr("step 2, \"drop 1\": its conditions can hold"));
}

TEST(Certificate, IsNoProofOfAnotherClaim) {
    Proven p = proven(kMerge);
    for (const char* text :
         {"a: concat(relu(matmul(x, y)), relu(matmul(x, z)), axis=1) => relu(matmul(x, concat(z, y, axis=1))) "
          "where x: [M,K], y: [K,N], z: [K,N]",
          "b: concat(relu(matmul(x, y)), relu(matmul(x, z)), axis=1) => matmul(x, concat(y, z, axis=1)) "
          "where x: [M,K], y: [K,N], z: [K,L]"}) {
        Result<Claim> claim = read_claim(text);
        ASSERT_TRUE(claim.ok()) << claim.error().to_string();
        EXPECT_FALSE(check_certificate(*claim, p.certificate).ok()) << text;
    }
}

TEST(Certificate, FilesAreReadBackAndVerified) {
    Proven p = proven(kMerge);
    Rule rule = to_rule(p.claim);
    std::string file = certificate_entry(p.claim, p.certificate);
    Result<Certificates> read = read_certificates(file, "test");
    ASSERT_TRUE(read.ok()) << read.error().to_string();
    Status verified = verify_rule(rule, *read);
    EXPECT_TRUE(verified.ok()) << verified.error().to_string();

    Rule loose = rule;
    loose.conditions.clear();
    EXPECT_THAT(verify_rule(loose, *read).error().message(), HasSubstr("it is proved only where"));
    EXPECT_THAT(verify_rule(rule, {}).error().message(), HasSubstr("no certificate"));
    file.insert(file.find("root 0") + 7, "drop 1\n");
    EXPECT_THAT(verify_rule(rule, *read_certificates(file, "test")).error().message(), HasSubstr("step 2"));
    EXPECT_FALSE(read_certificates(file.substr(0, file.size() - 5), "test").ok());
}

TEST(Certificate, ExactIsCheckedToo) {
    auto exactness = [](const std::string& text) {
        Result<Claim> claim = read_claim(text);
        EXPECT_TRUE(claim.ok()) << claim.error().to_string();
        return exactness_of(*claim);
    };
    for (const char* text :
         {"a: relu(transpose(x, perm=[1,0])) => transpose(relu(x), perm=[1,0]) where x: [M,K]",
          "b: add(x, y) => add(y, x) where x: [M], y: [M]", "c: mul(x, 1.0) => x where x: [M]",
          "d: concat(relu(x), relu(y), axis=1) => relu(concat(x, y, axis=1)) where x: [M,K], y: [M,N]",
          "e: relu(relu(x)) => relu(x) where x: [M]", "f: neg(neg(x)) => x where x: [M]",
          "g: concat(concat(x, y, axis=0), z, axis=0) => concat(x, concat(y, z, axis=0), axis=0) where x: [A,N], y: "
          "[B,N], z: [C,N]",
          "h: exp(transpose(add(x, y), perm=[1,0])) => transpose(exp(add(y, x)), perm=[1,0]) where x: [M,K], y: [M,K]"})
        EXPECT_EQ(exactness(text), Exactness::Exact) << text;
    for (const char* text : {"a: add(add(x, y), z) => add(x, add(y, z)) where x: [M], y: [M], z: [M]",
                             "b: mul(x, add(y, z)) => add(mul(x, y), mul(x, z)) where x: [M], y: [M], z: [M]",
                             "c: transpose(matmul(x, y), perm=[1,0]) => matmul(transpose(y, perm=[1,0]), transpose(x, "
                             "perm=[1,0])) where x: "
                             "[M,K], y: [K,N]",
                             "d: add(x, 0.0) => x where x: [M]", "e: sub(x, y) => neg(sub(y, x)) where x: [M], y: [M]",
                             "f: add(x, x) => mul(x, 2.0) where x: [M]"})
        EXPECT_EQ(exactness(text), Exactness::Reassociates) << text;

    Proven p = proven(kMerge);
    Rule rule = to_rule(p.claim);
    rule.exactness = Exactness::Exact;
    Result<Certificates> read = read_certificates(certificate_entry(p.claim, p.certificate), "test");
    ASSERT_TRUE(read.ok());
    EXPECT_THAT(verify_rule(rule, *read).error().message(), HasSubstr("said to be exact"));
}

TEST(Certificate, RefusesFalseLaws) {
    Result<Claim> claim = read_claim("bad: matmul(x, y) => matmul(y, x) where x: [N,N], y: [N,N]");
    ASSERT_TRUE(claim.ok());
    for (const char* steps :
         {"root 0\n", "root 0\ndrop 1\ndrop 2\n", "root 0\nmerge 1 2 order 0 1\n", "root 0\nmerge 1 2 order 1 0\n",
          "root 0\nrename 2 over _v1 with _v2 = _v1\nmerge 1 2 order 1 0\n", "root 0\nrename 2 over _v1 with _v2 = 0\n",
          "root 0\nrename 2 over _v1 with _v2 = 2*_v1\n", "root 0\nrename 2 over _o0 with _v2 = _o0\n",
          "root 0\npoint 1 _v1 = 0\npoint 2 _v2 = 0\n", "root 0\ncount 1 _v1 from 0 to N - 1\n",
          "root 0\ncut 1 _v1 by 0 into _c1 _c2\n", "root 0\nsplit 1 by _v1 - N\ndrop 3\ndrop 4\ndrop 2\n",
          "root 0\noutput _o0 by N - N into _a _b\n", "root 0\nquotient 1 _v1 / 0 = 0\n",
          "root 0\nmerge 1 1 order 0 1\n", "root 0\nnegate 1 0\n", "root 0\nshift 1 0 0\n", ""})
        EXPECT_FALSE(check_certificate(*claim, {steps}).ok()) << steps;
}

}  // namespace
}  // namespace tessera::certificate_test
