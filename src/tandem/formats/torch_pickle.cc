#include "tandem/formats/torch_pickle.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/formats/torch_names.h"
#include "tandem/formats/torch_rebuild.h"

namespace tandem::formats {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::size_t kMaxPickleBytes = 4 << 20;  // BERT-large's takes 60 KB

// The instructions, by their names in pickletools.
enum Opcode : unsigned char {
  kProto = 0x80,
  kMark = '(',
  kStop = '.',
  kNone = 'N',
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kLong1 = 0x8a,
  kBinFloat = 'G',
  kBinUnicode = 'X',
  kEmptyTuple = ')',
  kTuple = 't',
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kEmptyList = ']',
  kAppend = 'a',
  kAppends = 'e',
  kEmptyDict = '}',
  kSetItem = 's',
  kSetItems = 'u',
  kGlobal = 'c',
  kReduce = 'R',
  kNewObj = 0x81,
  kBuild = 'b',
  kBinPersId = 'Q',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kBinGet = 'h',
  kLongBinGet = 'j',
};

class Interpreter {
 public:
  Interpreter(Bytes pickle, const FindStorage& find_storage, const std::string& where,
              PickledObjects objects, std::deque<TorchNode>& nodes)
      : pickle_(pickle),
        find_storage_(find_storage),
        where_(where),
        describes_objects_(objects == PickledObjects::kDescribed),
        nodes_(nodes) {}

  const TorchNode& run() {
    if (pickle_.size() > kMaxPickleBytes) {
      raise<DataError>("{}: its pickle has {} bytes; expected at most {}", where_, pickle_.size(),
                       kMaxPickleBytes);
    }
    stacks_.emplace_back();
    while (true) {
      const auto opcode = take<unsigned char>();
      if (opcode == kStop) break;
      step(opcode);
    }
    if (stacks_.size() != 1 || stack().size() != 1)
      damaged("it ends with {} values; expected one", stack().size());
    return *stack().back();
  }

 private:
  PickleError error() const { return {where_, at_}; }
  template <class... Args>
  [[noreturn]] void damaged(fmt::format_string<Args...> format, Args&&... args) const {
    error().damaged(format, std::forward<Args>(args)...);
  }

  Bytes take_bytes(std::size_t count) {
    if (count > pickle_.size() - at_)
      damaged("{} bytes expected, {} left", count, pickle_.size() - at_);
    const Bytes bytes = pickle_.subspan(at_, count);
    at_ += count;
    return bytes;
  }

  template <class T>
  T take() {  // little-endian
    T value;
    std::memcpy(&value, take_bytes(sizeof(T)).data(), sizeof(T));
    return value;
  }

  std::string_view take_line() {
    const Bytes rest = pickle_.subspan(at_);
    const auto end = std::find(rest.begin(), rest.end(), std::byte{'\n'});
    if (end == rest.end()) damaged("a name without end");
    const auto size = static_cast<std::size_t>(end - rest.begin());
    at_ += size + 1;
    return {reinterpret_cast<const char*>(rest.data()), size};
  }

  std::vector<TorchNode*>& stack() { return stacks_.back(); }

  template <class T>
  void push(T value) {
    nodes_.push_back({std::move(value)});
    stack().push_back(&nodes_.back());
  }

  TorchNode* pop() {
    if (stack().empty()) damaged("a value is used that was not made");
    TorchNode* node = stack().back();
    stack().pop_back();
    return node;
  }

  TorchNode* top() {
    if (stack().empty()) damaged("a value is used that was not made");
    return stack().back();
  }

  // Values pushed since the last mark.
  std::vector<TorchNode*> pop_to_mark() {
    if (stacks_.size() < 2) damaged("a list ends that did not begin");
    std::vector<TorchNode*> values = std::move(stacks_.back());
    stacks_.pop_back();
    return values;
  }

  void step(unsigned char opcode) {
    switch (opcode) {
      case kProto:
        return check_protocol(take<std::uint8_t>());
      case kMark:
        stacks_.emplace_back();
        return;
      case kNone:
        return push(std::monostate());
      case kNewTrue:
        return push(true);
      case kNewFalse:
        return push(false);
      case kBinInt:
        return push(static_cast<std::int64_t>(take<std::int32_t>()));
      case kBinInt1:
        return push(static_cast<std::int64_t>(take<std::uint8_t>()));
      case kBinInt2:
        return push(static_cast<std::int64_t>(take<std::uint16_t>()));
      case kLong1:
        return push(take_long(take<std::uint8_t>()));
      case kBinFloat:
        return push(std::bit_cast<double>(__builtin_bswap64(take<std::uint64_t>())));
      case kBinUnicode:
        return push(take_text(take<std::uint32_t>()));
      case kEmptyTuple:
        return push(TorchList{true, {}});
      case kTuple:
        return push(TorchList{true, pop_to_mark()});
      case kTuple1:
        return make_tuple(1);
      case kTuple2:
        return make_tuple(2);
      case kTuple3:
        return make_tuple(3);
      case kEmptyList:
        return push(TorchList{});
      case kAppend:
        return append({pop()});
      case kAppends:
        return append(pop_to_mark());
      case kEmptyDict:
        return push(TorchDict{});
      case kSetItem: {
        TorchNode* value = pop();
        TorchNode* key = pop();
        return set_items({key, value});
      }
      case kSetItems:
        return set_items(pop_to_mark());
      case kGlobal:
        return find_global();
      case kReduce:
        return reduce();
      case kNewObj:
        return new_object();
      case kBuild:
        return build();
      case kBinPersId:
        return push(make_storage(*pop(), find_storage_, error()));
      case kBinPut:
        memo_[take<std::uint8_t>()] = top();
        return;
      case kLongBinPut:
        memo_[take<std::uint32_t>()] = top();
        return;
      case kBinGet:
        return recall(take<std::uint8_t>());
      case kLongBinGet:
        return recall(take<std::uint32_t>());
      default:
        unknown_instruction(opcode);
    }
  }

  [[noreturn]] void unknown_instruction(unsigned char opcode) const {
    raise<DataError>(
        "{}: the pickle instruction 0x{:02x} at byte {} is not one that torch.save writes for "
        "dicts of tensors; save with torch.save's default protocol, or as safetensors",
        where_, opcode, at_ - 1);
  }

  void check_protocol(int protocol) const {
    if (protocol != 2) {
      raise<DataError>("{}: pickle protocol {}; expected 2, which is torch.save's default", where_,
                       protocol);
    }
  }

  std::int64_t take_long(std::size_t size) {
    if (size > sizeof(std::int64_t)) damaged("an int of {} bytes; expected at most 8", size);
    const Bytes bytes = take_bytes(size);
    // Two's complement, little-endian, as short as possible: the last byte has the sign.
    const bool negative = size > 0 && (bytes.back() & std::byte{0x80}) != std::byte{0};
    std::int64_t value = negative ? -1 : 0;
    std::memcpy(&value, bytes.data(), size);
    return value;
  }

  std::string_view take_text(std::size_t size) {
    const Bytes bytes = take_bytes(size);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), size);
    try {
      (void)nlohmann::json(std::string(text)).dump();  // throws for what is not UTF-8
    } catch (const nlohmann::json::exception&) {
      damaged("a text is not UTF-8");
    }
    return text;
  }

  void make_tuple(std::size_t size) {
    if (stack().size() < size) damaged("a value is used that was not made");
    const auto first = stack().end() - static_cast<std::ptrdiff_t>(size);
    TorchList tuple{true, {first, stack().end()}};
    stack().erase(first, stack().end());
    push(std::move(tuple));
  }

  void append(const std::vector<TorchNode*>& values) {
    auto* list = std::get_if<TorchList>(&top()->value);
    if (list == nullptr || list->is_tuple) damaged("an element for {}", type_name(*top()));
    list->elements.insert(list->elements.end(), values.begin(), values.end());
  }

  void set_items(const std::vector<TorchNode*>& values) {
    auto* dict = std::get_if<TorchDict>(&top()->value);
    if (dict == nullptr) damaged("an entry for {}", type_name(*top()));
    if (values.size() % 2 != 0) damaged("a key without a value");
    for (std::size_t i = 0; i < values.size(); i += 2)
      dict->items.emplace_back(values[i], values[i + 1]);
  }

  void find_global() {
    const std::string_view module = take_line();
    const std::string name = fmt::format("{} {}", module, take_line());
    if (const auto known = find_torch_name(name)) return push(*known);
    if (describes_objects_) return push(TorchObject{.class_name = name});
    raise<DataError>(
        "{}: the file wants to import {}, which tandem does not know and will not run; expected "
        "only OrderedDict, tensors, parameters and their storages. Load it where you trust it and "
        "save its tensors alone: torch.save(model.state_dict(), …) or save_pretrained",
        where_, in_quotes(name));
  }

  void reduce() {
    const TorchNode* arguments_node = pop();
    const TorchNode* callable_node = pop();
    if (const auto* unknown = std::get_if<TorchObject>(&callable_node->value))
      return push(TorchObject{.class_name = unknown->class_name});
    const auto* arguments = std::get_if<TorchList>(&arguments_node->value);
    const auto* callable = std::get_if<TorchGlobalName>(&callable_node->value);
    if (arguments == nullptr || callable == nullptr || !arguments->is_tuple)
      damaged("{} is called with {}", type_name(*callable_node), type_name(*arguments_node));
    switch (callable->global) {
      case TorchGlobal::kOrderedDict:
        if (!arguments->elements.empty()) damaged("an OrderedDict with arguments");
        return push(TorchDict{});
      case TorchGlobal::kRebuildTensor:
        return push(rebuild_tensor(arguments->elements, error()));
      case TorchGlobal::kRebuildParameter:  // (tensor, requires_grad, hooks)
        if (arguments->elements.empty() ||
            !std::holds_alternative<TensorView>(arguments->elements[0]->value))
          damaged("a parameter without a tensor");
        stack().push_back(arguments->elements[0]);
        return;
      case TorchGlobal::kStorageType:
        damaged("a storage type is called");
    }
  }

  // class.__new__(class, *arguments), of which only the class is kept.
  void new_object() {
    if (!describes_objects_) unknown_instruction(kNewObj);
    pop();
    const TorchNode* type = pop();
    const auto* object = std::get_if<TorchObject>(&type->value);
    if (object == nullptr) damaged("an instance of {}", type_name(*type));
    push(TorchObject{.class_name = object->class_name});
  }

  // Attributes of an object. Those of a dict, such as the _metadata of a state dict, are of no
  // interest.
  void build() {
    const TorchNode* attributes = pop();
    if (auto* object = std::get_if<TorchObject>(&top()->value)) {
      if (std::holds_alternative<TorchDict>(attributes->value)) object->attributes = attributes;
      return;
    }
    if (!std::holds_alternative<TorchDict>(top()->value))
      damaged("attributes for {}", type_name(*top()));
  }

  void recall(std::uint32_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) damaged("value {} is recalled, but was not kept", index);
    stack().push_back(found->second);
  }

  Bytes pickle_;
  const FindStorage& find_storage_;
  const std::string& where_;
  const bool describes_objects_;
  std::deque<TorchNode>& nodes_;
  std::size_t at_ = 0;
  std::vector<std::vector<TorchNode*>> stacks_;  // one per open mark
  std::unordered_map<std::uint32_t, TorchNode*> memo_;
};

}  // namespace

const TorchNode& run_pickle(Bytes pickle, const FindStorage& find_storage, const std::string& where,
                            PickledObjects objects, std::deque<TorchNode>& nodes) {
  const TorchNode& result = Interpreter(pickle, find_storage, where, objects, nodes).run();
  check_torch_tree(result, where);
  return result;
}

}  // namespace tandem::formats
