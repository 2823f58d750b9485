// One-line errors from LibTorch's exceptions.
#pragma once

#include <string_view>

#include <c10/util/Exception.h>

#include "converter/pooling/inputs/pool_method.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {

/// Calls `work`. Out of memory, or an eigenproblem that does not converge, becomes kEnvironment.
template <typename Work>
auto with_pooling_errors(PoolMethod method, const Work& work) {
  try {
    return work();
  } catch (const c10::Error& fault) {
    const std::string_view text = fault.what_without_backtrace();
    throw_environment("pooling method {}: {}", name_of(method),
                      printable(text.substr(0, text.find('\n'))));
  }
}

}  // namespace regroup
