// Rules for any rank: the laws they are proved by, the certificates that come with them, and corrupted ones.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/random.h"
#include "discover/check/check_laws.h"
#include "discover/check/check_meanings.h"
#include "discover/check/verify_rule.h"
#include "discover/prove/prove_rule.h"
#include "discover/shipped.h"
#include "rewrite/mutate_rules.h"
#include "rewrite/refute/refute.h"

namespace tessera::elements_test {
namespace {

constexpr size_t kListed = 9;  // at most

Rules all_built_in() {
    Rules all;
    for (const RuleFile& file : built_in_rule_files())
        for (const Rule& rule : built_in_rules(file.name)) all.push_back(rule);
    return all;
}

bool is_refuted(const Rule& rule, uint64_t seed) {
    Result<Verdict> verdict = refute(rule, {.seed = seed, .instances = 60});
    return verdict.ok() && verdict->kind == Verdict::Kind::Refuted;
}

TEST(Elements, EveryLawOfNumbersHolds) {
    Rules all = checker::laws().total;
    all.insert(all.end(), checker::laws().of_numbers.begin(), checker::laws().of_numbers.end());
    all.insert(all.end(), checker::laws().widening.begin(), checker::laws().widening.end());
    EXPECT_GE(all.size(), 40u);
    for (const Rule& law : all) {
        Result<Verdict> verdict = refute(law, {.instances = 200});
        ASSERT_TRUE(verdict.ok());
        EXPECT_EQ(verdict->kind, Verdict::Kind::Holds) << to_string(law) << "\n" << verdict->to_string();
    }
}

// A law for either side leaves out nothing that it reads: what is left out may fail.
TEST(Elements, LawsForEitherSideReadTheSame) {
    Rules all = checker::laws().total;
    all.insert(all.end(), checker::laws().of_numbers.begin(), checker::laws().of_numbers.end());
    for (const Rule& law : all) {
        std::set<std::string> left, right;
        auto collect = [](auto& self, const Term& t, std::set<std::string>& names) -> void {
            if (t.form == Term::Form::Variable) names.insert(t.name);
            for (const Term& a : t.args) self(self, a, names);
        };
        collect(collect, law.pattern[0], left);
        collect(collect, law.replacement[0], right);
        EXPECT_EQ(left, right) << to_string(law);
    }
}

TEST(Elements, EveryMeaningHolds) {
    EXPECT_GE(checker::meanings().size(), 15u);
    for (const Rule& meaning : checker::meanings()) {
        Result<Verdict> verdict = refute(meaning, {.instances = 100});
        ASSERT_TRUE(verdict.ok());
        EXPECT_EQ(verdict->kind, Verdict::Kind::Holds) << to_string(meaning) << "\n" << verdict->to_string();
    }
}

// Every rule that is on by default has a certificate that replays, or is listed with a reason.
TEST(Elements, CertificatesOfTheRulesReplay) {
    size_t proved = 0, listed = 0;
    for (const RuleFile& file : built_in_rule_files()) {
        const Certificates& certificates = built_in_certificates(file.name);
        std::set<std::string> names;
        for (const Rule& rule : built_in_rules(file.name)) {
            names.insert(rule.name);
            auto entry = certificates.find(rule.name);
            ASSERT_TRUE(entry != certificates.end()) << rule.name << " has neither a certificate nor a reason";
            if (!entry->second.listed.empty()) {
                ++listed;
                EXPECT_FALSE(verify_rule(rule, certificates).ok());
                EXPECT_FALSE(prove_for_any_rank(rule).proved) << rule.name << " is listed and can be proved";
                continue;
            }
            ++proved;
            Status held = verify_rule(rule, certificates);
            EXPECT_TRUE(held.ok()) << (held.ok() ? "" : held.error().to_string());
        }
        for (const auto& [name, entry] : certificates) EXPECT_TRUE(names.contains(name)) << name << " is no rule";
    }
    printf("%zu rules have certificates, %zu are listed\n", proved, listed);
    EXPECT_LE(listed, kListed);
}

// Each breaks one law, and is false for some rank, size or number.
TEST(Elements, FalseRulesAreNotBelieved) {
    const char* text = R"(
r1: softmax(transpose(x, perm=p), axis=a) => transpose(softmax(x, axis=a), perm=p)
r2: add(transpose(x, perm=p), transpose(y, perm=p)) => transpose(add(x, y), perm=p)
r3: add(reshape(x, s), reshape(y, s)) => reshape(add(x, y), s)
r4: exp(pad(x:float, p)) => pad(exp(x), p)
r5 [reassociates]: neg(neg(x:float)) => exp(log(x))
r6 [reassociates]: mul(x:float, y) => mul(mul(mul(x, y), y), reciprocal(y))
r26 [reassociates]: div(x:float, 1.4142135623730951) => mul(x, 0.7071067811865476)
r27 [reassociates]: mul(x:float, 0.16666666666666666) => div(x, 6)
r28 [reassociates]: where(less(x:float, y), y, reduce_mean(x)) => where(less(x, y), add(y, sub(reduce_mean(x), reduce_mean(x))), reduce_mean(x))
r29: reduce_sum(split(relu(x))) => reduce_sum(relu(split(x)))
r30 [reassociates]: div(a:float, mul(b, exp(log(c)))) => div(div(a, exp(log(c))), div(mul(b, exp(log(c))), exp(log(c))))
r7: transpose(transpose(x, perm=p), perm=q) => transpose(x, perm=permute(q, p))
r8: slice(x, s, e, a, t) => x
r9: reduce_sum(transpose(x, perm=p), a, keepdims=0) => reduce_sum(x, each_at(p, ints(a)), keepdims=0)
r10: slice(slice(x, s, _, a, t), s2, _, a, t) => slice(x, ints(s) + ints(s2), [9], ints(a), ints(t)) if ints(t) == [1]
r11: gather(relu(x), i, axis=a) => relu(gather(x, i, axis=0))
r12: div(mul(x:int, y), y) => x
r13: where(c, x, y) => where(c, y, x)
r14: pad(pad(x, p, v), q, v) => pad(x, ints(p) + ints(q), v)
r15 [reassociates]: gemm(transpose(a, perm=[1, 0]), b, transA=q) => gemm(a, b, transA=1 - q)
r16 [reassociates]: conv(mul(x, c), w, ..a) => conv(x, mul(w, reshape(c, join([1, -1], repeat(1, rank(w) - 2)))), ..a)
    if varies_only_along(c, 1, rank(w)) and same_dims_after(x, c)
r17 [reassociates]: max(min(x:float, b), a) => clip(x, a, b) if rank(a) == 0 and rank(b) == 0
r18 [reassociates]: softmax(sub(x:float, reduce_max(x, a, keepdims=1)), axis=b) => softmax(x, axis=b)
r19 [reassociates]: matmul(matmul(a:float, b), c) => matmul(a, matmul(b, c))
r20: cast(cast(x, to=t), to=u) => cast(x, to=u)
r21 [reassociates]: mul(x:float, sigmoid(mul(x, a))) => swish(x, alpha=number(a))
r24: add(x:float, 0.0) => x
r31 [reassociates]: add(conv(x, w, b, ..a), c) => conv(x, w, add(b, expand(reshape(c, [-1]), [dim(w, 1)])), ..a) if varies_only_along(c, 1, rank(w))
r32 [reassociates]: add(conv(x, w, ..a), c) => conv(x, w, reshape(c, [-1]), ..a) if varies_only_along(c, 1, rank(w))
r33 [reassociates]: add(conv_transpose(x, w, group=1, ..a), c) => conv_transpose(x, w, reshape(c, [-1]), ..a) if varies_only_along(c, 1, rank(w))
r34 [reassociates]: mul(matmul(a:float, b), s) => matmul(a, mul(s, b)) if const(b, s) and varies_only_along(s, rank(b) - 1, rank(b))
r35 [reassociates]: attention(q:float, mul(k, s), v, m?, scale=f) => attention(q, k, v, m?, scale=f * number(s)) if element_bits(q) <= 32 and const(s) and count(s) == 1 and rank(s) <= rank(k)
r25: tanh(add(x:float, 0)) => tanh(x)
)";
    Result<Rules> rules = read_rules(text, "false");
    ASSERT_TRUE(rules.ok()) << rules.error().to_string();
    EXPECT_EQ(rules->size(), 33u);
    for (const Rule& rule : *rules) EXPECT_FALSE(prove_for_any_rank(rule).proved) << to_string(rule);
}

// TESSERA_CAMPAIGN says how many corruptions.
TEST(Elements, CorruptedRulesAreNotBelieved) {
    const int wanted = campaign();
    const Rules all = all_built_in();
    RandomStream random(17, "any rank");
    uint64_t drawn = 0;
    int read = 0, accepted = 0;
    std::set<std::string> seen;
    std::map<size_t, std::vector<Mutant>> of_rules;
    for (int i = 0; read < wanted && i < 40 * wanted; ++i) {
        const size_t which = random.bits(drawn++) % all.size();
        const Rule& rule = all[which];
        auto [known, fresh] = of_rules.try_emplace(which);
        if (fresh) known->second = mutants_of(rule);
        const std::vector<Mutant>& mutants = known->second;
        if (mutants.empty()) continue;
        Rule changed = mutants[random.bits(drawn++) % mutants.size()].rule;
        changed.name = rule.name;
        if (random.bits(drawn++) % 3 == 0 && !changed.conditions.empty())
            changed.conditions.erase(changed.conditions.begin() +
                                     static_cast<long>(random.bits(drawn++) % changed.conditions.size()));
        if (!seen.insert(to_string(changed)).second) continue;
        ++read;
        if (!prove_for_any_rank(changed).proved) continue;
        ++accepted;
        EXPECT_FALSE(is_refuted(changed, drawn)) << to_string(changed) << "\n"
                                                 << "of " << to_string(rule);
    }
    printf("%d corrupted rules: %d were accepted\n", read, accepted);
    EXPECT_GE(read, wanted / 2) << "seed 17";
}

// The left side of one rule, the right side of another, and the conditions of both: true by chance only.
TEST(Elements, RightSidesOfOtherRulesAreNotBelieved) {
    const Rules all = all_built_in();
    struct Parts {
        std::string left, right, conditions;
    };
    std::vector<Parts> parts;
    for (const Rule& rule : all) {
        Rule bare = rule;
        bare.conditions.clear();
        const std::string text = to_string(bare);
        const size_t colon = text.find(": "), arrow = text.find(" => ");
        Parts of{text.substr(colon + 2, arrow - colon - 2), text.substr(arrow + 4), ""};
        for (const Term& c : rule.conditions) of.conditions += " and " + to_string(c, rule);
        parts.push_back(std::move(of));
    }
    RandomStream random(29, "right sides");
    uint64_t drawn = 0;
    int read = 0, accepted = 0;
    for (int i = 0; read < campaign() && i < 400 * campaign(); ++i) {
        const Parts& one = parts[random.bits(drawn++) % parts.size()];
        const Parts& other = parts[random.bits(drawn++) % parts.size()];
        if (one.right == other.right) continue;
        const std::string conditions = one.conditions + other.conditions;
        Result<Rules> rules = read_rules(fmt::format("r [reassociates]: {} => {}{}", one.left, other.right,
                                                     conditions.empty() ? "" : " if " + conditions.substr(5)),
                                         "crossed");
        if (!rules.ok() || rules->size() != 1) continue;
        ++read;
        const Rule& crossed = (*rules)[0];
        if (!prove_for_any_rank(crossed).proved) continue;
        ++accepted;
        EXPECT_FALSE(is_refuted(crossed, drawn)) << to_string(crossed);
    }
    printf("%d crossed rules: %d were accepted\n", read, accepted);
    EXPECT_GE(read, campaign() / 2) << "seed 29";
}

}  // namespace
}  // namespace tessera::elements_test
