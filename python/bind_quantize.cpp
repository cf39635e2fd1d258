#include "bind_quantize.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>

#include "errors.h"
#include "tessera/quantize.h"
#include "watched.h"

namespace nb = nanobind;
using namespace tessera;

namespace {

struct SampleStep {
    std::string what;
    size_t done, total;
};

std::function<void(const SampleStep&)> delivery(const nb::object& progress) {
    if (progress.is_none()) return {};
    return [progress](const SampleStep& s) { progress(s.what, s.done, s.total); };
}

Profile calibrate_model(const Model& model, const std::vector<NamedData>& samples, bool optimize, int threads,
                        nb::object progress) {
    Watched<SampleStep> watched;
    CalibrateOptions options{.optimize = optimize, .compile = {.threads = threads}, .cancel = watched.cancel()};
    options.progress = [&](size_t done, size_t total) { watched.tell({"calibrate", done, total}); };
    return watched.run<Profile>([&] { return calibrate(model, samples, options); }, delivery(progress));
}

Quantized quantize_model(const Model& model, const std::optional<Profile>& profile, QuantizeOptions options,
                         nb::object progress) {
    Watched<SampleStep> watched;
    options.cancel = watched.cancel();
    options.progress = [&](std::string_view what, size_t done, size_t total) {
        watched.tell({std::string(what), done, total});
    };
    return watched.run<Quantized>([&] { return quantize(model, profile, options); }, delivery(progress));
}

}  // namespace

void bind_quantize(nb::module_& m) {
    nb::class_<ValueProfile>(m, "ValueProfile", "The range and the histogram of one value.")
        .def_ro("min", &ValueProfile::min).def_ro("max", &ValueProfile::max).def_ro("count", &ValueProfile::count)
        .def_ro("bins", &ValueProfile::bins)
        .def_prop_ro("edges", [](const ValueProfile& v) {
            std::vector<double> edges;
            for (size_t i = 0; i <= v.bins.size(); ++i) edges.push_back(std::ldexp(double(v.first + int64_t(i)), v.exponent));
            return edges;
        }, "The bounds of the bins.")
        .def_ro("channel_max", &ValueProfile::channel_max).def_ro("channel_sum", &ValueProfile::channel_sum);

    nb::class_<Profile>(m, "Profile", "What calibration found of a model; profiles of parts of the data merge.")
        .def_ro("model", &Profile::model, "A hash of the optimized model.")
        .def_ro("samples", &Profile::samples)
        .def_ro("values", &Profile::values)
        .def("merge", [](Profile& p, const Profile& other) { unwrap(p.merge(other)); }, nb::arg("other"))
        .def("save", [](const Profile& p, const std::string& path) { unwrap(p.save(path)); }, nb::arg("path"))
        .def_static("load", [](const std::string& path) { return unwrap(Profile::load(path)); }, nb::arg("path"))
        .def("__eq__", [](const Profile& a, const Profile& b) { return a == b; }, nb::is_operator(),
             nb::sig("def __eq__(self, arg: object, /) -> bool"))
        .def("__repr__", [](const Profile& p) {
            return fmt::format("<tessera.Profile of {}, {}>", plural(int64_t(p.samples), "sample"),
                               plural(int64_t(p.values.size()), "value"));
        });

    nb::class_<QuantizeOptions>(m, "QuantizeOptions")
        .def(nb::init<>())
        .def_rw("scheme", &QuantizeOptions::scheme).def_rw("percentile", &QuantizeOptions::percentile)
        .def_rw("activations", &QuantizeOptions::activations).def_rw("symmetric", &QuantizeOptions::symmetric)
        .def_rw("power_of_two", &QuantizeOptions::power_of_two).def_rw("per_channel", &QuantizeOptions::per_channel)
        .def_rw("weight_scheme", &QuantizeOptions::weight_scheme)
        .def_rw("bias_correction", &QuantizeOptions::bias_correction)
        .def_rw("products", &QuantizeOptions::products).def_rw("optimize", &QuantizeOptions::optimize)
        .def_rw("format", &QuantizeOptions::format)
        .def_rw("keep", &QuantizeOptions::keep).def_rw("samples", &QuantizeOptions::samples)
        .def("set_threads", [](QuantizeOptions& o, int threads) { o.compile.threads = threads; }, nb::arg("threads"));

    nb::class_<QuantizedLayer>(m, "QuantizedLayer", "One convolution or matrix product of a quantized model.")
        .def_ro("node", &QuantizedLayer::node).def_ro("op", &QuantizedLayer::op).def_ro("output", &QuantizedLayer::output)
        .def_ro("quantized", &QuantizedLayer::quantized).def_ro("why", &QuantizedLayer::why, "Why it is not quantized.")
        .def_ro("low", &QuantizedLayer::low).def_ro("high", &QuantizedLayer::high)
        .def_ro("scale", &QuantizedLayer::scale).def_ro("zero_point", &QuantizedLayer::zero_point)
        .def_ro("clipped", &QuantizedLayer::clipped, "Share of the elements of its input outside the range.")
        .def_ro("weight_snr", &QuantizedLayer::weight_snr, "In dB, of the rounded weights.")
        .def_ro("snr", &QuantizedLayer::snr, "In dB, of its output on the samples.")
        .def_ro("weight_bytes", &QuantizedLayer::weight_bytes)
        .def("__repr__", [](const QuantizedLayer& l) {
            return fmt::format("<{} {}: {}>", l.op, l.node, l.quantized ? "quantized" : l.why);
        });

    nb::class_<QuantizeReport>(m, "QuantizeReport", "What quantization did.")
        .def_ro("layers", &QuantizeReport::layers).def_ro("quantized", &QuantizeReport::quantized)
        .def_ro("bytes_before", &QuantizeReport::bytes_before).def_ro("bytes_after", &QuantizeReport::bytes_after)
        .def_prop_ro("output_snr", [](const QuantizeReport& r) {
            return std::map<std::string, double>(r.output_snr.begin(), r.output_snr.end());
        }, "In dB, by output, on the samples.")
        .def_ro("seconds", &QuantizeReport::seconds)
        .def("__repr__", [](const QuantizeReport& r) {
            return fmt::format("<tessera.QuantizeReport: {} of {}>", r.quantized,
                               plural(int64_t(r.layers.size()), "layer"));
        });

    m.def("calibrate", &calibrate_model, nb::arg("model"), nb::arg("samples"), nb::arg("optimize"), nb::arg("threads"),
          nb::arg("progress").none());
    nb::class_<Quantized>(m, "Quantized")
        .def_prop_ro("model", [](const Quantized& q) { return q.model; })
        .def_ro("report", &Quantized::report);
    m.def("quantize", &quantize_model, nb::arg("model"), nb::arg("profile").none(), nb::arg("options"),
          nb::arg("progress").none());
}
