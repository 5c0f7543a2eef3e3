#include "tandem/formats/torch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/formats/zip_archive.h"

namespace tandem::formats {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Made by torch: tests/parity/make_torch_files.py.
fs::path golden(std::string_view name) {
  return fs::path(TANDEM_SOURCE_DIR) / "tests" / "parity" / "golden" / "torch" / name;
}

std::vector<float> floats(const TensorView& tensor) {
  std::vector<float> values(tensor.size());
  copy_to_float(tensor, values);
  return values;
}

template <class T>
std::vector<T> elements(const TensorView& tensor) {
  std::vector<T> values(tensor.size());
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

TEST(TorchFile, StateDict) {
  const TorchFile file(golden("pytorch_model.bin"));
  const auto tensors = state_dict_tensors(file.root());
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].name, "weight");
  EXPECT_THAT(tensors[0].shape, ElementsAre(3, 2));
  EXPECT_THAT(floats(tensors[0]), ElementsAre(0, 0.5f, 1, 1.5f, 2, 2.5f));
  EXPECT_EQ(tensors[1].name, "bias");
  EXPECT_THAT(floats(tensors[1]), ElementsAre(-1, -0.5f, 0));
}

TEST(TorchFile, Optimizer) {
  const TorchFile file(golden("optimizer.pt"));
  const TorchValue state = file.root()["state"];
  EXPECT_EQ(state.size(), 2u);
  EXPECT_THAT(floats(state[0]["step"].as_tensor()), ElementsAre(2));
  EXPECT_TRUE(state[0]["step"].as_tensor().shape.empty());
  EXPECT_THAT(state[0]["exp_avg"].as_tensor().shape, ElementsAre(3, 2));
  EXPECT_NEAR(floats(state[1]["exp_avg"].as_tensor())[0], -0.5 * (1 - 0.9 * 0.9), 1e-7);
  const TorchValue groups = file.root()["param_groups"];
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0]["weight_decay"].as_double(), 0.01);
  EXPECT_EQ(groups[0]["betas"][1].as_double(), 0.999);
  EXPECT_EQ(groups[1]["params"][0].as_int(), 1);
  EXPECT_FALSE(groups[1]["amsgrad"].as_bool());
  EXPECT_TRUE(groups[1]["foreach"].is_none());
  EXPECT_EQ(groups.elements()[1]["initial_lr"].as_double(), 1e-3);
}

TEST(TorchFile, Schedule) {
  const TorchFile file(golden("scheduler.pt"));
  EXPECT_EQ(file.root()["last_epoch"].as_int(), 2);
  EXPECT_EQ(file.root()["base_lrs"][1].as_double(), 1e-3);
  EXPECT_NEAR(file.root()["_last_lr"][0].as_double(), 8e-4, 1e-18);
  EXPECT_TRUE(file.root()["lr_lambdas"][0].is_none());
}

TEST(TorchFile, TypesAndViews) {
  const TorchFile file(golden("odd_values.pt"));
  const TorchValue root = file.root();
  const auto tensor = [&](const char* name) -> const TensorView& { return root[name].as_tensor(); };
  EXPECT_THAT(floats(tensor("half")), ElementsAre(0, 0.5f, 1, 1.5f));
  EXPECT_THAT(floats(tensor("bfloat16")), ElementsAre(0, 0.5f, 1));
  EXPECT_THAT(elements<double>(tensor("double")), ElementsAre(0, 0.5));
  EXPECT_THAT(elements<std::int64_t>(tensor("long")), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(elements<std::int32_t>(tensor("int")), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(elements<std::int16_t>(tensor("short")), ElementsAre(0, 0, 1, 1));
  EXPECT_EQ(tensor("char").dtype, DType::kI8);
  EXPECT_EQ(tensor("byte").dtype, DType::kU8);
  EXPECT_EQ(tensor("bool").dtype, DType::kBool);
  EXPECT_THAT(elements<std::uint8_t>(tensor("bool")), ElementsAre(1, 0));
  EXPECT_THAT(tensor("scalar").shape, ElementsAre());
  EXPECT_THAT(tensor("empty").shape, ElementsAre(0, 3));
  EXPECT_THAT(floats(tensor("parameter")), ElementsAre(0, 0.5f));
  EXPECT_THAT(floats(tensor("view")), ElementsAre(0.5f, 1));
  EXPECT_EQ(tensor("view").bytes.data(), tensor("whole").bytes.data() + 4);  // mapped, not copied
  EXPECT_THAT(tensor("column").shape, ElementsAre(1, 3));
  EXPECT_THAT(floats(tensor("column")), ElementsAre(0, 0.5f, 1));
}

TEST(TorchFile, PlainValues) {
  const TorchFile file(golden("odd_values.pt"));
  const TorchValue values = file.root()["values"];
  EXPECT_EQ(values.type_name(), "a tuple");
  EXPECT_TRUE(values[0].is_none());
  EXPECT_TRUE(values[1].as_bool());
  EXPECT_FALSE(values[2].as_bool());
  EXPECT_EQ(values[3].as_int(), -5);
  EXPECT_EQ(values[4].as_int(), 70000);
  EXPECT_EQ(values[5].as_int(), std::int64_t{1} << 40);
  EXPECT_EQ(values[6].as_int(), -(std::int64_t{1} << 40));
  EXPECT_EQ(values[7].as_double(), 1.5);
  EXPECT_EQ(values[8].as_string(), "ünicode");
  EXPECT_EQ(values[9][1][0].as_int(), 2);
  EXPECT_EQ(values[9][1][1].size(), 0u);
  EXPECT_EQ(values[10][1].as_string(), "one");
  EXPECT_EQ(file.root()["ordered"]["a"].as_int(), 1);
}

// The arguments of a Trainer: described where that is asked for, refused otherwise.
TEST(TorchFile, ObjectsAreDescribedAndNotMade) {
  const TorchFile file(golden("training_args.bin"), PickledObjects::kDescribed);
  ASSERT_TRUE(file.root().is_object());
  EXPECT_EQ(file.root().class_name(), "transformers.training_args TrainingArguments");
  const TorchValue attributes = *file.root().attributes();
  EXPECT_EQ(attributes["per_device_train_batch_size"].as_int(), 4);
  EXPECT_EQ(attributes["gradient_accumulation_steps"].as_int(), 2);
  EXPECT_EQ(attributes["data_seed"].as_int(), 7);
  EXPECT_EQ(attributes["output_dir"].as_string(), "out");
  EXPECT_FALSE(attributes["group_by_length"].as_bool());
  const TorchValue optimizer = attributes["optim"];
  EXPECT_EQ(optimizer.class_name(), "transformers.training_args OptimizerNames");
  EXPECT_FALSE(optimizer.attributes().has_value());
  EXPECT_EQ(attributes["accelerator_config"].attributes().value()["even_batches"].as_bool(), true);
  EXPECT_THAT([&] { optimizer.as_string(); },
              ThrowsMessage<DataError>(HasSubstr("'optim' is an object; expected a string")));
  EXPECT_THAT([] { TorchFile refused(golden("training_args.bin")); },
              ThrowsMessage<DataError>(
                  HasSubstr("wants to import \"transformers.training_args TrainingArguments\"")));
}

TEST(TorchFile, WrongTypesNameTheirPlace) {
  const TorchFile file(golden("odd_values.pt"));
  const TorchValue root = file.root();
  EXPECT_THAT([&] { root["values"][8].as_double(); },
              ThrowsMessage<DataError>(
                  HasSubstr("odd_values.pt 'values'[8] is a string; expected a number")));
  EXPECT_THAT([&] { root["valves"]; }, ThrowsMessage<DataError>(HasSubstr("no entry 'valves'")));
  EXPECT_THAT([&] { root["values"][11]; }, ThrowsMessage<DataError>(HasSubstr("has 11 elements")));
  EXPECT_THAT([&] { root["values"][-1]; }, ThrowsMessage<DataError>(HasSubstr("has 11 elements")));
  EXPECT_THAT([&] { root["values"]["x"]; }, ThrowsMessage<DataError>(HasSubstr("expected a dict")));
  EXPECT_THAT([&] { root["values"][3].as_tensor(); },
              ThrowsMessage<DataError>(HasSubstr("an int")));
  EXPECT_THAT([&] { root["half"].as_string(); }, ThrowsMessage<DataError>(HasSubstr("a tensor")));
  EXPECT_THAT([&] { state_dict_tensors(root); },
              ThrowsMessage<DataError>(HasSubstr("'values' is a tuple; expected a state dict")));
}

TEST(TorchFile, RefusesOtherFormatsWithAdvice) {
  const auto refused = [](std::string_view name, const std::string& message) {
    EXPECT_THAT(
        [&] { TorchFile file(golden(name)); },
        ThrowsMessage<DataError>(AllOf(HasSubstr(golden(name).string()), HasSubstr(message))));
  };
  refused("legacy.bin", "torch before 1.6");
  refused("legacy.bin", "load it with torch and save it again: torch.save(");
  refused("unknown.pt", "wants to import \"__main__ Unknown\"");
  refused("transposed.pt", "shape [3, 2] and strides [1, 3]");
  refused("protocol4.pt", "pickle protocol 4; expected 2");
  EXPECT_THROW(TorchFile("/no/such/file"), IoError);
}

std::span<const std::byte> bytes_of_text(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Pickles written by hand.
class TorchPickleTest : public ::testing::Test {
 protected:
  fs::path write(std::string_view pickle, std::string_view storage = "") {
    const fs::path path = folder_ / "x.pt";
    write_zip(path, std::vector<ZipEntry>{{"x/data.pkl", bytes_of_text(pickle)},
                                          {"x/data/0", bytes_of_text(storage)}});
    return path;
  }
  void expect_refused(std::string_view pickle, const std::string& message,
                      std::string_view storage = "") {
    const fs::path path = write(pickle, storage);
    EXPECT_THAT([&] { TorchFile file(path); },
                ThrowsMessage<DataError>(AllOf(HasSubstr(path.string()), HasSubstr(message))));
  }

  // A tensor over storage 0 of `count` floats, as torch writes it.
  static std::string tensor(int count, int offset, std::string_view shape,
                            std::string_view strides) {
    std::string text = "ctorch._utils\n_rebuild_tensor_v2\n((X";
    text += std::string("\7\0\0\0storage", 11);
    text += "ctorch\nFloatStorage\n";
    text += std::string("X\1\0\0\0000X\3\0\0\0cpuK", 15);
    text += static_cast<char>(count);
    text += "tQK";
    text += static_cast<char>(offset);
    return text.append(shape).append(strides).append("\x89)tR");
  }
  testing::TemporaryFolder folder_;
};

constexpr std::string_view kTwoFloats("\0\0\x80\x3f\0\0\0\x40", 8);

TEST_F(TorchPickleTest, Tensor) {
  const TorchFile file(write("\x80\2" + tensor(2, 0, "K\2\x85", "K\1\x85") + ".", kTwoFloats));
  EXPECT_THAT(floats(file.root().as_tensor()), ElementsAre(1, 2));
}

TEST_F(TorchPickleTest, RefusesTensorsThatDoNotFit) {
  const auto refused = [&](const std::string& pickle, const std::string& message) {
    expect_refused("\x80\2" + pickle + ".", message, kTwoFloats);
  };
  refused(tensor(3, 0, "K\2\x85", "K\1\x85"),
          "storage \"0\" has 8 bytes; expected 3 elements of F32");
  refused(tensor(2, 1, "K\2\x85", "K\1\x85"), "shape [2] at element 1 does not fit");
  refused(tensor(2, 0, "K\3\x85", "K\1\x85"), "shape [3] at element 0 does not fit");
  refused(tensor(2, 0, "K\1K\2\x86", "K\1\x85"), "1 strides for 2 dimensions");
  refused(tensor(2, 0, "K\2\x85", "K\2\x85"), "shape [2] and strides [2]");
  refused(tensor(2, 0, "J\xff\xff\xff\xff\x85", "K\1\x85"), "a shape with an int");
  refused(tensor(2, 0, "N\x85", "K\1\x85"), "a shape with None");
  // 2^62 · 4 elements of 4 bytes wrap around 64 bits.
  const std::string huge("\x8a\x08\0\0\0\0\0\0\0\x40", 10);
  refused(tensor(2, 0, huge + "K\4\x86", "K\4K\1\x86"), "does not fit its storage");
}

TEST_F(TorchPickleTest, RefusesDamagedPrograms) {
  const auto refused = [&](std::string_view pickle, const std::string& message) {
    expect_refused(pickle, message);
  };
  refused("", "1 bytes expected, 0 left");
  refused("\x80", "1 bytes expected");
  refused("\x80\2N", "1 bytes expected");
  refused("\x80\2.", "it ends with 0 values");
  refused("\x80\2NN.", "it ends with 2 values");
  refused("\x80\2(N.", "expected one");
  refused("\x80\2t.", "a list ends that did not begin");
  refused("\x80\2\x85.", "a value is used that was not made");
  refused("\x80\2q\1.", "a value is used that was not made");
  refused("\x80\2h\1.", "value 1 is recalled, but was not kept");
  refused("\x80\2Na.", "a value is used that was not made");
  refused("\x80\2NNa.", "an element for None");
  refused("\x80\2)Na.", "an element for a tuple");
  refused("\x80\2NNNs.", "an entry for None");
  refused("\x80\2}(Nu.", "a key without a value");
  refused("\x80\2NNR.", "None is called with None");
  refused("\x80\2Nb.", "a value is used that was not made");
  refused("\x80\2NQ.", "an unknown kind of reference");
  refused("\x80\2ccollections\nOrderedDict", "a name without end");
  refused("\x80\2ccollections\nOrderedDict\n.", "a type stands where a value is expected");
  refused("\x80\2ccollections\nOrderedDict\nN\x85R.", "an OrderedDict with arguments");
  refused("\x80\2ctorch\nFloatStorage\n)R.", "a storage type is called");
  refused("\x80\2ctorch._utils\n_rebuild_parameter\n)R.", "a parameter without a tensor");
  refused(std::string_view("\x80\2X\1\0\0\0\xff.", 10), "a text is not UTF-8");
  refused("\x80\2X\xff\xff\xff\xff.", "4294967295 bytes expected, 1 left");
  refused(
      "\x80\2\x8a\x09"
      "123456789.",
      "an int of 9 bytes");
  refused("\x80\2}NNs.", "a dict has None as a key");
  refused("\x80\2}K\1NsK\1Ns.", "a dict has the key 1 twice");
  refused("\x80\2i.", "the pickle instruction 0x69 at byte 2 is not one");
}

// The classic: os.system is named and called with a command.
TEST_F(TorchPickleTest, RunsNothing) {
  const std::string command = "touch " + (folder_ / "run").string();
  std::string pickle = "\x80\2cos\nsystem\nX";
  pickle += static_cast<char>(command.size());
  pickle += std::string(3, '\0') + command + "\x85R.";
  expect_refused(pickle, "wants to import \"os system\"");
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

TEST_F(TorchPickleTest, RefusesEndlessValues) {
  expect_refused("\x80\2]q\1h\1a.", "without end");  // a list in itself
  std::string doubled = "\x80\2]q";                  // each list holds the one before it twice
  doubled += '\0';
  for (char i = 1; i < 60; ++i) {
    doubled += "](h";
    doubled += static_cast<char>(i - 1);
    doubled += "h";
    doubled += static_cast<char>(i - 1);
    doubled += "eq";
    doubled += i;
  }
  // A program ends with one value: all lists go into a tuple.
  expect_refused("\x80\2(" + doubled.substr(2) + "t.", "more than 10000000 values");
}

TEST_F(TorchPickleTest, RefusesOtherArchives) {
  const auto refused = [&](std::vector<ZipEntry> entries, const std::string& message) {
    write_zip(folder_ / "x.pt", entries);
    EXPECT_THAT([&] { TorchFile file(folder_ / "x.pt"); },
                ThrowsMessage<DataError>(HasSubstr(message)));
  };
  const auto pickle = bytes_of_text("\x80\2N.");
  refused({{"x/y", pickle}}, "without data.pkl");
  refused({{"a/data.pkl", pickle}, {"b/data.pkl", pickle}}, "two pickles");
  refused({{"x/data.pkl", pickle}, {"x/constants.pkl", pickle}}, "TorchScript");
  refused({{"x/data.pkl", pickle}, {"x/byteorder", bytes_of_text("big")}}, "byte order is 'big'");
  write_file(folder_ / "x.pt", "version https://git-lfs.github.com/spec/v1\noid sha256:0");
  EXPECT_THAT([&] { TorchFile file(folder_ / "x.pt"); },
              ThrowsMessage<DataError>(HasSubstr("git lfs pull")));
  write_file(folder_ / "x.pt", "<!DOCTYPE html>");
  EXPECT_THAT([&] { TorchFile file(folder_ / "x.pt"); },
              ThrowsMessage<DataError>(HasSubstr("15 bytes that do not begin as a ZIP file")));
}

}  // namespace
}  // namespace tandem::formats
