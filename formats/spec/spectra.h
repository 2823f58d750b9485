// Models whose encoder reads spectra of sound.
#pragma once

#include <string_view>

namespace regroup {

/// Their ModelSpec::not_computable. `eval --features` computes them all the same.
inline constexpr std::string_view kReadsSpectra =
    "its encoder reads audio, which only regroup eval --features gives it";

}  // namespace regroup
