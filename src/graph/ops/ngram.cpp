// Counting n-grams: tfidf_vectorizer.
#include <algorithm>
#include <map>

#include "graph/evaluate/evaluate.h"
#include "graph/ops/common.h"
#include "graph/ops/families.h"

namespace tessera {
namespace {

// The pool as a tree of words: a node on the path of an n-gram knows which one ends there.
class GramTree {
  public:
    // E0212 where the attributes do not describe a pool.
    static Result<GramTree> from(const OpView& op) {
        bool strings = op.has_attr("pool_strings");
        if (strings == op.has_attr("pool_int64s"))
            return op.error(Code::E0206, "exactly one of pool_strings and pool_int64s must be given");
        const auto& counts = op.ints("ngram_counts");
        int64_t pool = strings ? op.strings("pool_strings").size() : op.ints("pool_int64s").size();
        GramTree tree;
        tree.nodes_.emplace_back();
        int64_t gram = 0;
        for (size_t n = 1; n <= counts.size(); ++n) {
            int64_t from = counts[n - 1], to = n < counts.size() ? counts[n] : pool;
            if (from < 0 || from > to || to > pool || (to - from) % int64_t(n) != 0)
                return op.error(Code::E0212, "ngram_counts: {}-grams from {} to {} of a pool of {}", n, from, to, pool);
            for (int64_t at = from; at < to; at += n) {
                size_t node = 0;
                for (size_t k = 0; k < n; ++k) {
                    size_t next = tree.nodes_.size();
                    bool fresh = strings
                                     ? tree.nodes_[node].words.emplace(op.strings("pool_strings")[at + k], next).second
                                     : tree.nodes_[node].numbers.emplace(op.ints("pool_int64s")[at + k], next).second;
                    if (fresh) tree.nodes_.emplace_back();
                    node = strings ? tree.nodes_[node].words[op.strings("pool_strings")[at + k]]
                                   : tree.nodes_[node].numbers[op.ints("pool_int64s")[at + k]];
                }
                tree.nodes_[node].gram = gram++;
            }
        }
        if (gram != int64_t(op.ints("ngram_indexes").size()))
            return op.error(Code::E0212, "the pool has {} n-grams, but ngram_indexes has {} entries", gram,
                            op.ints("ngram_indexes").size());
        return tree;
    }

    // The child of `node` for element `at` of x, or 0.
    size_t next(size_t node, const Tensor& x, int64_t at) const {
        if (x.dtype() == DType::string) {
            auto it = nodes_[node].words.find(x.as_strings()[at]);
            return it == nodes_[node].words.end() ? 0 : it->second;
        }
        auto it = nodes_[node].numbers.find(x.int_at(at));
        return it == nodes_[node].numbers.end() ? 0 : it->second;
    }
    int64_t gram(size_t node) const { return nodes_[node].gram; }  // -1 where none ends

  private:
    struct Branch {
        std::map<std::string, size_t> words;
        std::map<int64_t, size_t> numbers;
        int64_t gram = -1;
    };
    std::vector<Branch> nodes_;
};

const OpDef kTfIdfVectorizer{
    .name = "tfidf_vectorizer",
    .inputs = {"x: T"},
    .outputs = {"y: f32"},
    .attrs = {string_attr("mode").one_of({"TF", "IDF", "TFIDF"}).required(), int_attr("min_gram_length").required(),
              int_attr("max_gram_length").required(), int_attr("max_skip_count").required(),
              ints_attr("ngram_counts").required(), ints_attr("ngram_indexes").required(), ints_attr("pool_int64s"),
              strings_attr("pool_strings"), floats_attr("weights")},
    .types = {{"T", {DType::string, DType::i32, DType::i64}}},
    .onnx = "TfIdfVectorizer",
    .infer = [](const OpView& op) -> Result<Types> {
        if (op.rank(0) > 2) return op.shape_error("needs [C] or [N,C], has {}", op.shape(0));
        if (op.has_attr("pool_strings") != (op.dtype(0) == DType::string))
            return op.error(Code::E0208, "the pool's elements are not {}", dtype_name(op.dtype(0)));
        int64_t shortest = op.integer("min_gram_length"), longest = op.integer("max_gram_length");
        if (shortest < 1 || longest < shortest || op.integer("max_skip_count") < 0)
            return op.error(Code::E0212, "n-grams of {} to {} elements with up to {} skipped", shortest, longest,
                            op.integer("max_skip_count"));
        const auto& places = op.ints("ngram_indexes");
        if (places.empty()) return op.error(Code::E0212, "ngram_indexes is empty");
        auto [low, high] = std::minmax_element(places.begin(), places.end());
        if (*low < 0 || *high > int64_t{1} << 40)
            return op.error(Code::E0212, "ngram_indexes has {}", *low < 0 ? *low : *high);
        if (op.has_attr("weights") && op.floats("weights").size() != places.size())
            return op.error(Code::E0212, "{} weights for {} n-grams", op.floats("weights").size(), places.size());
        Shape y;
        if (op.rank(0) == 2) y.push_back(op.shape(0)[0]);
        y.push_back(*high + 1);
        return Type(DType::f32, y);
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        const Tensor& x = ctx.tensor(0);
        const auto& places = op.ints("ngram_indexes");
        GramTree tree = TRY(GramTree::from(op));
        int64_t rows = x.rank() == 2 ? x.size(0) : 1, length = x.rank() == 0 ? 1 : x.size(-1);
        int64_t width = *std::max_element(places.begin(), places.end()) + 1;
        int64_t shortest = op.integer("min_gram_length"), longest = op.integer("max_gram_length");
        int64_t skips = std::min(op.integer("max_skip_count"), length);  // longer strides find nothing new
        Sizes sizes = x.rank() == 2 ? Sizes{rows, width} : Sizes{width};
        Tensor y = TRY(Tensor::zeros(DType::f32, sizes));
        auto out = y.mutable_as<float>();
        bool idf = op.string("mode") == "IDF", weighted = op.string("mode") != "TF" && op.has_attr("weights");
        for (int64_t row = 0; row < rows; ++row) {
            std::vector<int64_t> counts(places.size());
            for (int64_t stride = 1; stride <= skips + 1; ++stride) {
                TRY(ctx.spend(length * std::min(longest, length + 1)));
                for (int64_t start = 0; start < length; ++start) {
                    size_t node = 0;
                    int64_t n = 1;
                    for (int64_t at = start; n <= longest && at < length; ++n, at += stride) {
                        node = tree.next(node, x, row * length + at);
                        if (node == 0) break;
                        bool counted = n >= shortest && (n > 1 || stride == 1);  // a stride does not change unigrams
                        if (counted && tree.gram(node) >= 0) ++counts[tree.gram(node)];
                    }
                }
            }
            for (size_t g = 0; g < counts.size(); ++g) {
                float count = idf ? float(counts[g] > 0) : float(counts[g]);
                out[row * width + places[g]] += weighted ? count * op.floats("weights")[g] : count;
            }
        }
        return std::vector<Datum>{y};
    },
    .no_kernel = "looks up keys, which may be strings",
};

}  // namespace

std::vector<OpDef> ngram_ops() { return {kTfIdfVectorizer}; }

}  // namespace tessera
