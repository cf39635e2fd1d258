#include <cstring>

#include "shard/local_program.h"

namespace tessera::shard {
namespace {

// Calls f(offset in the tensor, offset in the box, count) for each run of consecutive elements.
template <typename F>
void for_each_run(const Box& held, const Box& box, const F& f) {
    const int64_t elements = volume(box);
    if (elements == 0) return;
    const size_t rank = box.size();
    const int64_t run = rank == 0 ? 1 : box[rank - 1].length();
    std::vector<int64_t> at(rank, 0);
    for (int64_t done = 0; done < elements; done += run) {
        int64_t offset = 0;
        for (size_t d = 0; d < rank; ++d) offset = offset * held[d].length() + box[d].low - held[d].low + at[d];
        f(offset, done, run);
        for (size_t d = rank > 0 ? rank - 1 : 0; d-- > 0;) {
            if (++at[d] < box[d].length()) break;
            at[d] = 0;
        }
    }
}

}  // namespace

Result<Tensor> cut(const Tensor& tensor, const Box& held, const Box& box) {
    if (held == box) return tensor;
    Tensor out = TRY(Tensor::zeros(tensor.dtype(), lengths(box)));
    const size_t size = dtype_bytes(tensor.dtype());
    for_each_run(held, box, [&](int64_t from, int64_t to, int64_t count) {
        std::memcpy(static_cast<char*>(out.mutable_data()) + size_t(to) * size,
                    static_cast<const char*>(tensor.data()) + size_t(from) * size, size_t(count) * size);
    });
    return out;
}

void paste(Tensor& tensor, const Box& held, const Box& box, const void* elements) {
    const size_t size = dtype_bytes(tensor.dtype());
    for_each_run(held, box, [&](int64_t to, int64_t from, int64_t count) {
        std::memcpy(static_cast<char*>(tensor.mutable_data()) + size_t(to) * size,
                    static_cast<const char*>(elements) + size_t(from) * size, size_t(count) * size);
    });
}

}  // namespace tessera::shard
