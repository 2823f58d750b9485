#include "uptrain/data/spread_windows.h"

#include <cmath>
#include <numbers>
#include <numeric>

namespace regroup {

std::vector<std::int64_t> spread_windows(std::int64_t all, std::int64_t count) {
  std::int64_t step = std::llround(static_cast<double>(all) / std::numbers::phi);
  while (std::gcd(step, all) > 1) {  // otherwise numbers would repeat
    ++step;
  }
  std::vector<std::int64_t> numbers;
  for (std::int64_t number = 0; std::ssize(numbers) < count; number = (number + step) % all) {
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace regroup
