#include "uptrain/run/save_from_ranks.h"

#include <optional>
#include <set>
#include <vector>

#include "formats/base/error.h"
#include "formats/base/staged_directory.h"
#include "formats/json/json.h"
#include "uptrain/model/language_model.h"
#include "uptrain/model/save_parameters.h"
#include "uptrain/trainer/rank_agreement.h"

namespace regroup {
namespace {

// The names of all trained tensors that other ranks hold.
std::set<std::string> names_elsewhere(ProcessGroup& group, std::span<const StateTensor> trained) {
  Json own = Json::array();
  for (const StateTensor& tensor : trained) {
    own.push_back(tensor.name);
  }
  const std::vector<std::string> all = group.exchange(own.dump());
  std::set<std::string> names;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (static_cast<int>(rank) != group.rank()) {
      for (const Json& name : Json::parse(all[rank])) {
        names.insert(name.get<std::string>());
      }
    }
  }
  return names;
}

}  // namespace

void save_model_from_ranks(ProcessGroup& group, const Model& source,
                           std::span<const StateTensor> trained, const std::string& config_text,
                           const std::filesystem::path& destination) {
  refuse_output_inside(source, destination);
  const std::set<std::string> elsewhere = names_elsewhere(group, trained);
  std::optional<StagedDirectory> staged;
  std::optional<ParametersWriter> writer;
  group.on_first([&] {
    staged.emplace(destination);
    writer.emplace(source.spec, source.checkpoint, staged->path());
  });
  const std::string directory = group.exchange(staged ? staged->path().string() : "").front();
  const std::string fault = first_fault(&group, fault_of([&] {
    if (!writer) {
      writer.emplace(source.spec, source.checkpoint, directory, OutputFiles::kJoined);
    }
    writer->write(trained, elsewhere);
    writer->finish();
  }));
  if (!fault.empty()) {
    throw_environment("the result cannot be written: {}", fault);
  }
  group.on_first([&] {
    write_other_files(source, config_text, staged->path());
    staged->publish();
  });
}

}  // namespace regroup
