// Small damage to a file, from a seed.
#pragma once

#include <algorithm>
#include <random>
#include <string>

namespace tessera {

inline std::string mutate(std::string bytes, std::mt19937_64& random) {
    auto below = [&](size_t n) { return n ? static_cast<size_t>(random() % n) : 0; };
    for (size_t rounds = 1 + below(4); rounds > 0 && !bytes.empty(); --rounds) {
        size_t at = below(bytes.size());
        size_t length = std::min(bytes.size() - at, 1 + below(16));
        switch (below(8)) {
            case 0: bytes.resize(at); break;                                            // truncate
            case 1: bytes[at] = static_cast<char>(random()); break;                     // any byte
            case 2: bytes[at] ^= static_cast<char>(1 << below(8)); break;               // one bit
            case 3: bytes.erase(at, length); break;                                     // drop
            case 4: bytes.insert(at, bytes.substr(at, length)); break;                  // repeat
            case 5: bytes.insert(at, length, static_cast<char>(random())); break;       // insert
            case 6: std::fill_n(bytes.begin() + at, length, '\xff'); break;             // huge varints
            case 7: std::swap_ranges(bytes.begin() + at, bytes.begin() + at + length / 2,
                                     bytes.begin() + at + length - length / 2); break;  // reorder
        }
    }
    return bytes;
}

}  // namespace tessera
