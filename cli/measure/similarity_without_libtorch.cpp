#include "cli/measure/similarity.h"
#include "formats/base/error.h"

namespace regroup {

std::vector<LayerSimilarity> measure_similarity(const std::string&, const std::string&,
                                                const SimilarityOptions&, const Console&) {
  throw_usage("--similarity: this program was built without LibTorch");
}

}  // namespace regroup
