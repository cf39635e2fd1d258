// Where each field of an instruction lies in its 256 bits, and its name in text: the one table behind encoding,
// decoding, printing and parsing. fields(op, f) calls f(name, member, first bit, width) for each; bits that no field
// has are 0.
#pragma once

#include <array>
#include <string_view>

#include "kernel/accelerator/instruction.h"

namespace tessera::accelerator {

enum class Opcode : uint8_t { None, Load, Store, Gemm, Alu, Finish };  // None: memory that is 0 is no instruction

constexpr std::array<std::string_view, 6> kOpcodes{"", "load", "store", "gemm", "alu", "finish"};
constexpr std::array<std::string_view, 4> kScratchpads{"inp", "wgt", "acc", "uop"};
constexpr std::array<std::string_view, 3> kElements{"wide", "int8", "uint8"};
constexpr std::array<std::string_view, 4> kInits{"never", "always", "first_uop", "first_outer"};
constexpr std::array<std::string_view, 3> kSecondOperands{"row", "immediate", "destination"};
constexpr std::array<std::string_view, 14> kAluOps{"add",       "sub",       "mul",   "mac",        "min",
                                                   "max",       "shr",       "scale", "dequantize", "dequantize_add",
                                                   "float_add", "float_mul", "round", "quantize"};

constexpr const auto& names(Scratchpad) { return kScratchpads; }
constexpr const auto& names(Element) { return kElements; }
constexpr const auto& names(Init) { return kInits; }
constexpr const auto& names(SecondOperand) { return kSecondOperands; }
constexpr const auto& names(AluOp) { return kAluOps; }

// A value of type T, const when its fields are only read.
template <typename U, typename T>
concept Any = std::is_same_v<std::remove_const_t<U>, T>;

template <Any<Tokens> T, typename F>
void fields(T& t, F&& f) {
    f("pop_previous", t.pop_previous, 3, 1);
    f("pop_next", t.pop_next, 4, 1);
    f("push_previous", t.push_previous, 5, 1);
    f("push_next", t.push_next, 6, 1);
}

template <Any<Load> T, typename F>
void fields(T& t, F&& f) {
    f("to", t.to, 7, 2);
    f("element", t.element, 9, 2);
    f("pad_value", t.pad_value, 16, 8);
    f("address", t.address, 32, 32);
    f("row", t.row, 64, 16);
    f("x", t.x, 80, 16);
    f("y", t.y, 96, 16);
    f("z", t.z, 112, 16);
    f("x_stride", t.x_stride, 128, 32);
    f("y_stride", t.y_stride, 160, 32);
    f("z_stride", t.z_stride, 192, 32);
    f("top", t.top, 224, 8);
    f("bottom", t.bottom, 232, 8);
    f("left", t.left, 240, 8);
    f("right", t.right, 248, 8);
}

template <Any<Store> T, typename F>
void fields(T& t, F&& f) {
    f("element", t.element, 9, 2);
    f("address", t.address, 32, 32);
    f("row", t.row, 64, 16);
    f("x", t.x, 80, 16);
    f("y", t.y, 96, 16);
    f("z", t.z, 112, 16);
    f("x_stride", t.x_stride, 128, 32);
    f("y_stride", t.y_stride, 160, 32);
    f("z_stride", t.z_stride, 192, 32);
    f("y_pitch", t.y_pitch, 224, 16);
    f("z_pitch", t.z_pitch, 240, 16);
}

template <Any<Loop> T, typename F>
void fields(T& t, F&& f) {
    f("uop", t.uop, 32, 16);
    f("uops", t.uops, 48, 16);
    f("outer", t.outer, 64, 16);
    f("inner", t.inner, 80, 16);
}

template <Any<Gemm> T, typename F>
void fields(T& t, F&& f) {
    f("init", t.init, 7, 2);
    f("from_bias", t.from_bias, 9, 1);
    f("unsigned_inp", t.unsigned_inp, 10, 1);
    f("bias", t.bias, 16, 16);
    fields(t.loop, f);
    f("acc", t.acc.base, 96, 16);
    f("acc.outer", t.acc.outer, 112, 16);
    f("acc.inner", t.acc.inner, 128, 16);
    f("inp", t.inp.base, 144, 16);
    f("inp.outer", t.inp.outer, 160, 16);
    f("inp.inner", t.inp.inner, 176, 16);
    f("wgt", t.wgt.base, 192, 16);
    f("wgt.outer", t.wgt.outer, 208, 16);
    f("wgt.inner", t.wgt.inner, 224, 16);
}

// `b` stands before the row and the immediate: only the one that it names has bits.
template <Any<Alu> T, typename F>
void fields(T& t, F&& f) {
    f("op", t.op, 16, 4);
    f("b", t.b, 7, 2);
    if (t.b == SecondOperand::Row) f("row", t.row, 192, 16);
    if (t.b == SecondOperand::Immediate) f("immediate", t.immediate, 192, 32);
    f("clip", t.clip, 9, 1);
    f("addend", t.addend, 20, 12);
    fields(t.loop, f);
    f("dst", t.dst.base, 96, 16);
    f("dst.outer", t.dst.outer, 112, 16);
    f("dst.inner", t.dst.inner, 128, 16);
    f("a", t.a.base, 144, 16);
    f("a.outer", t.a.outer, 160, 16);
    f("a.inner", t.a.inner, 176, 16);
    f("low", t.low, 224, 16);
    f("high", t.high, 240, 16);
}

template <Any<Finish> T, typename F>
void fields(T&, F&&) {}

}  // namespace tessera::accelerator
