#include "tandem/kernels/kernel_set.h"

#include <gmock/gmock.h>

#include "tandem/core/error.h"
#include "tandem/kernels/kernel_tables.h"
#include "tandem/kernels/kernel_test_support.h"

namespace tandem::kernels::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr CpuFeatures kPlain{};
constexpr CpuFeatures kAvx2Only{.avx2 = true};
constexpr CpuFeatures kZen5{.avx2 = true, .avx512 = true, .avx512_bf16 = true, .avx512_vnni = true};
constexpr CpuFeatures kSapphireRapids{.avx2 = true,
                                      .avx512 = true,
                                      .avx512_bf16 = true,
                                      .avx512_vnni = true,
                                      .amx_bf16 = true,
                                      .amx_int8 = true};
constexpr CpuFeatures kSkylakeServer{.avx2 = true, .avx512 = true};

// The tables have rows for a processor's instruction sets only where it can have them.
#if defined(__x86_64__)
constexpr bool kHasX86Rows = true;
#else
constexpr bool kHasX86Rows = false;
#endif
constexpr std::string_view kNoX86Rows = "this build has no kernels for x86-64";

std::string error_of(const CpuFeatures& cpu, std::string_view overrides,
                     Precision precision = Precision::kBfloat16) {
  try {
    select_kernels(cpu, overrides, precision);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(KernelSet, TakesTheFirstRowThatTheCpuRuns) {
  if (!kHasX86Rows) GTEST_SKIP() << kNoX86Rows;
  EXPECT_EQ(select_kernels(kPlain, "", Precision::kFloat32).implementation("gemm"), "onednn");
  EXPECT_EQ(select_kernels(kPlain).implementation("attention"), "reference");
  EXPECT_EQ(select_kernels(kAvx2Only).implementation("attention"), "avx2");
  EXPECT_EQ(select_kernels(kZen5).implementation("gemm"), "avx512bf16");
  EXPECT_EQ(select_kernels(kZen5).implementation("layer_norm"), "avx512");
  EXPECT_EQ(select_kernels(kZen5).implementation("attention"), "avx512bf16");
  EXPECT_EQ(select_kernels(kSapphireRapids).implementation("gemm"), "amx");
  EXPECT_EQ(select_kernels(kSapphireRapids).implementation("attention"), "amx");
  EXPECT_EQ(select_kernels(kSapphireRapids).implementation("int8"), "amx");
  EXPECT_EQ(select_kernels(kZen5).implementation("int8"), "avx512vnni");
  EXPECT_EQ(select_kernels(kSkylakeServer).implementation("int8"), "avx2");
}

// oneDNN multiplies f32 on any CPU, bf16 only with AVX-512: a set is for what the job multiplies.
TEST(KernelSet, RowsListWhatTheyNeedPerType) {
  EXPECT_EQ(select_kernels(kPlain, "", Precision::kBfloat16).implementation("gemm"), "reference");
  EXPECT_EQ(select_kernels(kPlain).implementation("gemm"), "reference");
  EXPECT_EQ(select_kernels(kAvx2Only, "gemm=onednn", Precision::kFloat32).implementation("gemm"),
            "onednn");
  EXPECT_EQ(select_kernels(kSkylakeServer, "gemm=onednn").implementation("gemm"), "onednn");
  EXPECT_THAT(error_of(kAvx2Only, "gemm=onednn"),
              HasSubstr("asks for gemm=onednn, but oneDNN has no bf16 products for a CPU without "
                        "AVX-512 (F, BW, DQ, VL); found: AVX2"));
  EXPECT_EQ(error_of(kAvx2Only, "gemm=onednn", Precision::kFloat32), "no error");
  for (const Precision precision : {Precision::kFloat32, Precision::kBfloat16}) {
    for (const auto& row : implementations("gemm", kAvx2Only, precision)) {
      if (row.implementation != "onednn") continue;
      EXPECT_EQ(row.reason.empty(), precision == Precision::kFloat32) << row.reason;
    }
  }
}

// Emulations are for tests (tests/emulated_cpu): no table has a row for one.
TEST(KernelSet, HasNoEmulations) {
  for (const std::string& operation : operations()) {
    for (const auto& row : implementations(operation, kPlain))
      EXPECT_THAT(row.implementation, Not(HasSubstr("emulated"))) << operation;
  }
  EXPECT_THAT(error_of(kZen5, "gemm=amx_emulated"),
              HasSubstr("gemm has no implementation 'amx_emulated'; it has"));
}

TEST(CpuFeatures, CanBeHidden) {
  EXPECT_EQ(kSapphireRapids.limited_to("none").describe(), CpuFeatures().describe());
  EXPECT_EQ(kZen5.limited_to("reference").describe(), CpuFeatures().describe());
  EXPECT_EQ(kSapphireRapids.limited_to("avx2").describe(), "AVX2");
  EXPECT_EQ(kZen5.limited_to("avx512").describe(), "AVX2, AVX-512");
  EXPECT_EQ(kZen5.limited_to("avx512_bf16, avx512vnni").describe(), kZen5.describe());
  EXPECT_EQ(kSapphireRapids.limited_to("amx_int8").describe(),
            "AVX2, AVX-512, AVX512_VNNI, AMX-INT8");
  EXPECT_EQ(kSapphireRapids.limited_to("avx512_bf16").amx_obstacle,
            "TANDEM_CPU_FEATURES hides this CPU's AMX");
  EXPECT_EQ(select_kernels(kZen5.limited_to("avx2")).signature(),
            select_kernels(kAvx2Only).signature());
}

TEST(CpuFeatures, WhatIsNotThereCannotBeAskedFor) {
  const auto error_of = [](const CpuFeatures& cpu, std::string_view names) -> std::string {
    try {
      cpu.limited_to(names);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(
      error_of(kAvx2Only, "avx512"),
      HasSubstr("TANDEM_CPU_FEATURES asks for avx512, which this CPU does not have; found: AVX2"));
  EXPECT_THAT(
      error_of(kZen5, "avx2,sse9"),
      HasSubstr("TANDEM_CPU_FEATURES: there is no feature 'sse9'; there are none, avx2, avx512"));
  EXPECT_THAT(error_of(kZen5, "avx2,"), HasSubstr("there is no feature ''"));
}

TEST(KernelSet, StatesWhyAmxIsNotUsed) {
  if (!kHasX86Rows) GTEST_SKIP() << kNoX86Rows;
  CpuFeatures refused = kZen5;
  refused.amx_obstacle = "Linux refuses it";
  EXPECT_EQ(select_kernels(refused).implementation("gemm"), "avx512bf16");
  EXPECT_THAT(error_of(refused, "gemm=amx"),
              HasSubstr("asks for gemm=amx, but Linux refuses it; found: AVX2"));
  EXPECT_THAT(error_of(kZen5, "gemm=amx"), HasSubstr("but this CPU has no AMX-BF16"));
  EXPECT_THAT(error_of(kZen5, "attention=amx"), HasSubstr("but this CPU has no AMX-BF16"));
  EXPECT_THAT(error_of(kZen5, "int8=amx"), HasSubstr("but this CPU has no AMX-INT8"));
  // Attention on tiles rounds with AVX512_BF16, which a virtual machine may hide.
  CpuFeatures hidden = kSapphireRapids;
  hidden.avx512_bf16 = false;
  EXPECT_EQ(select_kernels(hidden).implementation("gemm"), "amx");
  EXPECT_EQ(select_kernels(hidden).implementation("attention"), "avx512");
  EXPECT_THAT(error_of(hidden, "attention=amx"), HasSubstr("but this CPU has no AVX512_BF16"));
  const CpuFeatures here = CpuFeatures::detect();
  EXPECT_TRUE(here.amx_obstacle.empty() || !here.amx_bf16);
}

TEST(KernelSet, EveryOperationEndsWithTheReference) {
  for (const std::string& operation : operations()) {
    const auto rows = implementations(operation, kPlain);
    EXPECT_EQ(rows.back().implementation, "reference") << operation;
    EXPECT_EQ(rows.back().reason, "") << operation;
  }
}

TEST(KernelSet, RefusalsGiveTheReason) {
  if (!kHasX86Rows) GTEST_SKIP() << kNoX86Rows;
  const KernelSet set = select_kernels(kAvx2Only);
  for (const KernelChoice& choice : set.describe()) {
    if (choice.operation != "layer_norm") continue;
    ASSERT_EQ(choice.refusals.size(), 1u);
    EXPECT_EQ(choice.refusals[0].implementation, "avx512");
    EXPECT_THAT(choice.refusals[0].reason, HasSubstr("no AVX-512"));
    EXPECT_FALSE(choice.forced);
  }
}

TEST(KernelSet, OverridesForceSingleOperations) {
  if (!kHasX86Rows) GTEST_SKIP() << kNoX86Rows;
  const KernelSet set = select_kernels(kZen5, "gemm=reference, attention=avx2");
  EXPECT_EQ(set.implementation("gemm"), "reference");
  EXPECT_EQ(set.implementation("attention"), "avx2");
  EXPECT_EQ(set.implementation("layer_norm"), "avx512");
}

TEST(KernelSet, SignatureSelectsTheSameSetAgain) {
  if (!kHasX86Rows) GTEST_SKIP() << kNoX86Rows;
  const KernelSet set = select_kernels(kZen5, "gemm=avx512,reduce=reference");
  EXPECT_EQ(set.implementation("gemm"), "avx512");
  EXPECT_EQ(set.implementation("reduce"), "reference");
  EXPECT_EQ(select_kernels(kZen5, set.signature()).signature(), set.signature());
  const KernelSet all = select_kernels(kZen5, "reference");
  for (const KernelChoice& choice : all.describe()) {
    EXPECT_EQ(choice.implementation, "reference");
    EXPECT_TRUE(choice.forced);
  }
}

// The arithmetic that decides whether computers of different kinds may take part in one job.
TEST(KernelSet, ArithmeticIsEqualWhereTheBitsAre) {
  if (!kHasX86Rows) GTEST_SKIP() << kNoX86Rows;
  const auto arithmetic = [](const CpuFeatures& cpu, Precision precision,
                             std::string_view forced = {}) {
    return select_kernels(cpu, forced, precision).arithmetic(precision);
  };
  const std::string f32 = arithmetic(kAvx2Only, Precision::kFloat32);
  EXPECT_THAT(f32, HasSubstr("gemm=vector,attention=vector,rotary=vector,layer_norm=vector"));
  for (const CpuFeatures& cpu : {kSkylakeServer, kZen5, kSapphireRapids})
    EXPECT_EQ(arithmetic(cpu, Precision::kFloat32), f32) << cpu.describe();
  EXPECT_NE(arithmetic(kZen5, Precision::kFloat32, "layer_norm=reference"), f32);
  EXPECT_NE(arithmetic(kZen5, Precision::kFloat32, "gemm=onednn"), f32);

  const std::string bf16 = arithmetic(kAvx2Only, Precision::kBfloat16);
  EXPECT_EQ(arithmetic(kSkylakeServer, Precision::kBfloat16), bf16);
  EXPECT_NE(arithmetic(kZen5, Precision::kBfloat16), bf16);
  EXPECT_NE(arithmetic(kSapphireRapids, Precision::kBfloat16),
            arithmetic(kZen5, Precision::kBfloat16));
}

TEST(KernelSet, WrongOverridesAreConfigErrorsThatListWhatExists) {
  if (!kHasX86Rows) GTEST_SKIP() << kNoX86Rows;
  EXPECT_THAT(error_of(kZen5, "gem=reference"),
              HasSubstr("unknown operation 'gem'; the operations are gemm, attention"));
  EXPECT_THAT(error_of(kZen5, "gemm=avx3"), HasSubstr("gemm has no implementation 'avx3'; it has"));
  EXPECT_THAT(error_of(kZen5, "fastest"),
              HasSubstr("no operation has an implementation 'fastest'"));
  EXPECT_THAT(
      error_of(kAvx2Only, "attention=avx512"),
      HasSubstr(
          "asks for attention=avx512, but this CPU has no AVX-512 (F, BW, DQ, VL); found: AVX2"));
}

void expect_rates(const PeakFlops& peak) {
  EXPECT_GT(peak.mean, 0);
  EXPECT_GE(peak.best, peak.mean);
}

// How fast it is depends on what else the machine does; that the work is counted does not.
TEST(KernelSet, PeakCountsTheWorkOfItsLoop) {
  for (const std::string& name : running_implementations("gemm", Precision::kFloat32)) {
    Runtime runtime("gemm=" + name, 2, Precision::kFloat32);
    const GemmKernels& gemm = *runtime.context().kernels.gemm;
    EXPECT_GE(gemm.peak_f32(100), 200.0) << name;
    EXPECT_DOUBLE_EQ(gemm.peak_f32(200), 2 * gemm.peak_f32(100)) << name;
    EXPECT_DOUBLE_EQ(gemm.peak_bf16(200), 2 * gemm.peak_bf16(100)) << name;
    expect_rates(measure_peak_flops(runtime.context(), PeakType::kF32));
    expect_rates(measure_peak_flops(runtime.context(), PeakType::kBf16));
  }
  for (const std::string& name : running_implementations("int8")) {
    Runtime runtime("int8=" + name);
    const Int8Kernels& int8 = *runtime.context().kernels.int8;
    EXPECT_GE(int8.peak(100), 200.0) << name;
    EXPECT_DOUBLE_EQ(int8.peak(200), 2 * int8.peak(100)) << name;
    expect_rates(measure_peak_flops(runtime.context(), PeakType::kInt8));
  }
}

}  // namespace
}  // namespace tandem::kernels::testing
