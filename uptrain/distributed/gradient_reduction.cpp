#include "uptrain/distributed/gradient_reduction.h"

#include <utility>

namespace regroup {

GradientReduction::GradientReduction(const WeightShares& shares)
    : shares_(shares), bucket_of_(shares.tensors()), gradients_(shares.tensors()) {
  for (const WeightShares::Bucket& bucket : shares.buckets()) {
    for (const std::size_t member : bucket.members) {
      bucket_of_[member] = missing_.size();
    }
    missing_.push_back(bucket.members.size());
  }
}

void GradientReduction::give(std::size_t tensor, at::Tensor gradient) {
  gradients_[tensor] = std::move(gradient);
  --missing_[bucket_of_[tensor]];
  while (begun_ < missing_.size() && missing_[begun_] == 0) {
    begin(shares_.buckets()[begun_++]);
  }
  std::erase_if(transfers_, [this](const Transfer& transfer) {
    const bool done = transfer.reduce.is_done();
    if (done) {
      end(transfer);
    }
    return done;
  });
}

std::vector<at::Tensor> GradientReduction::finish() {
  for (; !transfers_.empty(); transfers_.pop_front()) {
    end(transfers_.front());
  }
  std::vector<at::Tensor> own;
  for (at::Tensor& sum : gradients_) {
    if (sum.defined()) {
      own.push_back(std::move(sum));
    }
  }
  return own;
}

void GradientReduction::begin(const WeightShares::Bucket& bucket) {
  const at::Tensor flat = WeightShares::flattened(bucket, gradients_);
  for (const std::size_t member : bucket.members) {
    gradients_[member].reset();  // two copies of all gradients would be too many
  }
  transfers_.push_back({bucket, flat, shares_.ranks().reduce(flat, bucket.owner)});
}

void GradientReduction::end(const Transfer& transfer) {
  transfer.reduce.wait();
  if (shares_.owns(transfer.bucket)) {
    const std::vector<at::Tensor> sums = shares_.parts_of(transfer.bucket, transfer.flat);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      gradients_[transfer.bucket.members[i]] = sums[i];
    }
  }
}

}  // namespace regroup
