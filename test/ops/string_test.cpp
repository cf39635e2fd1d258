#include "ops/run_op.h"

namespace tessera::test::string_test {
namespace {

using Strings = std::vector<std::string>;
Tensor words(Strings w) {
    Sizes sizes{int64_t(w.size())};
    return Tensor::strings(sizes, std::move(w));
}
Attr text(const char* v) { return Attr(std::string(v)); }
Attr number(int64_t v) { return Attr(v); }

TEST(StringConcat, Broadcasts) {
    Tensor column = Tensor::strings({2, 1}, {"a", "b"});
    EXPECT_EQ(run_op("string_concat", {column, words({"x", "y"})})[0].as_strings(), (Strings{"ax", "ay", "bx", "by"}));
    EXPECT_EQ(run_op("string_concat", {words({}), words({"x"})})[0].sizes(), (Sizes{0}));
    EXPECT_EQ(error_of("string_concat", {words({"a", "b"}), words({"a", "b", "c"})}), "E0210");
}

TEST(StringNormalizer, StopWordsAndCase) {
    Tensor x = words({"Tuesday", "MONDAY", "\xc3\x89t\xc3\xa9", "\xff"});
    AttrMap lower{{"case_change_action", text("LOWER")}, {"stopwords", Attr(Strings{"monday"})}};
    EXPECT_EQ(run_op("string_normalizer", {x}, lower)[0].as_strings(),
              (Strings{"tuesday", "\xc3\xa9t\xc3\xa9", "\xff"}));
    AttrMap strict{{"is_case_sensitive", number(1)}, {"stopwords", Attr(Strings{"monday"})}};
    EXPECT_EQ(run_op("string_normalizer", {x}, strict)[0].sizes(), (Sizes{4}));
    EXPECT_EQ(run_op("string_normalizer", {words({})})[0].as_strings(), (Strings{""}));
    EXPECT_EQ(error_of("string_normalizer", {Tensor::strings({2, 1}, {"a", "b"})}), "E0210");
    EXPECT_EQ(error_of("string_normalizer", {x}, {{"case_change_action", text("TITLE")}}), "E0212");
}

TEST(StringSplit, DelimitersAndLimits) {
    auto by = [](const char* s, const char* delimiter, std::optional<int64_t> most = {}) {
        AttrMap attrs{{"delimiter", text(delimiter)}};
        if (most) attrs["maxsplit"] = *most;
        return run_op("string_split", {words({s})}, attrs, 2)[0].as_strings();
    };
    EXPECT_EQ(by("a,,b", ","), (Strings{"a", "", "b"}));
    EXPECT_EQ(by("", ","), (Strings{""}));
    EXPECT_EQ(by("a,b,c", ",", 1), (Strings{"a", "b,c"}));
    EXPECT_EQ(by("  a \t b  ", ""), (Strings{"a", "b"}));
    EXPECT_EQ(by(" a b  c ", "", 1), (Strings{"a", "b  c"}));
    EXPECT_EQ(by("   ", ""), (Strings{}));
    auto two = run_op("string_split", {words({"a b", "c"})}, {}, 2);
    EXPECT_EQ(two[0].as_strings(), (Strings{"a", "b", "c", ""}));
    EXPECT_EQ(two[1].to_ints(), (std::vector<int64_t>{2, 1}));
}

TEST(RegexFullMatch, WholeStringsInLinearTime) {
    Tensor y = run_op("regex_full_match", {words({"abc", "abcd", ""})}, {{"pattern", text("[a-c]+")}})[0];
    expect_tensor(y, {3}, {1, 0, 0});
    Tensor hostile = words({std::string(20000, 'a') + "!"});
    expect_tensor(run_op("regex_full_match", {hostile}, {{"pattern", text("(a*)*(a*)*")}})[0], {1}, {0});
    EXPECT_EQ(error_of("regex_full_match", {hostile}, {{"pattern", text("(")}}), "E0212");
}

TEST(TfIdfVectorizer, SkipsAndWeights) {
    AttrMap attrs{{"mode", text("TF")},
                  {"min_gram_length", number(1)},
                  {"max_gram_length", number(2)},
                  {"max_skip_count", number(1)},
                  {"ngram_counts", Attr(std::vector<int64_t>{0, 1})},
                  {"ngram_indexes", Attr(std::vector<int64_t>{1, 0})},
                  {"pool_int64s", Attr(std::vector<int64_t>{5, 5, 7})}};
    Tensor x = Tensor::ints({5, 6, 7, 5, 7});
    expect_tensor(run_op("tfidf_vectorizer", {x}, attrs)[0], {2}, {2, 2});  // 5 6 7 by a skip, 5 7 without
    attrs["mode"] = text("TFIDF");
    attrs["weights"] = std::vector<float>{10, 0.5f};
    expect_tensor(run_op("tfidf_vectorizer", {x}, attrs)[0], {2}, {1, 20});
    attrs["mode"] = text("IDF");
    expect_tensor(run_op("tfidf_vectorizer", {longs({1, 5}, x.to_ints())}, attrs)[0], {1, 2}, {.5, 10});
    auto refused = [&](const char* name, Attr value) {
        AttrMap changed = attrs;
        changed[name] = std::move(value);
        return error_of("tfidf_vectorizer", {x}, changed);
    };
    EXPECT_EQ(refused("mode", text("BM25")), "E0212");
    EXPECT_EQ(refused("ngram_counts", Attr(std::vector<int64_t>{0, 9})), "E0212");
    EXPECT_EQ(refused("ngram_indexes", Attr(std::vector<int64_t>{0, -1})), "E0212");
    EXPECT_EQ(refused("ngram_indexes", Attr(std::vector<int64_t>{0, 1, 2})), "E0212");
    EXPECT_EQ(refused("min_gram_length", number(3)), "E0212");
    EXPECT_EQ(error_of("tfidf_vectorizer", {words({"a"})}, attrs), "E0208");
}

}  // namespace
}  // namespace tessera::test::string_test
