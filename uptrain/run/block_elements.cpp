#include "uptrain/run/block_elements.h"

#include <algorithm>
#include <map>
#include <string>

#include "formats/families/family.h"
#include "uptrain/model/parameters.h"
#include "uptrain/trainer/training_flops.h"

namespace regroup {

BlockElements block_elements(const ModelSpec& spec) {
  std::map<std::string, double> elements;
  BlockElements found;
  for (const ExpectedTensor& tensor : expected_tensors(spec)) {
    elements[tensor.name] = elements_of(tensor.shape);
    found.outside += elements_of(tensor.shape);
  }
  for (const AttentionRole role : {AttentionRole::kEncoder, AttentionRole::kSelf}) {
    for (const LayerTensors& layer : spec.stack(role)) {
      found.last = 0.0;
      for (const std::string& name : tensors_of(layer)) {
        found.last += elements[name];
      }
      found.inside += found.last;
      found.largest = std::max(found.largest, found.last);
    }
  }
  found.outside -= found.inside;
  return found;
}

}  // namespace regroup
