// Tile programs, as the public API has them: compiled for a processor or a GPU, launched over somebody's memory.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <mutex>

#include "api/tile_ahead.h"
#include "backends/backend.h"
#include "base/protect.h"
#include "base/reports.h"
#include "kernel/from_tile/from_tile.h"
#include "kernel/ir/tile_calls.h"
#include "runtime/cached_code.h"
#include "runtime/devices/bind_launches.h"
#include "runtime/devices/cpu_device.h"
#include "tessera/tile.h"
#include "tile/program.h"

namespace tessera::tile {

namespace {

// Of the loops around a statement, the place that the innermost has.
Place place_of(const Stmt& body, const Stmt& wanted) {
    Place found;
    std::function<bool(const Stmt&, Place)> look = [&](const Stmt& s, Place place) -> bool {
        if (!s) return false;
        if (const For* loop = s->as<For>()) {
            if (auto line = loop->notes.find("line"); line != loop->notes.end())
                place = {static_cast<int>(line->second), static_cast<int>(loop->notes.at("column")),
                         static_cast<int>(loop->notes.at("file"))};
            return s == wanted ? (found = place, true) : look(loop->body, place);
        }
        if (s == wanted) return found = place, true;
        if (const Seq* list = s->as<Seq>())
            return std::any_of(list->stmts.begin(), list->stmts.end(),
                               [&](const Stmt& each) { return look(each, place); });
        if (const If* branch = s->as<If>()) return look(branch->then, place) || look(branch->otherwise, place);
        if (const Alloc* a = s->as<Alloc>()) return look(a->body, place);
        return false;
    };
    look(body, {});
    return found;
}

}  // namespace

struct Function::State {
    Program program;
    Kernel kernel;
    std::shared_ptr<CompiledModule> module;
    std::unique_ptr<Stream> stream;
    std::mutex busy;
    // Of the last call: most calls are like the one before.
    std::vector<int64_t> asked;  // its grid and numbers, as they were given
    std::vector<int64_t> symbols;
    std::vector<Launch> launches;
    // For the interpreter, made when it is first asked for.
    std::vector<Argument> arguments;
    int grid_rank = 1;
    std::optional<Kernel> checked;
    bool checked_threads = false;  // as a GPU's
    bool by_address = false;
    // On a GPU.
    Target target;
    Device* device = nullptr;
    void* last_stream = nullptr;                          // that `stream` is
    std::map<std::string, std::shared_ptr<void>> placed;  // numbers that are given by address, by their bytes
    std::vector<void*> on_device;
    std::vector<size_t> by_their_address;  // which of the buffers are numbers

    std::vector<int64_t> all_symbols(const std::array<int64_t, 3>& grid, std::span<const int64_t> numbers) const {
        std::vector<int64_t> all(grid.begin(), grid.end());
        all.insert(all.end(), numbers.begin(), numbers.end());
        return device ? divided(std::move(all)) : all;
    }
    // Numbers that are known to be multiples are given as how many times.
    std::vector<int64_t> divided(std::vector<int64_t> all) const {
        size_t at = 3;
        for (const Argument& a : arguments) {
            if (a.as == Argument::As::Element) continue;
            if (at < all.size() && a.multiple > 1) all[at] /= a.multiple;
            ++at;
        }
        return all;
    }
    Status check_counts(size_t addresses, size_t count) const {
        if (addresses == kernel.params && count == kernel.symbols.size()) return {};
        return Error(Code::E0402, "{} takes {} addresses and {} numbers, not {} and {}", kernel.name, kernel.params,
                     kernel.symbols.size(), addresses, count);
    }
    Status check_sizes(const std::vector<int64_t>& all) const {
        for (size_t i = 0; i < all.size(); ++i)
            if (all[i] < 0) return Error(Code::E0405, "{} is {}, not a valid size", kernel.symbols[i], all[i]);
        return {};
    }
    // A number, in the GPU's memory: each is copied once.
    Result<void*> number_on_device(const void* number, DType dtype) {
        std::string bytes(static_cast<const char*>(number), dtype_bytes(dtype));
        bytes.push_back(static_cast<char>(dtype));
        if (auto found = placed.find(bytes); found != placed.end()) return found->second.get();
        constexpr size_t kMostPlaced = 4096;
        if (placed.size() >= kMostPlaced) placed.clear();
        std::shared_ptr<void> made = TRY(device->allocate(static_cast<int64_t>(sizeof(int64_t))));
        auto own = TRY(device->make_stream(1));
        TRY(own->copy_to_device(made.get(), number, static_cast<int64_t>(dtype_bytes(dtype))));
        TRY(own->synchronize());
        return placed.emplace(std::move(bytes), std::move(made)).first->second.get();
    }
    // What is launched from here on, for these sizes.
    Status bind(std::vector<int64_t> all) {
        if (all == symbols && !launches.empty()) return {};
        launches.clear();
        TRY(check_sizes(all));
        std::vector<Launch> bound = TRY(bind_launches(module->kernels()[0], values(all)));
        if (!device) TRY(stream->reserve(most_local_bytes(bound)));
        launches = std::move(bound);
        symbols = std::move(all);
        return {};
    }
    Status run_bound(std::span<void* const> memory, void* on) {
        if (device) return run_on_device(memory, on);
        for (const Launch& each : launches) TRY(stream->launch(each, {memory, symbols}));
        TRY(stream->synchronize());
        if (!has_reports()) return {};
        const auto failure = take_failure();
        return failure ? Status(Error(Code::E0407, "{}", *failure).at(kernel.name)) : Status();
    }
    Status run_on_device(std::span<void* const> memory, void* on) {
        if (!by_their_address.empty()) {
            on_device.assign(memory.begin(), memory.end());
            for (size_t slot : by_their_address)
                on_device[slot] = TRY(number_on_device(memory[slot], kernel.buffers[slot].dtype));
            memory = on_device;
        }
        if (!stream || on != last_stream) stream = TRY(device->borrow_stream(on)), last_stream = on;
        for (const Launch& each : launches) TRY(stream->launch(each, {memory, symbols}));
        return {};
    }
    Status launch(const std::array<int64_t, 3>& grid, std::span<void* const> memory, std::span<const int64_t> numbers,
                  void* on) {
        TRY(check_counts(memory.size(), grid.size() + numbers.size()));
        std::lock_guard lock(busy);
        if (launches.empty() || !std::equal(grid.begin(), grid.end(), asked.begin()) ||
            !std::equal(numbers.begin(), numbers.end(), asked.begin() + grid.size())) {
            TRY(bind(all_symbols(grid, numbers)));
            asked.assign(grid.begin(), grid.end());
            asked.insert(asked.end(), numbers.begin(), numbers.end());
        }
        return run_bound(memory, on);
    }
    // Arrays come as addresses instead of buffers, and all of memory behind what is left.
    Status launch_by_address(const std::array<int64_t, 3>& grid, std::span<void* const> memory,
                             std::span<const int64_t> numbers, void* on) {
        std::vector<void*> left;
        std::vector<int64_t> all(grid.begin(), grid.end());
        size_t place = 0, number = 0;
        for (const Argument& a : arguments) {
            const bool array = a.as == Argument::As::Array, element = a.as == Argument::As::Element;
            if (place + (array || element) > memory.size() || number + !element > numbers.size())
                return Error(Code::E0402, "{} got too few addresses or numbers", kernel.name);
            if (array) all.push_back(static_cast<int64_t>(reinterpret_cast<uintptr_t>(memory[place++])));
            if (element) left.push_back(memory[place++]);
            if (!array && !element) all.push_back(numbers[number] / (device ? a.multiple : 1));
            number += !element;
        }
        all.push_back(kAllElements);
        left.resize(kernel.params, nullptr);
        TRY(check_counts(left.size(), all.size()));
        std::lock_guard lock(busy);
        TRY(bind(std::move(all)));
        return run_bound(left, on);
    }
    SymbolValues values(const std::vector<int64_t>& all) const {
        SymbolValues named;
        for (size_t i = 0; i < all.size(); ++i) named.emplace(kernel.symbols[i], all[i]);
        return named;
    }
};

Result<Function> Function::compile(const Program& program, const std::vector<Argument>& given, int grid_rank,
                                   int threads, const Target& target) {
    bool by_address = false;
    std::vector<Argument> arguments = given;
    for (Argument& a : arguments) {
        if (a.as != Argument::As::Anywhere) continue;
        a.as = Argument::As::Array;
        by_address = true;
    }
    return protect(
        "tile", {.name = "program.tile", .text = [&] { return program.to_string(); }}, [&]() -> Result<Function> {
            const Backend& backend = *TRY(find_backend(target.name));
            if (TRY(backend.offloading(target.name)))
                return Error(Code::E0604, "{} computes parts of models, and no tile programs", target.name)
                    .hint("compile it for {}", backends().front()->usual_target());
            Device* device = TRY(backend.device(target.name));
            if (device->shares_memory()) device = nullptr;
            const std::string name(device ? device->target() : target.name);
            const Machine machine = TRY(describe_target(name));
            TileKernel made_of =
                TRY(from_tile(program, arguments, grid_rank, machine,
                              {.by_address = by_address, .warps = target.warps, .stages = target.stages}));
            Kernel& kernel = made_of.kernel;
            // What a GPU says is part of its code, and not of the kernel.
            const bool kept = !device || !has_reports(kernel.body);
            auto module = kept ? TRY(cached_code({kernel}, {.target = name}, TRY(CodeCache::open({})))).module
                               : TRY(compile_kernels({kernel}, {.target = name}));
            if (device) module = TRY(device->load(module));
            std::shared_ptr<State> made(new State{.program = program,
                                                  .kernel = std::move(kernel),
                                                  .module = std::move(module),
                                                  .stream = {},
                                                  .busy = {},
                                                  .asked = {},
                                                  .symbols = {},
                                                  .launches = {},
                                                  .arguments = arguments,
                                                  .grid_rank = grid_rank,
                                                  .checked = {},
                                                  .checked_threads = false,
                                                  .by_address = made_of.by_address,
                                                  .target = target,
                                                  .device = device,
                                                  .last_stream = nullptr,
                                                  .placed = {},
                                                  .on_device = {},
                                                  .by_their_address = {}});
            made->target.name = name;
            size_t slot = 0;
            for (const Argument& a : arguments) {
                if (a.as == Argument::As::Element) made->by_their_address.push_back(slot);
                slot += a.as == Argument::As::Element || (a.as == Argument::As::Array && !made->by_address);
            }
            if (backend.makes_objects()) made->stream = TRY(cpu_device().make_stream(threads));
            return Function(std::move(made));
        });
}

Status Function::launch(const std::array<int64_t, 3>& grid, std::span<void* const> memory,
                        std::span<const int64_t> numbers, void* stream) const {
    State& s = *state_;
    if (!s.device && !s.stream)
        return Error(Code::E0701, "{} is compiled for a GPU that this machine does not have", s.kernel.name);
    if (s.by_address) return s.launch_by_address(grid, memory, numbers, stream);
    return s.launch(grid, memory, numbers, stream);
}

Status Function::interpret(const std::array<int64_t, 3>& grid, const std::vector<void*>& memory,
                           const std::vector<int64_t>& numbers, bool threads) const {
    State& s = *state_;
    if (s.by_address)
        return Error(Code::E0604, "{} accesses memory by raw addresses, which cannot be interpreted", s.kernel.name);
    std::vector<int64_t> all = s.all_symbols(grid, numbers);
    if (threads && !s.device) all = s.divided(std::move(all));
    TRY(s.check_counts(memory.size(), all.size()));
    TRY(s.check_sizes(all));
    const SymbolValues symbols = s.values(all);
    take_failure();
    std::lock_guard lock(s.busy);
    if (!s.checked || s.checked_threads != threads) {
        const TileOptions options{.apart = !threads, .warps = s.target.warps, .stages = s.target.stages};
        const Backend& backend = threads ? backend_of_blocks() : *backends().front();
        const Machine machine = TRY(backend.machine(backend.usual_target()));
        s.checked = TRY(from_tile(s.program, s.arguments, s.grid_rank, machine, options)).kernel;
        s.checked_threads = threads;
        if (threads) TRY(verify_tiles(*s.checked));
    }
    std::vector<Tensor> buffers;
    for (size_t i = 0; i < memory.size(); ++i) {
        const Buffer& buffer = s.kernel.buffers[i];
        const int64_t elements = *evaluate_int(buffer.shape[0], symbols);
        buffers.push_back(TRY(Tensor::zeros(buffer.dtype, {elements})));
        if (elements > 0)
            std::memcpy(buffers.back().mutable_data(), memory[i], static_cast<size_t>(buffers.back().bytes()));
    }
    Stmt fault;
    Status done =
        tessera::interpret(*s.checked, buffers, symbols, {.races = InterpretOptions::Races::Find, .fault = &fault});
    if (!done.ok()) {
        const Place place = place_of(s.checked->body, fault);
        const Error& e = done.error();
        return Error(e.code(), "{}", e.message()).at(place.line ? place.to_string() : e.where());
    }
    if (const auto failure = take_failure()) return Error(Code::E0407, "{}", *failure).at(s.kernel.name);
    for (size_t i = 0; i < memory.size(); ++i)
        if (buffers[i].bytes() > 0) std::memcpy(memory[i], buffers[i].data(), static_cast<size_t>(buffers[i].bytes()));
    return {};
}

Result<AheadOfTime> Function::ahead_of_time(std::string_view target) const {
    return compile_ahead(state_->program, state_->arguments, state_->grid_rank, target);
}

Result<std::string> Function::emit(std::string_view what) const {
    if (what == "tile") return state_->program.to_string();
    if (what == "kernel") return tessera::to_string(state_->kernel);
    const CodegenOptions options{.target = state_->target.name};
    if (what == "llvm") return emit_llvm({state_->kernel}, options);
    if (what == "asm") return emit_assembly({state_->kernel}, options);
    // Blocks, where it is compiled for something else, are those of the usual target that has them.
    const bool here = TRY(describe_target(options.target)).blocks;
    const Backend& of_blocks = here ? *TRY(find_backend(options.target)) : backend_of_blocks();
    if (what == "blocks" || what == of_blocks.assembly() || what == "layouts") {
        const std::string gpu = here ? options.target : std::string(of_blocks.usual_target());
        const Machine machine = TRY(of_blocks.machine(gpu));
        if (what == "layouts")
            return draw_layouts(state_->program, state_->arguments, state_->grid_rank, machine, state_->target.warps);
        const Kernel kernel =
            TRY(from_tile(
                    state_->program, state_->arguments, state_->grid_rank, machine,
                    {.by_address = state_->by_address, .warps = state_->target.warps, .stages = state_->target.stages}))
                .kernel;
        if (what == "blocks") return tessera::to_string(kernel);
        // For whoever launches it by himself.
        std::string text;
        for (const CompiledKernel& each : TRY(list_launches({kernel}, machine)))
            for (const KernelLaunch& launch : each.launches)
                text += fmt::format("// {}: blocks of 4 x 8 x {} threads, {} bytes of shared memory with the launch\n",
                                    launch.symbol, state_->target.warps, launch.shape.shared_bytes);
        return text + TRY(emit_assembly({kernel}, {.target = gpu}));
    }
    return Error(Code::E0501, "a tile program has no stage \"{}\"", what)
        .hint("tile, kernel, llvm, asm, blocks, {} or layouts", of_blocks.assembly());
}

}  // namespace tessera::tile
