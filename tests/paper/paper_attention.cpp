// Attention on the paper device, by the rules of CUDA's dispatch for compute capability 8.0 and 9.0
// (LibTorch 2.11 to 2.13, aten/src/ATen/native/transformers/cuda/sdp_utils.cpp), without cuDNN,
// which parse_device() turns off. The memory-efficient kernel takes no grouped heads in the older
// of these versions.
#include <array>
#include <string>
#include <tuple>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>

#include "tests/paper/paper_state.h"

namespace regroup {
namespace {

bool half_precision(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf;
}

bool flash_supports(const sdp::sdp_params& call) {
  const std::int64_t width = call.query.size(-1);
  const bool square = call.query.size(-2) == call.key.size(-2);
  return !call.attn_mask && half_precision(call.query) && width <= 256 &&
         width == call.key.size(-1) && width == call.value.size(-1) &&
         (square || !call.is_causal) &&
         sdp::check_tensor_dtype(call, std::array{at::kBFloat16, at::kHalf}, false) &&
         sdp::check_batch_size_and_num_heads_dense</*supports_gqa=*/true>(call, false) &&
         sdp::check_nonzero_sequence_lengths_dense(call, false) &&
         sdp::check_last_dim_stride_equals_1_dense</*ignore_singleton_dim=*/true>(call, false);
}

// CUTLASS reads 16 bytes at a time.
bool efficient_supports(const sdp::sdp_params& call) {
  const std::int64_t alignment = half_precision(call.query) ? 8 : 4;
  const auto aligned = [&](const at::Tensor& tensor) {
    return tensor.size(-1) % alignment == 0 && tensor.storage_offset() % alignment == 0;
  };
  const bool aligned_mask = !call.attn_mask || call.attn_mask->storage_offset() % alignment == 0;
  return aligned_mask && aligned(call.query) && aligned(call.key) && aligned(call.value) &&
         call.query.size(-1) == call.key.size(-1) &&
         sdp::check_tensor_dtype(call, std::array{at::kBFloat16, at::kHalf, at::kFloat}, false) &&
         sdp::check_batch_size_and_num_heads_dense</*supports_gqa=*/false>(call, false) &&
         sdp::check_nonzero_sequence_lengths_dense(call, false) &&
         sdp::check_last_dim_stride_equals_1_dense</*ignore_singleton_dim=*/false>(call, false);
}

std::string description(const sdp::sdp_params& call) {
  return c10::str(call.query.scalar_type(), " q", call.query.sizes(), " k", call.key.sizes(),
                  call.attn_mask ? c10::str(" mask", call.attn_mask->sizes(), " strides",
                                            call.attn_mask->strides())
                                 : std::string(),
                  call.is_causal ? " causal" : "");
}

std::int64_t choose(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                    const std::optional<at::Tensor>& mask, double dropout, bool causal,
                    std::optional<double> /*scale*/, bool grouped) {
  const sdp::sdp_params call{query, key, value, mask, dropout, causal, grouped};
  if (sdp::check_tensor_shapes(call, false) && (flash_supports(call) || efficient_supports(call))) {
    PaperState::get().attention_by_fused_kernel();
    return static_cast<std::int64_t>(at::SDPBackend::overrideable);
  }
  PaperState::get().attention_by_math(description(call));
  return static_cast<std::int64_t>(at::SDPBackend::math);
}

// A leaf on the host, with a gradient if `learning`.
at::Tensor host_leaf(const at::Tensor& paper, bool learning) {
  return on_host(paper).detach().requires_grad_(learning);
}

at::Tensor to_device(const at::Tensor& host, const at::Tensor& like) {
  at::Tensor paper = at::empty(host.sizes(), like.options());
  on_host(paper).copy_(host);
  return paper;
}

// Kernels run below autograd. This lets the host's operators be differentiated inside one.
class AboveAutograd {
 public:
  AboveAutograd() {
    c10::impl::_force_tls_local_dispatch_key_set(
        c10::impl::LocalDispatchKeySet(c10::impl::PODLocalDispatchKeySet{0, 0}));
  }
  ~AboveAutograd() { c10::impl::_force_tls_local_dispatch_key_set(before_); }
  AboveAutograd(const AboveAutograd&) = delete;
  AboveAutograd& operator=(const AboveAutograd&) = delete;

 private:
  c10::impl::LocalDispatchKeySet before_ = c10::impl::tls_local_dispatch_key_set();
};

struct Operands {
  at::Tensor query, key, value, mask;
};

Operands host_operands(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       const at::Tensor& mask, std::array<bool, 4> learning) {
  return {host_leaf(query, learning[0]), host_leaf(key, learning[1]), host_leaf(value, learning[2]),
          mask.defined() ? host_leaf(mask, learning[3]) : at::Tensor()};
}

at::Tensor attend_on_host(const Operands& all, bool causal, std::optional<double> scale) {
  return at::scaled_dot_product_attention(
      all.query, all.key, all.value, all.mask.defined() ? std::optional(all.mask) : std::nullopt,
      0.0, causal, scale, all.query.size(1) != all.key.size(1));
}

using Forward = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt,
                           at::Tensor, at::Tensor, at::Tensor>;

Forward fused_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                        const std::optional<at::Tensor>& mask, double /*dropout*/, bool causal,
                        bool /*debug*/, std::optional<double> scale) {
  const at::NoGradGuard no_gradients;
  at::Tensor result = at::empty(query.sizes(), query.options());
  if (!PaperState::get().hollow) {
    const Operands host =
        host_operands(query, key, value, mask.value_or(at::Tensor()), {false, false, false, false});
    on_host(result).copy_(attend_on_host(host, causal, scale));
  }
  const auto wide = query.options().dtype(at::kFloat);
  const at::Tensor log_sum = at::empty({query.size(0), query.size(1), query.size(2)}, wide);
  PaperState::get().launch(
      "fused attention",
      static_cast<std::int64_t>(query.nbytes() + key.nbytes() + value.nbytes() + result.nbytes()));
  const at::Tensor none = at::empty({0}, wide);
  return {result, log_sum, none, none, query.sym_size(2), key.sym_size(2), none, none, none};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> fused_attention_backward(
    const at::Tensor& outer, const at::Tensor& query, const at::Tensor& key,
    const at::Tensor& value, const at::Tensor& mask, std::array<bool, 4> wanted,
    const at::Tensor& /*result*/, const at::Tensor& /*log_sum*/, const at::Tensor& /*starts_q*/,
    const at::Tensor& /*starts_k*/, c10::SymInt /*longest_q*/, c10::SymInt /*longest_k*/,
    double /*dropout*/, bool causal, const at::Tensor& /*seed*/, const at::Tensor& /*offset*/,
    std::optional<double> scale) {
  wanted[3] = wanted[3] && mask.defined();
  std::array<at::Tensor, 4> found;
  if (PaperState::get().hollow) {
    const std::array<at::Tensor, 4> all = {query, key, value, mask};
    for (std::size_t i = 0; i < all.size(); ++i) {
      found.at(i) = wanted.at(i) ? at::empty_like(all.at(i)) : at::Tensor();
    }
    return {found[0], found[1], found[2], found[3]};
  }
  {
    const AboveAutograd above;
    const at::AutoGradMode with_gradients(true);
    const Operands host = host_operands(query, key, value, mask, wanted);
    const at::Tensor again = attend_on_host(host, causal, scale);
    const std::array<at::Tensor, 4> all = {host.query, host.key, host.value, host.mask};
    std::vector<at::Tensor> leaves;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (wanted.at(i)) {
        leaves.push_back(all.at(i));
      }
    }
    const auto gradients = torch::autograd::grad({again}, leaves, {host_leaf(outer, false)});
    std::size_t next = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (wanted.at(i)) {
        found.at(i) = gradients[next++];
      }
    }
  }
  for (at::Tensor& gradient : found) {
    gradient = gradient.defined() ? to_device(gradient.detach(), query) : gradient;
  }
  PaperState::get().launch("fused attention backward",
                           static_cast<std::int64_t>(2 * (query.nbytes() + key.nbytes() +
                                                          value.nbytes() + outer.nbytes())));
  return {found[0], found[1], found[2], found[3]};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_scaled_dot_product_fused_attention_overrideable", TORCH_FN(fused_attention));
  library.impl("_scaled_dot_product_fused_attention_overrideable_backward",
               TORCH_FN(fused_attention_backward));
}

}  // namespace
}  // namespace regroup

// LibTorch's table of functions that choose an attention kernel, one for each type of device.
namespace at::native {
namespace {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &regroup::choose)
}  // namespace
}  // namespace at::native
