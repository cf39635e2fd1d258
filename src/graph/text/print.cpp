#include "graph/text/print.h"

#include "base/output_file.h"
#include "graph/text/literal.h"

namespace tessera {
namespace {

constexpr size_t kAlignment = 64;  // of tensors in a weights file
constexpr size_t kBase64Line = 4 * 27;

class TextWriter {
  public:
    explicit TextWriter(const PrintOptions& options) : options_(options) {}

    std::string text;
    std::vector<const Tensor*> large;  // what data(i) or, by its offset, weights(n) refers to

    void model(const ModelInfo& info) {
        std::string lines;
        auto string = [&](const char* key, const std::string& value) {
            if (!value.empty()) lines += fmt::format("  {} = {}\n", key, quote(value));
        };
        auto integer = [&](const char* key, int64_t value) {
            if (value) lines += fmt::format("  {} = {}\n", key, value);
        };
        string("source", info.source);
        integer("opset", info.opset);
        for (const auto& [domain, version] : info.domains)
            lines += fmt::format("  import {} = {}\n", quote(domain), version);
        integer("ir_version", info.ir_version);
        string("producer_name", info.producer_name);
        string("producer_version", info.producer_version);
        string("domain", info.domain);
        integer("model_version", info.model_version);
        string("doc", info.doc_string);
        for (const auto& [key, value] : info.metadata)
            lines += fmt::format("  metadata {} = {}\n", quote(key), quote(value));
        if (!lines.empty()) text += "model {\n" + lines + "}\n";
        if (!options_.weights_file.empty()) text += fmt::format("weights {}\n", quote(options_.weights_file));
    }

    void graph(const Graph& g, int depth) {
        std::string indent(static_cast<size_t>(depth) * 2, ' ');
        text += fmt::format("graph {}(", is_plain_name(g.name()) ? g.name() : quote(g.name()));
        for (size_t i = 0; i < g.inputs().size(); ++i) {
            const Value& v = *g.inputs()[i];
            text += fmt::format("{}{}: {}", i ? ", " : "", reference(v), v.type());
            if (v.tensor()) text += " = " + contents(*v.tensor());
        }
        text += ")";
        if (!g.outer()) {
            text += " -> (";
            for (size_t i = 0; i < g.output_names().size(); ++i) {
                const std::string& name = g.output_names()[i];
                text += (i ? ", " : "") + (is_plain_name(name) ? name : quote(name));
            }
            text += ")";
        }
        text += " {\n";
        if (!g.doc_string.empty()) text += fmt::format("{}  doc {}\n", indent, quote(g.doc_string));
        for (const auto& [key, value] : g.metadata)
            text += fmt::format("{}  metadata {} = {}\n", indent, quote(key), quote(value));
        for (const auto& v : g.constants())
            text += fmt::format("{}  const {}: {} = {}\n", indent, reference(*v), v->type(), contents(*v->tensor()));
        for (const auto& n : g.nodes()) node(*n, depth + 1);
        text += indent + "  return ";
        for (size_t i = 0; i < g.outputs().size(); ++i) text += (i ? ", " : "") + reference(*g.outputs()[i]);
        if (g.outputs().empty()) text.pop_back();
        text += fmt::format("\n{}}}", indent);
    }

    void data() {
        if (large.empty() || !options_.weights_file.empty()) return;
        text += "data {\n";
        for (size_t i = 0; i < large.size(); ++i) {
            std::string digits = base64(large[i]->data(), static_cast<size_t>(large[i]->bytes()));
            text += fmt::format("  {}:", i);
            for (size_t at = 0; at < digits.size() || at == 0; at += kBase64Line)
                text += fmt::format("{}\"{}\"", digits.size() > kBase64Line ? "\n    " : " ",
                                    digits.substr(at, kBase64Line));
            text += "\n";
        }
        text += "}\n";
    }

    static size_t padded(int64_t bytes) {
        return (static_cast<size_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
    }

  private:
    const PrintOptions& options_;
    size_t offset_ = 0;  // in the weights file

    static std::string reference(const Value& v) {
        const std::string& name = v.name();
        if (v.kind() == Value::Kind::Result) return "%" + (is_name_text(name) ? name : quote(name));
        return is_plain_name(name) ? name : quote(name);
    }

    // Without the type, which stands beside it.
    std::string contents(const Tensor& t) {
        if (t.dtype() != DType::string && t.elements() > options_.by_value) {
            large.push_back(&t);
            if (options_.weights_file.empty()) return fmt::format("data({})", large.size() - 1);
            size_t at = offset_;
            offset_ += padded(t.bytes());
            return fmt::format("weights({})", at);
        }
        if (t.rank() == 0) return element_text(t, 0);
        std::string out = "[";
        for (int64_t i = 0; i < t.elements(); ++i) out += (i ? "," : "") + element_text(t, i);
        return out + "]";
    }

    template <typename T, typename F>
    static std::string list(const std::vector<T>& values, F text_of) {
        std::string out = "[";
        for (size_t i = 0; i < values.size(); ++i) out += (i ? "," : "") + text_of(values[i]);
        return out + "]";
    }

    void attribute(const Attr& a, int depth) {
        switch (attr_kind(a)) {
            case AttrKind::Int: text += std::to_string(std::get<int64_t>(a)); break;
            case AttrKind::Float: text += float_text(std::get<float>(a)); break;
            case AttrKind::String: text += quote(std::get<std::string>(a)); break;
            case AttrKind::Ints:
                text += list(std::get<std::vector<int64_t>>(a), [](int64_t v) { return std::to_string(v); });
                break;
            case AttrKind::Floats: text += list(std::get<std::vector<float>>(a), float_text); break;
            case AttrKind::Strings:
                text += list(std::get<std::vector<std::string>>(a), [](const std::string& s) { return quote(s); });
                break;
            case AttrKind::Tensor: {
                const Tensor& t = std::get<Tensor>(a);
                text += fmt::format("{}:{}", contents(t), Type(t.dtype(), Shape(t.sizes())));
                break;
            }
            case AttrKind::Type: text += to_string(std::get<Type>(a)); break;
            case AttrKind::Graph: graph(*std::get<GraphPtr>(a), depth); break;
        }
    }

    void node(const Node& n, int depth) {
        text += std::string(static_cast<size_t>(depth) * 2, ' ');
        for (size_t i = 0; i < n.output_count(); ++i)
            text += (i ? ", " : "") + (n.output_given(i) ? reference(*n.output(i)) : "_");
        text += fmt::format("{}{}(", n.output_count() ? " = " : "", n.op().name);
        bool first = true;
        for (const Value* v : n.inputs()) {
            text += (first ? "" : ", ") + (v ? reference(*v) : "_");
            first = false;
        }
        for (const auto& [name, attr] : n.attrs()) {
            text += fmt::format("{}{}=", first ? "" : ", ", name);
            attribute(attr, depth);
            first = false;
        }
        text += ")";
        if (!n.name().empty()) text += " @" + quote(n.name());
        if (!n.metadata().empty()) {
            text += " {";
            first = true;
            for (const auto& [key, value] : n.metadata()) {
                text += fmt::format("{}{} = {}", first ? "" : ", ", quote(key), quote(value));
                first = false;
            }
            text += "}";
        }
        if (options_.types && n.output_count()) {
            text += " : ";
            for (size_t i = 0; i < n.output_count(); ++i)
                text += (i ? ", " : "") + (n.output_given(i) ? to_string(n.output(i)->type()) : "_");
        }
        text += "\n";
    }
};

}  // namespace

std::string print(const Graph& graph, const PrintOptions& options) {
    TextWriter writer(options);
    writer.model(graph.info());
    writer.graph(graph, 0);
    writer.text += "\n";
    writer.data();
    return std::move(writer.text);
}

Status save_text(const Graph& graph, const std::filesystem::path& path, const PrintOptions& options) {
    TextWriter writer(options);
    writer.model(graph.info());
    writer.graph(graph, 0);
    writer.text += "\n";
    writer.data();
    OutputFile text = TRY(OutputFile::create(path));
    TRY(text.write(writer.text));
    if (!options.weights_file.empty()) {
        const auto beside = std::filesystem::path(options.weights_file).lexically_normal();
        if (beside.is_absolute() || *beside.begin() == "..")  // reading it back is refused too
            return Error(Code::E0106, "weights file \"{}\" is outside the folder of \"{}\"", options.weights_file,
                         path.string())
                .hint("name a file beside the text, such as weights.bin");
        OutputFile weights = TRY(OutputFile::create(path.parent_path() / options.weights_file));
        for (const Tensor* t : writer.large) {
            TRY(weights.write({static_cast<const char*>(t->data()), static_cast<size_t>(t->bytes())}));
            TRY(weights.write(std::string(TextWriter::padded(t->bytes()) - static_cast<size_t>(t->bytes()), '\0')));
        }
        TRY(weights.commit());
    }
    return text.commit();
}

}  // namespace tessera
