#include "graph/text/parse.h"

#include "base/nearest.h"
#include "graph/names.h"
#include "graph/refine.h"
#include "graph/text/literal.h"
#include "graph/text/parse_with_constants.h"
#include "graph/text/parser.h"
#include "graph/verify.h"
#include "onnx/file.h"

namespace tessera {
namespace {

constexpr int kMaxDepth = 64;  // graphs in graphs

}  // namespace

TextParser::TextParser(std::string_view text, const ParseOptions& options,
                       const std::map<std::string, Tensor>* constants)
    : options_(options),
      constants_(constants),
      scan_(text, options.source),
      folder_(options.folder.empty() ? onnx::DataSource() : onnx::DataSource(options.folder)) {}

Error TextParser::moved(Error error, size_t at) const {
    Error out = Error(error.code(), "{}", error.message()).at(scan_.place(at)).note("{}", scan_.caret(at));
    return error.hint().empty() ? std::move(out) : std::move(out).hint("{}", error.hint());
}

// The bytes at the end are needed before the text gets there.
Status TextParser::find_data() {
    int depth = 0;
    while (!scan_.done()) {
        size_t at = scan_.at();
        char c = scan_.peek();
        if (c == '"') {
            TRY(scan_.string());
        } else if (depth == 0 && scan_.take_word("data")) {
            TRY(scan_.expect("{"));
            while (!scan_.take("}")) {
                size_t entry = scan_.at();
                auto id = int_from_text(scan_.number());
                if (!id) return scan_.syntax(entry, "a number or '}'");
                TRY(scan_.expect(":"));
                if (!data_.emplace(*id, scan_.at()).second)
                    return scan_.error(entry, Code::E0204, "data {} is there twice", *id);
                do TRY(scan_.string());
                while (scan_.peek() == '"');
            }
            if (!scan_.done()) return scan_.syntax(scan_.at(), "the end of the text");
        } else {
            depth += c == '{' ? 1 : c == '}' ? -1 : 0;
            if (scan_.word().empty()) scan_.go_to(at + 1);
        }
    }
    scan_.go_to(0);
    return {};
}

Result<std::string> TextParser::parse_name(std::string_view what) {
    size_t at = scan_.at();
    if (scan_.peek() == '"') {
        std::string name = TRY(scan_.prose());
        if (name.empty()) return scan_.error(at, Code::E0301, "{} cannot be empty", what);
        return name;
    }
    std::string_view word = scan_.word();
    if (word.empty()) return scan_.syntax(at, what);
    return std::string(word);
}

Result<std::pair<std::string, std::string>> TextParser::parse_entry() {
    std::string key = TRY(scan_.prose());
    TRY(scan_.expect("="));
    std::string value = TRY(scan_.prose());
    return std::pair(std::move(key), std::move(value));
}

Status TextParser::parse_model(ModelInfo& info) {
    TRY(scan_.expect("{"));
    while (!scan_.take("}")) {
        size_t at = scan_.at();
        std::string_view key = scan_.word();
        if (key == "metadata") {
            info.metadata.insert(TRY(parse_entry()));
            continue;
        }
        std::string domain;
        if (key == "import") domain = TRY(scan_.prose());
        auto string = [&](std::string& to) -> Status {
            TRY(scan_.expect("="));
            to = TRY(scan_.prose());
            return {};
        };
        auto integer = [&](int64_t low, int64_t high) -> Result<int64_t> {
            TRY(scan_.expect("="));
            size_t place = scan_.at();
            auto v = int_from_text(scan_.number());
            if (!v || *v < low || *v > high) return scan_.syntax(place, "a number for " + std::string(key));
            return *v;
        };
        if (key == "source")
            TRY(string(info.source));
        else if (key == "producer_name")
            TRY(string(info.producer_name));
        else if (key == "producer_version")
            TRY(string(info.producer_version));
        else if (key == "domain")
            TRY(string(info.domain));
        else if (key == "doc")
            TRY(string(info.doc_string));
        else if (key == "opset")
            info.opset = static_cast<int>(TRY(integer(0, 1'000'000)));
        else if (key == "import")
            info.domains[domain] = static_cast<int>(TRY(integer(0, 1'000'000)));
        else if (key == "ir_version")
            info.ir_version = TRY(integer(INT64_MIN, INT64_MAX));
        else if (key == "model_version")
            info.model_version = TRY(integer(INT64_MIN, INT64_MAX));
        else
            return scan_.syntax(at, "a property of the model (opset, ir_version, import, producer_name, ...)");
    }
    return {};
}

Status TextParser::define(Graph& graph, const std::string& name, size_t at) {
    Value* there = graph.find_value(name);
    if (!there) return {};
    if (named_.count(there)) return scan_.error(at, Code::E0204, "\"{}\" is defined twice", name);
    there->graph().rename(*there, name + "_");  // a name made up for a literal or a call in an argument's place
    return {};
}

const Tensor* TextParser::given_for(const Graph& graph, const std::string& name) const {
    if (!constants_ || graph.outer()) return nullptr;
    const auto found = constants_->find(name);
    return found == constants_->end() ? nullptr : &found->second;
}

Status TextParser::parse_inputs(Graph& graph) {
    TRY(scan_.expect("("));
    for (bool first = true; !scan_.take(")"); first = false) {
        if (!first) TRY(scan_.expect(","));
        size_t at = scan_.at();
        std::string name = TRY(parse_name("an input's name"));
        TRY(define(graph, name, at));
        TRY(scan_.expect(":"));
        Type type = TRY(parse_type());
        if (const Tensor* given = given_for(graph, name)) {
            SymbolValues symbols;
            if (!binds(type, type_of(*given), symbols))
                return scan_.error(at, Code::E0210, "the constant given is {}, the input {}", type_of(*given), type);
            named_.insert(graph.constant(*given, name));
            continue;
        }
        std::optional<Tensor> fallback;
        if (scan_.take("=")) {
            Literal literal = TRY(parse_literal());
            if (!type.is_tensor()) return scan_.error(literal.at, Code::E0209, "only a tensor can have a default");
            auto sizes = type.tensor().shape.ranked() ? type.tensor().shape.sizes() : std::nullopt;
            if (!sizes && literal.kind != Literal::Kind::Data && literal.kind != Literal::Kind::Weights)
                sizes = literal.sizes;
            if (literal.type_sizes) sizes = literal.type_sizes;
            if (!sizes)
                return scan_.error(literal.at, Code::E0209, "the default's sizes must follow it: data(0):f32[2,3]");
            fallback = TRY(tensor_of(literal, type.tensor().dtype, sizes));
            SymbolValues symbols;
            if (!binds(type, type_of(*fallback), symbols))
                return scan_.error(literal.at, Code::E0210, "the default is {}, the input {}", type_of(*fallback),
                                   type);
        }
        named_.insert(graph.add_input(name, std::move(type), std::move(fallback)));
    }
    return {};
}

Status TextParser::check_type(Value& value, const Type& said, size_t at) {
    Type type = value.type();
    if (type == said) return {};
    auto both = refine(type, said, value.name());
    if (!both) return scan_.error(at, Code::E0210, "\"{}\" is said to be {}, but is {}", value.name(), said, type);
    // What the text knows beyond inference holds.
    if (both->is_tensor() && both->tensor().shape.ranked() && said.tensor().shape.ranked()) {
        Shape shape = both->tensor().shape;
        for (int64_t i = 0; i < shape.rank(); ++i)
            if (!shape[i].as_int()) shape[i] = said.tensor().shape[i];
        both = Type(both->tensor().dtype, std::move(shape));
    }
    value.set_type(std::move(*both));
    return {};
}

Status TextParser::parse_node(Graph& graph) {
    size_t at = scan_.at();
    std::vector<std::string> names;
    std::vector<bool> given;
    std::unordered_set<std::string> seen;
    // Without outputs there is only the call.
    bool bare = scan_.peek() != '%' && scan_.peek() != '"' && !scan_.word().empty() && scan_.peek() == '(';
    scan_.go_to(at);
    if (!bare) {
        do {
            size_t place = scan_.at();
            if (scan_.take_word("_")) {
                names.emplace_back();
                given.push_back(false);
                continue;
            }
            scan_.take("%");
            std::string name = TRY(parse_name("a statement"));
            TRY(define(graph, name, place));
            if (!seen.insert(name).second) return scan_.error(place, Code::E0204, "\"{}\" is defined twice", name);
            names.push_back(std::move(name));
            given.push_back(true);
        } while (scan_.take(","));
        TRY(scan_.expect("="));
    }
    size_t place = scan_.at();
    if (scan_.take_word("vjp")) return parse_vjp(graph, names, place);
    Call call = TRY(parse_call(graph));
    std::string name;
    if (scan_.take("@")) name = TRY(scan_.prose());
    std::map<std::string, std::string> metadata;
    if (scan_.take("{")) {
        for (bool first = true; !scan_.take("}"); first = false) {
            if (!first) TRY(scan_.expect(","));
            metadata.insert(TRY(parse_entry()));
        }
    }
    size_t outputs = names.size();
    std::vector<bool> is_given = given;
    Node* node =
        TRY(build(graph, std::move(call), std::move(names), std::move(given), std::move(name), std::move(metadata)));
    for (size_t i = 0; i < outputs; ++i)
        if (is_given[i]) named_.insert(node->output(i));
    if (!scan_.take(":")) return {};
    for (size_t i = 0; i < outputs; ++i) {
        if (i > 0) TRY(scan_.expect(","));
        if (scan_.take_word("_")) continue;
        Type type = TRY(parse_type());
        TRY(check_type(*node->output(i), type, place));
    }
    return {};
}

Status TextParser::parse_return(Graph& graph, const std::optional<std::vector<std::string>>& names) {
    size_t at = scan_.at();
    std::vector<Value*> values;
    if (scan_.peek() != '}') {
        do values.push_back(TRY(parse_value(graph)));
        while (scan_.take(","));
    }
    if (names && names->size() != values.size())
        return scan_.error(at, Code::E0207, "the graph has {} outputs, {} are returned", names->size(), values.size());
    std::unordered_set<std::string> seen;
    for (size_t i = 0; i < values.size(); ++i) {
        std::string name = names ? (*names)[i] : values[i]->name();
        if (!graph.outer() && !names)
            for (int n = 1; seen.count(name); ++n) name = fmt::format("{}_{}", values[i]->name(), n);
        if (!seen.insert(name).second && !graph.outer())
            return scan_.error(at, Code::E0204, "two outputs are called \"{}\"", name);
        graph.add_output(values[i], std::move(name));
    }
    return scan_.expect("}");
}

Status TextParser::parse_graph(Graph& graph) {
    if (++depth_ > kMaxDepth)
        return scan_.error(scan_.at(), Code::E0109, "graphs are nested deeper than {} levels", kMaxDepth);
    TRY(parse_inputs(graph));
    std::optional<std::vector<std::string>> names;
    if (scan_.take("->")) {
        TRY(scan_.expect("("));
        names.emplace();
        for (bool first = true; !scan_.take(")"); first = false) {
            if (!first) TRY(scan_.expect(","));
            scan_.take("%");
            names->push_back(TRY(parse_name("an output's name")));
        }
    }
    TRY(scan_.expect("{"));
    while (!scan_.take_word("return")) {
        if (scan_.take_word("doc")) {
            graph.doc_string = TRY(scan_.prose());
        } else if (scan_.take_word("metadata")) {
            graph.metadata.insert(TRY(parse_entry()));
        } else if (scan_.take_word("const")) {
            size_t at = scan_.at();
            std::string name = TRY(parse_name("a constant's name"));
            TRY(define(graph, name, at));
            std::optional<DType> dtype;
            std::optional<Sizes> sizes;
            if (scan_.take(":")) {
                size_t place = scan_.at();
                Type type = TRY(parse_type());
                if (!type.is_tensor() || !type.tensor().shape.ranked() || !(sizes = type.tensor().shape.sizes()))
                    return scan_.error(place, Code::E0209, "a constant is a tensor of constant sizes, not {}", type);
                dtype = type.tensor().dtype;
            }
            TRY(scan_.expect("="));
            Tensor tensor = TRY(tensor_of(TRY(parse_literal()), dtype, sizes));
            named_.insert(graph.constant(std::move(tensor), name));
        } else {
            TRY(parse_node(graph));
        }
    }
    TRY(parse_return(graph, names));
    --depth_;
    return {};
}

Result<std::unique_ptr<Graph>> TextParser::run() {
    TRY(find_data());
    ModelInfo info;
    if (scan_.take_word("model")) TRY(parse_model(info));
    if (scan_.take_word("weights")) weights_ = TRY(scan_.prose());
    if (!scan_.take_word("graph")) return scan_.syntax(scan_.at(), "'graph'");
    std::string name = scan_.peek() == '"' ? TRY(scan_.prose()) : TRY(parse_name("the graph's name"));
    auto graph = std::make_unique<Graph>(std::move(name));
    graph->info() = std::move(info);
    TRY(parse_graph(*graph));
    if (!scan_.done() && !scan_.next_is_word("data")) return scan_.syntax(scan_.at(), "the end of the text");
    separate_names(*graph);
    return graph;
}

namespace {

Result<std::unique_ptr<Graph>> checked(Result<std::unique_ptr<Graph>> graph) {
#ifndef NDEBUG
    if (graph.ok()) verify(**graph);
#endif
    return graph;
}

}  // namespace

Result<std::unique_ptr<Graph>> parse(std::string_view text, const ParseOptions& options) {
    return checked(TextParser(text, options).run());
}

Result<std::unique_ptr<Graph>> parse_with_constants(std::string_view text, const ParseOptions& options,
                                                    const std::map<std::string, Tensor>& constants) {
    return checked(TextParser(text, options, &constants).run());
}

Result<std::unique_ptr<Graph>> load_text(const std::filesystem::path& path) {
    auto file = TRY(onnx::MappedFile::open(path));
    if (file->bytes().empty()) return Error(Code::E0102, "{} is empty", path.string()).at(path.string());
    std::filesystem::path folder = path.parent_path();
    ParseOptions options{.source = path.filename().string(), .folder = folder.empty() ? "." : folder};
    auto graph = TRY(parse(file->bytes(), options));
    if (graph->info().source.empty()) graph->info().source = options.source;
    return graph;
}

}  // namespace tessera
