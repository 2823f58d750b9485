#include "converter/verify/recorded_facts.h"

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/json/printable_json.h"

namespace regroup {

std::string recorded_word(const Json& facts, const char* key, const std::string& usual,
                          const std::string& where) {
  const Json word = facts.value(key, Json(usual));
  if (!word.is_string()) {
    throw_bad_input("{}: its recorded {} is {}, must be text", where, key, printable_json(word));
  }
  return word.get<std::string>();
}

std::uint64_t recorded_seed(const Json& facts, const std::string& where) {
  const Json seed = facts.value("pool_seed", Json(0U));
  if (!seed.is_number_unsigned()) {
    throw_bad_input("{}: its recorded pool_seed is {}, must be a number from 0", where,
                    printable_json(seed));
  }
  return seed.get<std::uint64_t>();
}

std::string recorded_device(const Json& facts, const std::string& where) {
  const std::string device = recorded_word(facts, "pool_device", "cpu", where);
  if (device.empty() || device.find_first_not_of("abcdefghijklmnopqrstuvwxyz") < device.size()) {
    throw_bad_input("{}: its recorded pool_device is \"{}\", must be a kind of device such as cuda",
                    where, printable(device));
  }
  return device;
}

}  // namespace regroup
