#include "tokens/hf/patterns.h"

#include "tokens/hf/regex_syntax.h"

namespace regroup {
namespace {

std::string expression_of(const JsonFields& fields) {
  fields.allow({"String", "Regex"});
  const auto literal = fields.optional_text("String");
  if (literal && literal->empty()) {
    fields.refuse("String", "a text to look for");
  }
  return literal ? literal_pattern(*literal) : fields.text("Regex");
}

}  // namespace

Pattern::Pattern(const JsonFields& fields) : regex_(expression_of(fields), fields.where()) {}

}  // namespace regroup
