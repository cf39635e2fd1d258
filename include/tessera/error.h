// User errors as values: code, message, location, note and hint. Result<T> carries an error; TESSERA_TRY propagates it.
#pragma once

#include <concepts>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera {

enum class Code : int {
#define TESSERA_CODE(name, title) name,
#include "tessera/codes.def"
#undef TESSERA_CODE
};

std::string_view version();  // of this library

std::string_view code_name(Code code);   // "E0210"
std::string_view code_title(Code code);  // "shape mismatch"
std::vector<Code> all_codes();

namespace detail {
// A format string with {} for arguments. Defined only inside the library; your own errors take formatted text.
template <typename... Args>
struct Format;
template <typename T>
concept Text = std::convertible_to<T, std::string_view>;
}  // namespace detail

class [[nodiscard]] Error {
   public:
    template <detail::Text T>
    Error(Code code, const T& message)
        : data_(std::make_unique<Data>(Data{code, std::string(std::string_view(message)), {}, {}, {}})) {}
    template <typename... Args>
    Error(Code code, detail::Format<std::type_identity_t<Args>...> message, Args&&... args);

    Error(const Error& other) : data_(std::make_unique<Data>(*other.data_)) {}
    Error(Error&&) noexcept = default;
    Error& operator=(const Error& other) {
        data_ = std::make_unique<Data>(*other.data_);
        return *this;
    }
    Error& operator=(Error&&) noexcept = default;

    // Sets the location unless there is one already: the innermost location is kept.
    Error& at(std::string where) & {
        if (data_->where.empty()) data_->where = std::move(where);
        return *this;
    }
    Error&& at(std::string where) && { return std::move(at(std::move(where))); }

    template <detail::Text T>
    Error&& note(const T& text) && {
        data_->note = std::string_view(text);
        return std::move(*this);
    }
    template <typename... Args>
    Error&& note(detail::Format<std::type_identity_t<Args>...> text, Args&&... args) &&;
    template <detail::Text T>
    Error&& hint(const T& text) && {
        data_->hint = std::string_view(text);
        return std::move(*this);
    }
    template <typename... Args>
    Error&& hint(detail::Format<std::type_identity_t<Args>...> text, Args&&... args) &&;

    Code code() const { return data_->code; }
    const std::string& message() const { return data_->message; }
    const std::string& where() const { return data_->where; }
    const std::string& note() const { return data_->note; }
    const std::string& hint() const { return data_->hint; }
    std::string to_string() const;  // all parts, one line each, as the command line prints it

   private:
    struct Data {
        Code code;
        std::string message, where, note, hint;
    };
    std::unique_ptr<Data> data_;
};

// A fault in a model that does not prevent its use. Strict loading turns it into an error.
struct Warning {
    Code code;
    std::string message, where = {}, hint = {};
    std::string to_string() const;  // same format as Error::to_string
    bool operator==(const Warning&) const = default;
};

namespace detail {
// Each prints a message and aborts: the value of a failed Result was used, or the error of a successful one.
[[noreturn]] void used_without_value(const Error& error);
[[noreturn]] void used_without_error();
}  // namespace detail

// A value or an error. Accessing the one that it does not hold prints a message and aborts.
template <typename T>
class [[nodiscard]] Result {
   public:
    Result(T value) : value_(std::in_place, std::move(value)) {}
    Result(Error error) : error_(std::move(error)) {}
    template <typename U>
        requires(std::is_convertible_v<U, T> && !std::is_same_v<std::decay_t<U>, T> &&
                 !std::is_same_v<std::decay_t<U>, Error> && !std::is_same_v<std::decay_t<U>, Result>)
    Result(U&& value) : value_(std::in_place, std::forward<U>(value)) {}

    bool ok() const { return value_.has_value(); }
    explicit operator bool() const { return ok(); }
    T& value() & { return held(); }
    const T& value() const& { return held(); }
    T&& value() && { return std::move(held()); }
    T& operator*() & { return held(); }
    const T& operator*() const& { return held(); }
    T&& operator*() && { return std::move(held()); }
    T* operator->() { return &held(); }
    const T* operator->() const { return &held(); }
    Error& error() & { return failure(); }
    const Error& error() const& { return failure(); }
    Error&& error() && { return std::move(failure()); }

   private:
    T& held() {
        if (!value_) [[unlikely]] detail::used_without_value(*error_);
        return *value_;
    }
    const T& held() const { return const_cast<Result*>(this)->held(); }
    Error& failure() {
        if (!error_) [[unlikely]] detail::used_without_error();
        return *error_;
    }
    const Error& failure() const { return const_cast<Result*>(this)->failure(); }

    std::optional<T> value_;
    std::optional<Error> error_;
};

template <>
class [[nodiscard]] Result<void> {
   public:
    Result() = default;
    Result(Error error) : error_(std::move(error)) {}
    bool ok() const { return !error_; }
    explicit operator bool() const { return ok(); }
    void value() const {
        if (error_) [[unlikely]] detail::used_without_value(*error_);
    }
    Error& error() & { return failure(); }
    const Error& error() const& { return failure(); }
    Error&& error() && { return std::move(failure()); }

   private:
    Error& failure() {
        if (!error_) [[unlikely]] detail::used_without_error();
        return *error_;
    }
    const Error& failure() const { return const_cast<Result*>(this)->failure(); }

    std::optional<Error> error_;
};

using Status = Result<void>;

// Evaluates to the value of a Result, or returns its error from the enclosing function.
#define TESSERA_TRY(...)                                                      \
    ({                                                                        \
        auto tessera_result_ = (__VA_ARGS__);                                 \
        if (!tessera_result_.ok()) return std::move(tessera_result_).error(); \
        std::move(tessera_result_).value();                                   \
    })

}  // namespace tessera
