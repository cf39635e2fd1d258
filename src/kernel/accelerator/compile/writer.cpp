#include "kernel/accelerator/compile/writer.h"

#include <algorithm>

#include "base/check.h"

namespace tessera::accelerator {
namespace {

constexpr int64_t kAlignment = 64, kMostMemory = int64_t(1) << 31;

uint16_t u16(int64_t v) {
    CHECK(v >= 0 && v <= UINT16_MAX, "{} does not fit a field of 16 bits", v);
    return uint16_t(v);
}
uint8_t u8(int64_t v) {
    CHECK(v >= 0 && v <= UINT8_MAX, "{} does not fit a field of 8 bits", v);
    return uint8_t(v);
}

// The part of [from, from + size) that is inside [0, extent), and what is left on both sides.
struct Clipped {
    int64_t before, from, size, after;
};
Clipped clip(int64_t from, int64_t size, int64_t extent, int64_t pitch) {
    const int64_t begin = std::clamp<int64_t>(from, 0, extent), end = std::clamp<int64_t>(from + size, begin, extent);
    const int64_t before = std::min(std::max<int64_t>(0, -from), pitch);
    const int64_t inside = std::min(end - begin, pitch - before);
    return {before, begin, inside, pitch - before - inside};
}

}  // namespace

Result<uint32_t> Writer::place(int64_t bytes) {
    const auto at = int64_t(image_.size());
    const int64_t end = (at + bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (end > kMostMemory)
        return Error(Code::E0408, "the network needs more than {} bytes of the accelerator's memory", kMostMemory);
    image_.resize(size_t(end));
    return uint32_t(at);
}

Result<uint32_t> Writer::place(std::span<const uint8_t> contents) {
    const uint32_t at = TRY(place(int64_t(contents.size())));
    std::copy(contents.begin(), contents.end(), image_.begin() + at);
    return at;
}

Result<uint16_t> Writer::uops(const std::vector<Uop>& list) {
    for (auto* known : {&cached_, &wanted_})
        for (const auto& [there, at] : *known)
            if (there.size() >= list.size() && std::equal(list.begin(), list.end(), there.begin())) return u16(at);
    const auto count = int64_t(list.size());
    if (next_uop_ + count > machine_.uops) {
        if (!wanted_.empty() || count > machine_.uops)
            return Error(Code::E0601, "a layer needs more than the {} micro-ops of {}", machine_.uops, machine_.name);
        cached_.resize(1);
        next_uop_ = 1;
    }
    wanted_.emplace_back(list, next_uop_);
    next_uop_ += count;
    return u16(wanted_.back().second);
}

Status Writer::load_uops(std::vector<Instruction>& loads) {
    for (auto& [list, at] : wanted_) {
        std::vector<uint8_t> bytes;
        for (const Uop& u : list) {
            const auto encoded = encode(u);
            bytes.insert(bytes.end(), encoded.begin(), encoded.end());
        }
        const uint32_t address = TRY(place(bytes));
        loads.push_back({.tokens = {},
                         .op = Load{.to = Scratchpad::Uop,
                                    .address = address,
                                    .row = u16(at),
                                    .x = u16(int64_t(list.size())),
                                    .x_stride = kUopBytes}});
        cached_.emplace_back(std::move(list), at);
    }
    wanted_.clear();
    return {};
}

void Writer::load(std::vector<Instruction>& loads, Scratchpad to, int64_t row, const Place& from, const Box& box,
                  int64_t padding) const {
    const int64_t lanes = to == Scratchpad::Inp ? machine_.inputs : machine_.outputs;
    const int64_t rows = from.lanes / lanes;  // of a block
    const Clipped y = clip(box.y, box.height, parts(from.is.height, box.step_y), box.pitch_y);
    const Clipped x = clip(box.x, box.width, parts(from.is.width, box.step_x), box.pitch_x);
    Load each{.to = to, .pad_value = uint8_t(padding), .x = u16(x.size), .y = u16(y.size)};
    if (to == Scratchpad::Acc) each.element = from.is.dtype == DType::u8 ? Element::Uint8 : Element::Int8;
    each.x_stride = uint32_t(from.pixel() * box.step_x);
    each.y_stride = uint32_t(from.line() * box.step_y);
    each.top = u8(y.before);
    each.bottom = u8(y.after);
    each.left = u8(x.before);
    each.right = u8(x.after);
    const auto add = [&](int64_t plane, int64_t count, int64_t at) {
        Load l = each;
        const int64_t block = box.image * from.blocks() + plane / rows;
        l.address = from.address + uint32_t(block * from.plane() + y.from * box.step_y * from.line() +
                                            x.from * box.step_x * from.pixel() + plane % rows * lanes * from.element());
        l.row = u16(at);
        l.z = u16(count);
        l.z_stride = uint32_t(from.plane());
        loads.push_back({.tokens = {}, .op = l});
    };
    if (rows == 1) return add(box.plane, box.planes, row);
    for (int64_t p = 0; p < box.planes; ++p) add(box.plane + p, 1, row + p * box.pitch_y * box.pitch_x);
}

void Writer::store(std::vector<Instruction>& stores, int64_t row, const Place& to, const Box& box) const {
    const int64_t rows = to.lanes / machine_.outputs;
    Store each{.element = to.is.dtype == DType::i32  ? Element::Wide
                          : to.is.dtype == DType::u8 ? Element::Uint8
                                                     : Element::Int8};
    each.x = u16(box.width);
    each.y = u16(box.height);
    each.y_pitch = u16(box.pitch_x);
    each.x_stride = uint32_t(to.pixel());
    each.y_stride = uint32_t(to.line());
    const auto add = [&](int64_t plane, int64_t count, int64_t at) {
        Store s = each;
        const int64_t block = box.image * to.blocks() + plane / rows;
        s.address = to.address + uint32_t(block * to.plane() + box.y * to.line() + box.x * to.pixel() +
                                          plane % rows * machine_.outputs * to.element());
        s.row = u16(at);
        s.z = u16(count);
        s.z_pitch = u16(box.pitch_y * box.pitch_x);
        s.z_stride = uint32_t(to.plane());
        stores.push_back({.tokens = {}, .op = s});
    };
    if (rows == 1) return add(box.plane, box.planes, row);
    for (int64_t p = 0; p < box.planes; ++p) add(box.plane + p, 1, row + p * box.pitch_y * box.pitch_x);
}

void Writer::add_loads(std::vector<Instruction> loads, bool wait) {
    CHECK(!loads.empty(), "a step of an accelerator's program loads nothing");
    loads.front().tokens.pop_next = wait;
    loads.back().tokens.push_next = true;
    program_.insert(program_.end(), loads.begin(), loads.end());
}

void Writer::add_compute(std::vector<Instruction> compute, Tokens tokens) {
    CHECK(!compute.empty(), "a step of an accelerator's program computes nothing");
    compute.front().tokens.pop_previous |= tokens.pop_previous;
    compute.front().tokens.pop_next |= tokens.pop_next;
    compute.back().tokens.push_previous |= tokens.push_previous;
    compute.back().tokens.push_next |= tokens.push_next;
    program_.insert(program_.end(), compute.begin(), compute.end());
}

void Writer::add_stores(std::vector<Instruction> stores, bool give_back) {
    stores.front().tokens.pop_previous = true;
    stores.back().tokens.push_previous = give_back;
    program_.insert(program_.end(), stores.begin(), stores.end());
}

void Writer::barrier(int64_t dummy) {
    Instruction wait{.tokens = {.pop_next = true, .push_previous = true}, .op = Gemm{}};
    if (machine_.alu)
        wait.op = Alu{
            .op = AluOp::Min, .dst = {.base = u16(dummy)}, .a = {.base = u16(dummy)}, .b = SecondOperand::Immediate};
    else
        wait.op = Gemm{.acc = {.base = u16(dummy)}, .init = Init::Always};
    program_.push_back(wait);
}

}  // namespace tessera::accelerator
