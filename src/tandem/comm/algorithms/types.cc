#include "tandem/comm/algorithms/types.h"

namespace tandem::comm {

std::size_t size_of(DataType type) {
  switch (type) {
    case DataType::kByte:
    case DataType::kInt8:
    case DataType::kUint8:
      return 1;
    case DataType::kBfloat16:
    case DataType::kFloat16:
      return 2;
    case DataType::kInt32:
    case DataType::kFloat32:
      return 4;
    case DataType::kInt64:
    case DataType::kUint64:
    case DataType::kFloat64:
      return 8;
  }
  return 0;
}

std::string_view name_of(DataType type) {
  switch (type) {
    case DataType::kByte:
      return "byte";
    case DataType::kInt8:
      return "int8";
    case DataType::kUint8:
      return "uint8";
    case DataType::kInt32:
      return "int32";
    case DataType::kInt64:
      return "int64";
    case DataType::kUint64:
      return "uint64";
    case DataType::kFloat32:
      return "float32";
    case DataType::kFloat64:
      return "float64";
    case DataType::kBfloat16:
      return "bfloat16";
    case DataType::kFloat16:
      return "float16";
  }
  return "unknown type";
}

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kNone:
      return "none";
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kProduct:
      return "product";
    case ReduceOp::kAverage:
      return "average";
  }
  return "unknown operation";
}

std::string_view name_of(Operation operation) {
  switch (operation) {
    case Operation::kBarrier:
      return "barrier";
    case Operation::kBroadcast:
      return "broadcast";
    case Operation::kAllGather:
      return "all_gather";
    case Operation::kGather:
      return "gather";
    case Operation::kAllReduce:
      return "all_reduce";
    case Operation::kSend:
      return "send";
    case Operation::kReduce:
      return "reduce";
    case Operation::kReduceScatter:
      return "reduce_scatter";
    case Operation::kAllToAll:
      return "all_to_all";
    case Operation::kScatter:
      return "scatter";
  }
  return "unknown operation";
}

bool has_root(Operation operation) {
  return operation == Operation::kBroadcast || operation == Operation::kGather ||
         operation == Operation::kReduce || operation == Operation::kScatter;
}

}  // namespace tandem::comm
