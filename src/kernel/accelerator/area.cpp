#include "kernel/accelerator/area.h"

namespace tessera::accelerator {
namespace {

// Transistors, as tools/rtl_area.py fits them.
constexpr double kMultiplier = 4231, kColumn = 884;  // of the matrix unit
constexpr double kLane = 157414;                     // of the vector ALU
constexpr double kFixed = 66160, kOutput = 5042;     // all other logic

// A static memory cell has six transistors and its first port; another port has two of its own.
constexpr double kCell = 6, kPort = 2;
constexpr int kPorts = 2, kAccumulatorPorts = 6;  // one read and one write; four reads and two writes

double transistors(double bits, int ports) { return bits * (kCell + kPort * (ports - 1)); }

}  // namespace

Area area_of(const Machine& m) {
    const double k = m.inputs, n = m.outputs;
    Area area;
    area.matrix = kMultiplier * k * n + kColumn * n;
    area.alu = m.alu ? kLane * n : 0;
    area.control = kFixed + kOutput * n;
    const double instructions = m.load_queue + m.compute_queue + m.store_queue + m.fetch_buffer + kLoadsInFlight;
    area.memories = transistors(8 * k * m.inp_rows + 8 * k * n * m.wgt_tiles + 8 * kUopBytes * double(m.uops) +
                                    8 * kInstructionBytes * instructions,
                                kPorts) +
                    transistors(32 * n * m.acc_rows, kAccumulatorPorts);
    return area;
}

}  // namespace tessera::accelerator
