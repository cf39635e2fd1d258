#include "kernel/accelerator/machine.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "onnx/file.h"

namespace tessera::accelerator {

namespace {

using MachineJson = nlohmann::ordered_json;

constexpr const char* kMachineFormat = "tessera accelerator 1";
constexpr int kLeastRows = 2, kMostRows = 65536;  // of a scratchpad

// The one table of the description: visit(group, name, member, least, most, whether it is a power of two).
template <typename M, typename F>
void visit_numbers(M& m, F&& visit) {
    visit("array", "inputs", m.inputs, 2, 128, true);
    visit("array", "outputs", m.outputs, 2, 128, true);
    visit("scratchpads", "inp_rows", m.inp_rows, kLeastRows, kMostRows, true);
    visit("scratchpads", "wgt_tiles", m.wgt_tiles, kLeastRows, kMostRows, true);
    visit("scratchpads", "acc_rows", m.acc_rows, kLeastRows, kMostRows, true);
    visit("scratchpads", "uops", m.uops, kLeastRows, kMostRows, true);
    visit("memory", "bytes_per_cycle", m.bytes_per_cycle, 2, 256, true);
    visit("memory", "latency", m.latency, 1, 1000, false);
    visit("memory", "outstanding_reads", m.outstanding_reads, 2, 1024, true);
    visit("queues", "load", m.load_queue, 2, 1024, true);
    visit("queues", "compute", m.compute_queue, 2, 1024, true);
    visit("queues", "store", m.store_queue, 2, 1024, true);
    visit("queues", "tokens", m.tokens, 2, 1024, true);
    visit("fetch", "burst", m.fetch_burst, 1, 64, true);
    visit("fetch", "buffer", m.fetch_buffer, 2, 1024, true);
}

struct MachineReader {
    const MachineJson& json;
    const std::string& source;

    Error malformed(std::string_view what) const {
        return Error(Code::E0110, "\"{}\" is not the description of an accelerator: {}", source, what)
            .hint("machines/tessel.json is an example, docs/accelerator.md explains each field");
    }

    Status number(const char* group, const char* name, int& member, int least, int most, bool power_of_two) const {
        const std::string field = fmt::format("{}.{}", group, name);
        if (!json.contains(group) || !json[group].is_object() || !json[group].contains(name))
            return malformed(fmt::format("it has no field {}", field));
        const MachineJson& value = json[group][name];
        const bool in_range = value.is_number_integer() && value >= least && value <= most;
        if (!in_range || (power_of_two && !std::has_single_bit(value.get<unsigned>())))
            return Error(Code::E0212, "{} is {}, expected {} from {} to {}", field, value.dump(),
                         power_of_two ? "a power of two" : "an integer", least, most)
                .at(source);
        member = value.get<int>();
        return {};
    }
};

// A field that nobody reads is a misspelling.
Status check_names(const MachineReader& read, const MachineJson& known) {
    for (const auto& [group, value] : read.json.items()) {
        if (!known.contains(group)) return read.malformed(fmt::format("no machine has a field {}", group));
        if (!value.is_object()) continue;
        for (const auto& [name, inner] : value.items())
            if (!known[group].is_object() || !known[group].contains(name))
                return read.malformed(fmt::format("no machine has a field {}.{}", group, name));
    }
    return {};
}

}  // namespace

int Machine::row_bytes(Scratchpad scratchpad, Element element) const {
    switch (scratchpad) {
        case Scratchpad::Inp: return inputs;
        case Scratchpad::Wgt: return inputs * outputs;
        case Scratchpad::Acc: return element == Element::Wide ? outputs * 4 : outputs;
        case Scratchpad::Uop: return kUopBytes;
    }
    return 0;
}

int Machine::rows(Scratchpad scratchpad) const {
    switch (scratchpad) {
        case Scratchpad::Inp: return inp_rows;
        case Scratchpad::Wgt: return wgt_tiles;
        case Scratchpad::Acc: return acc_rows;
        case Scratchpad::Uop: return uops;
    }
    return 0;
}

std::string Machine::to_json() const {
    MachineJson j{{"format", kMachineFormat}, {"name", name}, {"megahertz", megahertz}, {"alu", alu}};
    visit_numbers(*this,
                  [&](const char* group, const char* field, int value, int, int, bool) { j[group][field] = value; });
    return j.dump(2) + "\n";
}

Result<Machine> parse_machine(const std::string& text, const std::string& source) {
    const MachineJson json = MachineJson::parse(text, nullptr, false);
    const MachineReader read{json, source};
    if (json.is_discarded() || !json.is_object()) return read.malformed("it is not a JSON object");
    if (!json.contains("format") || json["format"] != kMachineFormat)
        return read.malformed(fmt::format("its format is not \"{}\"", kMachineFormat));
    TRY(check_names(read, MachineJson::parse(Machine{}.to_json())));
    Machine m;
    if (!json.contains("name") || !json["name"].is_string()) return read.malformed("it has no name");
    m.name = json["name"].get<std::string>();
    if (!json.contains("alu") || !json["alu"].is_boolean()) return read.malformed("alu is not true or false");
    m.alu = json["alu"].get<bool>();
    if (!json.contains("megahertz") || !json["megahertz"].is_number() || json["megahertz"] <= 0)
        return read.malformed("megahertz is not a positive number");
    m.megahertz = json["megahertz"].get<double>();
    Status status;
    visit_numbers(m, [&](const char* group, const char* name, int& member, int least, int most, bool power_of_two) {
        if (status.ok()) status = read.number(group, name, member, least, most, power_of_two);
    });
    TRY(std::move(status));
    if (m.fetch_buffer < m.fetch_burst)
        return Error(Code::E0212, "fetch.buffer is {}, expected at least fetch.burst, {}", m.fetch_buffer,
                     m.fetch_burst)
            .at(source);
    return m;
}

Result<Machine> with_sizes(const Machine& machine, int inputs, int outputs, int bytes_per_cycle) {
    Machine m = machine;
    if (inputs) m.inputs = inputs;
    if (outputs) m.outputs = outputs;
    if (bytes_per_cycle) m.bytes_per_cycle = bytes_per_cycle;
    const auto rows = [](int64_t rows, int64_t was, int64_t is) {
        return int(std::clamp<int64_t>(rows * was / std::max<int64_t>(1, is), kLeastRows, kMostRows));
    };
    m.inp_rows = rows(machine.inp_rows, machine.inputs, m.inputs);
    m.wgt_tiles = rows(machine.wgt_tiles, int64_t(machine.inputs) * machine.outputs, int64_t(m.inputs) * m.outputs);
    m.acc_rows = rows(machine.acc_rows, machine.outputs, m.outputs);
    m.name = fmt::format("{} of {}x{}, {} bytes a cycle", machine.name, m.inputs, m.outputs, m.bytes_per_cycle);
    return parse_machine(m.to_json(), m.name);
}

Result<Machine> load_machine(const std::string& path) {
    const auto file = TRY(onnx::MappedFile::open(path));
    return parse_machine(std::string(file->bytes()), path);
}

}  // namespace tessera::accelerator
