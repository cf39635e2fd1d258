// Calibration and quantization as users see them: compiled runs that observe values, and the quantized model's report.
#include "tessera/quantize.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "api/observed_run.h"
#include "base/digest.h"
#include "base/protect.h"
#include "graph/graph.h"
#include "quantize/integer_form.h"
#include "quantize/match_qdq.h"
#include "quantize/quantize_weights.h"
#include "quantize/write_qdq.h"
#include "runtime/model_key.h"

namespace tessera {
namespace {

std::string hash_of_model(const Graph& graph) {
    const std::string key = model_key(graph);
    return to_string(digest_bytes(key.data(), key.size()));
}

Result<Model> prepared(const Model& model, bool optimized, const std::atomic<bool>* cancel) {
    if (!optimized) return model;
    return TRY(optimize(model, {.cancel = cancel})).model;
}

int64_t constant_bytes(const Graph& graph) {
    int64_t bytes = 0;
    for (const auto& c : graph.constants()) bytes += c->tensor()->bytes();
    return bytes;
}

Status cancelled(const std::atomic<bool>* cancel) {
    if (cancel && *cancel) return Error(Code::E0410, "quantization was cancelled");
    return {};
}

}  // namespace

struct Calibration::State {
    std::shared_ptr<const Graph> graph;  // of the model that is observed
    std::vector<Observed> observed;
    std::optional<ObservedRun> run;
    const std::atomic<bool>* cancel = nullptr;
    Profile profile;
};

Result<Calibration> Calibration::create(const Model& model, const CalibrateOptions& options) {
    return protect("calibrate", {.text = [&] { return model.to_text(); }}, [&]() -> Result<Calibration> {
        const Model observed = TRY(prepared(model, options.optimize, options.cancel));
        auto state = std::make_shared<State>();
        state->graph = observed.graph().clone();
        state->observed = observed_values(*state->graph);
        state->cancel = options.cancel;
        if (state->observed.empty())
            return Error(Code::E0501, "the model has no f32 convolution or matrix product to calibrate")
                .hint("a model that computes with integers is quantized already");
        state->profile.model = hash_of_model(observed.graph());
        std::vector<std::string> names;
        for (const Observed& o : state->observed) names.push_back(o.value->name());
        state->run = TRY(ObservedRun::create(*state->graph, names, options.compile));
        return Calibration(std::move(state));
    });
}

Status Calibration::add(const NamedData& sample) {
    return protect("calibrate", {}, [&]() -> Status {
        TRY(cancelled(state_->cancel));
        const ObservedRun::Values values = TRY(state_->run->run(sample, state_->cancel));
        Profile& profile = state_->profile;
        // Nothing of a sample with a value that is not finite is kept.
        std::map<std::string, ValueProfile> seen;
        for (size_t i = 0; i < state_->observed.size(); ++i) {
            const Observed& what = state_->observed[i];
            if (values.observed[i].is_tensor())
                seen[what.value->name()] = TRY(observe(values.observed[i].tensor(), what, profile.samples));
        }
        for (const auto& [name, value] : seen) profile.values[name].merge(value);
        ++profile.samples;
        return {};
    });
}

const Profile& Calibration::profile() const { return state_->profile; }

Result<Profile> calibrate(const Model& model, const std::vector<NamedData>& samples, const CalibrateOptions& options) {
    if (samples.empty())
        return Error(Code::E0501, "there are no samples to calibrate on")
            .hint("give inputs as the model will see them");
    Calibration calibration = TRY(Calibration::create(model, options));
    for (size_t i = 0; i < samples.size(); ++i) {
        if (options.progress) options.progress(i, samples.size());
        TRY(calibration.add(samples[i]));
    }
    return calibration.profile();
}

namespace {

// Signal and noise of one value over all samples.
struct Energy {
    double signal = 0, noise = 0;
    void add(const Datum& want, const Datum& got) {
        if (!want.is_tensor() || !got.is_tensor() || want.tensor().sizes() != got.tensor().sizes()) return;
        const Tensor &a = want.tensor(), &b = got.tensor();
        if (!is_float(a.dtype()) || !is_float(b.dtype())) return;
        for (int64_t i = 0; i < a.elements(); ++i) {
            const double x = a.real_at(i), off = x - b.real_at(i);
            signal += x * x;
            noise += off * off;
        }
        counted = true;
    }
    bool counted = false;
    double snr() const { return decibels(signal, noise); }
};

// Runs both models on the samples and compares the layers and the outputs.
Status measure(const Graph& before, const Graph& after, const std::vector<std::string>& results,
               const QuantizeOptions& options, QuantizeReport& report) {
    std::vector<std::string> quantized;
    for (const std::string& name : results)
        quantized.push_back(after.find_value(name + "_dequantized") ? name + "_dequantized" : name);
    ObservedRun reference = TRY(ObservedRun::create(before, results, options.compile));
    ObservedRun narrow = TRY(ObservedRun::create(after, quantized, options.compile));
    std::vector<Energy> layers(results.size()), outputs(before.outputs().size());
    for (size_t s = 0; s < options.samples.size(); ++s) {
        TRY(cancelled(options.cancel));
        if (options.progress) options.progress("measure", s, options.samples.size());
        const auto want = TRY(reference.run(options.samples[s], options.cancel));
        const auto got = TRY(narrow.run(options.samples[s], options.cancel));
        for (size_t i = 0; i < layers.size(); ++i) layers[i].add(want.observed[i], got.observed[i]);
        for (size_t i = 0; i < outputs.size(); ++i) outputs[i].add(want.outputs[i], got.outputs[i]);
    }
    for (size_t i = 0; i < layers.size(); ++i)
        if (layers[i].counted) report.layers[i].snr = layers[i].snr();
    for (size_t i = 0; i < outputs.size(); ++i)
        if (outputs[i].counted) report.output_snr.emplace_back(before.output_names()[i], outputs[i].snr());
    return {};
}

// Whether a layer of the given model reads integers by QDQ nodes.
bool is_quantized(const PlannedLayer& layer) {
    const auto dequantized = [](const Value* v) { return v->node() && quantization_of(*v->node()); };
    const auto& inputs = layer.node->inputs();
    return std::any_of(inputs.begin(), inputs.end(), [&](const Value* v) { return v && dequantized(v); });
}

QuantizedLayer described(const PlannedLayer& layer, const QuantizationPlan& plan, const Profile& profile) {
    const Node& node = *layer.node;
    QuantizedLayer d{layer_name(node), op_label(node), layer.result->name(), layer.why.empty(), layer.why};
    if (!d.quantized) return d;
    const auto at = plan.params.find(node.input(0));
    if (at == plan.params.end()) return d;
    const QuantParams& p = at->second;
    d.scale = p.scale;
    d.zero_point = p.zero_point;
    d.low = p.range().low;
    d.high = p.range().high;
    const auto seen = profile.values.find(node.input(0)->name());
    const double half = 0.5 * d.scale;  // rounds to the end of the range
    if (seen != profile.values.end()) d.clipped = clipped_share(seen->second, {d.low - half, d.high + half});
    return d;
}

Result<Quantized> quantize_model(const Model& model, const std::optional<Profile>& given,
                                 const QuantizeOptions& options) {
    const auto began = std::chrono::steady_clock::now();
    if (options.format != "qdq" && options.format != "integer")
        return Error(Code::E0501, "there is no format \"{}\"", options.format).hint("there are: qdq, integer");
    const Model before = TRY(prepared(model, options.optimize, options.cancel));
    std::optional<Profile> profile = given;
    if (!profile) {
        CalibrateOptions c{.optimize = false, .compile = options.compile, .cancel = options.cancel};
        if (options.progress) c.progress = [&](size_t done, size_t all) { options.progress("calibrate", done, all); };
        profile = TRY(calibrate(before, options.samples, c));
    } else if (profile->model != hash_of_model(before.graph())) {
        return Error(Code::E0501, "the profile is of another model")
            .hint("calibrate this model, with the same setting of optimize, and pass that profile");
    }
    std::shared_ptr<Graph> graph = before.graph().clone();
    QuantizationPlan plan = TRY(plan_quantization(*graph, *profile, options));
    QuantizeReport report;
    std::vector<std::string> results;
    for (const PlannedLayer& layer : plan.layers) {
        report.layers.push_back(described(layer, plan, *profile));
        results.push_back(layer.result->name());
        report.quantized += layer.why.empty();
    }
    if (report.quantized == 0) {
        if (std::any_of(plan.layers.begin(), plan.layers.end(), is_quantized))
            return Error(Code::E0501, "the model is quantized already")
                .hint("quantize the model in floating point that it was made from");
        Error error(Code::E0501, "no layer of the model can be quantized");
        if (plan.layers.empty())
            return std::move(error).hint(
                "it has no f32 convolution or matrix product: it is quantized already, or has none");
        return std::move(error).note("\"{}\": {}", layer_name(*plan.layers[0].node), plan.layers[0].why);
    }
    report.bytes_before = constant_bytes(*graph);
    const auto written = TRY(write_qdq(*graph, plan, *profile, options));
    report.bytes_after = constant_bytes(*graph);
    size_t next = 0;
    for (QuantizedLayer& layer : report.layers) {
        if (!layer.quantized) continue;
        const WrittenLayer& w = written[next++];
        if (w.weight_bytes) layer.weight_snr = w.weight_snr;
        layer.weight_bytes = w.weight_bytes;
    }
    if (!options.samples.empty()) TRY(measure(before.graph(), *graph, results, options, report));
    if (options.format == "integer") TRY(integer_form(*graph));
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    return Quantized{Model(std::move(graph)), std::move(report)};
}

}  // namespace

Result<Quantized> quantize(const Model& model, const std::optional<Profile>& profile, const QuantizeOptions& options) {
    return protect("quantize", {.text = [&] { return model.to_text(); }},
                   [&] { return quantize_model(model, profile, options); });
}

}  // namespace tessera
