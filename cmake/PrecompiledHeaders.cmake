# The headers that take longest to compile, by user. Measured with GCC 12: a file of uptrain/ takes a third of
# the time with them. CLI11 is not among them: its header defines objects with initialisation code, which cost
# every file nine seconds, whether it used them or not.

set(_standard <algorithm> <cmath> <cstdint> <filesystem> <functional> <map> <memory> <optional> <set> <span>
  <string> <string_view> <utility> <vector>)
set(_fmt <fmt/format.h> <fmt/ranges.h>)
set(_catch2 <catch2/catch_test_macros.hpp> <catch2/generators/catch_generators.hpp>
  <catch2/matchers/catch_matchers.hpp> <catch2/matchers/catch_matchers_string.hpp>)
set(_libtorch <ATen/core/Tensor.h> <ATen/core/grad_mode.h> <ATen/TensorOperators.h>)

regroup_precompiled_headers(formats HEADERS ${_standard} ${_fmt} <nlohmann/json.hpp>)
if(REGROUP_LIBTORCH)
  regroup_precompiled_headers(libtorch HEADERS ${_standard} ${_fmt} ${_libtorch} LINK LibTorch::LibTorch)
endif()

if(REGROUP_TESTS)
  regroup_precompiled_headers(tests HEADERS ${_standard} ${_fmt} <nlohmann/json.hpp> ${_catch2}
    LINK Catch2::Catch2)
  if(REGROUP_LIBTORCH)
    # LibTorch first: both define CHECK, and a test means Catch2's.
    regroup_precompiled_headers(libtorch_tests HEADERS ${_standard} ${_fmt} ${_libtorch} <nlohmann/json.hpp>
      ${_catch2} LINK LibTorch::LibTorch Catch2::Catch2)
  endif()
endif()
