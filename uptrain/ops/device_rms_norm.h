// RMSNorm by kernels of a device, without autograd; see rms_norm.h.
#pragma once

#include <ATen/core/Tensor.h>

#include "uptrain/ops/device_kernels.h"

namespace regroup {

/// Results of the forward pass.
struct DeviceNorm {
  at::Tensor sum;      ///< x + update; undefined without an update
  at::Tensor y;        ///< the norm
  at::Tensor inverse;  ///< fp32, one per row: 1 / sqrt(mean(x²) + epsilon)
};

/// The norm of x, or of x + update if it is defined. Contiguous: x, update [..., D]; weight [D].
DeviceNorm normalise_on_device(const at::Tensor& x, const at::Tensor& update,
                               const at::Tensor& weight, double epsilon);

/// What the backward pass needs: what was normalised, and the two others.
struct SavedNorm {
  at::Tensor x, weight, inverse;
};

struct NormGradients {
  at::Tensor by_x, by_weight;
};

/// The gradients for the gradient `outer` of y and, if defined, `outer_sum` of the sum, both
/// contiguous. That of the weight only if `with_weight`.
NormGradients differentiate_norm_on_device(const SavedNorm& saved, const at::Tensor& outer,
                                           const at::Tensor& outer_sum, bool with_weight);

}  // namespace regroup
