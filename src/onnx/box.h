// At most one T on the heap, copied and compared by value: for messages that contain their own kind.
#pragma once

#include <memory>
#include <utility>

namespace tessera::onnx {

template <typename T>
class Box {
  public:
    Box() = default;
    Box(T value) : held_(new T(std::move(value))) {}
    Box(const Box& other) : held_(other.held_ ? new T(*other.held_) : nullptr) {}
    Box(Box&&) noexcept = default;
    Box& operator=(const Box& other) {
        if (this != &other) held_.reset(other.held_ ? new T(*other.held_) : nullptr);
        return *this;
    }
    Box& operator=(Box&&) noexcept = default;

    explicit operator bool() const { return held_ != nullptr; }
    T& operator*() { return *held_; }
    const T& operator*() const { return *held_; }
    T* operator->() { return held_.get(); }
    const T* operator->() const { return held_.get(); }
    // The contained value, created if empty.
    T& ensure() {
        if (!held_) held_.reset(new T());
        return *held_;
    }
    void reset() { held_.reset(); }
    bool operator==(const Box& other) const {
        return held_ && other.held_ ? *held_ == *other.held_ : !held_ && !other.held_;
    }

  private:
    std::unique_ptr<T> held_;
};

}  // namespace tessera::onnx
