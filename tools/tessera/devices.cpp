// tessera devices: where models can run on this machine.
#include "command.h"

namespace tessera::cli {
namespace {

constexpr const char* kDevicesExamples =
    "Examples:\n"
    "  tessera devices\n"
    "  tessera devices --json\n";

int print_devices(bool json) {
    std::string why;
    const std::vector<DeviceInfo> devices = list_devices(&why);
    if (json) {
        Json all = Json::array();
        for (const DeviceInfo& d : devices) {
            Json one{{"target", d.target}, {"name", d.name}};
            if (d.bytes) one["bytes"] = d.bytes;
            if (d.processors) one["processors"] = d.processors;
            if (!d.code.empty()) one["code"] = d.code;
            if (!d.why.empty()) one["why"] = d.why;
            all.push_back(std::move(one));
        }
        Json whole{{"devices", std::move(all)}};
        if (!why.empty()) whole["no_gpu"] = why;
        print_json(whole);
        return kDone;
    }
    for (const DeviceInfo& d : devices) {
        fmt::print("{:<8} {}", d.target, d.name);
        if (d.bytes) fmt::print(", {}", human_bytes(double(d.bytes)));
        if (d.processors) fmt::print(", {} SMs", d.processors);
        if (!d.code.empty()) fmt::print(", code for {}", d.code);
        fmt::print("{}{}\n", d.why.empty() ? "" : "; cannot be used: ", d.why);
    }
    if (!why.empty()) fmt::print("{}\n", why);
    return kDone;
}

}  // namespace

void add_devices(CLI::App& app, Chosen& chosen) {
    auto json = std::make_shared<bool>(false);
    CLI::App* c = app.add_subcommand("devices", "List the devices that models can run on: the host, its GPUs, simulated accelerators");
    c->add_flag("--json", *json, "Print JSON");
    c->footer(fmt::format("{}\n{}", kDevicesExamples, kExitStatus));
    c->callback([json, &chosen] { chosen = [json] { return print_devices(*json); }; });
}

}  // namespace tessera::cli
