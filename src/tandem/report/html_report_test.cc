#include "tandem/report/html_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/browser.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/report/analysis_section.h"
#include "tandem/report/speed_record.h"
#include "tandem/tasks/question_answering/mistakes_analysis.h"

namespace tandem::report {
namespace {

using nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kAttack =
    "<script>document.title='broken'</script>\"'><img src=http://elsewhere.example/x onerror=1>";

question_answering::Mistakes attacked_mistakes() {
  const std::string context = std::string("Before ") + kAttack + " after";
  question_answering::Mistakes mistakes = {.num_questions = 10, .num_wrong = 3, .shown = {}};
  mistakes.shown.push_back({.id = kAttack,
                            .title = kAttack,
                            .question = kAttack,
                            .context = context,
                            .predicted = kAttack,
                            .predicted_at = question_answering::ByteRange{0, 12},
                            .expected = {kAttack, "x"},
                            .expected_at = {{9, 20}},
                            .f1 = 0.5});
  mistakes.shown.push_back({.id = "empty",
                            .title = "",
                            .question = "Q",
                            .context = "",
                            .predicted = "",
                            .predicted_at = std::nullopt,
                            .expected = {},
                            .expected_at = {},
                            .f1 = 0});
  return mistakes;
}

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
  run.headline = {{"Task", "question answering"}, {"Command", kAttack}, {kAttack, "x"}};
  run.settings = {{"output_dir", kAttack}, {kAttack, nullptr}, {"learning_rate", 3e-5}};
  run.machine = {{"CPU", kAttack}};
  run.results = {{"eval", {{"eval_exact_match", 60.0}, {"eval_f1", 70.25}}}};
  run.analysis = question_answering::analyze(attacked_mistakes());
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
                 .x_name = "step",
                 .y_name = "nat",
                 .series = {{.name = "", .points = {{1, 1}, {2, nan}, {3, 2}, {4, 3}}}}});
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, ::testing::ContainsRegex("d=\"M[0-9. ]+M[0-9. ]+L[0-9. ]+\""));
  EXPECT_THAT(svg, HasSubstr("<title>step 4: 3</title>"));
  EXPECT_EQ(svg_chart({.title = "t",
                       .x_name = "",
                       .y_name = "",
                       .series = {{.name = "", .points = {{1, nan}}}}}),
            "");
  EXPECT_THAT(
      svg_chart(
          {.title = "t", .x_name = "", .y_name = "", .series = {{.name = "", .points = {{5, 2}}}}}),
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

TEST(Chart, AxesHaveNames) {
  const std::string svg = svg_chart({.title = "Loss",
                                     .x_name = "optimizer step",
                                     .y_name = "nat & more",
                                     .series = {{.name = "", .points = {{1, 1}, {2, 3}}}}});
  EXPECT_THAT(svg, HasSubstr(">optimizer step</text>"));
  EXPECT_THAT(svg, HasSubstr(">nat &amp; more</text>"));
}

TEST(Chart, ASinglePointIsANumber) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Chart chart{.title = "Loss",
              .x_name = "step",
              .y_name = "nat",
              .series = {{.name = "", .points = {{1, nan}, {75, 3.25}}}}};
  EXPECT_FALSE(has_line(chart));
  EXPECT_EQ(chart_or_number(chart),
            "<div class=\"number\"><span>Loss</span><b>3.25</b><small>nat, step "
            "75</small></div>\n");
  chart.series[0].points = {{75, 8.00001}};
  EXPECT_THAT(chart_or_number(chart), HasSubstr("<b>8</b>"));
  chart.series[0].points = {{75, 85.9612}};
  EXPECT_THAT(chart_or_number(chart), HasSubstr("<b>85.96</b>"));
  chart.series[0].points = {{75, 0.0123456}};
  EXPECT_THAT(chart_or_number(chart), HasSubstr("<b>0.01235</b>"));
  chart.series[0].points.push_back({80, 3});
  EXPECT_THAT(chart_or_number(chart), HasSubstr("<svg"));
  chart.series.clear();
  EXPECT_EQ(chart_or_number(chart), "");
}

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size())
    ++count;
  return count;
}

// The only script is the page's own, which the policy names by its hash.
TEST(HtmlReport, EscapesEverything) {
  const std::string page = html_report(attacked_run());
  EXPECT_EQ(occurrences(page, "<script"), 1u);
  EXPECT_THAT(page, HasSubstr("<script>\"use strict\";"));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, Not(HasSubstr("'><")));
  EXPECT_THAT(page, ::testing::ContainsRegex("default-src 'none'; style-src 'unsafe-inline'; "
                                             "script-src 'sha256-[A-Za-z0-9+/]+='"));
}

TEST(HtmlReport, BeginsWithTheHeadline) {
  RunRecord run = attacked_run();
  const std::string page = html_report(run);
  const std::string begin = page.substr(0, page.find("<svg"));
  EXPECT_THAT(begin, HasSubstr("<span>F1</span><b>70.2 %</b>"));
  EXPECT_THAT(begin, HasSubstr("<span>Exact match</span><b>60.0 %</b>"));
  EXPECT_THAT(begin, HasSubstr("<th>Task</th><td>question answering</td>"));
  run.results = {{"train", {{"train_loss", 1.5}}}};
  EXPECT_THAT(html_report(run), HasSubstr("<span>Training loss</span><b>1.5000</b>"));
}

TEST(RunRecord, IsKeptInReportJson) {
  const testing::TemporaryFolder folder;
  RunRecord run = attacked_run();
  run.tokens_per_second.push_back({50, std::numeric_limits<double>::quiet_NaN()});
  write_file(folder / "report.json", to_json(run));
  const RunRecord read = read_run(folder.path());
  EXPECT_EQ(to_json(read), to_json(run));
  EXPECT_EQ(read.title, kAttack);
  EXPECT_EQ(read.headline, run.headline);
  EXPECT_EQ(read.results, run.results);
  EXPECT_EQ(read.log_history, run.log_history);
  EXPECT_EQ(to_json(read_run(folder / "report.json")), to_json(run));
}

TEST(RunRecord, ReadsWhatTransformersLeaves) {
  const testing::TemporaryFolder folder;
  EXPECT_THROW(read_run(folder.path()), IoError);
  write_file(folder / "all_results.json", R"({"eval_f1": 50.5, "train_loss": 1.5, "epoch": 2})");
  const RunRecord run = read_run(folder.path());
  ASSERT_EQ(run.results.size(), 2u);
  EXPECT_EQ(run.results[1].second.at("eval_f1"), 50.5);
  EXPECT_EQ(run.title, folder.path().filename().native());
  for (const char* broken : {"", "[]", "{\"title\": 1}", "{\"title\": \"x\", \"headline\": [1]}"}) {
    write_file(folder / "report.json", broken);
    EXPECT_THROW(read_run(folder.path()), DataError) << broken;
  }
}

TEST(HtmlComparison, HasALineAndAColumnPerRun) {
  RunRecord first = attacked_run(), second = attacked_run();
  second.title = "second";
  second.settings["learning_rate"] = 5e-5;
  const std::vector<RunRecord> runs = {first, second};
  const std::string page = html_comparison(runs);
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, HasSubstr("<h1>Comparison of 2 runs</h1>"));
  EXPECT_EQ(occurrences(page, "<path class=\"line series-0\""), 6u);
  EXPECT_EQ(occurrences(page, "<path class=\"line series-1\""), 6u);
  EXPECT_THAT(page, HasSubstr("<th>learning_rate</th><td>3e-05</td><td>5e-05</td>"));
  EXPECT_THAT(page, Not(HasSubstr("<th>output_dir</th>")));  // the same in both
  EXPECT_THAT(page, HasSubstr("<th>Exact match</th><td>60.00 %</td><td>60.00 %</td>"));
}

TEST(HtmlReport, MarksWhatWasPredictedAndExpected) {
  question_answering::Mistakes mistakes = attacked_mistakes();
  mistakes.shown[0].context = "The ferry leaves at nine.";
  mistakes.shown[0].predicted_at = question_answering::ByteRange{4, 16};
  mistakes.shown[0].expected_at = {{10, 24}};
  RunRecord run = attacked_run();
  run.analysis = question_answering::analyze(mistakes);
  EXPECT_THAT(
      html_report(run),
      HasSubstr(
          "The <mark class=\"predicted\">ferry </mark><mark class=\"both\">leaves</mark><mark "
          "class=\"expected\"> at nine</mark>."));
}

TEST(HtmlReport, StatesHowManyWereLeftOut) {
  EXPECT_THAT(html_report(attacked_run()), HasSubstr("The first 2 are here"));
  EXPECT_THAT(html_report(attacked_run()), HasSubstr("Wrong answers: 3 of 10 questions"));
  EXPECT_THAT(html_report({}), Not(HasSubstr("Wrong answers")));
}

TEST(AnalysisHtml, EscapesEveryText) {
  const tasks::TextPiece marked{"<i>", tasks::Mark::kExpected, "'<i>"};
  const std::string html =
      analysis_html({.scores = {"<i>", {.columns = {"<i>"}, .rows = {{{"<i>"}}}}},
                     .title = "<i>",
                     .confusion = {.columns = {"<i>"}, .rows = {{{"<i>", tasks::Mark::kStrong}}}},
                     .introduction = {{"<i>", tasks::Mark::kSmall}},
                     .searched = "\"<i>",
                     .orders = {{tasks::MistakeOrder::kOrder, "<i>"}},
                     .mistakes = {{0.5, {marked}, {{marked}}, "<i>"}}});
  EXPECT_THAT(html, Not(HasSubstr("<i>")));
  EXPECT_THAT(html,
              HasSubstr("<mark class=\"expected\" title=\"&#39;&lt;i&gt;\">&lt;i&gt;</mark>"));
  EXPECT_THAT(html, HasSubstr("placeholder=\"&quot;&lt;i&gt;\""));
}

class HtmlReportPage : public testing::BrowserTest {};

// The browser's tree has what was meant: nothing of the attack became an element, all charts are
// drawn inside their frames.
TEST_F(HtmlReportPage, IsReadInABrowser) {
  const testing::TemporaryFolder folder;
  write_file(folder / "report.html", html_report(attacked_run()));
  const std::string page = testing::dump_dom("file://" + (folder / "report.html").native());
  EXPECT_THAT(page, HasSubstr("<title>&lt;script&gt;"));
  EXPECT_EQ(occurrences(page, "<script"), 1u);
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_EQ(occurrences(page, "<svg"), 5u);
  EXPECT_EQ(occurrences(page, "<path class=\"line"), 6u);  // the evaluation: exact match and F1
  EXPECT_THAT(page, HasSubstr("<title>F1, step 40: 70.25</title>"));
  EXPECT_THAT(page, HasSubstr("<details data-f1=\"0.5000\">"));
}

// How wide the page is laid out in a window of 375 pixels, a phone's; a script measures it, so the
// policy is taken out.
int width_on_a_phone(std::string page, const std::string& file) {
  const std::size_t policy = page.find("<meta http-equiv");
  page.erase(policy, page.find('\n', policy) - policy);
  page.insert(page.find("</body>"),
              "<script>document.title = document.documentElement.scrollWidth</script>");
  write_file(file, page);
  const std::string dom = testing::dump_dom("file://" + file, 375);
  const std::size_t begin = dom.find("<title>") + 7;
  return std::stoi(dom.substr(begin, dom.find('<', begin) - begin));
}

TEST_F(HtmlReportPage, FitsAPhone) {
  const testing::TemporaryFolder folder;
  RunRecord run = attacked_run();
  run.title = std::string(80, 'x');
  run.headline.push_back(
      {"Command",
       "tandem run_qa --per_device_train_batch_size_and_more_letters 8 " + std::string(90, '/')});
  run.settings["include_num_input_tokens_seen"] = std::string(90, 'y');
  const std::string file = (folder / "page.html").native();
  EXPECT_LE(width_on_a_phone(html_report(run), file), 375);
  EXPECT_LE(width_on_a_phone(html_comparison(std::vector<RunRecord>(6, run)), file), 375);
}

// A flag is kept whole where its cell has the width, and broken inside of the cell elsewhere;
// word-break is for browsers before overflow-wrap: anywhere.
TEST(HtmlReport, LongFlagsWrapInsideTheirCell) {
  RunRecord run = attacked_run();
  run.headline.push_back({"Command", "tandem run_qa --per_device_train_batch_size 8"});
  for (const std::string& page :
       {html_report(run), html_comparison(std::vector<RunRecord>(2, run))}) {
    EXPECT_THAT(page, HasSubstr("<span class=\"word\">--per_device_train_batch_size</span>"));
    EXPECT_THAT(page, HasSubstr(".word { display: inline-block; max-width: 100%; overflow-wrap: "
                                "anywhere; word-break: break-word; }"));
  }
}

// Words that are wider than their cells, in a window of 390 pixels.
TEST_F(HtmlReportPage, FlagsStayInTheirCellsOnAPhone) {
  const testing::TemporaryFolder folder;
  RunRecord run = attacked_run();
  run.headline.push_back({"Command", "tandem run_qa --per_device_train_batch_size_" +
                                         std::string(60, 'x') +
                                         " 8 --include_num_input_tokens_seen"});
  std::string page = html_comparison(std::vector<RunRecord>(3, run));
  const std::size_t policy = page.find("<meta http-equiv");
  page.erase(policy, page.find('\n', policy) - policy);
  page.insert(page.find("</body>"),
              "<script>document.title = 'outside: ' + [...document.querySelectorAll('.word')]"
              ".filter(w => w.getBoundingClientRect().right > "
              "w.closest('td').getBoundingClientRect().right + 1).length</script>");
  write_file(folder / "page.html", page);
  EXPECT_THAT(testing::dump_dom("file://" + (folder / "page.html").native(), 390),
              HasSubstr("<title>outside: 0</title>"));
}

// The script runs under the page's policy: the search hides what it does not find, the order is the
// one that was asked for.
TEST_F(HtmlReportPage, WrongAnswersAreSearchedAndSorted) {
  const testing::TemporaryFolder folder;
  RunRecord run = attacked_run();
  question_answering::Mistakes mistakes = attacked_mistakes();
  mistakes.shown.clear();
  for (const auto& [id, f1] : {std::pair{"ferry-1", 0.5}, {"ship-2", 0.1}, {"ferry-3", 0.25}}) {
    mistakes.shown.push_back({.id = id,
                              .title = "",
                              .question = "When does it leave?",
                              .context = "At nine.",
                              .predicted = "nine",
                              .predicted_at = std::nullopt,
                              .expected = {"ten"},
                              .expected_at = {},
                              .f1 = f1});
  }
  run.analysis = question_answering::analyze(mistakes);
  write_file(folder / "report.html", html_report(run));
  const std::string file = "file://" + (folder / "report.html").native();
  const std::string page = testing::dump_dom(file + "#search=FERRY&sort=worst");
  EXPECT_THAT(page, HasSubstr("2 of 3</output>"));
  EXPECT_THAT(page, Not(HasSubstr("<form id=\"find\" hidden")));
  EXPECT_EQ(occurrences(page, "hidden=\"\">"), 1u);
  EXPECT_LT(page.find("ship-2"), page.find("ferry-3"));
  EXPECT_LT(page.find("ferry-3"), page.find("ferry-1"));
}

}  // namespace
}  // namespace tandem::report
