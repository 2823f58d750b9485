// Names from Gloo that LibTorch's ProcessGroupGloo.hpp mentions. LibTorch contains Gloo, but wheels
// come without its headers. Nothing declared here is made, called or looked into by this program:
// what the header needs to compile, and no more.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

namespace transport {
class Device;
class UnboundBuffer;
}  // namespace transport

}  // namespace gloo
