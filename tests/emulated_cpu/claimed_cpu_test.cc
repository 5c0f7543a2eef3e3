// A claimed processor: features shown, accepted and refused, and bits equal to those of the class.
#include "emulated_cpu/claimed_cpu.h"

#include <gmock/gmock.h>

#include <map>
#include <string>

#include "tandem/core/error.h"
#include "tandem/kernels/kernel_set.h"

namespace tandem::kernels::emulated {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr CpuFeatures kNothing{};
const CpuFeatures kEverything = kCpuClasses.back().features;

TEST(ClaimedCpu, ShowsTheClassWhateverTheMachineIs) {
  for (const CpuClass& one : kCpuClasses) {
    for (const CpuFeatures& processor : {kNothing, kEverything}) {
      const ClaimedCpu claimed = parse_claim(one.name, processor);
      EXPECT_EQ(claimed.shown.describe(), one.features.describe()) << one.name;
      EXPECT_EQ(claimed.executed.describe(), processor.describe()) << one.name;
      const ClaimedCpu limited = parse_claim(std::string(one.name) + "/avx2", kEverything);
      EXPECT_EQ(limited.shown.describe(), one.features.describe()) << one.name;
      EXPECT_EQ(limited.executed.describe(), "AVX2") << one.name;
    }
  }
  EXPECT_EQ(parse_claim("", kEverything).shown.describe(), kEverything.describe());
}

TEST(ClaimedCpu, WrongClaimsAreConfigErrors) {
  EXPECT_THAT(
      [] { parse_claim("avx3", kNothing); },
      ThrowsMessage<ConfigError>(HasSubstr("unknown class of processors 'avx3'; expected")));
  EXPECT_THAT([] { parse_claim("amx/", kEverything); },
              ThrowsMessage<ConfigError>(HasSubstr("unknown class of processors ''")));
  EXPECT_THAT(
      [] { parse_claim("amx/avx512", kCpuClasses[1].features); },
      ThrowsMessage<ConfigError>(HasSubstr("this machine cannot execute as avx512; found: AVX2")));
}

// Each class has every group that its rows name, and the hardware's only where that is executed.
TEST(ClaimedCpu, HasAGroupForEveryRow) {
  const MachineKernels& hardware = hardware_kernels();
  for (const CpuClass& one : kCpuClasses) {
    const MachineKernels kernels = kernels_on(one.features);
    EXPECT_EQ(kernels.amx.gemm == hardware.amx.gemm, one.features.amx_bf16) << one.name;
    EXPECT_EQ(kernels.amx.attention == hardware.amx.attention, one.features.amx_bf16) << one.name;
    EXPECT_EQ(kernels.amx.int8 == hardware.amx.int8, one.features.amx_int8) << one.name;
    EXPECT_EQ(kernels.avx512bf16.gemm == hardware.avx512bf16.gemm, one.features.avx512_bf16);
    EXPECT_EQ(kernels.avx512vnni.int8 == hardware.avx512vnni.int8, one.features.avx512_vnni);
    EXPECT_EQ(kernels.avx512.layer_norm == hardware.avx512.layer_norm, one.features.avx512);
    EXPECT_EQ(kernels.avx2.optimizer == hardware.avx2.optimizer, one.features.avx2) << one.name;
    for (const KernelGroup* group : {&kernels.avx2, &kernels.avx512}) {
      EXPECT_NE(group->gemm, nullptr) << one.name;
      EXPECT_NE(group->attention, nullptr) << one.name;
      EXPECT_NE(group->layer_norm, nullptr) << one.name;
      EXPECT_NE(group->activation, nullptr) << one.name;
      EXPECT_NE(group->dropout, nullptr) << one.name;
      EXPECT_NE(group->optimizer, nullptr) << one.name;
      EXPECT_NE(group->reduce, nullptr) << one.name;
    }
    EXPECT_NE(kernels.avx2.int8, nullptr) << one.name;
    EXPECT_NE(kernels.onednn.gemm, nullptr) << one.name;
  }
}

// The tables for each class: {operation: implementation}, in f32 and in bf16.
TEST(ClaimedCpu, TablesTakeTheBestOfTheClass) {
  struct Choice {
    const char *gemm_f32, *gemm_bf16, *attention, *layer_norm, *int8;
  };
  const std::map<std::string_view, Choice> choices = {
      {"reference", {"onednn", "reference", "reference", "reference", "reference"}},
      {"avx2", {"avx2", "avx2", "avx2", "avx2", "avx2"}},
      {"avx512", {"avx512", "avx512", "avx512", "avx512", "avx2"}},
      {"avx512vnni", {"avx512", "avx512", "avx512", "avx512", "avx512vnni"}},
      {"avx512bf16", {"avx512bf16", "avx512bf16", "avx512bf16", "avx512", "avx512vnni"}},
      {"amx", {"amx", "amx", "amx", "avx512", "amx"}},
  };
  for (const CpuClass& one : kCpuClasses) {
    const Choice& choice = choices.at(one.name);
    const KernelSet f32 = select_kernels(one.features, "", Precision::kFloat32);
    const KernelSet bf16 = select_kernels(one.features);
    EXPECT_EQ(f32.implementation("gemm"), choice.gemm_f32) << one.name;
    EXPECT_EQ(bf16.implementation("gemm"), choice.gemm_bf16) << one.name;
    for (const KernelSet* set : {&f32, &bf16}) {
      EXPECT_EQ(set->implementation("attention"), choice.attention) << one.name;
      for (const char* operation :
           {"rotary", "layer_norm", "activation", "dropout", "optimizer", "reduce"})
        EXPECT_EQ(set->implementation(operation), choice.layer_norm) << one.name << operation;
      EXPECT_EQ(set->implementation("int8"), choice.int8) << one.name;
    }
  }
}

// Every row of every table, on every class: it runs, or the refusal names what the class lacks.
TEST(ClaimedCpu, RefusalsNameWhatTheClassLacks) {
  using Need = std::pair<bool CpuFeatures::*, const char*>;
  const Need amx_int8 = {&CpuFeatures::amx_int8, "this CPU has no AMX-INT8"};
  const std::map<std::string_view, Need> needs = {
      {"avx2", {&CpuFeatures::avx2, "this CPU has no AVX2 with FMA"}},
      {"avx512", {&CpuFeatures::avx512, "this CPU has no AVX-512 (F, BW, DQ, VL)"}},
      {"avx512bf16", {&CpuFeatures::avx512_bf16, "this CPU has no AVX512_BF16"}},
      {"avx512vnni", {&CpuFeatures::avx512_vnni, "this CPU has no AVX512_VNNI"}},
      {"amx", {&CpuFeatures::amx_bf16, "this CPU has no AMX-BF16"}},
      {"onednn_amx", {&CpuFeatures::amx_bf16, "this CPU has no AMX-BF16"}},
      {"onednn",
       {&CpuFeatures::avx512,
        "oneDNN has no bf16 products for a CPU without AVX-512 (F, BW, DQ, VL)"}},
  };
  for (const CpuClass& one : kCpuClasses) {
    for (const std::string& operation : operations()) {
      for (const Implementation& row : implementations(operation, one.features)) {
        const std::string forced = operation + "=" + row.implementation;
        if (row.implementation == "reference") continue;
        const auto& [feature, reason] =
            forced == "int8=amx" ? amx_int8 : needs.at(row.implementation);
        if (one.features.*feature) {
          EXPECT_EQ(row.reason, "") << one.name << " " << forced;
          EXPECT_EQ(select_kernels(one.features, forced).implementation(operation),
                    row.implementation);
        } else {
          EXPECT_EQ(row.reason, reason) << one.name << " " << forced;
          EXPECT_THAT([&] { select_kernels(one.features, forced); },
                      ThrowsMessage<ConfigError>(HasSubstr("TANDEM_KERNELS asks for " + forced +
                                                           ", but " + reason +
                                                           "; found: " + one.features.describe())));
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem::kernels::emulated
