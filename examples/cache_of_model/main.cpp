// cache_of_model MODEL G: prints the size of a model's KV cache per token, now and with G kv heads,
// and the tensors that a conversion would change. Reads only headers and writes nothing.
#include <cstdio>
#include <exception>

#include "converter/convert/conversion_plan.h"
#include "converter/convert/kv_head_request.h"
#include "formats/model/model.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: cache_of_model MODEL G\n", stderr);
    return 2;
  }
  try {
    const regroup::Model model = regroup::open_model(argv[1]);
    regroup::ConversionRequest request;
    request.kv_heads = regroup::parse_kv_heads(argv[2]);
    const regroup::ConversionPlan plan = regroup::plan_conversion(model, request);
    for (const regroup::TensorStep& step : plan.steps) {
      if (!step.unchanged()) {
        std::printf("%s becomes %s\n", step.output.name.c_str(),
                    regroup::text_of(step.output.shape).c_str());
      }
    }
    if (plan.kv_bytes_per_token) {
      std::printf("KV cache per token: %lu -> %lu bytes\n",
                  static_cast<unsigned long>(plan.kv_bytes_per_token->before),
                  static_cast<unsigned long>(plan.kv_bytes_per_token->after));
    }
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "%s\n", fault.what());
    return 3;
  }
}
