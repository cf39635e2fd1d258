#include <sys/resource.h>

#include <algorithm>
#include <ctime>
#include <iostream>

#include "bench/bench.h"
#include "given.h"
#include "values.h"

namespace tessera::cli {
namespace {

double seconds_of(clockid_t clock) {
    timespec t{};
    clock_gettime(clock, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

void answer(Json values) {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    values["peak_rss"] = int64_t{usage.ru_maxrss} * 1024;
    std::cout << values.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
}

constexpr double kDeviceRuns =
    3e-3;  // seconds: runs on a device that are timed together, so that launching is little of it
constexpr double kMostTogether = 100;

struct Prepared {
    Executable executable;
    NamedData given;
    double load = 0;
    std::optional<DeviceRuns> on_device = {};  // where its clock is asked for
    int together = 1;                          // runs
};

Result<Prepared> prepare(const Json& spec) {
    CompileOptions options;
    options.threads = spec["threads"];
    options.precision = spec["precision"];
    options.target = spec["target"];
    options.optimize = spec["optimize"];
    options.fuse = spec["fuse"];
    if (spec.contains("cache")) options.cache = spec["cache"].get<std::string>();
    Stopwatch loading;
    Model model = TRY(Model::load(spec["model"].get<std::string>()));
    Executable executable = TRY(compile(model, options));
    double load = loading.seconds();
    NamedData given;
    std::vector<Port> ports = model.inputs();
    for (size_t i = 0; i < ports.size(); ++i)
        if (auto file = spec["inputs"].find(ports[i].name); file != spec["inputs"].end())
            given.emplace(ports[i].name, TRY(read_value(file->get<std::string>(), model.graph().inputs()[i]->type())));
    Prepared prepared{std::move(executable), std::move(given), load};
    if (spec["clock"] != "device") return prepared;
    prepared.on_device = TRY(prepared.executable.on_device(prepared.given));
    TRY(prepared.on_device->seconds());  // the first is slower
    const double once = TRY(prepared.on_device->seconds());
    prepared.together = static_cast<int>(std::clamp(kDeviceRuns / std::max(once, 1e-9), 1.0, kMostTogether));
    return prepared;
}

Result<Json> take_turn(const Prepared& p, const Json& question, clockid_t clock, std::vector<Datum>& outputs) {
    // On a device the inputs are there already: a run with others' memory would copy them for nothing.
    if (p.on_device ? outputs.empty() : question["warm"].get<bool>()) outputs = TRY(p.executable.run(p.given));
    std::vector<double> seconds;
    Stopwatch turn;
    while (seconds.empty() || (turn.seconds() < question["seconds"] && seconds.size() < question["most"])) {
        if (p.on_device) {
            seconds.push_back(TRY(p.on_device->seconds(p.together)));
            continue;
        }
        double began = seconds_of(clock);
        auto run = p.executable.run(p.given);
        seconds.push_back(seconds_of(clock) - began);
        outputs = TRY(std::move(run));
    }
    return Json{{"seconds", seconds}};
}

Result<Json> save_outputs(const std::string& folder, const std::vector<Datum>& outputs) {
    Json files = Json::array();
    for (size_t i = 0; i < outputs.size(); ++i) {
        ValueFile file = TRY(ValueFile::create(std::filesystem::path(folder) / fmt::format("{}.npy", i)));
        TRY(file.write(outputs[i], "output"));
        TRY(file.commit());
        files.push_back(file.path().string());
    }
    return Json{{"files", files}};
}

}  // namespace

// One line for each question. A model comes first, and may come again: the next then takes the place of the last.
Status serve_compiled() {
    std::optional<Prepared> prepared;
    std::vector<Datum> outputs;
    clockid_t clock = CLOCK_MONOTONIC;
    auto take_model = [&](const Json& spec) -> Result<Json> {
        prepared.reset();
        outputs.clear();
        prepared = TRY(prepare(spec));
        clock = spec["clock"] == "processor" ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
        return Json{{"version", TESSERA_VERSION}, {"load_s", prepared->load}};
    };
    for (std::string line; std::getline(std::cin, line);) {
        const Json question = Json::parse(line, nullptr, false);
        if (!question.is_object() || !(prepared || question.contains("model")))
            return Error(Code::E0501, "--serve is for tessera bench itself");
        auto done = question.contains("model")  ? take_model(question)
                    : question.contains("save") ? save_outputs(question["save"], outputs)
                                                : take_turn(*prepared, question, clock, outputs);
        answer(done.ok() ? *done : error_json(done.error()));
    }
    return {};
}

}  // namespace tessera::cli
