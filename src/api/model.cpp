// The table of contents: what can be done with a model, each step by name.
#include "tessera/model.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "api/relax.h"
#include "base/numeric.h"
#include "base/protect.h"
#include "base/random.h"
#include "graph/count.h"
#include "graph/demo.h"
#include "graph/evaluate/evaluate.h"
#include "graph/graph.h"
#include "graph/onnx/from_onnx.h"
#include "graph/onnx/to_onnx.h"
#include "graph/peak.h"
#include "graph/text/parse.h"
#include "graph/text/parse_with_constants.h"
#include "graph/text/print.h"
#include "onnx/file.h"
#include "onnx/read.h"
#include "onnx/write.h"
#include "runtime/code_cache.h"

namespace tessera {
namespace {

constexpr const char* kOnnxSuffix = ".onnx";
constexpr const char* kTextSuffix = ".tsr";

// By its suffix; of a file with another one, by whether it starts as no protobuf message of ONNX does. E0103 for a
// compiled model, whatever its suffix.
Result<bool> is_text(const std::string& path) {
    if (path.ends_with(kOnnxSuffix)) return false;
    if (path.ends_with(kTextSuffix)) return true;
    auto file = TRY(onnx::MappedFile::open(path));
    if (is_program(file->bytes()))
        return Error(Code::E0103, "\"{}\" is a compiled model, which cannot be read back as a graph", path)
            .hint("load it as an Executable, or load the ONNX file that it was compiled from");
    std::string_view start = file->bytes().substr(0, 64);
    return !start.empty() && std::all_of(start.begin(), start.end(), [](unsigned char c) {
        return c >= 0x20 || c == '\n' || c == '\t' || c == '\r';
    });
}

// The error, with the file named where its place does not.
Error in_file(const std::string& path, const Error& e) {
    std::string name = std::filesystem::path(path).filename();
    if (e.where().find(name) != std::string::npos || e.message().find(name) != std::string::npos) return e;
    Error placed(e.code(), "{}", e.message());
    placed.at(e.where().empty() ? path : fmt::format("{}: {}", path, e.where()));
    return std::move(std::move(placed).note("{}", e.note())).hint("{}", e.hint());
}

Port port_of(const std::string& name, const Type& type) {
    Port port;
    port.name = name;
    port.type = to_string(type);
    if (!type.is_tensor()) return port;
    port.dtype = type.tensor().dtype;
    port.ranked = type.tensor().shape.ranked();
    for (const Dim& d : type.tensor().shape) {
        port.dims.push_back(to_string(d));
        port.sizes.push_back(d.as_int().value_or(-1));
    }
    return port;
}

void collect_symbols(const Type& type, std::set<std::string>& into) {
    if (type.is_sequence() || type.is_optional()) return collect_symbols(type.element(), into);
    if (!type.is_tensor()) return;
    for (const Dim& d : type.tensor().shape)
        for (const std::string& name : free_symbols(d)) into.insert(name);
}

// Calls f with every graph, the nested ones after the node they belong to.
void each_graph(const Graph& graph, const std::function<void(const Graph&)>& f) {
    f(graph);
    for (const auto& node : graph.nodes())
        for (const auto& [name, attr] : node->attrs())
            if (auto* nested = std::get_if<GraphPtr>(&attr)) each_graph(**nested, f);
}

class RandomInputs {
  public:
    RandomInputs(uint64_t seed, const SymbolValues& symbols) : seed_(seed), symbols_(symbols) {}

    Result<Datum> make(const std::string& name, const Type& type) {
        if (type.is_sequence()) return Datum::sequence({TRY(make(name, type.element()))});
        if (type.is_optional()) return Datum::some(TRY(make(name, type.element())));
        const Shape& shape = type.tensor().shape;
        if (!shape.ranked())
            return Error(Code::E0402, "input \"{}\" has unknown rank, so no random value can be generated", name)
                .hint("give it a value");
        Sizes sizes;
        for (const Dim& d : shape) {
            SymbolValues values = symbols_;
            for (const std::string& s : free_symbols(d)) values.emplace(s, 1);
            auto n = evaluate_int(d, values);
            if (!n || *n < 0)
                return Error(Code::E0405, "dimension {} of input \"{}\" has no valid size for these symbols",
                             to_string(d), name);
            sizes.push_back(*n);
        }
        return fill(name, TRY(Tensor::zeros(type.tensor().dtype, sizes)));
    }

  private:
    Tensor fill(const std::string& name, Tensor t) {
        RandomStream random(seed_, name);
        DType dtype = t.dtype();
        auto bell = [&](int64_t i) { return static_cast<double>(random.bell(i)) * RandomStream::kBellStep; };
        if (dtype == DType::string) {
            for (int64_t i = 0; i < t.elements(); ++i) t.mutable_strings()[i] = fmt::format("s{}", random.bits(i) % 10);
        } else if (dtype == DType::c64) {
            float* out = static_cast<float*>(t.mutable_data());
            for (int64_t i = 0; i < 2 * t.elements(); ++i) out[i] = static_cast<float>(bell(i));
        } else if (dtype == DType::c128) {
            double* out = static_cast<double*>(t.mutable_data());
            for (int64_t i = 0; i < 2 * t.elements(); ++i) out[i] = bell(i);
        } else if (is_float(dtype)) {
            for (int64_t i = 0; i < t.elements(); ++i) t.set_real(i, bell(i));
        } else {
            int64_t top = dtype_bits(dtype) < 4 ? int_max(dtype) + 1 : std::min<int64_t>(10, int_max(DType::i4) + 1);
            for (int64_t i = 0; i < t.elements(); ++i)
                t.set_int(i, static_cast<int64_t>(random.bits(i) % uint64_t(top)));
        }
        return t;
    }

    uint64_t seed_;
    const SymbolValues& symbols_;
};

}  // namespace

struct Model::Origin {
    std::shared_ptr<Graph> loaded;  // null: the model's graph itself
    std::vector<Warning> warnings = {};
    bool strict = false, declared = false;
};

Model::Model(std::shared_ptr<Graph> graph) : graph_(std::move(graph)), origin_(std::make_shared<Origin>()) {}

const std::vector<Warning>& Model::warnings() const { return origin_->warnings; }
bool Model::strict() const { return origin_->strict; }
bool Model::declared_sizes() const { return origin_->declared; }
const std::shared_ptr<Graph>& Model::loaded() const { return origin_->loaded ? origin_->loaded : graph_; }

Model Model::rewritten(std::shared_ptr<Graph> graph) const {
    Model model(std::move(graph));
    Origin origin = *origin_;
    origin.loaded = loaded();
    model.origin_ = std::make_shared<const Origin>(std::move(origin));
    return model;
}

Result<Model> Model::load(const std::string& path, const ReadOptions& options) {
    return protect("load", {.file = path}, [&]() -> Result<Model> {
        Origin origin{.loaded = nullptr, .strict = options.strict};
        FromOnnxOptions how{.strict = options.strict, .warnings = &origin.warnings, .declared = &origin.declared};
        auto graph = TRY(is_text(path)) ? load_text(path) : load_onnx(path, how);
        if (!graph.ok()) return in_file(path, graph.error());
        Model model(std::move(*graph));
        model.origin_ = std::make_shared<const Origin>(std::move(origin));
        return model;
    });
}

Result<Model> Model::from_onnx(std::string_view bytes, const ReadOptions& options) {
    auto held = std::make_shared<const std::string>(bytes);  // constants stay in it
    return protect("from_onnx", {.name = "model.onnx", .text = [&] { return *held; }}, [&]() -> Result<Model> {
        Origin origin{.loaded = nullptr, .strict = options.strict};
        FromOnnxOptions how{.strict = options.strict, .warnings = &origin.warnings, .declared = &origin.declared};
        Model model(TRY(tessera::from_onnx(TRY(onnx::read_model(*held, held)), how)));
        model.origin_ = std::make_shared<const Origin>(std::move(origin));
        return model;
    });
}

Result<Model> Model::parse(std::string_view text, std::string source) {
    return protect("parse", {.name = "model.tsr", .text = [&] { return std::string(text); }}, [&]() -> Result<Model> {
        ParseOptions options;
        options.source = std::move(source);
        return Model(TRY(tessera::parse(text, options)));
    });
}

Result<Model> parse_with_constants(std::string_view text, const std::map<std::string, Tensor>& constants) {
    return protect("parse", {.name = "model.tsr", .text = [&] { return std::string(text); }}, [&]() -> Result<Model> {
        return Model(TRY(parse_with_constants(text, ParseOptions(), constants)));
    });
}

std::vector<std::string> Model::demos() { return {"resnet50"}; }

Result<Model> Model::demo(std::string_view name, uint64_t seed) {
    if (name == "resnet50") return Model(TRY(resnet50(seed)));
    return Error(Code::E0501, "there is no built-in model \"{}\"", name).hint("there is: resnet50");
}

std::vector<Port> Model::inputs() const {
    std::vector<Port> ports;
    for (const auto& v : graph_->inputs()) {
        ports.push_back(port_of(v->name(), v->type()));
        ports.back().has_default = v->tensor().has_value();
    }
    return ports;
}

std::vector<Port> Model::outputs() const {
    std::vector<Port> ports;
    for (size_t i = 0; i < graph_->outputs().size(); ++i)
        ports.push_back(port_of(graph_->output_names()[i], graph_->outputs()[i]->type()));
    return ports;
}

Summary Model::summary() const {
    CheckScope scope("summary", [&] { return to_text(); });
    const ModelInfo& info = graph_->info();
    Summary s;
    s.name = graph_->name();
    s.source = info.source;
    s.producer = info.producer_name + (info.producer_version.empty() ? "" : " " + info.producer_version);
    s.opset = info.opset;
    struct Costs {
        int64_t nodes = 0;
        std::vector<Expr> flops, bytes;
    };
    std::map<std::string, Costs> by_op;
    std::vector<Expr> flops, bytes;
    each_graph(*graph_, [&](const Graph& g) {
        for (const auto& v : g.constants()) {
            s.parameters += v->tensor()->elements();
            s.parameter_bytes += v->tensor()->bytes();
        }
    });
    count_nodes(*graph_, [&](const Node& node, const Cost& cost) {
        const OpDef& op = node.op();
        Costs& costs = by_op[op.onnx.name.empty() ? op.name : op.onnx.name];
        ++costs.nodes;
        costs.flops.push_back(cost.flops);
        costs.bytes.push_back(cost.bytes);
        s.complete &= cost.complete;
    });
    for (auto& [op, costs] : by_op) {
        Expr op_flops = sum_of(std::move(costs.flops)), op_bytes = sum_of(std::move(costs.bytes));
        s.nodes += costs.nodes;
        s.ops.push_back({op, costs.nodes, to_string(op_flops), to_string(op_bytes)});
        flops.push_back(op_flops);
        bytes.push_back(op_bytes);
    }
    std::stable_sort(s.ops.begin(), s.ops.end(), [](auto& a, auto& b) { return a.nodes > b.nodes; });
    s.flops = to_string(sum_of(std::move(flops)));
    s.bytes = to_string(sum_of(std::move(bytes)));
    std::set<std::string> symbols;
    for (const auto& v : graph_->inputs()) collect_symbols(v->type(), symbols);
    s.symbols.assign(symbols.begin(), symbols.end());
    return s;
}

Metadata Model::metadata() const {
    const ModelInfo& info = graph_->info();
    return {.producer_name = info.producer_name,
            .producer_version = info.producer_version,
            .domain = info.domain,
            .description = info.doc_string,
            .graph_name = graph_->name(),
            .graph_description = graph_->doc_string,
            .model_version = info.model_version,
            .ir_version = info.ir_version,
            .custom = info.metadata};
}

std::optional<int64_t> Model::peak_bytes(const std::map<std::string, int64_t>& symbols) const {
    Peak peak = peak_memory(*graph_, symbols);
    return peak.complete ? std::optional(peak.bytes) : std::nullopt;
}

Result<std::vector<Datum>> Model::run(const NamedData& inputs, const RunOptions& options) const {
    EvaluateOptions evaluation{.max_work = options.max_work, .seed = options.seed, .cancel = options.cancel};
    if (options.progress)
        evaluation.progress = [&](const Node& node, size_t done, size_t total) {
            options.progress(node.name().empty() ? node.output()->name() : node.name(), done, total);
        };
    return protect("evaluate", {.text = [&] { return to_text(); }}, [&]() -> Result<std::vector<Datum>> {
        if (strict()) return evaluate(*graph_, inputs, evaluation);
        std::optional<Error> contradiction;
        if (loaded() != graph_) {  // rewritten as its sizes are declared: else what was read knows the answer
            evaluation.check_sizes = true;
            auto results = evaluate(*graph_, inputs, evaluation);
            if (results.ok() || !contradicts_sizes(results.error())) return results;
            contradiction = std::move(results).error();
            evaluation.check_sizes = false;
        }
        evaluation.contradiction = &contradiction;
        auto results = evaluate(*loaded(), inputs, evaluation);
        if (results.ok() && contradiction && options.warnings)
            options.warnings->push_back(warning_of_run(*contradiction));
        return results.ok() || !contradiction ? std::move(results) : *contradiction;
    });
}

Result<NamedData> Model::random_inputs(uint64_t seed, const std::map<std::string, int64_t>& symbols) const {
    RandomInputs random(seed, symbols);
    NamedData inputs;
    for (const auto& v : graph_->inputs())
        if (!v->tensor()) inputs.emplace(v->name(), TRY(random.make(v->name(), v->type())));
    return inputs;
}

Status Model::save(const std::string& path, const SaveOptions& options) const {
    return protect("save", {.text = [&] { return to_text(); }}, [&]() -> Status {
        if (path.ends_with(kTextSuffix)) return save_text(*graph_, path, {.weights_file = options.weights});
        if (!path.ends_with(kOnnxSuffix))
            return Error(Code::E0501, "\"{}\" ends in neither .onnx nor .tsr", path)
                .hint("end it in .onnx for ONNX or in .tsr for text");
        onnx::WriteOptions write;
        write.external_from = options.external_from;
        return save_onnx(*graph_, path, {.opset = options.opset}, write);
    });
}

Result<std::string> Model::to_onnx() const {
    return protect("to_onnx", {.text = [&] { return to_text(); }},
                   [&]() -> Result<std::string> { return onnx::write_model(TRY(tessera::to_onnx(*graph_))); });
}

std::string Model::to_text() const { return print(*graph_); }

}  // namespace tessera
