// The evidence for a claim, as text that check_certificate replays without the prover.
#pragma once

#include <string>

namespace tessera {

struct Certificate {
    std::string text;
    bool empty() const { return text.empty(); }
};

}  // namespace tessera
