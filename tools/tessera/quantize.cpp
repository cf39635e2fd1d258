// tessera quantize: writes a model that computes with 8-bit integers, and shows the error of each layer.
#include <cmath>

#include "graph/npy.h"
#include "help.h"
#include "samples.h"

namespace tessera::cli {
namespace {

constexpr const char* kQuantizeExamples =
    "Examples:\n"
    "  tessera quantize model.onnx --profile profile.json -o int8.onnx\n"
    "  tessera quantize model.onnx --data images.npy --labels labels.npy -o int8.onnx\n"
    "      calibrates, and measures the error of each layer and the accuracy\n"
    "  tessera quantize model.onnx --data images.npy --scheme mse --keep 'head.*' -o int8.onnx\n";

struct Quantize {
    std::string path, out, profile, labels;
    GivenSamples samples;
    QuantizeOptions options;
    bool per_tensor = false, no_optimize = false, json = false;
    Progress::Mode progress = Progress::Mode::Auto;

    Status operator()();

  private:
    Status accuracies(const Model& before, const Model& after);
    void show(const QuantizeReport& report) const;
    void show_json(const QuantizeReport& report) const;

    std::optional<std::pair<double, double>> accuracy_;  // before, after
};

// The share of labels that are the largest element of the first output's last dimension.
Result<double> accuracy(const Model& model, const std::vector<NamedData>& samples, const Tensor& labels,
                        const CompileOptions& options) {
    const Executable compiled = TRY(compile(model, options));
    int64_t right = 0, next = 0;
    for (const NamedData& sample : samples) {
        const auto outputs = TRY(compiled.run(sample, {.cancel = &interrupted()}));
        if (outputs.empty() || !outputs[0].is_tensor() || outputs[0].tensor().rank() == 0)
            return Error(Code::E0501, "--labels: the first output has no dimension of classes");
        const Tensor& scores = outputs[0].tensor();
        const int64_t classes = scores.size(-1);
        for (int64_t row = 0; classes > 0 && row < scores.elements() / classes; ++row, ++next) {
            if (next >= labels.elements()) break;
            int64_t best = 0;
            for (int64_t c = 1; c < classes; ++c)
                if (scores.real_at(row * classes + c) > scores.real_at(row * classes + best)) best = c;
            right += best == labels.int_at(next);
        }
    }
    if (next == 0) return Error(Code::E0501, "--labels: the samples produced no scores");
    return double(right) / double(next);
}

Status Quantize::accuracies(const Model& before, const Model& after) {
    if (labels.empty()) return {};
    const Tensor given = TRY(read_npy_file(labels));
    if (!is_int(given.dtype()))
        return Error(Code::E0403, "--labels: \"{}\" has element type {}, expected integers", labels,
                     dtype_name(given.dtype()));
    const double was = TRY(accuracy(before, options.samples, given, options.compile));
    accuracy_ = {was, TRY(accuracy(after, options.samples, given, options.compile))};
    return {};
}

Json finite(double x) { return std::isfinite(x) ? Json(x) : Json(); }

void Quantize::show_json(const QuantizeReport& report) const {
    Json j{{"model", path},
           {"out", out},
           {"scheme", options.scheme},
           {"quantized", report.quantized},
           {"bytes_before", report.bytes_before},
           {"bytes_after", report.bytes_after},
           {"seconds", report.seconds},
           {"layers", Json::array()}};
    for (const QuantizedLayer& l : report.layers) {
        Json e{{"node", l.node}, {"op", l.op}, {"output", l.output}, {"quantized", l.quantized}};
        if (!l.why.empty()) e["why"] = l.why;
        if (l.quantized)
            e.update({{"low", l.low},
                      {"high", l.high},
                      {"scale", l.scale},
                      {"zero_point", l.zero_point},
                      {"clipped", l.clipped},
                      {"weight_bytes", l.weight_bytes}});
        if (l.weight_snr) e["weight_snr"] = finite(*l.weight_snr);
        if (l.snr) e["snr"] = finite(*l.snr);
        j["layers"].push_back(std::move(e));
    }
    for (const auto& [name, snr] : report.output_snr) j["output_snr"][name] = finite(snr);
    if (accuracy_) j["accuracy"] = {{"before", accuracy_->first}, {"after", accuracy_->second}};
    print_json(j);
}

std::string decibel_text(const std::optional<double>& x) {
    return !x ? "" : std::isfinite(*x) ? fmt::format("{:.1f}", *x) : "exact";
}

void Quantize::show(const QuantizeReport& report) const {
    if (json) return show_json(report);
    size_t width = 5;
    for (const QuantizedLayer& l : report.layers) width = std::max(width, std::min<size_t>(escaped(l.node).size(), 44));
    const auto row = [&](std::string_view name, std::string_view op, std::string_view range, std::string_view clipped,
                         std::string_view weights, std::string_view snr) {
        fmt::print("{:<{}}  {:<8}  {:>22}  {:>8}  {:>10}  {:>10}\n", name, width, op, range, clipped, weights, snr);
    };
    row("layer", "op", "input range", "clipped", "weights dB", "output dB");
    for (const QuantizedLayer& l : report.layers) {
        std::string name = escaped(l.node);
        if (name.size() > 44) name = "…" + name.substr(name.size() - 43);
        if (!l.quantized) {
            fmt::print("{:<{}}  {:<8}  {}\n", name, width, l.op, dim("f32: " + l.why));
            continue;
        }
        row(name, l.op, fmt::format("{:.4g} to {:.4g}", l.low, l.high), fmt::format("{:.3g} %", 100 * l.clipped),
            decibel_text(l.weight_snr), decibel_text(l.snr));
    }
    fmt::print("{} of {} quantized, weights {} -> {}\n", report.quantized,
               plural(double(report.layers.size()), "layer"), human_bytes(double(report.bytes_before)),
               human_bytes(double(report.bytes_after)));
    for (const auto& [name, snr] : report.output_snr)
        fmt::print("output {}: signal-to-noise {} dB\n", escaped(name), decibel_text(snr));
    if (accuracy_) fmt::print("accuracy {:.2f} % -> {:.2f} %\n", 100 * accuracy_->first, 100 * accuracy_->second);
    fmt::print("written to {}\n", out);
}

Status Quantize::operator()() {
    TRY(check_model_suffix(out));
    if (!labels.empty() && !samples.given())
        return Error(Code::E0501, "--labels needs the data that it labels").hint("give inputs with --data");
    const Model model = TRY(load_model(path));
    std::optional<tessera::Profile> given;
    if (!profile.empty()) given = TRY(tessera::Profile::load(profile));
    if (samples.given() || !given) options.samples = TRY(samples.read(model));
    options.per_channel = !per_tensor;
    options.optimize = !no_optimize;
    options.cancel = &interrupted();
    auto line = std::make_unique<Progress>(progress, "quantize");
    options.progress = [&](std::string_view what, size_t done, size_t total) { line->update(what, done, total); };
    const Quantized made = TRY(quantize(model, given, options));
    TRY(accuracies(model, made.model));
    line.reset();
    TRY(made.model.save(out));
    show(made.report);
    return {};
}

}  // namespace

void add_quantize(CLI::App& app, Chosen& chosen) {
    auto run = std::make_shared<Quantize>();
    QuantizeOptions& o = run->options;
    CLI::App* c = app.add_subcommand("quantize", "Write a model that computes with 8-bit integers");
    c->add_option("model", run->path, "ONNX file, or Tessera's text form")->option_text("FILE")->required();
    c->add_option("--profile", run->profile, "Profile of this model, written by tessera calibrate")
        ->option_text("FILE");
    run->samples.add_options(*c);
    c->add_option("--labels", run->labels, "Class of each example of --data, to compare accuracies")
        ->option_text("Y.npy");
    c->add_option("--out,-o", run->out, "Write the quantized model to this file")->option_text("FILE")->required();
    c->add_option("--scheme", o.scheme, "How ranges are chosen: minmax, percentile, entropy or mse (minmax)")
        ->option_text("NAME");
    c->add_option("--percentile", o.percentile, "Share of elements within the range, in percent (99.99)")
        ->option_text("P");
    c->add_option("--activations", o.activations, "Type of activations: uint8, int8, uint16 or int16 (uint8)")
        ->option_text("TYPE");
    c->add_flag("--symmetric", o.symmetric, "Fix the zero point at 0, or at the middle of an unsigned type");
    c->add_flag("--power-of-two", o.power_of_two, "Round scales up to powers of two");
    c->add_flag("--per-tensor", run->per_tensor, "Use one scale for all output channels of a weight");
    c->add_option("--weight-scheme", o.weight_scheme, "How ranges of weights are chosen: minmax or mse (minmax)")
        ->option_text("NAME");
    c->add_flag("--bias-correction", o.bias_correction, "Compensate the mean error of rounded weights in the biases");
    c->add_flag("--products", o.products, "Also quantize matrix products of two activations");
    c->add_option("--format", o.format,
                  "qdq, or integer: QLinearConv and MatMulInteger, which every runtime computes alike (qdq)")
        ->option_text("NAME");
    c->add_option("--keep", o.keep, "Patterns of nodes, values or operators that stay in floating point")
        ->option_text("PATTERN ...")
        ->allow_extra_args(false);
    c->add_flag("--no-optimize", run->no_optimize, "Quantize the model as it is in the file");
    c->add_option("--threads", o.compile.threads, "Maximum number of threads (one for each core)")
        ->option_text("N")
        ->check(between(1, 4096));
    add_strict_option(*c);
    c->add_flag("--json", run->json, "Print JSON");
    add_progress_option(*c, run->progress);
    c->footer(fmt::format("{}\n{}", kQuantizeExamples, kExitStatus));
    c->callback([run, &chosen] { chosen = [run] { return report((*run)(), run->json); }; });
}

}  // namespace tessera::cli
