#include "bind_shard.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "errors.h"
#include "tessera/shard.h"
#include "watched.h"

namespace nb = nanobind;
using namespace tessera;

namespace {

ShardedModel shard_model(const Model& model, const std::string& mesh, const ShardAnnotations& annotations,
                         const std::map<std::string, int64_t>& sizes, bool search, std::optional<int64_t> memory,
                         const DeviceSpeed& speed, nb::object progress) {
    struct Step {
        std::string what;
        size_t done, total;
    };
    Watched<Step> watched;
    std::function<void(const Step&)> deliver;
    if (!progress.is_none()) deliver = [&](const Step& s) { progress(s.what, s.done, s.total); };
    ShardOptions options{.mesh = mesh,
                         .annotations = annotations,
                         .sizes = sizes,
                         .search = search,
                         .memory = memory,
                         .speed = speed,
                         .progress = [&](std::string_view what, size_t done, size_t total) {
                             watched.tell({std::string(what), done, total});
                         }};
    return watched.run<ShardedModel>([&] { return ShardedModel::make(model, options); }, deliver);
}

std::vector<Datum> run_sharded(const ShardedModel& model, const NamedData& inputs, bool evaluate) {
    Watched<int> watched;
    return watched.run<std::vector<Datum>>([&] { return model.run(inputs, {.evaluate = evaluate}); }, {});
}

}  // namespace

void bind_shard(nb::module_& m) {
    nb::class_<LinkSpeed>(m, "LinkSpeed", "Seconds for a collective to begin, and bytes a second that a rank receives.")
        .def(nb::init<double, double>(), nb::arg("latency") = LinkSpeed{}.latency,
             nb::arg("bandwidth") = LinkSpeed{}.bandwidth)
        .def_rw("latency", &LinkSpeed::latency)
        .def_rw("bandwidth", &LinkSpeed::bandwidth);

    nb::class_<DeviceSpeed>(
        m, "DeviceSpeed",
        "What a run is estimated by: operations and bytes of memory a second, and links, of all axes "
        "or by the name of one.")
        .def(nb::init<double, double, LinkSpeed, std::map<std::string, LinkSpeed>>(),
             nb::arg("operations") = DeviceSpeed{}.operations, nb::arg("memory") = DeviceSpeed{}.memory,
             nb::arg("link") = LinkSpeed{}, nb::arg("axes") = std::map<std::string, LinkSpeed>())
        .def_rw("operations", &DeviceSpeed::operations)
        .def_rw("memory", &DeviceSpeed::memory)
        .def_rw("link", &DeviceSpeed::link)
        .def_rw("axes", &DeviceSpeed::axes);

    nb::class_<ShardedValue>(m, "ShardedValue", "A value of a partitioned model and its sharding.")
        .def_ro("name", &ShardedValue::name)
        .def_ro("type", &ShardedValue::type)
        .def_ro("sharding", &ShardedValue::sharding)
        .def_ro("annotated", &ShardedValue::annotated)
        .def_ro("weight", &ShardedValue::weight)
        .def_ro("bytes", &ShardedValue::bytes)
        .def_ro("rank_bytes", &ShardedValue::rank_bytes)
        .def("__repr__", [](const ShardedValue& v) { return fmt::format("<{} {}: {}>", v.name, v.type, v.sharding); });

    nb::class_<Collective>(m, "Collective", "A collective that all ranks make, and the bytes that each receives.")
        .def_ro("kind", &Collective::kind)
        .def_ro("value", &Collective::value)
        .def_ro("axes", &Collective::axes)
        .def_ro("bytes", &Collective::bytes)
        .def_ro("seconds", &Collective::seconds)
        .def("__repr__", [](const Collective& c) {
            return fmt::format("<{} of {} over {}: {} bytes>", c.kind, c.value, c.axes, c.bytes);
        });

    nb::class_<ShardCost>(m, "ShardCost", "What a run is estimated to take of a rank.")
        .def_prop_ro("seconds", &ShardCost::seconds)
        .def_ro("compute_seconds", &ShardCost::compute_seconds)
        .def_ro("communicate_seconds", &ShardCost::communicate_seconds)
        .def_prop_ro("bytes", &ShardCost::bytes)
        .def_ro("weight_bytes", &ShardCost::weight_bytes)
        .def_ro("activation_bytes", &ShardCost::activation_bytes);

    nb::class_<ShardSecond>(m, "ShardSecond", "The second best sharding of a search.")
        .def_prop_ro("annotations",
                     [](const ShardSecond& s) {
                         return std::map<std::string, std::string>(s.annotations.begin(), s.annotations.end());
                     })
        .def_ro("cost", &ShardSecond::cost)
        .def_ro("different", &ShardSecond::different);

    nb::class_<ShardReport>(m, "ShardReport", "How a model is divided over a mesh.")
        .def_ro("mesh", &ShardReport::mesh)
        .def_ro("ranks", &ShardReport::ranks)
        .def_ro("values", &ShardReport::values)
        .def_ro("collectives", &ShardReport::collectives)
        .def_ro("conflicts", &ShardReport::conflicts)
        .def_ro("whole", &ShardReport::whole)
        .def_ro("weight_bytes", &ShardReport::weight_bytes)
        .def_ro("rank_weight_bytes", &ShardReport::rank_weight_bytes)
        .def_ro("cost", &ShardReport::cost)
        .def_prop_ro(
            "found",
            [](const ShardReport& r) { return std::map<std::string, std::string>(r.found.begin(), r.found.end()); })
        .def_ro("plans", &ShardReport::plans)
        .def_ro("second", &ShardReport::second)
        .def("__repr__", [](const ShardReport& r) {
            return fmt::format("<tessera.ShardReport: {}, {} collectives>", r.mesh, r.collectives.size());
        });

    nb::class_<ShardedModel>(m, "ShardedModel")
        .def_prop_ro("report", &ShardedModel::report, nb::rv_policy::reference_internal)
        .def("run", &run_sharded, nb::arg("inputs"), nb::arg("evaluate") = false);

    m.def("shard", &shard_model, nb::arg("model"), nb::arg("mesh"), nb::arg("annotations"), nb::arg("sizes"),
          nb::arg("search"), nb::arg("memory").none(), nb::arg("speed"), nb::arg("progress").none());
}
