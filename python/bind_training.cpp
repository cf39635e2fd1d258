#include "bind_training.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "errors.h"
#include "tessera/training.h"

namespace nb = nanobind;
using namespace tessera;

namespace {

// Without the GIL; a step that has begun is finished, so that Ctrl-C leaves parameters of one update.
template <typename F>
auto released(F&& f) {
    auto result = [&] {
        nb::gil_scoped_release release;
        return f();
    }();
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    return unwrap(std::move(result));
}

}  // namespace

void bind_training(nb::module_& m) {
    nb::class_<Loss>(m, "Loss")
        .def(nb::init<>())
        .def_rw("kind", &Loss::kind)
        .def_rw("output", &Loss::output)
        .def_rw("class_axis", &Loss::class_axis)
        .def_rw("ignore_index", &Loss::ignore_index)
        .def_rw("label_smoothing", &Loss::label_smoothing)
        .def_rw("class_weights", &Loss::class_weights);

    nb::class_<Optimizer>(m, "Optimizer")
        .def(nb::init<>())
        .def_rw("kind", &Optimizer::kind)
        .def_rw("learning_rate", &Optimizer::learning_rate)
        .def_rw("momentum", &Optimizer::momentum)
        .def_rw("nesterov", &Optimizer::nesterov)
        .def_rw("beta1", &Optimizer::beta1)
        .def_rw("beta2", &Optimizer::beta2)
        .def_rw("epsilon", &Optimizer::epsilon)
        .def_rw("weight_decay", &Optimizer::weight_decay);

    nb::class_<TrainingOptions>(m, "TrainingOptions")
        .def(nb::init<>())
        .def_rw("loss", &TrainingOptions::loss)
        .def_rw("optimizer", &TrainingOptions::optimizer)
        .def_rw("parameters", &TrainingOptions::parameters)
        .def_rw("frozen", &TrainingOptions::frozen)
        .def_rw("clip_norm", &TrainingOptions::clip_norm)
        .def_rw("clip_value", &TrainingOptions::clip_value)
        .def_rw("precision", &TrainingOptions::precision)
        .def_rw("loss_scale", &TrainingOptions::loss_scale)
        .def_rw("accumulate", &TrainingOptions::accumulate)
        .def_rw("training_mode", &TrainingOptions::training_mode)
        .def_rw("seed", &TrainingOptions::seed)
        .def("set_mesh", [](TrainingOptions& o, const std::string& axes,
                            const std::vector<std::pair<std::string, std::string>>& shardings, int zero) {
            o.mesh = {.axes = axes, .shardings = shardings, .zero = zero};
        }, nb::arg("axes"), nb::arg("shardings"), nb::arg("zero"))
        .def("set_compile", [](TrainingOptions& o, const std::string& target, int threads, const std::string& precision,
                               const std::optional<std::string>& cache) {
            o.compile.target = target;
            o.compile.threads = threads;
            o.compile.precision = precision;
            o.compile.cache = cache;
        }, nb::arg("target"), nb::arg("threads"), nb::arg("precision"), nb::arg("cache").none());

    nb::class_<TrainingReport>(m, "TrainingReport", "The report of a step.")
        .def_ro("loss", &TrainingReport::loss)
        .def_ro("gradient_norm", &TrainingReport::gradient_norm)
        .def_ro("updated", &TrainingReport::updated)
        .def_ro("skipped", &TrainingReport::skipped)
        .def("__repr__", [](const TrainingReport& r) {
            return fmt::format("<tessera.TrainingReport loss {}{}>", r.loss, r.skipped ? ", skipped" : "");
        });

    nb::class_<Training>(m, "Training")
        .def_static("create", [](const Model& model, const TrainingOptions& options) {
            return released([&] { return Training::create(model, options); });
        }, nb::arg("model"), nb::arg("options"))
        .def_prop_ro("inputs", &Training::inputs)
        .def("step", [](Training& t, const NamedData& batch) { return released([&] { return t.step(batch); }); }, nb::arg("batch"))
        .def("evaluate", [](Training& t, const NamedData& batch) {
            auto found = released([&] { return t.evaluate(batch); });
            return std::pair(found.loss, std::move(found.outputs));
        }, nb::arg("batch"))
        .def_prop_rw("learning_rate", &Training::learning_rate, &Training::set_learning_rate)
        .def_prop_ro("updates", &Training::updates)
        .def_prop_ro("skipped", &Training::skipped)
        .def_prop_ro("loss_scale", &Training::loss_scale)
        .def_prop_ro("mesh_use", [](const Training& t) -> std::optional<std::map<std::string, int64_t>> {
            const auto use = t.mesh_use();
            if (!use) return {};
            return std::map<std::string, int64_t>{{"ranks", use->ranks},
                                                  {"weight_bytes", use->weight_bytes},
                                                  {"rank_weight_bytes", use->rank_weight_bytes},
                                                  {"state_bytes", use->state_bytes},
                                                  {"rank_state_bytes", use->rank_state_bytes},
                                                  {"collectives", use->collectives},
                                                  {"received_bytes", use->received_bytes}};
        })
        .def_prop_ro("parameters", [](const Training& t) { return unwrap(t.parameters()); })
        .def_prop_ro("state", [](const Training& t) { return unwrap(t.state()); })
        .def("save", [](const Training& t, const std::string& path, const std::map<std::string, std::string>& extra) {
            unwrap(t.save(path, extra));
        }, nb::arg("path"), nb::arg("extra"))
        .def("load", [](Training& t, const std::string& path) { return unwrap(t.load(path)); }, nb::arg("path"))
        .def("trained", [](const Training& t) { return unwrap(t.trained()); })
        .def_prop_ro("executable", [](const Training& t) { return t.executable(); });
}
