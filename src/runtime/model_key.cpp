#include "runtime/model_key.h"

#include <algorithm>

#include "base/digest.h"
#include "base/thread_pool.h"
#include "graph/text/print.h"
#include "onnx/file.h"

namespace tessera {
namespace {

constexpr int64_t kKeyByValue = 32;  // elements of a constant that stands in the text
constexpr size_t kAtOnce = 4 << 20;  // bytes that one thread hashes
constexpr int64_t kKeySamples = 8, kKeySampleBytes = 4096;

void collect(const Graph& graph, std::vector<const Tensor*>& into) {
    auto add = [&](const Tensor& t) {
        if (t.dtype() != DType::string && t.elements() > kKeyByValue) into.push_back(&t);
    };
    for (const auto& v : graph.inputs())
        if (v->tensor()) add(*v->tensor());
    for (const auto& v : graph.constants()) add(*v->tensor());
    for (const auto& node : graph.nodes())
        for (const auto& [name, attr] : node->attrs()) {
            if (auto* t = std::get_if<Tensor>(&attr)) add(*t);
            if (auto* nested = std::get_if<GraphPtr>(&attr)) collect(**nested, into);
        }
}

std::string text_of(const Graph& graph) {
    auto bare = graph.clone();
    bare->info() = {};
    bare->info().opset = graph.info().opset;
    bare->info().domains = graph.info().domains;
    return print(*bare, {.by_value = kKeyByValue, .weights_file = "weights"});
}

}  // namespace

std::string model_key(const Graph& graph) {
    std::string key = text_of(graph);
    std::vector<const Tensor*> tensors;
    collect(graph, tensors);
    std::vector<std::string_view> pieces;
    for (const Tensor* t : tensors) {
        std::string_view rest(static_cast<const char*>(t->data()), static_cast<size_t>(t->bytes()));
        for (; rest.size() > kAtOnce; rest.remove_prefix(kAtOnce)) pieces.push_back(rest.substr(0, kAtOnce));
        pieces.push_back(rest);
    }
    std::vector<Digest> hashes(pieces.size());
    Team().each(static_cast<int64_t>(pieces.size()), [&](int64_t i, int) {
        const std::string_view piece = pieces[static_cast<size_t>(i)];
        hashes[static_cast<size_t>(i)] = digest_bytes(piece.data(), piece.size());
        onnx::MappedFile::release_pages(piece.data(), piece.size());
    });
    key.append(reinterpret_cast<const char*>(hashes.data()), hashes.size() * sizeof hashes[0]);
    return key;
}

std::string sampled_key(const Graph& graph) {
    std::string key = text_of(graph);
    std::vector<const Tensor*> tensors;
    collect(graph, tensors);
    for (const Tensor* t : tensors) {
        const int64_t count = std::min(kKeySamples, (t->bytes() + kKeySampleBytes - 1) / kKeySampleBytes);
        for (int64_t i = 0; i < count; ++i) {
            const int64_t bytes = std::min(kKeySampleBytes, t->bytes());
            const int64_t at = count == 1 ? 0 : (t->bytes() - bytes) / (count - 1) * i;
            const Digest d = digest_bytes(static_cast<const char*>(t->data()) + at, size_t(bytes));
            key.append(reinterpret_cast<const char*>(&d), sizeof d);
        }
    }
    return key;
}

}  // namespace tessera
