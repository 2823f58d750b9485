#include "tests/uptrain/distributed/free_port.h"

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <netinet/in.h>

namespace regroup {

int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  REQUIRE(::bind(socket, reinterpret_cast<const sockaddr*>(&address), size) == 0);
  REQUIRE(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  ::close(socket);
  return ntohs(address.sin_port);
}

Launch launch_of_two(int rank, int port) { return launch_of(rank, 2, port); }

Launch launch_of(int rank, int ranks, int port) {
  Launch launch;
  launch.rank = rank;
  launch.ranks = ranks;
  launch.address = "127.0.0.1";
  launch.port = port;
  return launch;
}

}  // namespace regroup
