#include <unordered_map>

#include "graph/builder.h"
#include "graph/evaluate/evaluate.h"
#include "rewrite/edit.h"
#include "rewrite/passes/few_bits.h"

namespace tessera {
namespace {

constexpr int64_t kBytes = 256;
constexpr DTypes kByteTypes{DType::i8, DType::u8};

// A value that is computed from one byte alone, element by element.
struct Function {
    Value* of;      // the byte
    Tensor values;  // for all that it can be
    int steps = 0;  // ops that do more than quantize or dequantize
};

class Tabulating {
  public:
    Tabulating(Graph& graph, PassContext& context) : graph_(graph), context_(context) {}

    Result<Changed> run() {
        Changed changed = false;
        const size_t count = graph_.nodes().size();
        for (size_t i = 0; i < count; ++i) {
            Node& node = *graph_.nodes()[i];
            auto function = function_of(node);
            if (!function) continue;
            const bool ends = node.op().name == "quantize_linear" && function->steps > 0;
            if (ends && any_used(node)) changed |= TRY(write(node, *function));
            known_.emplace(node.output(), std::move(*function));
        }
        if (!changed) return changed;
        graph_.erase_unused();
        graph_.sort_canonically();
        return changed;
    }

  private:
    static bool is_byte(const Value& v) {
        return !v.is_constant() && shape_of(&v) && kByteTypes.has(v.type().tensor().dtype);
    }
    static bool quantizes(const Node& node) {
        return node.op().name == "quantize_linear" || node.op().name == "dequantize_linear";
    }

    static Result<Tensor> all_bytes(DType dtype) {
        Tensor all = TRY(Tensor::zeros(dtype, {kBytes}));
        for (int64_t i = 0; i < kBytes; ++i) all.set_int(i, dtype == DType::i8 ? i - kBytes / 2 : i);
        return all;
    }

    std::optional<Function> function_of(const Node& node) {
        if (!quantizes(node) && !node.is(Trait::Elementwise)) return {};
        if (!node.is(Trait::Pure) || has_nested(node) || node.output_count() != 1) return {};
        std::vector<std::optional<Datum>> inputs;
        Function made{.of = nullptr, .values = {}};
        for (Value* v : node.inputs()) {
            if (!v) {
                inputs.emplace_back();
            } else if (v->is_constant()) {
                if (v->tensor()->elements() != 1 || v->tensor()->dtype() == DType::string) return {};
                inputs.emplace_back(v->tensor()->reshaped({}));
            } else if (const Function* known = found(*v)) {
                if (made.of && made.of != known->of) return {};
                made.of = known->of;
                made.steps += known->steps;
                inputs.emplace_back(known->values);
            } else {
                return {};
            }
        }
        const Shape* shape = shape_of(node.output());
        if (!made.of || !shape || *shape != *shape_of(made.of)) return {};
        auto values = evaluate_op(node.op(), inputs, node.attrs());
        if (!values.ok() || !(*values)[0].is_tensor() || (*values)[0].tensor().sizes() != Sizes{kBytes}) return {};
        made.values = (*values)[0].tensor();
        made.steps += !quantizes(node);
        return made;
    }

    // What is known of a value; a byte that is no function of another one is one of itself.
    const Function* found(Value& v) {
        if (auto known = known_.find(&v); known != known_.end()) return &known->second;
        if (!is_byte(v)) return nullptr;
        auto all = all_bytes(v.type().tensor().dtype);
        if (!all.ok()) return nullptr;
        return &known_.emplace(&v, Function{&v, std::move(*all)}).first->second;
    }

    Result<Changed> write(Node& node, const Function& function) {
        const size_t before = graph_.nodes().size();
        const DType dtype = node.output()->type().tensor().dtype;
        // Words are read from anywhere by one instruction where bytes are not.
        Tensor words = TRY(Tensor::zeros(DType::i32, {kBytes}));
        for (int64_t i = 0; i < kBytes; ++i) words.set_int(i, function.values.int_at(i));
        Builder b(graph_, node.where());
        Value* y = b.cast(b.op("byte_table", {function.of, b.constant(std::move(words))}), dtype);
        TRY(b.status());
        Rewriting rewriting(context_, "tabulate", {&node});
        const bool placed = put_made_in_place(node, {y}, context_);
        context_.choices.push_back(
            {fmt::format("a table for {}", node.output()->name()),
             placed ? yes("{} steps from one byte to another", function.steps) : no("what reads it does not agree")});
        if (!placed) return false;
        note_origin(graph_, node, before, context_);
        Rewriting::Nodes nodes;
        for (size_t i = before; i < graph_.nodes().size(); ++i) nodes.push_back(graph_.nodes()[i].get());
        rewriting.done(nodes);
        known_.insert_or_assign(y, function);  // what follows is a function of the same byte
        return true;
    }

    Graph& graph_;
    PassContext& context_;
    std::unordered_map<const Value*, Function> known_;
};

}  // namespace

Result<Changed> tabulate_bytes(Graph& graph, PassContext& context) { return Tabulating(graph, context).run(); }

}  // namespace tessera
