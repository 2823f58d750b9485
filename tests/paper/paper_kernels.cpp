#include <cstring>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include "tests/paper/paper_state.h"

namespace regroup {
namespace {

using torch::jit::Stack;

bool on_paper(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == c10::DeviceType::PrivateUse1;
}

at::Tensor tensor_over(c10::Storage storage, c10::DispatchKey key, const at::Tensor& like) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage),
                                                         c10::DispatchKeySet(key), like.dtype());
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_offset(like.storage_offset());
  impl->set_sizes_and_strides(like.sizes(), like.strides());
  impl->_set_conj(like.is_conj());
  impl->_set_neg(like.is_neg());
  return tensor;
}

// The shape of a tensor of the device without its numbers.
at::Tensor as_meta(const at::Tensor& paper) {
  c10::Storage nothing(c10::Storage::use_byte_size_t(), paper.storage().nbytes(),
                       c10::DataPtr(nullptr, c10::Device(c10::kMeta)), /*allocator=*/nullptr,
                       /*resizable=*/false);
  return tensor_over(std::move(nothing), c10::DispatchKey::Meta, paper);
}

bool is_hollow() { return PaperState::get().hollow; }

// What an operator computes with in place of a tensor of the device.
at::Tensor stand_in(const at::Tensor& paper) {
  return is_hollow() ? as_meta(paper) : on_host(paper);
}

c10::Device stand_in_device() { return is_hollow() ? c10::kMeta : c10::kCPU; }

void copy_back(const at::Tensor& paper, const at::Tensor& result) {
  if (!is_hollow()) {
    on_host(paper).copy_(result);
  }
}

// LibTorch has the shapes of these in Python only.
at::Tensor index_select_shape(const at::Tensor& self, std::int64_t dim, const at::Tensor& index) {
  std::vector<std::int64_t> sizes = self.sizes().vec();
  sizes.at(static_cast<std::size_t>(dim < 0 ? dim + self.dim() : dim)) = index.numel();
  return at::empty(sizes, self.options());
}

at::Tensor embedding_gradient_shape(const at::Tensor& gradient, const at::Tensor& /*indices*/,
                                    c10::SymInt rows, c10::SymInt /*padding*/, bool /*scale*/) {
  return at::empty({rows.expect_int(), gradient.size(-1)}, gradient.options());
}

at::Tensor& unary_shape(const at::Tensor& self, at::Tensor& out) {
  out.resize_(self.sizes());
  return out;
}

at::Tensor& nan_to_num_shape(const at::Tensor& self, std::optional<double> /*nan*/,
                             std::optional<double> /*above*/, std::optional<double> /*below*/,
                             at::Tensor& out) {
  return unary_shape(self, out);
}

void register_shapes() {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__,
                                __LINE__);
  library.impl("index_select", TORCH_FN(index_select_shape));
  library.impl("abs.out", TORCH_FN(unary_shape));
  library.impl("logical_not.out", TORCH_FN(unary_shape));
  library.impl("nan_to_num.out", TORCH_FN(nan_to_num_shape));
  library.impl("embedding_dense_backward", TORCH_FN(embedding_gradient_shape));
}

std::int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
}

// The value with each of its tensors replaced.
c10::IValue with_tensors(const c10::IValue& value,
                         const std::function<at::Tensor(const at::Tensor&)>& replace) {
  if (value.isTensor()) {
    return replace(value.toTensor());
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      list.push_back(replace(tensor));
    }
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor ? std::optional(replace(*tensor)) : std::nullopt);
    }
    return list;
  }
  return value;
}

// One call of an operator. Its arguments become tensors of the host, its results tensors of the
// device.
class HostCall {
 public:
  explicit HostCall(const c10::OperatorHandle& op) : op_(op), name_(op.operator_name().name) {}

  void run(Stack* stack) {
    const auto& schema = op_.schema();
    auto arguments = torch::jit::last(*stack, schema.arguments().size());
    for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
      const auto* alias = schema.arguments()[i].alias_info();
      written_ = alias != nullptr && alias->isWrite();
      writes_ = writes_ || written_;
      (*stack)[stack->size() - schema.arguments().size() + i] = to_host(arguments[i]);
    }
    check_devices();
    const std::size_t returned = schema.returns().size();
    if (is_hollow() && returned == 0) {  // it only writes, and some of these have no meta kernel
      torch::jit::drop(*stack, schema.arguments().size());
    } else {
      op_.redispatchBoxed(
          c10::DispatchKeySet(is_hollow() ? c10::DispatchKey::Meta : c10::DispatchKey::CPU), stack);
    }
    for (const Pair& pair : pairs_) {
      take_back_resized(pair);
    }
    for (std::size_t i = stack->size() - returned; i < stack->size(); ++i) {
      (*stack)[i] = to_paper((*stack)[i]);
    }
    if (writes_ || computes_) {
      PaperState::get().launch(name_, bytes_);
    }
  }

 private:
  struct Pair {
    at::Tensor paper, host;
    bool fresh = false;  // an empty output: the host allocates it
  };

  at::Tensor to_host(const at::Tensor& tensor) {
    if (!on_paper(tensor)) {
      from_host_ = from_host_ || (tensor.defined() && tensor.dim() > 0);
      return tensor;
    }
    bytes_ += bytes_of(tensor);
    // The rows of an expert without tokens are [0, D], and keep that shape.
    const bool fresh = written_ && tensor.dim() == 1 && tensor.numel() == 0;
    pairs_.push_back(
        {tensor,
         fresh ? at::empty({0}, at::TensorOptions(stand_in_device()).dtype(tensor.dtype()))
               : stand_in(tensor),
         fresh});
    return pairs_.back().host;
  }

  c10::IValue to_host(const c10::IValue& value) {
    if (value.isDevice() && value.toDevice().type() == c10::DeviceType::PrivateUse1) {
      asked_for_paper_ = true;
      return stand_in_device();
    }
    return with_tensors(value, [this](const at::Tensor& tensor) { return to_host(tensor); });
  }

  void check_devices() const {
    TORCH_CHECK(!from_host_ || pairs_.empty(),
                "Expected all tensors to be on the same device, but ", name_,
                " got some of the host and some of the paper device");
  }

  static void take_back_resized(const Pair& pair) {
    if (pair.fresh && pair.host.numel() > 0) {
      pair.paper.resize_(pair.host.sizes());
      copy_back(pair.paper, pair.host);
    }
  }

  at::Tensor to_paper(const at::Tensor& result) {
    if (!result.defined()) {
      return result;
    }
    for (const Pair& pair : pairs_) {
      if (result.is_same(pair.host)) {
        return pair.paper;
      }
    }
    for (const Pair& pair : pairs_) {
      if (!pair.fresh && result.is_alias_of(pair.host)) {
        return tensor_over(pair.paper.storage(), c10::DispatchKey::PrivateUse1, result);
      }
    }
    if (pairs_.empty() && !asked_for_paper_) {
      return result;
    }
    computes_ = true;
    bytes_ += bytes_of(result);
    const at::Tensor paper = at::empty_strided(result.sizes(), result.strides(),
                                               result.options().device(paper_device()));
    copy_back(paper, result);
    return paper;
  }

  c10::IValue to_paper(const c10::IValue& value) {
    return with_tensors(value, [this](const at::Tensor& tensor) { return to_paper(tensor); });
  }

  const c10::OperatorHandle& op_;
  const std::string& name_;
  std::vector<Pair> pairs_;
  bool written_ = false;  // the argument at hand
  bool writes_ = false, computes_ = false;
  bool from_host_ = false, asked_for_paper_ = false;
  std::int64_t bytes_ = 0;
};

bool is_mask(const at::Tensor& index) {
  return index.defined() && (index.scalar_type() == at::kBool || index.scalar_type() == at::kByte);
}

// The size of their results depends on numbers of the device, so CUDA's kernels wait.
// Decompositions read from it whether they converged.
bool waits(const c10::OperatorHandle& op, const Stack& stack) {
  static const std::set<std::string> kNames = {
      "aten::nonzero",      "aten::masked_select", "aten::equal",    "aten::_unique",
      "aten::_unique2",     "aten::unique_dim",    "aten::bincount", "aten::unique_consecutive",
      "aten::_linalg_eigh", "aten::_linalg_svd"};
  const c10::OperatorName& name = op.operator_name();
  if (kNames.contains(name.name) ||
      (name.name == "aten::repeat_interleave" && name.overload_name == "Tensor")) {
    return true;
  }
  // Indices that are masks are turned into numbers first.
  const auto& arguments = op.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = stack[stack.size() - arguments.size() + i];
    if (arguments[i].name() == "indices" && value.isOptionalTensorList()) {
      for (const std::optional<at::Tensor>& index : value.toOptionalTensorVector()) {
        if (index && is_mask(*index)) {
          return true;
        }
      }
    }
  }
  return false;
}

void run_on_host(const c10::OperatorHandle& op, Stack* stack) {
  if (waits(op, *stack)) {
    PaperState::get().wait(op.operator_name().name);
  }
  HostCall(op).run(stack);
}

at::Tensor empty_paper(c10::IntArrayRef sizes, std::optional<c10::ScalarType> type,
                       std::optional<c10::Layout> /*layout*/, std::optional<c10::Device> /*device*/,
                       std::optional<bool> /*pinned*/, std::optional<c10::MemoryFormat> format) {
  return at::detail::empty_generic(sizes, c10::GetAllocator(c10::DeviceType::PrivateUse1),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(type), format);
}

at::Tensor empty_strided_paper(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                               std::optional<c10::ScalarType> type,
                               std::optional<c10::Layout> /*layout*/,
                               std::optional<c10::Device> /*device*/,
                               std::optional<bool> /*pinned*/) {
  return at::detail::empty_strided_generic(
      sizes, strides, c10::GetAllocator(c10::DeviceType::PrivateUse1),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(type));
}

const at::Tensor& resize_paper(const at::Tensor& self, c10::IntArrayRef sizes,
                               std::optional<c10::MemoryFormat> /*format*/) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(sizes);
  const c10::Storage& storage = self.storage();
  const std::size_t needed =
      (static_cast<std::size_t>(self.numel() + self.storage_offset())) * self.element_size();
  if (needed > storage.nbytes()) {
    c10::DataPtr fresh = c10::GetAllocator(c10::DeviceType::PrivateUse1)->allocate(needed);
    if (storage.nbytes() > 0 && !is_hollow()) {
      std::memcpy(fresh.get(), storage.data(), storage.nbytes());
    }
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(fresh));
    storage.unsafeGetStorageImpl()->set_nbytes(needed);
  }
  return self;
}

// A copy from or to the host waits unless it may be asynchronous and the host's memory is pinned.
at::Tensor& copy_paper(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (on_paper(self) && on_paper(source)) {
    PaperState::get().launch("aten::copy_", bytes_of(self) + bytes_of(source));
    copy_back(self, is_hollow() ? source : on_host(source));
  } else if (on_paper(self)) {
    PaperState::get().upload(!non_blocking || !is_pinned_for_paper(source.const_data_ptr()));
    copy_back(self, source);
  } else {
    PaperState::get().download(!non_blocking || !is_pinned_for_paper(self.const_data_ptr()));
    is_hollow() ? self.zero_() : self.copy_(on_host(source));
  }
  return self;
}

at::Scalar read_scalar(const at::Tensor& self) {
  PaperState::get().wait("item");
  return is_hollow() ? at::Scalar(0) : on_host(self).item();
}

bool begins_with(const std::string& text, std::string_view start) {
  return text.compare(0, start.size(), start) == 0;
}

// CUDA has kernels of its own for lists of tensors; CPUs loop over them.
bool takes_lists(const std::string& name) {
  return begins_with(name, "aten::_foreach_") || begins_with(name, "aten::_fused_ada");
}

bool has_own_kernel(const std::string& name) {
  static const std::set<std::string> kNames = {"aten::empty",
                                               "aten::empty_strided",
                                               "aten::resize_",
                                               "aten::copy_",
                                               "aten::_local_scalar_dense",
                                               "aten::set_",
                                               "aten::_fused_sdp_choice",
                                               "aten::_copy_from",
                                               "aten::record_stream"};
  return kNames.contains(name) || name.find("_for_cpu") != std::string::npos;
}

}  // namespace

at::Tensor on_host(const at::Tensor& paper) {
  const c10::Storage& memory = paper.storage();
  c10::Storage alias(c10::Storage::use_byte_size_t(), memory.nbytes(),
                     c10::DataPtr(memory.mutable_data(), c10::Device(c10::kCPU)),
                     /*allocator=*/nullptr, /*resizable=*/false);
  return tensor_over(std::move(alias), c10::DispatchKey::CPU, paper);
}

void register_paper_kernels() {
  register_shapes();
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1,
                                __FILE__, __LINE__);
  library.impl("empty.memory_format", TORCH_FN(empty_paper));
  library.impl("empty_strided", TORCH_FN(empty_strided_paper));
  library.impl("resize_", TORCH_FN(resize_paper));
  library.impl("copy_", TORCH_FN(copy_paper));
  library.impl("_local_scalar_dense", TORCH_FN(read_scalar));
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findOp(name);
    if (!begins_with(name.name, "aten::") || has_own_kernel(name.name) || !op || !op->hasSchema()) {
      continue;
    }
    if (op->hasKernelForDispatchKey(c10::DispatchKey::CPU) || takes_lists(name.name)) {
      std::string short_name = name.name.substr(std::string_view("aten::").size());
      if (!name.overload_name.empty()) {
        short_name += "." + name.overload_name;
      }
      library.impl(short_name.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
    }
  }
}

}  // namespace regroup
