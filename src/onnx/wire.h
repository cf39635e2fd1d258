// A cursor over the fields of one protobuf message, on protozero's varints. It stands instead of protozero's own reader
// because lengths here are 64 bits wide, wire types are always checked, and a failure knows its byte. Throws
// WireFailure.
#pragma once

#include <protozero/varint.hpp>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace tessera::onnx {

enum class Wire : uint8_t { Varint = 0, Fixed64 = 1, Bytes = 2, Fixed32 = 5 };

// Caught inside this folder and turned into an Error there.
struct WireFailure {
    enum class Kind { Truncated, Malformed, TooDeep, TooLarge };
    Kind kind;
    const char* at;  // the byte where it was noticed
    std::string what;
};

// Reads one varint and moves `at` behind it.
inline uint64_t read_varint(const char** at, const char* end) {
    try {
        return protozero::decode_varint(at, end);
    } catch (const protozero::end_of_buffer_exception&) {
        throw WireFailure{WireFailure::Kind::Truncated, *at, "the bytes end inside a number"};
    } catch (const protozero::exception&) {
        throw WireFailure{WireFailure::Kind::Malformed, *at, "a number of more than ten bytes"};
    }
}

class Cursor {
  public:
    explicit Cursor(std::string_view bytes) : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

    // Moves to the next field; false at the end of the message.
    bool next() {
        if (at_ == end_) return false;
        field_start_ = at_;
        uint64_t tag = read_varint(&at_, end_);
        uint64_t field = tag >> 3;
        if (field == 0 || field > kLastField) malformed("there is no field " + std::to_string(field));
        field_ = static_cast<uint32_t>(field);
        wire_ = static_cast<Wire>(tag & 7);
        if (wire_ != Wire::Varint && wire_ != Wire::Fixed64 && wire_ != Wire::Bytes && wire_ != Wire::Fixed32)
            malformed("wire type " + std::to_string(tag & 7) + " is not in use");
        return true;
    }

    uint32_t field() const { return field_; }
    Wire wire() const { return wire_; }

    uint64_t varint() {
        expect(Wire::Varint);
        return read_varint(&at_, end_);
    }
    std::string_view bytes() {
        expect(Wire::Bytes);
        return bytes_here();
    }
    float float32() {
        expect(Wire::Fixed32);
        float value;
        std::memcpy(&value, take(4).data(), 4);
        return value;
    }
    // The encoded elements of a repeated number, whether this field holds one or, packed, many.
    std::string_view packed(Wire element) {
        if (wire_ != Wire::Bytes) {
            expect(element);
            return payload();
        }
        std::string_view view = bytes_here();
        size_t width = element == Wire::Fixed32 ? 4 : element == Wire::Fixed64 ? 8 : 1;
        if (view.size() % width != 0)
            malformed(std::to_string(view.size()) + " bytes are not a whole number of " + std::to_string(width) +
                      "-byte elements");
        return view;
    }
    void skip() { payload(); }

  private:
    static constexpr uint64_t kLastField = (1u << 29) - 1;

    [[noreturn]] void malformed(std::string what) const {
        throw WireFailure{WireFailure::Kind::Malformed, field_start_, std::move(what)};
    }

    void expect(Wire wanted) const {
        if (wire_ != wanted)
            malformed("wire type " + std::to_string(int(wire_)) + " where " + std::to_string(int(wanted)) + " belongs");
    }

    std::string_view bytes_here() { return take(read_varint(&at_, end_)); }

    std::string_view take(uint64_t size) {
        auto left = static_cast<uint64_t>(end_ - at_);
        if (size > left)
            throw WireFailure{WireFailure::Kind::Truncated, at_,
                              std::to_string(size) + " bytes are announced, " + std::to_string(left) + " are left"};
        std::string_view view(at_, size);
        at_ += size;
        return view;
    }

    // The current field's payload, whatever its wire type; of a length-delimited one without the length.
    std::string_view payload() {
        switch (wire_) {
            case Wire::Varint: {
                const char* start = at_;
                read_varint(&at_, end_);
                return {start, static_cast<size_t>(at_ - start)};
            }
            case Wire::Fixed64: return take(8);
            case Wire::Fixed32: return take(4);
            case Wire::Bytes: return bytes_here();
        }
        return {};
    }

    const char* at_;
    const char* end_;
    const char* field_start_ = nullptr;
    uint32_t field_ = 0;
    Wire wire_ = Wire::Varint;
};

}  // namespace tessera::onnx
