// Every op under a pattern that leaves its attributes free, `op(x, ..r) => op(x)`: where an attribute changes what the
// op gives, the refuter has to show it, at the effort that belief takes. The exceptions stand below with their reasons,
// and an op that needs none may not stand there. Likewise its optional inputs, `op(x, b?) => op(x)`.
#include <gtest/gtest.h>

#include <map>

#include "base/thread_pool.h"
#include "rewrite/refute/refute.h"

namespace tessera::free_attributes_test {
namespace {

const char* const kSameType =
    "where the result has the same type without them, it is the same: they say how large it is, or count from the end";
const char* const kNothingHere = "the attribute means nothing here";
const char* const kNoGraph = "not believed either: the sampler draws too few graphs for it, if any";
const char* const kNotNamed = "not believed either: a rule cannot name what it requires";

// What holds by right, and what is not tested, which is not believed.
const std::map<std::string, const char*>& exceptions_for_attributes() {
    static const std::map<std::string, const char*> all{
        {"center_crop_pad", kSameType},
        {"flatten", kSameType},
        {"gather_nd", kSameType},
        {"mel_weight_matrix", kSameType},
        {"phase_weight", kSameType},
        {"reduce_l1", kSameType},
        {"reduce_l2", kSameType},
        {"reduce_log_sum", kSameType},
        {"reduce_log_sum_exp", kSameType},
        {"reduce_max", kSameType},
        {"reduce_mean", kSameType},
        {"reduce_min", kSameType},
        {"reduce_prod", kSameType},
        {"reduce_sum", kSameType},
        {"reduce_sum_square", kSameType},
        {"reshape", kSameType},
        {"shape", kSameType},
        {"split", kSameType},
        {"max_unpool", kSameType},
        {"range", kNothingHere},
        {"affine_grid", kNoGraph},
        {"attention_gradient", kNoGraph},
        {"attention_gradient_by_key", kNoGraph},
        {"attention_gradient_by_query", kNoGraph},
        {"col2im", kNoGraph},
        {"compress", kNoGraph},
        {"concat_from_sequence", kNoGraph},
        {"deform_conv", kNoGraph},
        {"dynamic_quantize_lstm", kNoGraph},
        {"gradient", kNoGraph},
        {"image_decoder", kNoGraph},
        {"label_encoder", kNoGraph},
        {"linear_attention", kNoGraph},
        {"max_roi_pool", kNoGraph},
        {"non_max_suppression", kNoGraph},
        {"optional", kNoGraph},
        {"qlinear_conv", kNoGraph},
        {"roi_align", kNoGraph},
        {"sequence_empty", kNoGraph},
        {"split_to_sequence", kNoGraph},
        {"string_normalizer", kNoGraph},
        {"string_split", kNoGraph},
        {"stft", kNoGraph},
        {"tile_kernel", kNoGraph},
        {"unique", kNoGraph},
        {"walk_trees", kNoGraph},
        {"winograd_input", kNoGraph},
        {"scan", kNotNamed},
        {"tree_ensemble", kNotNamed},
    };
    return all;
}

const std::map<std::string, const char*>& exceptions_for_inputs() {
    static const std::map<std::string, const char*> all{
        {"reduce_l1", kSameType},
        {"reduce_l2", kSameType},
        {"reduce_log_sum", kSameType},
        {"reduce_log_sum_exp", kSameType},
        {"reduce_max", kSameType},
        {"reduce_mean", kSameType},
        {"reduce_min", kSameType},
        {"reduce_prod", kSameType},
        {"reduce_sum", kSameType},
        {"reduce_sum_square", kSameType},
        {"rotary_embedding", kSameType},
        {"split", kSameType},
        {"squeeze", kSameType},
        {"attention_gradient", kNotNamed},
        {"attention_gradient_by_key", kNotNamed},
        {"attention_gradient_by_query", kNotNamed},
        {"linear_attention", kNoGraph},
        {"max_unpool", kNoGraph},
        {"non_max_suppression", kNoGraph},
        {"optional", kNoGraph},
        {"qlinear_conv", kNoGraph},
        {"resize", kNoGraph},
        {"sequence_erase", kNoGraph},
        {"sequence_insert", kNoGraph},
        {"split_to_sequence", kNoGraph},
        {"stft", kNoGraph},
        {"walk_trees", kNoGraph},
        {"dynamic_quantize_lstm", kNotNamed},
        {"loop", kNotNamed},
    };
    return all;
}

struct Free {
    const OpDef* op;
    std::string text;
    std::optional<Verdict> verdict = {};  // none: the reader refuses the rule
};

// x0, x1, x2?, x3...
std::string inputs_of(const OpDef& op, bool optionals) {
    std::string text;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
        const ParamDef& p = op.inputs[i];
        if (p.optional && !optionals) continue;
        text += fmt::format("{}x{}{}", text.empty() ? "" : ", ", i, p.variadic ? "..." : p.optional ? "?" : "");
    }
    return text;
}

// Those that must be given are named.
std::string required_of(const OpDef& op) {
    std::string text;
    for (const AttrDef& a : op.attrs)
        if (a.is_required) text += fmt::format("{0}{1}=a_{1}", text.empty() ? "" : ", ", a.name);
    return text;
}

std::string joined(const std::vector<std::string>& parts) {
    std::string text;
    for (const std::string& p : parts)
        if (!p.empty()) text += (text.empty() ? "" : ", ") + p;
    return text;
}

void compare(std::vector<Free> all, const std::map<std::string, const char*>& exceptions, size_t least) {
    Team team(2);
    team.each(static_cast<int64_t>(all.size()), [&](int64_t i, int) {
        Result<Rules> rules = read_rules(all[i].text, "test");
        if (!rules.ok()) return;
        Result<Verdict> v = refute((*rules)[0], {.instances = 300, .draws = 6000, .minimise = false});
        if (v.ok()) all[i].verdict = *v;
    });
    size_t shown = 0;
    std::map<std::string, const char*> unused = exceptions;
    for (const Free& f : all) {
        auto exception = exceptions.find(f.op->name);
        unused.erase(f.op->name);
        const bool refuted = f.verdict && f.verdict->kind == Verdict::Kind::Refuted;
        shown += refuted;
        if (exception == exceptions.end()) {
            EXPECT_TRUE(refuted) << f.text << "\n" << (f.verdict ? f.verdict->to_string() : "cannot be read");
            continue;
        }
        EXPECT_FALSE(refuted) << f.op->name << " needs no exception: " << f.text;
        // What is not tested is not believed; what holds has another reason.
        const bool holds = f.verdict && f.verdict->kind == Verdict::Kind::Holds;
        const bool right = exception->second == kSameType || exception->second == kNothingHere;
        EXPECT_EQ(holds, right) << f.op->name << ": " << exception->second << "\n" << f.text;
        EXPECT_EQ(!f.verdict, exception->second == kNotNamed) << f.op->name;
    }
    for (const auto& [op, reason] : unused) ADD_FAILURE() << op << " has an exception and nothing free";
    EXPECT_GE(shown, least);
    printf("%zu of %zu shown, %zu exceptions\n", shown, all.size(), exceptions.size());
}

TEST(free, attributes_are_drawn_for_every_op) {
    std::vector<Free> all;
    for (const OpDef* op : all_ops()) {
        const bool free = std::any_of(op->attrs.begin(), op->attrs.end(), [](const AttrDef& a) {
            return !a.is_hint && !a.is_required && a.kind != AttrKind::Graph;
        });
        if (!free) continue;
        const std::string right = joined({inputs_of(*op, true), required_of(*op)});
        all.push_back({op, fmt::format("a: {0}({1}) => {0}({2})", op->name, joined({right, "..r"}), right)});
    }
    compare(std::move(all), exceptions_for_attributes(), 80);
}

TEST(free, optional_inputs_are_drawn_for_every_op) {
    std::vector<Free> all;
    for (const OpDef* op : all_ops()) {
        if (std::none_of(op->inputs.begin(), op->inputs.end(), [](const ParamDef& p) { return p.optional; })) continue;
        const std::string required = required_of(*op), rest = op->attrs.empty() ? "" : "..r";
        const std::string left = joined({inputs_of(*op, true), required, rest});
        all.push_back({op, fmt::format("a: {0}({1}) => {0}({2})", op->name, left,
                                       joined({inputs_of(*op, false), required, rest}))});
    }
    compare(std::move(all), exceptions_for_inputs(), 10);
}

}  // namespace
}  // namespace tessera::free_attributes_test
