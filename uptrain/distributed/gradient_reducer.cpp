#include "uptrain/distributed/gradient_reducer.h"

#include <utility>

namespace regroup {

GradientReducer::GradientReducer(const ZeroPartition& partition, std::size_t most_in_flight)
    : partition_(partition),
      most_in_flight_(most_in_flight),
      bucket_of_(partition.tensors()),
      gradients_(partition.tensors()) {
  for (const ZeroPartition::Bucket& bucket : partition.buckets()) {
    for (const std::size_t member : bucket.members) {
      bucket_of_[member] = missing_.size();
    }
    missing_.push_back(bucket.members.size());
  }
}

void GradientReducer::add_ready(std::size_t tensor, at::Tensor gradient) {
  gradients_[tensor] = std::move(gradient);
  --missing_[bucket_of_[tensor]];
  while (begun_ < missing_.size() && missing_[begun_] == 0) {
    for (; transfers_.size() >= most_in_flight_; transfers_.pop_front()) {
      end(transfers_.front());
    }
    begin(partition_.buckets()[begun_++]);
  }
  std::erase_if(transfers_, [this](const Transfer& transfer) {
    const bool done = transfer.reduce.is_done();
    if (done) {
      end(transfer);
    }
    return done;
  });
}

std::vector<at::Tensor> GradientReducer::finish() {
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

void GradientReducer::begin(const ZeroPartition::Bucket& bucket) {
  const at::Tensor flat = ZeroPartition::flattened(bucket, gradients_);
  for (const std::size_t member : bucket.members) {
    gradients_[member].reset();  // so that not all gradients exist twice
  }
  transfers_.push_back({bucket, flat, partition_.sharing().reduce(flat, bucket.owner)});
}

void GradientReducer::end(const Transfer& transfer) {
  transfer.reduce.wait();
  if (partition_.owns(transfer.bucket)) {
    const std::vector<at::Tensor> sums = partition_.parts_of(transfer.bucket, transfer.flat);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      gradients_[transfer.bucket.members[i]] = sums[i];
    }
  }
}

}  // namespace regroup
