#include "fuzz/mutate.h"

#include <algorithm>

#include "onnx/read.h"
#include "onnx/write.h"

namespace tessera {
namespace {

class Mutator {
  public:
    explicit Mutator(std::mt19937_64& random) : random_(random) {}

    size_t below(size_t n) { return n ? static_cast<size_t>(random_() % n) : 0; }
    template <typename List>
    auto& pick(List& list) {
        return list[below(list.size())];
    }

    int64_t number() {
        constexpr int64_t kOdd[] = {0, 1, -1, 2, -2, 3, 5, 7, 64, 1000, -1000, 1 << 20, INT32_MAX, INT64_MAX, INT64_MIN, 1ll << 40};
        return kOdd[below(std::size(kOdd))];
    }

    void change(onnx::Attribute& a) {
        switch (below(6)) {
            case 0: a.i = number(); break;
            case 1:
                if (!a.ints.empty()) pick(a.ints) = number();
                break;
            case 2: a.ints.push_back(number()); break;
            case 3:
                if (!a.ints.empty()) a.ints.pop_back();
                break;
            case 4: a.f = static_cast<float>(number()); break;
            case 5: a.s = below(2) ? "" : "NONSENSE"; break;
        }
        if (a.t && below(2)) change(*a.t);
        if (a.g && below(2)) change(*a.g);
        if (below(8) == 0) a.type = static_cast<onnx::AttributeType>(below(12));
    }

    void change(onnx::Tensor& t) {
        if (below(4) == 0) t.data_type = static_cast<int32_t>(below(30));
        else if (t.dims.empty() || below(4) == 0) t.dims.push_back(number());
        else pick(t.dims) = number();
    }

    void change(onnx::ValueInfo& v) {
        if (below(3) == 0) v.type.elem_type = static_cast<int32_t>(below(27));
        if (!v.type.shape) return;
        auto& dims = *v.type.shape;
        switch (below(4)) {
            case 0: dims.push_back({onnx::Dim::Kind::Value, static_cast<int64_t>(below(5)), "", ""}); break;
            case 1:
                if (!dims.empty()) dims.pop_back();
                break;
            case 2:
                if (!dims.empty()) pick(dims) = {onnx::Dim::Kind::Value, static_cast<int64_t>(below(9)), "", ""};
                break;
            case 3:
                if (!dims.empty()) pick(dims) = {onnx::Dim::Kind::Param, 0, "M", ""};
                break;
        }
    }

    void change(onnx::Node& n, onnx::Graph& g) {
        switch (below(7)) {
            case 0:
                if (!n.inputs.empty()) n.inputs.erase(n.inputs.begin() + below(n.inputs.size()));
                break;
            case 1:
                if (!n.inputs.empty()) std::swap(pick(n.inputs), pick(n.inputs));
                break;
            case 2:
                if (!g.inputs.empty()) n.inputs.push_back(pick(g.inputs).name);
                break;
            case 3:
                if (!n.inputs.empty()) pick(n.inputs) = "";
                break;
            case 4: n.outputs.push_back("another"); break;
            case 5:
                if (!n.attributes.empty()) n.attributes.erase(n.attributes.begin() + below(n.attributes.size()));
                break;
            case 6:
                if (!g.nodes.empty()) n.op_type = pick(g.nodes).op_type;
                break;
        }
    }

    void change(onnx::Graph& g) {
        switch (below(5)) {
            case 0:
                if (!g.inputs.empty()) return change(pick(g.inputs));
                break;
            case 1:
                if (!g.initializers.empty()) return change(pick(g.initializers));
                break;
            case 2:
                if (!g.nodes.empty()) return change(pick(g.nodes), g);
                break;
            default: break;
        }
        if (g.nodes.empty()) return;
        onnx::Node& n = pick(g.nodes);
        if (!n.attributes.empty()) change(pick(n.attributes));
        else change(n, g);
    }

    void change(onnx::Model& m) {
        if (!m.opset_import.empty() && below(12) == 0) pick(m.opset_import).version = 1 + below(30);
        change(m.graph);
        for (onnx::Function& f : m.functions)
            if (!f.nodes.empty() && below(2)) change(pick(f.nodes), m.graph);
    }

  private:
    std::mt19937_64& random_;
};

}  // namespace

std::string mutate_bytes(std::string bytes, std::mt19937_64& random) {
    Mutator m(random);
    for (size_t rounds = 1 + m.below(2); rounds > 0 && !bytes.empty(); --rounds) {
        size_t at = m.below(bytes.size());
        size_t length = std::min(bytes.size() - at, 1 + m.below(8));
        switch (m.below(8)) {
            case 0: bytes.resize(at); break;
            case 1: bytes[at] = static_cast<char>(random()); break;
            case 2: bytes[at] ^= static_cast<char>(1 << m.below(8)); break;
            case 3: bytes.erase(at, length); break;
            case 4: bytes.insert(at, bytes.substr(at, length)); break;
            case 5: bytes.insert(at, length, static_cast<char>(random())); break;
            case 6: std::fill_n(bytes.begin() + at, length, '\xff'); break;
            case 7: ++bytes[at]; break;
        }
    }
    return bytes;
}

std::string mutate_meaning(std::string_view bytes, std::mt19937_64& random) {
    auto model = onnx::read_model(bytes);
    if (!model.ok()) return {};
    Mutator m(random);
    for (size_t rounds = 1 + m.below(2); rounds > 0; --rounds) m.change(*model);
    auto written = onnx::write_model(*model);
    return written.ok() ? *written : std::string();
}

}  // namespace tessera
