#include "tandem/report/html_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/browser.h"
#include "tandem/core/file.h"
#include "tandem/report/speed_record.h"

namespace tandem::report {
namespace {

using nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kAttack =
    "<script>document.title='broken'</script>\"'><img src=http://elsewhere.example/x onerror=1>";

// A run with an attack in every text that comes from outside.
RunRecord attacked_run() {
  RunRecord run;
  run.title = kAttack;
  for (int step = 10; step <= 40; step += 10) {
    run.log_history.push_back({{"loss", 4.0 / step},
                               {"grad_norm", 2.5},
                               {"learning_rate", 1e-5 * step},
                               {"epoch", 0.1 * step},
                               {"step", step}});
    if (step == 20) {
      run.log_history.push_back({{"eval_exact_match", 40.0}, {"eval_f1", 50.5}, {"step", 20}});
    }
    run.tokens_per_second.push_back({double(step), 1000.0 + step});
  }
  run.settings = {{"output_dir", kAttack}, {kAttack, nullptr}, {"learning_rate", 3e-5}};
  run.machine = {{"CPU", kAttack}};
  run.results = {{"eval", {{"eval_exact_match", 60.0}, {"eval_f1", 70.25}}}};
  const std::string context = std::string("Before ") + kAttack + " after";
  run.mistakes = {.num_questions = 10, .num_wrong = 3, .shown = {}};
  run.mistakes.shown.push_back({.id = kAttack,
                                .title = kAttack,
                                .question = kAttack,
                                .context = context,
                                .predicted = kAttack,
                                .predicted_at = question_answering::ByteRange{0, 12},
                                .expected = {kAttack, "x"},
                                .expected_at = {{9, 20}},
                                .f1 = 0.5});
  run.mistakes.shown.push_back({.id = "empty",
                                .title = "",
                                .question = "Q",
                                .context = "",
                                .predicted = "",
                                .predicted_at = std::nullopt,
                                .expected = {},
                                .expected_at = {},
                                .f1 = 0});
  return run;
}

TEST(Chart, TicksAreRound) {
  EXPECT_THAT(axis_ticks(0, 100, 4), ElementsAre(0, 50, 100));
  EXPECT_THAT(axis_ticks(0.1, 0.9, 4),
              ElementsAre(0, 0.2, 0.4, ::testing::DoubleEq(0.6000000000000001), 0.8, 1.0));
  EXPECT_THAT(axis_ticks(-3, 3, 3), ElementsAre(-4, -2, 0, 2, 4));
}

TEST(Chart, DrawsFinitePointsAndInterruptsTheLine) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::string svg =
      svg_chart({.title = "a < b",
                 .unit = "",
                 .series = {{.name = "", .points = {{1, 1}, {2, nan}, {3, 2}, {4, 3}}}}});
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, ::testing::ContainsRegex("d=\"M[0-9. ]+M[0-9. ]+L[0-9. ]+\""));
  EXPECT_THAT(svg, HasSubstr("<title>step 4: 3</title>"));
  EXPECT_EQ(svg_chart({.title = "t", .unit = "", .series = {{.name = "", .points = {{1, nan}}}}}),
            "");
  EXPECT_THAT(svg_chart({.title = "t", .unit = "", .series = {{.name = "", .points = {{5, 2}}}}}),
              Not(HasSubstr("nan")));
}

TEST(SpeedRecord, ThinsALongRun) {
  SpeedRecord record(8);
  for (std::int64_t step = 1; step <= 100; ++step)
    record.step_end({.step = step, .real_tokens_per_second = double(step)});
  EXPECT_LT(record.points().size(), 8u);
  EXPECT_GE(record.points().size(), 3u);
  for (const Point& point : record.points()) EXPECT_EQ(point.x, point.y);
}

TEST(HtmlReport, EscapesEverything) {
  const std::string page = html_report(attacked_run());
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, Not(HasSubstr("'><")));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
}

TEST(HtmlReport, MarksWhatWasPredictedAndExpected) {
  RunRecord run = attacked_run();
  run.mistakes.shown[0].context = "The ferry leaves at nine.";
  run.mistakes.shown[0].predicted_at = question_answering::ByteRange{4, 16};
  run.mistakes.shown[0].expected_at = {{10, 24}};
  EXPECT_THAT(
      html_report(run),
      HasSubstr(
          "The <mark class=\"predicted\">ferry </mark><mark class=\"both\">leaves</mark><mark "
          "class=\"expected\"> at nine</mark>."));
}

TEST(HtmlReport, SaysHowManyWereLeftOut) {
  EXPECT_THAT(html_report(attacked_run()), HasSubstr("The first 2 are here"));
  EXPECT_THAT(html_report(attacked_run()), HasSubstr("Wrong answers: 3 of 10 questions"));
  EXPECT_THAT(html_report({}), Not(HasSubstr("Wrong answers")));
}

class HtmlReportPage : public testing::BrowserTest {};

// The browser's tree has what was meant: nothing of the attack became an element, all charts are drawn inside their frames.
TEST_F(HtmlReportPage, IsReadInABrowser) {
  const testing::TemporaryFolder folder;
  write_file(folder / "report.html", html_report(attacked_run()));
  const std::string page = testing::dump_dom("file://" + (folder / "report.html").native());
  EXPECT_THAT(page, HasSubstr("<title>&lt;script&gt;"));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  std::size_t charts = 0, lines = 0;
  for (std::size_t at = 0; (at = page.find("<svg", at)) != std::string::npos; ++at) ++charts;
  for (std::size_t at = 0; (at = page.find("<path class=\"line", at)) != std::string::npos; ++at)
    ++lines;
  EXPECT_EQ(charts, 5u);
  EXPECT_EQ(lines, 6u);  // the evaluation has exact match and F1
  EXPECT_THAT(page, HasSubstr("<title>F1, step 40: 70.25</title>"));
  EXPECT_THAT(page, HasSubstr("<details>"));
}

}  // namespace
}  // namespace tandem::report
