#include "kernel/interpret/touch_log.h"

#include "base/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tessera {

void TouchLog::begin_launch(const char* name) {
    name_ = name;
    ++launch_;
    ++interval_;
    blocks_.assign(1, {});
}

void TouchLog::begin_block(std::vector<int64_t> place) {
    ++interval_;
    blocks_.push_back(std::move(place));
}

void TouchLog::begin_threads(std::vector<int64_t> extents) {
    ++interval_;
    extents_ = std::move(extents);
}

void TouchLog::end_threads() {
    ++interval_;
    extents_.clear();
    thread_ = 0;
}

std::optional<int64_t> TouchLog::Touchers::other(int64_t now, int64_t who, bool writes) const {
    if (since != now) return std::nullopt;
    if (writer != kNobody && writer != who) return writer;
    if (writes)
        for (int64_t reader : readers)
            if (reader != kNobody && reader != who) return reader;
    return std::nullopt;
}

void TouchLog::Touchers::note(int64_t now, int64_t who, bool writes) {
    if (since != now) *this = {.since = now};
    if (writes)
        writer = who;
    else if (readers[0] == kNobody || readers[0] == who)
        readers[0] = who;
    else
        readers[1] = who;
}

std::string TouchLog::thread_text(int64_t number) const {
    std::vector<int64_t> place(extents_.size());
    for (size_t i = extents_.size(); i-- > 0;) {
        place[i] = number % extents_[i];
        number /= extents_[i];
    }
    return fmt::format("thread [{}]", fmt::join(place, ", "));
}

std::string TouchLog::block_text(int64_t number) const {
    return fmt::format("{} [{}]", name_, fmt::join(blocks_[static_cast<size_t>(number)], ", "));
}

std::optional<std::string> TouchLog::touch(size_t buffer, bool shared, int64_t offset, bool writes) {
    if (launch_ == 0) return std::nullopt;
    std::vector<Element>& all = elements_[buffer];
    if (static_cast<size_t>(offset) >= all.size()) all.resize(static_cast<size_t>(offset) + 1);
    Element& e = all[static_cast<size_t>(offset)];
    const char *verb = writes ? "writes" : "reads", *had = "has written";
    const auto block = static_cast<int64_t>(blocks_.size()) - 1;
    if (std::optional<int64_t> other = e.threads.other(interval_, thread_, writes)) {
        if (*other != e.threads.writer) had = "has read";
        return fmt::format("{} {} what {} {}, with no barrier between", thread_text(thread_), verb, thread_text(*other),
                           had);
    }
    e.threads.note(interval_, thread_, writes);
    if (shared) return std::nullopt;
    if (std::optional<int64_t> other = e.blocks.other(launch_, block, writes)) {
        if (*other != e.blocks.writer) had = "has read";
        return fmt::format("{} {} what {} {}", block_text(block), verb, block_text(*other), had);
    }
    e.blocks.note(launch_, block, writes);
    return std::nullopt;
}

}  // namespace tessera
