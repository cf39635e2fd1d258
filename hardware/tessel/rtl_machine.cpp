#include "rtl_machine.h"

#include <algorithm>
#include <cstring>
#include <deque>

#include "Vtessel_core.h"
#include "verilated.h"

namespace tessera::accelerator {

namespace {

template <typename T>
uint8_t* bytes_of(T& port) {
    return reinterpret_cast<uint8_t*>(&port);
}

}  // namespace

// Serves read requests in order, a beat a cycle, the first one `latency` cycles after the request. Writes are taken at
// once.
struct RtlMachine::Port {
    struct Request {
        uint64_t address;
        int64_t beats, bytes, ready;
    };
    VerilatedContext context;
    Vtessel_core core{&context};
    std::deque<Request> requests;
};

RtlMachine::RtlMachine(const Machine& machine) : machine_(machine), port_(std::make_unique<Port>()) {}
RtlMachine::~RtlMachine() = default;

RtlRun RtlMachine::run(std::vector<uint8_t>& memory, uint32_t program_address, int64_t limit) {
    Vtessel_core& core = port_->core;
    auto& requests = port_->requests;
    requests.clear();
    const auto edge = [&] {
        core.clk = 1;
        core.eval();
    };
    core.program_address = program_address;
    core.r_valid = core.r_last = core.ar_ready = 0;
    core.w_ready = 1;
    for (core.rst = 1; port_->context.time() % 4 < 3; port_->context.timeInc(1)) {
        core.clk = 0;
        core.eval();
        edge();
    }
    port_->context.timeInc(1);
    core.rst = 0;
    RtlRun result;
    for (; result.cycles < limit; ++result.cycles) {
        core.clk = 0;
        core.ar_ready = requests.size() < size_t(machine_.outstanding_reads);
        const bool data = !requests.empty() && requests.front().ready <= result.cycles;
        core.r_valid = data;
        core.r_last = data && requests.front().beats == 1;
        if (data) {  // memory ends where it ends: beyond it are zeros
            const auto& r = requests.front();
            std::memset(bytes_of(core.r_data), 0, size_t(machine_.bytes_per_cycle));
            if (r.address < memory.size())
                std::memcpy(bytes_of(core.r_data), memory.data() + r.address,
                            std::min<size_t>(size_t(r.bytes), memory.size() - r.address));
        }
        core.eval();
        if (core.done) {
            result.finished = true;
            break;
        }
        result.gemm_rows += core.gemm_row;
        result.alu_rows += core.alu_row;
        const bool asked = core.ar_valid && core.ar_ready;
        const Port::Request next{core.ar_addr, core.ar_beats, core.ar_size, result.cycles + machine_.latency};
        if (data && core.r_ready) {
            requests.front().address += uint64_t(requests.front().bytes);
            if (--requests.front().beats == 0) requests.pop_front();
        }
        if (asked) requests.push_back(next);
        if (core.w_valid && core.w_addr + uint64_t(core.w_size) <= memory.size())
            std::memcpy(memory.data() + core.w_addr, bytes_of(core.w_data), core.w_size);
        edge();
    }
    return result;
}

}  // namespace tessera::accelerator
