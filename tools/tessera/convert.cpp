// tessera convert: ONNX to text and back, or to another opset.
#include "help.h"

namespace tessera::cli {
namespace {

constexpr const char* kConvertExamples =
    "Examples:\n"
    "  tessera convert model.onnx model.tsr                   to text, weights in base64\n"
    "  tessera convert model.onnx model.tsr --weights w.bin   to text, large weights in w.bin beside it\n"
    "  tessera convert model.onnx -                           text to the terminal\n"
    "  tessera convert model.tsr model.onnx --opset 17\n"
    "  tessera convert model.onnx split.onnx --external-data\n";

struct Convert {
    std::string in, out, weights;
    int opset = 0;
    bool external = false, json = false;

    Status operator()() const;
};

Status Convert::operator()() const {
    if (out != "-") TRY(check_model_suffix(out));
    const bool to_onnx = out.ends_with(".onnx");
    if (!to_onnx && (opset || external)) return Error(Code::E0501, "--opset and --external-data are for ONNX files");
    if (to_onnx && !weights.empty()) return Error(Code::E0501, "--weights is for text").hint("use --external-data");
    if (out == "-" && (!weights.empty() || json)) return Error(Code::E0501, "- takes neither --weights nor --json");
    Model model = TRY(load_model(in));
    if (out == "-") {
        std::string text = model.to_text();
        std::fwrite(text.data(), 1, text.size(), stdout);
        return {};
    }
    TRY(model.save(out, {.opset = opset, .external_from = external ? kExternalFrom : -1, .weights = weights}));
    if (json) print_json({{"from", in}, {"to", out}, {"nodes", model.graph().node_count()}});
    return {};
}

}  // namespace

void add_convert(CLI::App& app, Chosen& chosen) {
    auto convert = std::make_shared<Convert>();
    CLI::App* c = app.add_subcommand("convert", "Write a model as ONNX or as text");
    c->add_option("in", convert->in, "ONNX file, Tessera's text form, or - for standard input")
        ->option_text("IN")
        ->required();
    c->add_option("out", convert->out, "A file ending in .onnx or .tsr, or - for text to standard output")
        ->option_text("OUT")
        ->required();
    c->add_option("--opset", convert->opset, "Opset of the ONNX file (the model's own)")
        ->option_text("N")
        ->check(between(1, 1000));
    c->add_flag("--external-data", convert->external, "Put weights of 1 kB and more into a file beside the ONNX file");
    c->add_option("--weights", convert->weights, "Put large weights into this file beside the text")
        ->option_text("NAME");
    add_strict_option(*c);
    c->add_flag("--json", convert->json, "Print JSON");
    c->footer(fmt::format("{}\n{}", kConvertExamples, kExitStatus));
    c->callback([convert, &chosen] { chosen = [convert] { return report((*convert)(), convert->json); }; });
}

}  // namespace tessera::cli
