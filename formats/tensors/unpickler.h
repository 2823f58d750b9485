// A pickle machine that builds tensors and containers and calls nothing, and the state dict it
// leaves.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace regroup {

// Reads the pickles in torch files as data, with an allowlist of opcodes and globals. Nothing is
// imported or called. https://docs.python.org/3/library/pickletools.html

/// A tensor: a view of a storage in another entry of the file. Offset and strides are in elements.
/// Strings are views of the pickle.
struct PickledTensor {
  std::string_view storage_type;  ///< for example "BFloat16Storage"
  std::string_view dtype;         ///< "float8_e4m3fn" or similar on an UntypedStorage; else empty
  std::string_view storage_key;   ///< the entry's name
  std::int64_t storage_elements = 0;
  std::int64_t offset = 0;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
};

/// The pickle virtual machine. Values are stored in one arena and refer to each other by index;
/// strings are views of the pickle. Time and memory are linear in the pickle's length and bounded:
/// one budget of steps limits all allocations.
class Unpickler {
 public:
  using Ref = std::uint32_t;

  enum class Kind : std::uint8_t {
    kNone,
    kBool,
    kInteger,
    kReal,
    kText,
    kSequence,
    kDict,
    kGlobal,
    kStorage,
    kTensor,
    kMark,
  };

  struct Value {
    Kind kind = Kind::kNone;
    std::int64_t number = 0;      // kBool, kInteger; index into tensors() for kStorage, kTensor
    std::string_view text = {};   // kText; module of a kGlobal
    std::string_view name = {};   // of a kGlobal
    std::vector<Ref> items = {};  // kSequence; keys and values in turn of a kDict
  };

  /// Prepares to run the pickles that follow one another from byte `at` of `bytes` on.
  Unpickler(std::string_view bytes, std::string_view where, std::size_t at = 0)
      : bytes_(bytes), where_(where), at_(at) {}

  /// Runs the next pickle to its end and returns its result. The values of the one before are gone.
  Ref load();

  /// The offset in `bytes` after the last byte read.
  std::size_t position() const { return at_; }

  const Value& value(Ref ref) const { return values_[ref]; }
  const PickledTensor& tensor(const Value& value) const {
    return tensors_[static_cast<std::size_t>(value.number)];
  }
  /// All storages referenced and all tensors created by that pickle, used or not.
  const std::deque<PickledTensor>& tensors() const { return tensors_; }

 private:
  [[noreturn]] void reject(std::string_view fault) const;

  std::uint8_t byte();
  std::uint64_t unsigned_number(std::size_t bytes);
  std::int64_t long_number(std::size_t bytes);
  std::string_view text(std::uint64_t length);
  std::string_view line();

  void spend(std::size_t steps);
  void push(Value value);
  void push_again(Ref ref);
  Ref pop();
  std::vector<Ref> pop_to_mark();
  void remember(std::uint64_t slot);
  void recall(std::uint64_t slot);

  bool run_constant(std::uint8_t opcode);
  bool run_container(std::uint8_t opcode);
  bool run_memo(std::uint8_t opcode);
  bool run_object(std::uint8_t opcode);

  void push_sequence(std::vector<Ref> items);
  void extend(Kind kind, const std::vector<Ref>& items);
  void push_global(std::string_view module, std::string_view name);
  void reduce();
  void make_storage();
  void make_tensor(const std::vector<Ref>& arguments, bool names_dtype);
  std::int64_t integer(Ref ref, std::string_view what) const;
  std::vector<std::int64_t> integers(Ref ref, std::string_view what);

  std::string_view bytes_;
  std::string where_;
  std::size_t at_ = 0;
  std::size_t steps_ = 0;
  std::deque<Value> values_;  // a deque: references to its elements outlive a push
  std::deque<PickledTensor> tensors_;
  std::vector<Ref> stack_;
  std::vector<Ref> memo_;  // by slot
};

using NamedPickledTensors = std::vector<std::pair<std::string_view, PickledTensor>>;

/// Returns the tensors of a pickled state dict in order; names are views of `pickle`. Other entries
/// are ignored. If the dict has an entry "state_dict", "model", "module" or "model_state_dict" that
/// is a dict, that one is read instead. Error messages begin with `where` (a file name). Throws
/// kBadInput for an opcode or global that is not on the allowlist, a truncated or malformed pickle,
/// a duplicate name, and a pickle without tensors.
NamedPickledTensors read_state_dict(std::string_view pickle, std::string_view where);

/// The same for a pickle that is already loaded; `root` is the value it produced.
NamedPickledTensors tensors_of(const Unpickler& unpickler, const Unpickler::Value& root,
                               std::string_view where);

}  // namespace regroup
