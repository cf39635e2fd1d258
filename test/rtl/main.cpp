// The accelerator's RTL beside its model.
//   tessel-rtl random SEED COUNT             random programs: the same memory, cycles within 5 %
//   tessel-rtl tokens SEED COUNT             removes each token of random programs: the checker refuses what is left
//   tessel-rtl layers [PART]                 compiled layers of ResNet-18 and MobileNet-v1, the same; images have
//                                            1/PART of each side's pixels
//   tessel-rtl file PROGRAM                  a program in text form on random memory, the same
//   tessel-rtl machine                       prints the machine's description
//   tessel-rtl run IMAGE ADDRESS OUTPUT      runs the program at ADDRESS of a memory image, writes the memory that it
//                                            leaves; prints {"cycles": ..., "gemm_rows": ..., "alu_rows": ...}
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "accelerator/remove_token.h"
#include "base/random.h"
#include "rtl/compare.h"
#include "rtl/layers.h"

namespace tessera::accelerator {
namespace {

int run_random(const Machine& machine, uint64_t seed, uint64_t count) {
    RtlMachine rtl(machine);
    uint64_t wrong = 0, exact = 0, within_1 = 0;
    int64_t cycles = 0;
    double worst = 0;
    for (uint64_t s = seed; s < seed + count; ++s) {
        Comparison c;
        if (!compare(fmt::format("seed {}", s), machine, rtl, random_program(machine, s), c)) {
            ++wrong;
            continue;
        }
        cycles += c.rtl;
        exact += c.model == c.rtl;
        within_1 += std::abs(c.difference()) <= 0.01;
        worst = std::max(worst, std::abs(c.difference()));
    }
    fmt::print(
        "{} random programs from seed {}: {} wrong; cycles equal in {}, within 1 % in {}, worst {:.2f} %; {} cycles\n",
        count, seed, wrong, exact, within_1, 100 * worst, cycles);
    return wrong != 0;
}

int remove_tokens(const Machine& machine, uint64_t seed, uint64_t count) {
    using namespace accelerator_test;
    uint64_t removed = 0, missed = 0;
    for (uint64_t s = seed; s < seed + count; ++s) {
        const RandomProgram made = random_program(machine, s);
        const auto refused = [&](const Program& program) {
            auto checked = check_program(machine, program, made.memory);
            return checked && !checked->ok();
        };
        auto whole = check_program(machine, made.program, made.memory);
        if (!whole || !whole->ok()) {
            fmt::print("seed {}: {}\n", s, whole ? whole->to_string() : whole.error().to_string());
            return 1;
        }
        for (const TokenPair& t : whole->tokens) {
            ++removed;
            if (refused(without(made.program, t)) && refused(without_push(made.program, t)) &&
                refused(without_pop(made.program, t)))
                continue;
            fmt::print("seed {}: the checker does not miss the token from {} to {}\n", s, t.push, t.pop);
            ++missed;
        }
    }
    fmt::print("{} random programs from seed {}: {} tokens removed, {} of them not missed\n", count, seed, removed,
               missed);
    return missed != 0;
}

int run_file(const Machine& machine, const std::string& path) {
    std::ifstream file(path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    auto program = parse_program(text, path);
    if (!file || !program) {
        fmt::print("{}\n", program ? "cannot read " + path : program.error().to_string());
        return 1;
    }
    RandomProgram made{std::move(*program), std::vector<uint8_t>(1 << 22), 0};
    const RandomStream random(1, "memory");
    for (size_t i = 0; i < made.memory.size(); ++i) made.memory[i] = uint8_t(random.bits(i));
    const std::vector<uint8_t> bytes = encode(made.program);
    made.program_address = uint32_t(made.memory.size() - bytes.size());
    std::copy(bytes.begin(), bytes.end(), made.memory.begin() + made.program_address);
    RtlMachine rtl(machine);
    Comparison c;
    if (!compare(path, machine, rtl, made, c)) return 1;
    fmt::print("{}: {} cycles in the model, {} in the RTL\n", path, c.model, c.rtl);
    return 0;
}

int run_image(const Machine& machine, const std::string& image, uint32_t address, const std::string& output) {
    std::ifstream file(image, std::ios::binary);
    std::vector<uint8_t> memory{std::istreambuf_iterator<char>(file), {}};
    if (!file) {
        fmt::print(stderr, "cannot read {}\n", image);
        return 1;
    }
    const RtlRun run = RtlMachine(machine).run(memory, address);
    std::ofstream(output, std::ios::binary).write(reinterpret_cast<const char*>(memory.data()), int64_t(memory.size()));
    fmt::print("{{\"cycles\": {}, \"gemm_rows\": {}, \"alu_rows\": {}}}\n", run.cycles, run.gemm_rows, run.alu_rows);
    return 0;
}

}  // namespace
}  // namespace tessera::accelerator

int main(int argc, char** argv) {
    using namespace tessera::accelerator;
    auto machine = load_machine(RTL_MACHINE);
    if (!machine) {
        fmt::print(stderr, "{}\n", machine.error().to_string());
        return 1;
    }
    const std::string command = argc > 1 ? argv[1] : "";
    const auto number = [&](int i) { return std::strtoull(argv[i], nullptr, 10); };
    if (command == "machine" && argc == 2) return fmt::print("{}", machine->to_json()), 0;
    if (command == "random" && argc == 4) return run_random(*machine, number(2), number(3));
    if (command == "tokens" && argc == 4) return remove_tokens(*machine, number(2), number(3));
    if (command == "layers" && (argc == 2 || argc == 3))
        return compare_layers(*machine, argc == 3 ? std::max(1, int(number(2))) : 1) != 0;
    if (command == "file" && argc == 3) return run_file(*machine, argv[2]);
    if (command == "run" && argc == 5) return run_image(*machine, argv[2], uint32_t(number(3)), argv[4]);
    fmt::print(stderr,
               "usage: tessel-rtl random SEED COUNT | tokens SEED COUNT | layers [PART] | file PROGRAM | run IMAGE "
               "ADDRESS OUTPUT\n");
    return 2;
}
