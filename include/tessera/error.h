// User errors as values: code, message, location, note and hint. Result<T> carries an error; TRY propagates it.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
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

class [[nodiscard]] Error {
   public:
    template <typename... Args>
    Error(Code code, fmt::format_string<Args...> text, Args&&... args)
        : data_(std::make_unique<Data>(Data{code, fmt::format(text, std::forward<Args>(args)...), {}, {}, {}})) {}

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

    template <typename... Args>
    Error&& note(fmt::format_string<Args...> text, Args&&... args) && {
        data_->note = fmt::format(text, std::forward<Args>(args)...);
        return std::move(*this);
    }
    template <typename... Args>
    Error&& hint(fmt::format_string<Args...> text, Args&&... args) && {
        data_->hint = fmt::format(text, std::forward<Args>(args)...);
        return std::move(*this);
    }

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
    T& value() & { return *value_; }
    const T& value() const& { return *value_; }
    T&& value() && { return std::move(*value_); }
    T& operator*() & { return *value_; }
    const T& operator*() const& { return *value_; }
    T&& operator*() && { return std::move(*value_); }
    T* operator->() { return &*value_; }
    const T* operator->() const { return &*value_; }
    Error& error() & { return *error_; }
    const Error& error() const& { return *error_; }
    Error&& error() && { return std::move(*error_); }

   private:
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
    void value() const {}
    Error& error() & { return *error_; }
    const Error& error() const& { return *error_; }
    Error&& error() && { return std::move(*error_); }

   private:
    std::optional<Error> error_;
};

using Status = Result<void>;

// Evaluates to the value of a Result, or returns its error from the enclosing function.
#define TRY(...)                                                   \
    ({                                                             \
        auto try_result_ = (__VA_ARGS__);                          \
        if (!try_result_.ok()) return std::move(try_result_).error(); \
        std::move(try_result_).value();                            \
    })

}  // namespace tessera
