// Bytes someone else owns, with a share in that owner: a view into a mapped file, or into a string of its own.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace tessera::onnx {

class Bytes {
  public:
    Bytes() = default;  // absent, which is not the same as present and empty
    Bytes(std::string_view view, std::shared_ptr<const void> owner) : view_(view), owner_(std::move(owner)) {
        if (!view_.data()) view_ = "";
    }
    // The bytes become this object's own.
    static Bytes own(std::string text) {
        auto held = std::make_shared<const std::string>(std::move(text));
        return Bytes(*held, held);
    }

    bool present() const { return view_.data() != nullptr; }
    bool empty() const { return view_.empty(); }
    size_t size() const { return view_.size(); }
    const char* data() const { return view_.data(); }
    std::string_view view() const { return view_; }
    // Null if the caller of the reader owns the bytes.
    const std::shared_ptr<const void>& owner() const { return owner_; }
    bool operator==(const Bytes& other) const { return present() == other.present() && view_ == other.view_; }

  private:
    std::string_view view_;
    std::shared_ptr<const void> owner_;
};

}  // namespace tessera::onnx
