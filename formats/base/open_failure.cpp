#include "formats/base/open_failure.h"

#include <cerrno>
#include <cstring>
#include <string>

#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

bool is_wrong_path(int code) {
  switch (code) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case ENXIO:  // a socket, or a FIFO that nobody reads
    case EINVAL: return true;
    default: return false;
  }
}

fs::file_type type_of(const fs::path& path) {
  std::error_code fault;
  const fs::file_type type = fs::status(path, fault).type();
  if (fault && !is_wrong_path(fault.value())) {
    throw_cannot_open(path, fault.value());
  }
  return type;
}

}  // namespace

void throw_cannot_open(const fs::path& path, int code) {
  const std::string shown = printable(path.string(), 0);
  if (is_wrong_path(code)) {
    throw_bad_input("{}: cannot open: {}", shown, std::strerror(code));
  }
  throw_environment("{}: cannot open: {}{}", shown, std::strerror(code),
                    code == EMFILE ? " (`ulimit -n` raises the limit)" : "");
}

bool is_directory_there(const fs::path& path) { return type_of(path) == fs::file_type::directory; }

bool is_file_there(const fs::path& path) { return type_of(path) == fs::file_type::regular; }

}  // namespace regroup
