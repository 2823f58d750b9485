// FlashAttention's own operators on the paper device, which code calls that merges the results of
// several calls. They are computed by the CPU's kernel, which takes the same logarithms of sums.
#include <array>
#include <tuple>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include "tests/paper/paper_state.h"

namespace regroup {
namespace {

using Flash = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt,
                         at::Tensor, at::Tensor, at::Tensor>;

at::Tensor empty_like_host(const at::Tensor& host, const at::Tensor& like) {
  return at::empty_strided(host.sizes(), host.strides(), like.options().dtype(host.dtype()));
}

at::Tensor on_paper(const at::Tensor& host, const at::Tensor& like) {
  at::Tensor paper = empty_like_host(host, like);
  on_host(paper).copy_(host);
  return paper;
}

// What CUDA's kernel asks for (pytorch_flash::mha_fwd in LibTorch 2.13).
void check_supported(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     bool causal) {
  const bool narrow = query.scalar_type() == at::kBFloat16 || query.scalar_type() == at::kHalf;
  TORCH_CHECK(narrow, "FlashAttention only supports fp16 and bf16");
  TORCH_CHECK(query.size(-1) % 8 == 0 && query.size(-1) <= 256, "head dimension");
  TORCH_CHECK(query.size(1) % key.size(1) == 0 && key.size(1) == value.size(1), "heads");
  TORCH_CHECK(query.stride(-1) == 1 && key.stride(-1) == 1 && value.stride(-1) == 1, "strides");
  TORCH_CHECK(!causal || query.size(2) == key.size(2),
              "causal masks of this kernel and of others "
              "differ if there are more keys than queries");
}

Flash flash_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                      double /*dropout*/, bool causal, bool /*debug*/,
                      std::optional<double> scale) {
  check_supported(query, key, value, causal);
  at::Tensor output = at::empty_like(query), log_sum;
  if (PaperState::get().hollow) {
    log_sum =
        at::empty({query.size(0), query.size(1), query.size(2)}, query.options().dtype(at::kFloat));
  } else {
    const auto [mixed, sums] = at::_scaled_dot_product_flash_attention_for_cpu(
        on_host(query), on_host(key), on_host(value), 0.0, causal, {}, scale);
    output = on_paper(mixed, query);
    log_sum = on_paper(sums, query);
  }
  PaperState::get().launch(
      "flash attention",
      static_cast<std::int64_t>(query.nbytes() + key.nbytes() + value.nbytes() + output.nbytes()));
  PaperState::get().attention_by_fused_kernel();
  const at::Tensor none = at::empty({0}, log_sum.options());
  return {output, log_sum, {}, {}, query.sym_size(2), key.sym_size(2), none, none, none};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_attention_backward(
    const at::Tensor& outer, const at::Tensor& query, const at::Tensor& key,
    const at::Tensor& value, const at::Tensor& output, const at::Tensor& log_sum,
    const at::Tensor& /*starts_q*/, const at::Tensor& /*starts_k*/, c10::SymInt /*longest_q*/,
    c10::SymInt /*longest_k*/, double /*dropout*/, bool causal, const at::Tensor& /*seed*/,
    const at::Tensor& /*offset*/, std::optional<double> scale) {
  check_supported(query, key, value, causal);
  PaperState::get().launch("flash attention backward",
                           static_cast<std::int64_t>(2 * (query.nbytes() + key.nbytes() +
                                                          value.nbytes() + outer.nbytes())));
  if (PaperState::get().hollow) {
    return {at::empty_like(query), at::empty_like(key), at::empty_like(value)};
  }
  const auto [by_q, by_k, by_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      on_host(outer), on_host(query), on_host(key), on_host(value), on_host(output),
      on_host(log_sum), 0.0, causal, {}, scale);
  return {on_paper(by_q, query), on_paper(by_k, query), on_paper(by_v, query)};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_scaled_dot_product_flash_attention", TORCH_FN(flash_attention));
  library.impl("_scaled_dot_product_flash_attention_backward", TORCH_FN(flash_attention_backward));
}

}  // namespace
}  // namespace regroup
