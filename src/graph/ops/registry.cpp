// All ops: the families, in one list.
#include "graph/ops/registry.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "base/check.h"
#include "graph/ops/block_product.h"
#include "graph/ops/families.h"

namespace tessera {
namespace {

struct Registry {
    std::vector<OpDef> defs;
    std::vector<const OpDef*> list;  // by name
    std::unordered_map<std::string, const OpDef*> by_name, by_onnx_name;

    void add(std::vector<OpDef> family) {
        for (OpDef& def : family) defs.push_back(std::move(def));
    }

    Registry() {
        // One a line, so that families are added side by side without a conflict.
        // clang-format off
        for (auto family : {
                 activation_ops,
                 arg_reduce_ops,
                 arithmetic_ops,
                 attention_ops,
                 attention_tile_ops,
                 block_product_ops,
                 byte_table_ops,
                 cast_ops,
                 compare_ops,
                 constant_ops,
                 contraction_ops,
                 control_ops,
                 conv_ops,
                 expression_ops,
                 gather_ops,
                 grid_ops,
                 gradient_ops,
                 image_ops,
                 integer_product_ops,
                 loss_ops,
                 math_ops,
                 ml_ops,
                 movement_ops,
                 ngram_ops,
                 normalization_ops,
                 pool_ops,
                 quantize_ops,
                 random_ops,
                 recurrent_ops,
                 reduce_ops,
                 roi_ops,
                 scan_ops,
                 scatter_ops,
                 sequence_ops,
                 shape_ops,
                 signal_ops,
                 slice_ops,
                 softmax_ops,
                 sort_ops,
                 string_ops,
                 suppression_ops,
                 tile_ops,
                 training_ops,
                 winograd_ops,
             })
            add(family());
        // clang-format on
        for (const OpDef& def : defs) {
            CHECK(def.body || def.expand || def.evaluate, "{} has no meaning", def.name);
            CHECK(by_name.emplace(def.name, &def).second, "{} is defined twice", def.name);
            list.push_back(&def);
            if (def.onnx.name.empty()) continue;
            add_onnx_name(def, def.onnx.name);
            for (const std::string& alias : def.onnx.aliases) add_onnx_name(def, alias);
        }
        std::sort(list.begin(), list.end(), [](auto* a, auto* b) { return a->name < b->name; });
    }

    void add_onnx_name(const OpDef& def, const std::string& name) {
        CHECK(by_onnx_name.emplace(def.onnx.domain + ":" + name, &def).second, "{} is imported twice", name);
    }
};

const Registry& registry() {
    static const Registry instance;
    return instance;
}

// Those that were added, which never go.
struct AddedOps {
    std::atomic<bool> any = false;
    std::shared_mutex mutex;
    std::deque<OpDef> list;

    template <typename F>
    const OpDef* find(F&& wanted) {
        if (!any) return nullptr;
        const std::shared_lock lock(mutex);
        auto it = std::find_if(list.begin(), list.end(), wanted);
        return it == list.end() ? nullptr : &*it;
    }
};

AddedOps& added() {
    static auto* ops = new AddedOps;
    return *ops;
}

std::string_view plain(std::string_view domain) { return domain == "ai.onnx" ? "" : domain; }

}  // namespace

const std::vector<const OpDef*>& all_ops() { return registry().list; }

const OpDef* find_op(std::string_view name) {
    auto it = registry().by_name.find(std::string(name));
    if (it != registry().by_name.end()) return it->second;
    return added().find([&](const OpDef& op) { return op.name == name; });
}

const OpDef* find_onnx_op(std::string_view domain, std::string_view name) {
    domain = plain(domain);
    auto it = registry().by_onnx_name.find(std::string(domain) + ":" + std::string(name));
    if (it != registry().by_onnx_name.end()) return it->second;
    return added().find([&](const OpDef& op) { return op.onnx.domain == domain && op.onnx.name == name; });
}

Status add_op(OpDef def) {
    if (find_op(def.name) || find_onnx_op(def.onnx.domain, def.onnx.name))
        return Error(Code::E0204, "operator {} of domain {} is already registered", def.onnx.name, def.onnx.domain);
    const std::unique_lock lock(added().mutex);
    added().list.push_back(std::move(def));
    added().any = true;
    return {};
}

}  // namespace tessera
