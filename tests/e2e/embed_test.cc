// `tandem embed` against sentence-transformers' embeddings (../shared/data/golden/next), in pieces,
// after a kill, and with bad input.
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>

#include "e2e/job.h"
#include "support/gzip.h"
#include "tandem/core/json.h"
#include "tandem/formats/tensor_view.h"
#include "tandem/models/pretrained/weight_files.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Vectors = std::vector<std::vector<double>>;

double cosine(const std::vector<double>& a, const std::vector<double>& b) {
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  return ab / std::sqrt(aa * bb);
}

void expect_near(const Vectors& found, const Vectors& expected, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].size(), expected[i].size()) << what;
    EXPECT_GT(cosine(found[i], expected[i]), 1 - 1e-6) << what << ", text " << i;
    for (std::size_t k = 0; k < found[i].size(); ++k)
      ASSERT_NEAR(found[i][k], expected[i][k], 2e-6) << what << ", text " << i;
  }
}

class Embed : public JobTest {
 protected:
  // One text a line, the empty ones too.
  std::string lines_file(const std::vector<std::string>& texts, const std::string& name) const {
    std::string all;
    for (const std::string& text : texts) all += text + "\n";
    write_file(path(name), all);
    return path(name).native();
  }
  static Vectors embed(const std::string& model, const std::string& file, const Words& more = {}) {
    Words words = {kProgram, "embed", "--model", model, "--file", file, "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const ProcessResult result = testing::run(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    Vectors vectors;
    std::istringstream output(result.out);
    for (std::string line; std::getline(output, line);)
      vectors.push_back(json::parse(line)["embedding"].get<std::vector<double>>());
    return vectors;
  }
  void expect_problem(const Words& more, const ::testing::Matcher<std::string>& message) const {
    Words words = {kProgram, "embed", "--model", (kDemo / "model").native()};
    words.insert(words.end(), more.begin(), more.end());
    const ProcessResult result = run(words);
    EXPECT_NE(result.exit_code, 0);
    EXPECT_THAT(result.err, message);
  }
  std::vector<std::string> many_texts(std::size_t count) const {
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < count; ++i) {
      std::string text = fmt::format("Text {}", i);
      for (std::size_t word = 0; word < i % 23; ++word) text += " the ferry sails";
      texts.push_back(text);
    }
    return texts;
  }
};

class EmbedGoldens : public Embed {
 protected:
  void SetUp() override {
    golden_ = shared_data() / "golden" / "next";
    if (!fs::exists(golden_ / "embeddings" / "layouts.json"))
      GTEST_SKIP() << "needs the shared test data, which is absent: " << golden_;
  }
  json read_golden(const std::string& name) const {
    return json::parse(read_file(golden_ / "embeddings" / name));
  }
  // The embeddings of a model from the Hub against those of real_<name>.
  void expect_real(const std::string& name, const fs::path& model, std::size_t width) const {
    const json golden = read_golden(fmt::format("real_{}.json", name));
    const Vectors found = embed(model.native(), lines_file(golden["texts"], "texts"));
    const models::WeightFiles tensors(golden_ / "embeddings" /
                                      fmt::format("real_{}.safetensors", name));
    const formats::TensorView* expected = nullptr;
    for (const formats::TensorView& tensor : tensors.tensors()) {
      if (tensor.shape == std::vector<std::size_t>{found.size(), width} &&
          (expected == nullptr || tensor.dtype == formats::DType::kF64))
        expected = &tensor;
    }
    ASSERT_NE(expected, nullptr);
    std::vector<float> values(expected->size());
    formats::copy_to_float(*expected, values);
    Vectors vectors;
    for (auto row = values.begin(); row != values.end(); row += static_cast<std::ptrdiff_t>(width))
      vectors.emplace_back(row, row + static_cast<std::ptrdiff_t>(width));
    expect_near(found, vectors, expected->name);
  }
  fs::path golden_;
};

TEST_F(EmbedGoldens, EveryLayoutHasTheEmbeddingsOfSentenceTransformers) {
  const json golden = read_golden("layouts.json");
  const std::string file = lines_file(golden["texts"], "texts");
  const std::pair<const char*, const char*> models[] = {{"tiny-st-mean", "mean"},
                                                        {"tiny-st-cls-norm", "cls_norm"},
                                                        {"tiny-st-dense", "dense"},
                                                        {"tiny-st-dense-old", "dense"}};
  for (const auto& [directory, key] : models) {
    const json& expected = golden[key];
    const std::string model = (golden_ / "models" / directory).native();
    expect_near(embed(model, file), expected["embeddings_f64"], directory);
    expect_near(embed(model, file, {"--normalize"}), expected["encode_normalized_f32"], directory);
    expect_near(embed(model, file, {"--truncate_dim", "8"}), expected["encode_truncated_8_f32"],
                directory);
    expect_near(embed(model, file, {"--prompt_name", "query"}), expected["encode_query_f32"],
                directory);
    expect_near(embed(model, file, {"--prompt_name", "document"}), expected["encode_document_f32"],
                directory);
  }
}

// The poolings of one model, by its 1_Pooling/config.json.
TEST_F(EmbedGoldens, EveryPooling) {
  const json golden = read_golden("layouts.json");
  const std::string file = lines_file(golden["texts"], "texts");
  const fs::path model = path("model");
  fs::copy(golden_ / "models" / "tiny-st-mean", model, fs::copy_options::recursive);
  int found = 0;
  for (const auto& [key, expected] : golden.items()) {
    if (!key.starts_with("pooling_")) continue;
    std::vector<std::string> modes;
    std::istringstream names(key.substr(std::strlen("pooling_")));
    for (std::string name; std::getline(names, name, '+');) modes.push_back(name);
    write_file(model / "1_Pooling" / "config.json", json{{"pooling_mode", modes}}.dump());
    expect_near(embed(model.native(), file), expected["embeddings_f64"], key);
    ++found;
  }
  EXPECT_GE(found, 5);
}

TEST_F(EmbedGoldens, TheRealMiniLm) {
  if (!fs::exists(minilm_dir() / "modules.json"))
    GTEST_SKIP() << "needs the MiniLM encoder: scripts/fetch_minilm.sh";
  expect_real("minilm", minilm_dir(), 384);
}

TEST_F(EmbedGoldens, TheRealMpnet) {
  const fs::path model = fs::path(TANDEM_SOURCE_DIR) / "build/test-data/mpnet";
  if (!fs::exists(model / "modules.json"))
    GTEST_SKIP()
        << "needs the encoder all-mpnet-base-v2, which is absent: run scripts/fetch_mpnet.sh";
  expect_real("mpnet", model, 768);
}

// Bits: alone or among others, with one thread or three, in a file or a pipe.
TEST_F(Embed, ATextHasTheSameBitsWhateverIsComputedWithIt) {
  const auto texts = many_texts(60);
  const std::string all = lines_file(texts, "all");
  const std::string model = (kDemo / "model").native();
  const Words words = {kProgram, "embed", "--model", model, "--file", all, "--output"};
  for (const char* threads : {"1", "3"}) {
    Words command = words;
    command.push_back(path(threads).native() + ".npy");
    EXPECT_EQ(testing::run(command, {{"OMP_NUM_THREADS", threads}}).exit_code, 0);
  }
  const std::string array = read_file(path("1.npy"));
  EXPECT_TRUE(array == read_file(path("3.npy")));
  Words pipe = words;
  pipe.emplace_back("-");
  EXPECT_TRUE(array == testing::run(pipe).out) << "a pipe gets other bytes";

  const Vectors alone = embed(model, lines_file({texts[41]}, "one"));
  const std::size_t size = alone.at(0).size();
  std::vector<float> row(size);
  std::memcpy(row.data(), array.data() + 128 + 41 * size * sizeof(float), size * sizeof(float));
  for (std::size_t k = 0; k < size; ++k) EXPECT_EQ(static_cast<float>(alone[0][k]), row[k]) << k;
}

// Texts are read while others are computed. An error waits for those before it.
// As BEIR has its corpora.
TEST_F(Embed, RowsOfJsonHaveTheirTexts) {
  write_file(path("rows.jsonl"), R"({"_id": "a", "title": "Ships", "text": "The Valgull sails."})"
                                 "\n"
                                 R"({"text": "rain", "title": ""})"
                                 "\n");
  const std::string rows = path("rows.jsonl").native();
  EXPECT_EQ(
      embed((kDemo / "model").native(), rows),
      embed((kDemo / "model").native(), lines_file({"Ships The Valgull sails.", "rain"}, "lines")));
  write_file(path("rows.jsonl"), "{\"text\": \"a\"}\nrain\n");
  expect_problem({"--file", rows}, HasSubstr("rows.jsonl, line 2: found no JSON"));
  write_file(path("rows.jsonl"), "{\"body\": \"a\"}\n");
  expect_problem({"--file", rows}, HasSubstr("rows.jsonl, line 1: the object has no 'text'"));
}

TEST_F(Embed, TextsBeforeAnErrorAreWritten) {
  auto texts = many_texts(2500);
  texts[2300] = "Kim \xff sails";
  const ProcessResult result = run({kProgram, "embed", "--model", (kDemo / "model").native(),
                                    "--file", lines_file(texts, "texts"), "--json"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("texts, line 2301: "));
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 2048);
}

// A kill leaves whole rows; the next call computes the others.
class KilledEmbed : public Embed {
 protected:
  void expect_resumed(const std::string& precision) const;
};
void KilledEmbed::expect_resumed(const std::string& precision) const {
  const std::string file = lines_file(many_texts(3000), "texts");
  const std::string model = (kDemo / "model").native();
  const auto command = [&](const char* output) {
    return Words{kProgram,      "embed",  "--model",  model,
                 "--file",      file,     "--output", path(output).native(),
                 "--precision", precision};
  };
  ASSERT_EQ(run(command("whole.npy")).exit_code, 0);
  const fs::path partial = path("killed.npy.partial");
  bool killed = false;
  for (int attempt = 0; attempt < 20 && !killed; ++attempt) {
    fs::remove(path("killed.npy"));
    Process process(command("killed.npy"), {{"OMP_NUM_THREADS", "1"}});
    std::error_code error;
    while (process.running() && !(fs::exists(partial) && fs::file_size(partial, error) > 128))
      std::this_thread::sleep_for(1ms);
    ::kill(process.pid(), SIGKILL);
    process.wait();
    killed = fs::exists(partial);
  }
  ASSERT_TRUE(killed) << "the call was never killed before its end";
  const ProcessResult resumed = run(command("killed.npy"));
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("texts already; resuming after them"));
  EXPECT_TRUE(read_file(path("whole.npy")) == read_file(path("killed.npy")));
  EXPECT_FALSE(fs::exists(partial) || fs::exists(path("killed.npy.job")));
}
TEST_F(KilledEmbed, IsResumed) { expect_resumed("float32"); }
TEST_F(KilledEmbed, IsResumedBeforeItsRangesAreKnown) { expect_resumed("int8"); }

// JSON lines and Parquet files of a killed call have the bytes of a whole one, too.
TEST_F(KilledEmbed, OtherFilesAreResumedFromTheirRows) {
  const std::string file = lines_file(many_texts(3000), "texts");
  for (const char* name : {"killed.jsonl", "killed.parquet"}) {
    const auto command = [&](const std::string& output) {
      return Words{kProgram,         "embed", "--model",  (kDemo / "model").native(),
                   "--file",         file,    "--output", path(output).native(),
                   "--truncate_dim", "16"};
    };
    const std::string whole = std::string("whole") + fs::path(name).extension().native();
    ASSERT_EQ(run(command(whole)).exit_code, 0);
    const fs::path partial = path(std::string(name) + ".rows.partial");
    bool killed = false;
    for (int attempt = 0; attempt < 20 && !killed; ++attempt) {
      fs::remove(path(name));
      Process process(command(name), {{"OMP_NUM_THREADS", "1"}});
      std::error_code error;
      while (process.running() && !(fs::exists(partial) && fs::file_size(partial, error) > 128))
        std::this_thread::sleep_for(1ms);
      ::kill(process.pid(), SIGKILL);
      process.wait();
      killed = fs::exists(partial) && !fs::exists(path(name));
    }
    ASSERT_TRUE(killed) << "the call was never killed before its end";
    const ProcessResult resumed = run(command(name));
    EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_THAT(resumed.err, HasSubstr("texts already; resuming after them"));
    EXPECT_TRUE(read_file(path(whole)) == read_file(path(name)));
    EXPECT_FALSE(fs::exists(partial));
  }
}

class EmbedByRanks : public Embed {
 protected:
  Words command(const std::string& file, const std::string& output, const Words& more) const {
    return with({kProgram, "embed", "--model", (kDemo / "model").native(), "--file", file,
                 "--output", path(output).native(), "--truncate_dim", "24"},
                more);
  }
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(path("")))
      names.insert(entry.path().filename().native());
    return names;
  }
};

// Shares of unequal sizes, ranks without a line, and every kind of file.
TEST_F(EmbedByRanks, TheFileIsThatOfOneRank) {
  for (const std::size_t lines : {1300u, 2u}) {
    const std::string file = lines_file(many_texts(lines), "texts");
    for (const auto& [name, more] : {std::pair<std::string, Words>("floats.npy", {}),
                                     {"bytes.npy", {"--precision", "int8"}},
                                     {"bits.npy", {"--precision", "ubinary"}},
                                     {"rows.parquet", {}},
                                     {"bytes.parquet", {"--precision", "uint8"}},
                                     {"rows.jsonl", {}}}) {
      run_ok(command(file, "one-" + name, more));
      run_ranks(command(file, "ranks-" + name, more), 3);
      EXPECT_TRUE(read_file(path("one-" + name)) == read_file(path("ranks-" + name))) << name;
    }
  }
  for (const std::string& name : files())
    EXPECT_EQ(name.find(".rows"), std::string::npos) << name << " was left";
}

TEST_F(EmbedByRanks, ACompressedFileIsReadAsItsContent) {
  const std::string file = lines_file(many_texts(200), "texts");
  const std::string compressed = path("texts.txt.gz").native();
  write_file(compressed, gzip(read_file(file)));
  run_ok(command(file, "plain.npy", {}));
  run_ok(command(compressed, "one.npy", {}));
  run_ranks(command(compressed, "ranks.npy", {}), 2);
  EXPECT_TRUE(read_file(path("one.npy")) == read_file(path("plain.npy")));
  EXPECT_TRUE(read_file(path("ranks.npy")) == read_file(path("plain.npy")));
  const ProcessResult piped = run({"/bin/bash", "-c",
                                   fmt::format("cat '{}' | '{}' embed --model '{}'", compressed,
                                               kProgram, (kDemo / "model").native())});
  EXPECT_THAT(piped.err, HasSubstr("standard input is compressed, expected text; decompress it"));
  write_file(compressed, gzip(read_file(file)).substr(0, 500));
  expect_problem({"--file", compressed},
                 HasSubstr("texts.txt.gz: the file ends in the middle of its compressed data"));
}

// Ranks that were killed continue behind their rows.
TEST_F(EmbedByRanks, KilledRanksResume) {
  const std::string file = lines_file(many_texts(4000), "texts");
  run_ok(command(file, "one.npy", {}));
  const auto partial = [&](int rank) {
    return path(fmt::format("killed.npy.rows-{}-of-2.partial", rank));
  };
  bool killed = false;
  for (int attempt = 0; attempt < 20 && !killed; ++attempt) {
    fs::remove(path("killed.npy"));
    const int port = free_port();
    std::array<std::unique_ptr<Process>, 2> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks[static_cast<std::size_t>(rank)] =
          std::make_unique<Process>(command(file, "killed.npy", {}), rank_variables(rank, 2, port));
    }
    std::error_code error;
    while (ranks[1]->running() &&
           !(fs::exists(partial(1)) && fs::file_size(partial(1), error) > 128))
      std::this_thread::sleep_for(1ms);
    ::kill(ranks[1]->pid(), SIGKILL);
    const ProcessResult first = ranks[0]->wait();
    ranks[1]->wait();
    killed = first.exit_code != 0 && fs::exists(partial(1));
    if (killed) {
      EXPECT_EQ(first.exit_code, 200) << first.err;
    }
  }
  ASSERT_TRUE(killed) << "rank 1 was never killed before its end";
  run_ranks(command(file, "killed.npy", {}), 2);
  EXPECT_TRUE(read_file(path("one.npy")) == read_file(path("killed.npy")));
  EXPECT_FALSE(fs::exists(partial(0)) || fs::exists(partial(1)));
}

TEST_F(EmbedByRanks, NeedsFilesThatEveryRankCanRead) {
  const Words words = {kProgram, "embed", "--model", (kDemo / "model").native(), "a text"};
  const int port = free_port();
  Process first(words, rank_variables(0, 2, port)), second(words, rank_variables(1, 2, port));
  EXPECT_EQ(first.wait().exit_code, 1);
  EXPECT_EQ(second.wait().exit_code, 1);
}

// The array of a .npy file of bytes, as numbers from 0 on.
std::string bytes_of(const std::string& array) { return array.substr(128); }

// quantize_embeddings() over the floats that the same call writes.
std::string by_numpy(const std::string& floats, const std::string& calibration, std::size_t size) {
  const auto value = [&](const std::string& array, std::size_t i) {
    float found = 0;
    std::memcpy(&found, array.data() + 128 + i * sizeof found, sizeof found);
    return found;
  };
  std::string bytes((floats.size() - 128) / sizeof(float), '\0');
  for (std::size_t column = 0; column < size; ++column) {
    float least = value(calibration, column), greatest = least;
    for (std::size_t i = column; i < (calibration.size() - 128) / sizeof(float); i += size) {
      least = std::min(least, value(calibration, i));
      greatest = std::max(greatest, value(calibration, i));
    }
    const float step = (greatest - least) / 255;
    for (std::size_t i = column; i < bytes.size(); i += size) {
      const float steps = std::floor((value(floats, i) - least) / step);
      bytes[i] = static_cast<char>(static_cast<int>(std::min(std::max(steps, 0.0f), 255.0f)));
    }
  }
  return bytes;
}

TEST_F(Embed, BytesAreScaledToTheRangesOfTheirComponents) {
  const std::string file = lines_file(many_texts(1100), "texts");
  const std::string other = lines_file({"a", "the ferry", "ferries sail", "b c d"}, "other");
  const std::string model = (kDemo / "model").native();
  const auto array = [&](const std::string& name, const std::string& of, const Words& more) {
    Words words = {kProgram, "embed", "--model",  model,
                   "--file", of,      "--output", path(name).native()};
    words.insert(words.end(), more.begin(), more.end());
    const ProcessResult result = run(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return read_file(path(name));
  };
  const Words cut = {"--truncate_dim", "8"};
  const std::string floats = array("floats.npy", file, cut);
  const std::string calibration = array("calibration.npy", other, cut);
  const auto own = [&](const std::string& name, const std::string& precision) {
    return array(name, file, {"--truncate_dim", "8", "--precision", precision});
  };
  const std::string expected = by_numpy(floats, floats, 8);
  EXPECT_TRUE(bytes_of(own("own.npy", "uint8")) == expected);
  std::string is_signed = bytes_of(own("signed.npy", "int8"));
  for (char& byte : is_signed) byte = static_cast<char>(byte + 128);
  EXPECT_TRUE(is_signed == expected);
  EXPECT_TRUE(bytes_of(array("calibrated.npy", file,
                             {"--truncate_dim", "8", "--precision", "uint8", "--calibration",
                              other})) == by_numpy(floats, calibration, 8));
  // JSON lines and pipes wait for the ranges, too.
  const std::string lines = own("lines.jsonl", "uint8");
  const json last = json::parse(lines.substr(lines.rfind('\n', lines.size() - 2) + 1));
  EXPECT_EQ(last["text"], many_texts(1100).back());
  for (std::size_t i = 0; i < 8; ++i)
    EXPECT_EQ(last["embedding"][i], static_cast<unsigned char>(expected[1099 * 8 + i]));
  const ProcessResult pipe = run({kProgram, "embed", "--model", model, "--file", file,
                                  "--truncate_dim", "8", "--precision", "uint8"});
  EXPECT_TRUE(pipe.out == read_file(path("own.npy")));
}

TEST_F(Embed, RangesOfFewTextsAreWarnedOf) {
  const std::string model = (kDemo / "model").native();
  const auto warning = [&](const Words& more) {
    Words words = {kProgram, "embed", "--model", model, "--precision", "int8", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const ProcessResult result = run(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.err;
  };
  const std::string few = lines_file(many_texts(99), "few");
  const std::string enough = lines_file(many_texts(100), "enough");
  EXPECT_THAT(warning({"a", "b"}), HasSubstr("the ranges are those of 2 texts; give"));
  EXPECT_THAT(warning({"a", "--calibration", few}),
              HasSubstr("the ranges are those of 99 texts of --calibration"));
  EXPECT_THAT(warning({"a", "--calibration", enough}), Not(HasSubstr("warning")));
}

// JSON lines appear under their name when all are there. An error touches no old file, and leaves
// only the rows from which the command continues.
TEST_F(Embed, AnErrorLeavesNoHalfOfAFile) {
  std::string lines;
  for (const std::string& text : many_texts(1500)) lines += text + "\n";
  write_file(path("bad"), lines +
                              "b\xe4"
                              "d\n");
  write_file(path("out.jsonl"), "old\n");
  expect_problem({"--file", path("bad").native(), "--output", path("out.jsonl").native()},
                 HasSubstr(path("bad").native() + ", line 1501: "));
  EXPECT_EQ(read_file(path("out.jsonl")), "old\n");
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(path("")))
    names.insert(entry.path().filename().native());
  EXPECT_THAT(names,
              ElementsAre("bad", "out.jsonl", "out.jsonl.rows.job", "out.jsonl.rows.partial"));
  write_file(path("good"), "a\nb\n");
  EXPECT_EQ(run({kProgram, "embed", "--model", (kDemo / "model").native(), "--file",
                 path("good").native(), "--output", path("out.jsonl").native()})
                .exit_code,
            0);
  EXPECT_EQ(
      json::parse(
          read_file(path("out.jsonl")).substr(0, read_file(path("out.jsonl")).find('\n')))["text"],
      "a");
}

// A pipe, as a shell's <(command) and /dev/stdin are, can be read once.
TEST_F(Embed, APipeIsReadOnce) {
  const std::string texts = lines_file(many_texts(30), "texts");
  const std::string program =
      fmt::format("'{}' embed --model '{}'", kProgram, (kDemo / "model").native());
  for (const char* name : {"out.npy", "out.jsonl", "out.parquet"}) {
    const std::string output = path(name).native();
    const auto written = [&](const std::string& arguments) {
      const ProcessResult result =
          run({"/bin/bash", "-c", fmt::format("{} --output '{}' {}", program, output, arguments)});
      EXPECT_EQ(result.exit_code, 0) << arguments << result.err;
      return read_file(output);
    };
    const std::string of_file = written(fmt::format("--file '{}'", texts));
    EXPECT_EQ(written(fmt::format("--file <(cat '{}')", texts)), of_file) << name;
    EXPECT_EQ(written(fmt::format("--file /dev/stdin < <(cat '{}')", texts)), of_file) << name;
    const std::string ranges = fmt::format("--precision uint8 --file '{}' --calibration ", texts);
    const std::string of_ranges = written(fmt::format("{} '{}'", ranges, texts));
    EXPECT_EQ(written(fmt::format("{} <(cat '{}')", ranges, texts)), of_ranges) << name;
  }
}

// Nothing is written beside a stream: texts before an error are in it.
TEST_F(Embed, TheNameOfAnOpenFileIsAStream) {
  auto texts = many_texts(2500);
  texts[2300] = "Kim \xff sails";
  const std::string command =
      fmt::format("'{}' embed --model '{}' --file '{}' --output /dev/stdout > '{}'", kProgram,
                  (kDemo / "model").native(), lines_file(texts, "texts"), path("rows").native());
  EXPECT_NE(run({"/bin/bash", "-c", command}).exit_code, 0);
  const std::string rows = read_file(path("rows"));
  EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 2048);
  EXPECT_FALSE(fs::exists("/dev/stdout.rows.job"));
}

// The message has the name that the user wrote, not that of a file beside it.
TEST_F(Embed, AnOutputThatCannotBeWrittenIsNamed) {
  write_file(path("texts"), "a\n");
  for (const char* name : {"absent/x.npy", "absent/x.jsonl"}) {
    const std::string output = path(name).native();
    expect_problem({"--file", path("texts").native(), "--output", output},
                   HasSubstr("--output " + output + ": the folder '" + path("absent").native() +
                             "' does not exist; create it first"));
  }
  const std::string texts = path("texts").native();
  expect_problem({"--file", texts, "--output", path("./texts").native()},
                 HasSubstr("found the file of --file, which would be lost; name another file"));
  fs::create_symlink(texts, path("link"));
  expect_problem({"--precision", "int8", "--calibration", path("link").native(), "--output", texts},
                 HasSubstr("found the file of --calibration"));
  EXPECT_EQ(read_file(texts), "a\n");
  expect_problem({"--file", texts, "--output", path("x.csv").native()},
                 HasSubstr("x.csv: expected a name that ends with .npy, .parquet, .jsonl"));
  const std::string folder = path("").native();
  expect_problem({"--file", path("texts").native(), "--output", folder},
                 HasSubstr("--output " + folder + ": found a folder, expected the name of a file"));
}

TEST_F(Embed, BadInputIsNamed) {
  expect_problem({"--truncate_dim", "4096", "a"},
                 HasSubstr("--truncate_dim 4096: the embeddings have 128 values"));
  expect_problem({"--prompt_name", "passage", "a"},
                 HasSubstr("unknown prompt 'passage', expected one of document, query"));
  expect_problem({"--prompt_name", "query", "--prompt", "x", "a"}, HasSubstr("excludes"));
  expect_problem({"--file", path("absent").native()}, HasSubstr("cannot open"));
  write_file(path("empty"), "");
  expect_problem({"--file", path("empty").native()}, HasSubstr("has no text in it"));
  write_file(path("latin"),
             "good\nb\xe4"
             "d\n");
  expect_problem({"--file", path("latin").native()},
                 AllOf(HasSubstr(path("latin").native() + ", line 2: "), HasSubstr("UTF-8")));
  expect_problem({"good",
                  "b\xe4"
                  "d"},
                 AllOf(HasSubstr("text 2: "), HasSubstr("UTF-8")));
  expect_problem({"--output", "/dev/full", "a"}, HasSubstr("cannot write '/dev/full'"));
  expect_problem({"--calibration", path("latin").native(), "a"},
                 HasSubstr("--precision float32 has no ranges; use --precision int8 or uint8"));
  const auto expect_bad_calibration = [&](const std::string& file, const std::string& message) {
    expect_problem({"--precision", "int8", "--calibration", file, "--file", path("texts").native()},
                   AllOf(HasSubstr("--calibration"), HasSubstr(message)));
  };
  write_file(path("texts"), "a\n");
  expect_bad_calibration(path("latin").native(), "latin, line 2: ");
  expect_bad_calibration(path("empty").native(), "has no text in it");
  // Before the texts are embedded.
  const std::string rows = path("rows.jsonl").native();
  expect_problem({"--precision", "int8", "--calibration", path("absent").native(), "--file",
                  path("texts").native(), "--output", rows},
                 HasSubstr("cannot open"));
  EXPECT_FALSE(fs::exists(rows + ".rows.job"));
  expect_problem({"--precision", "int8", "--calibration", "-"},
                 HasSubstr("standard input has the texts"));
}

}  // namespace
}  // namespace tandem::testing
