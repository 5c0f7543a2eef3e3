#include "tandem/hub/hub_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/hub/file_hash.h"

namespace tandem::hub {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::ThrowsMessage;

const std::string kProtocolCommit(40, 'a');

HttpHeaders headers(int status, std::map<std::string, std::string, std::less<>> fields) {
  return {status, std::move(fields)};
}

TEST(HttpHeaders, LinesOfAnAnswer) {
  HttpHeaders answer;
  for (const char* line : {"HTTP/1.1 100 Continue\r\n", "X-Old: 1\r\n", "\r\n", "HTTP/2 302\r\n",
                           "LOCATION:  https://x/y \r\n", "no colon\r\n", ": no name\r\n",
                           "ETag: \"a:b\"\r\n", "\r\n"})
    answer.add_line(line);
  EXPECT_EQ(answer.status, 302);
  EXPECT_EQ(answer.find("location"), "https://x/y");
  EXPECT_EQ(answer.find("etag"), "\"a:b\"");
  EXPECT_EQ(answer.find("x-old"), std::nullopt);
  EXPECT_EQ(answer.fields.size(), 2u);
  for (int i = 0; i < 1000; ++i) answer.add_line(fmt::format("x-{}: y", i));
  EXPECT_LE(answer.fields.size(), 200u);
  answer.add_line("x-big: " + std::string(1 << 20, 'y'));
  EXPECT_EQ(answer.find("x-big"), std::nullopt);
}

TEST(HttpHeaders, Etags) {
  EXPECT_EQ(parse_etag("\"abc\""), "abc");
  EXPECT_EQ(parse_etag("W/\"abc-1.2_3\""), "abc-1.2_3");
  EXPECT_EQ(parse_etag("abc"), "abc");
  for (const char* bad : {"", "\"\"", "\"../x\"", "a/b", "\"a b\"", ".hidden", "a\\b", "\"", "ä"})
    EXPECT_EQ(parse_etag(bad), std::nullopt) << bad;
  EXPECT_EQ(parse_etag(std::string(129, 'a')), std::nullopt);
}

TEST(HttpHeaders, NumbersRangesAndDates) {
  EXPECT_EQ(parse_size("18446744073709551615"), ~0ull);
  for (const char* bad : {"", "-1", "1 ", "+1", "0x1", "18446744073709551616"})
    EXPECT_EQ(parse_size(bad), std::nullopt) << bad;
  const auto range = parse_content_range("bytes 100-199/200");
  EXPECT_EQ(range->first, 100u);
  EXPECT_EQ(range->total, 200u);
  EXPECT_EQ(parse_content_range("bytes 0-9/*")->total, std::nullopt);
  for (const char* bad : {"", "bytes */200", "bytes 5-4/10", "bytes 0-10/10", "items 0-9/10",
                          "bytes 0-9", "bytes 0/9-1", "bytes a-b/c"})
    EXPECT_FALSE(parse_content_range(bad)) << bad;
  using std::chrono::seconds;
  EXPECT_EQ(parse_retry_after("7", 0), seconds(7));
  EXPECT_EQ(parse_retry_after("Thu, 01 Jan 1970 00:01:40 GMT", 40), seconds(60));
  EXPECT_EQ(parse_retry_after("Thu, 01 Jan 1970 00:01:40 GMT", 400), seconds(0));
  EXPECT_EQ(parse_retry_after("soon", 0), std::nullopt);
}

TEST(HttpHeaders, OriginsAndLocations) {
  EXPECT_EQ(origin_of("https://Hub.example/a?b"), "https://hub.example:443");
  EXPECT_EQ(origin_of("http://hub.example:8080/a"), "http://hub.example:8080");
  for (const char* bad : {"", "ftp://x/", "file:///etc/passwd", "hub.example", "/a", "https://"})
    EXPECT_EQ(origin_of(bad), std::nullopt) << bad;
  const auto resolve = [](const char* location) {
    return resolve_location("https://hub.example/a/b?c", location);
  };
  EXPECT_EQ(resolve("https://other/x"), "https://other/x");
  EXPECT_EQ(resolve("/x/y"), "https://hub.example/x/y");
  EXPECT_EQ(resolve("//other/x"), "https://other/x");
  EXPECT_EQ(resolve_location("http://mirror/a", "http://mirror/b"), "http://mirror/b");
  EXPECT_EQ(resolve_location("http://mirror/a", "https://store/b"), "https://store/b");
  for (const char* bad : {"http://other/x", "HTTP://hub.example/x", "", "x/y", "file:///etc/passwd",
                          "javascript:1", "/a b", "/a\r\nX: y"})
    EXPECT_EQ(resolve(bad), std::nullopt) << bad;
}

TEST(HubProtocol, SmallAndLargeFiles) {
  const RemoteFile small = parse_remote_file(
      headers(200,
              {{"x-repo-commit", kProtocolCommit}, {"etag", "\"e1\""}, {"content-length", "12"}}),
      "https://hub/x");
  EXPECT_EQ(small.commit, kProtocolCommit);
  EXPECT_EQ(small.etag, "e1");
  EXPECT_EQ(small.size, 12u);
  EXPECT_EQ(small.url, "https://hub/x");
  const RemoteFile large =
      parse_remote_file(headers(302, {{"x-repo-commit", kProtocolCommit},
                                      {"etag", "\"page\""},
                                      {"content-length", "99"},
                                      {"x-linked-etag", "\"e2\""},
                                      {"x-linked-size", "123"},
                                      {"location", "https://store/y?signature=z"}}),
                        "https://hub/x");
  EXPECT_EQ(large.etag, "e2");
  EXPECT_EQ(large.size, 123u);
  EXPECT_EQ(large.url, "https://store/y?signature=z");
}

TEST(HubProtocol, RefusesWhatIsNoHub) {
  const auto refused = [](std::map<std::string, std::string, std::less<>> fields,
                          const std::string& message) {
    EXPECT_THAT([&] { parse_remote_file(headers(200, fields), "https://hub/x"); },
                ThrowsMessage<DataError>(HasSubstr(message)));
  };
  refused({}, "https://hub/x answered with no commit");
  refused({{"x-repo-commit", "../../x"}}, "the commit '../../x'");
  refused({{"x-repo-commit", kProtocolCommit}}, "no ETag");
  refused({{"x-repo-commit", kProtocolCommit}, {"etag", "\"../x\""}}, "the ETag '\"../x\"'");
  refused({{"x-repo-commit", kProtocolCommit}, {"etag", "e"}, {"content-length", "-1"}},
          "the size '-1'");
}

TEST(HubProtocol, StatesWhyARedirectIsNotFollowed) {
  const auto refused = [](const std::string& location, const std::string& message) {
    EXPECT_THAT([&] { redirect_target("https://hub/x", location); },
                ThrowsMessage<IoError>(HasSubstr(message)));
  };
  refused("http://hub/y", "https://hub/x: a redirect from https to 'http://hub/y'");
  refused("file:///etc/passwd", "https://hub/x: a redirect to 'file:///etc/passwd'; expected");
  refused("", "a redirect to ''; expected an address");
  EXPECT_EQ(redirect_target("https://hub/x", "/y"), "https://hub/y");
}

TEST(HubProtocol, Problems) {
  const auto problem = [](int status, const std::string& code = "", bool token = false) {
    std::map<std::string, std::string, std::less<>> fields;
    if (!code.empty()) fields["x-error-code"] = code;
    return classify(headers(status, fields), token);
  };
  EXPECT_EQ(problem(200), HubProblem::kNone);
  EXPECT_EQ(problem(307), HubProblem::kNone);
  EXPECT_EQ(problem(404, "EntryNotFound"), HubProblem::kNoFile);
  EXPECT_EQ(problem(404, "RevisionNotFound"), HubProblem::kNoRevision);
  EXPECT_EQ(problem(404, "RepoNotFound"), HubProblem::kNoRepository);
  EXPECT_EQ(problem(403, "GatedRepo"), HubProblem::kGated);
  EXPECT_EQ(problem(401), HubProblem::kNoRepository);
  EXPECT_EQ(problem(401, "", true), HubProblem::kUnauthorized);
  EXPECT_EQ(problem(403), HubProblem::kForbidden);
  EXPECT_EQ(problem(404), HubProblem::kNoFile);
  for (const int status : {408, 429, 500, 502, 503, 504})
    EXPECT_EQ(problem(status), HubProblem::kTemporary) << status;
  EXPECT_EQ(problem(501), HubProblem::kOther);
  EXPECT_EQ(problem(0), HubProblem::kOther);
}

TEST(HubProtocol, ListingsReferencesAndIndexes) {
  const RepositoryListing listing =
      parse_listing(R"({"sha": ")" + kProtocolCommit +
                        R"(", "siblings": [{"rfilename": "b/c.parquet"}, {"rfilename": "a.json"},
             {"rfilename": "../x"}, {"rfilename": "/x"}, {"rfilename": "a//b"}, {"rfilename": 1}, 2]})",
                    "url");
  EXPECT_EQ(listing.commit, kProtocolCommit);
  EXPECT_THAT(listing.files, ElementsAre("a.json", "b/c.parquet"));
  for (const char* bad : {"", "[]", "{}", R"({"sha": "x", "siblings": []})", "<html>"})
    EXPECT_THROW(parse_listing(bad, "url"), DataError) << bad;
  EXPECT_THAT(parse_references(R"({"branches": [{"name": "main"}], "tags": [{"name": "v1"}, 3]})"),
              ElementsAre("main", "v1"));
  EXPECT_THAT(parse_references("<html>"), IsEmpty());
  EXPECT_THAT(
      parse_shard_names(R"({"weight_map": {"a": "2.bin", "b": "1.bin", "c": "2.bin"}})", "x"),
      ElementsAre("1.bin", "2.bin"));
  for (const char* bad :
       {"", "{}", R"({"weight_map": {"a": "../x"}})", R"({"weight_map": {"a": 1}})"})
    EXPECT_THROW(parse_shard_names(bad, "x"), DataError) << bad;
  EXPECT_EQ(escape_path("refs/pr 1?#%"), "refs/pr%201%3F%23%25");
}

// Known values: `printf hello | sha256sum`, `printf hello | git hash-object --stdin`.
TEST(FileHash, KnownValues) {
  const testing::TemporaryFolder folder;
  write_file(folder / "x", "hello");
  const std::string sha = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
  const std::string git = "b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0";
  std::string found;
  EXPECT_TRUE(matches_etag(folder / "x", sha, found));
  EXPECT_TRUE(matches_etag(folder / "x", git, found));
  EXPECT_EQ(found, git);
  EXPECT_FALSE(matches_etag(folder / "x", std::string(64, '0'), found));
  EXPECT_EQ(found, sha);
  EXPECT_TRUE(matches_etag(folder / "x", "some-other-etag", found));
  EXPECT_EQ(found, "");
}

using Variables = std::map<std::string, std::string, std::less<>>;

TEST(HubSettings, TokenEndpointAndTimeouts) {
  const testing::TemporaryFolder folder;
  write_file(folder / "token", "of-the-file\n");
  Variables variables = {{"HF_HOME", folder.path().string()}};
  const auto token = [&](std::optional<std::string> given = std::nullopt) {
    return hub_settings(Environment(variables), given, RepositoryType::kModel).token;
  };
  EXPECT_EQ(token(), "of-the-file");
  variables["HUGGING_FACE_HUB_TOKEN"] = "older";
  EXPECT_EQ(token(), "older");
  variables["HF_TOKEN"] = " newer ";
  EXPECT_EQ(token(), "newer");
  EXPECT_EQ(token("given"), "given");
  EXPECT_EQ(token("True"), "newer");
  EXPECT_EQ(token("False"), std::nullopt);
  variables["HF_HUB_DISABLE_IMPLICIT_TOKEN"] = "1";
  EXPECT_EQ(token(), std::nullopt);
  EXPECT_EQ(token("given"), "given");
  EXPECT_THAT([&] { token("a\r\nX-Evil: 1"); }, ThrowsMessage<ConfigError>(::testing::AllOf(
                                                    HasSubstr("--token"), Not(HasSubstr("Evil")))));

  variables["HF_ENDPOINT"] = "http://mirror:8080//";
  variables["HF_HUB_ETAG_TIMEOUT"] = "3";
  variables["HF_HUB_DOWNLOAD_TIMEOUT"] = "4";
  variables["https_proxy"] = "http://proxy:1";
  variables["NO_PROXY"] = "localhost";
  const HubSettings settings =
      hub_settings(Environment(variables), std::nullopt, RepositoryType::kModel);
  EXPECT_EQ(settings.endpoint, "http://mirror:8080");
  EXPECT_EQ(settings.metadata_timeout, std::chrono::seconds(3));
  EXPECT_EQ(settings.http.stall_timeout, std::chrono::seconds(4));
  EXPECT_EQ(settings.http.proxy_for_https, "http://proxy:1");
  EXPECT_EQ(settings.http.proxy_for_http, "");
  EXPECT_EQ(settings.http.no_proxy, "localhost");
  variables["HF_ENDPOINT"] = "mirror";
  EXPECT_THAT([&] { token(); }, ThrowsMessage<ConfigError>(HasSubstr("HF_ENDPOINT is 'mirror'")));
}

TEST(HubSettings, OfflineSwitches) {
  const auto offline = [](const char* name, RepositoryType type) {
    return hub_settings(Environment(Variables{{name, "yes"}}), std::nullopt, type).offline;
  };
  EXPECT_EQ(offline("HF_HUB_OFFLINE", RepositoryType::kModel), "HF_HUB_OFFLINE");
  EXPECT_EQ(offline("HF_HUB_OFFLINE", RepositoryType::kDataset), "HF_HUB_OFFLINE");
  EXPECT_EQ(offline("TRANSFORMERS_OFFLINE", RepositoryType::kModel), "TRANSFORMERS_OFFLINE");
  EXPECT_EQ(offline("TRANSFORMERS_OFFLINE", RepositoryType::kDataset), std::nullopt);
  EXPECT_EQ(offline("HF_DATASETS_OFFLINE", RepositoryType::kDataset), "HF_DATASETS_OFFLINE");
  EXPECT_EQ(offline("HF_DATASETS_OFFLINE", RepositoryType::kModel), std::nullopt);
}

}  // namespace
}  // namespace tandem::hub
