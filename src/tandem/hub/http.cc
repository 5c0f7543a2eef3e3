#include "tandem/hub/http.h"

#include <curl/curl.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "tandem/core/error.h"

namespace tandem::hub {
namespace {

// One transfer: what the callbacks of libcurl need.
struct Transfer {
  const HttpRequest& request;
  HttpAnswer answer;

  static std::size_t on_header(char* data, std::size_t size, std::size_t count, void* self) {
    static_cast<Transfer*>(self)->answer.headers.add_line({data, size * count});
    return size * count;
  }

  static std::size_t on_body(char* data, std::size_t size, std::size_t count, void* self_pointer) {
    auto& self = *static_cast<Transfer*>(self_pointer);
    const std::size_t bytes = size * count;
    const int status = self.answer.headers.status;
    if (self.request.sink && status >= 200 && status < 300) {
      if (self.request.sink(self.answer.headers, std::as_bytes(std::span(data, bytes))))
        return bytes;
      self.answer.stopped = true;
      return CURL_WRITEFUNC_ERROR;
    }
    std::string& body = self.answer.body;
    body.append(data, std::min(bytes, self.request.max_body - body.size()));
    return bytes;
  }

  static int on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    const auto& tick = static_cast<Transfer*>(self)->request.tick;
    if (tick) tick();
    return 0;
  }
};

struct FreeHandle {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

void start_libcurl() {
  static std::once_flag once;
  std::call_once(once, [] {
    TANDEM_CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK, "libcurl cannot start");
  });
}

template <class T>
void set(CURL* handle, CURLoption option, T value) {
  TANDEM_CHECK(curl_easy_setopt(handle, option, value) == CURLE_OK, "libcurl option {}",
               static_cast<int>(option));
}

// Proxies are always set, an empty one too: libcurl would read the environment itself.
void set_network(CURL* handle, const HttpRequest& request, const HttpOptions& options) {
#if LIBCURL_VERSION_NUM >= 0x075500
  set(handle, CURLOPT_PROTOCOLS_STR, "http,https");
#else
  set(handle, CURLOPT_PROTOCOLS, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
  set(handle, CURLOPT_FOLLOWLOCATION, 0L);
  set(handle, CURLOPT_NOSIGNAL, 1L);
  set(handle, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options.connect_timeout.count()));
  set(handle, CURLOPT_LOW_SPEED_LIMIT, options.min_bytes_per_second);
  set(handle, CURLOPT_LOW_SPEED_TIME, static_cast<long>(options.stall_timeout.count()));
  set(handle, CURLOPT_TIMEOUT_MS, static_cast<long>(request.total_timeout.count()));
  const bool secure = request.url.starts_with("https:");
  set(handle, CURLOPT_PROXY, (secure ? options.proxy_for_https : options.proxy_for_http).c_str());
  set(handle, CURLOPT_NOPROXY, options.no_proxy.c_str());
  if (!options.ca_bundle.empty()) set(handle, CURLOPT_CAINFO, options.ca_bundle.c_str());
  if (!options.client_certificate.empty())
    set(handle, CURLOPT_SSLCERT, options.client_certificate.c_str());
  if (!options.client_key.empty()) set(handle, CURLOPT_SSLKEY, options.client_key.c_str());
}

// The file of certificates that libcurl was built for, or that of another distribution: a portable
// program runs on systems that keep it elsewhere. Empty if no such file exists.
std::string system_certificates() {
  const curl_version_info_data* version = ::curl_version_info(CURLVERSION_NOW);
  std::vector<const char*> files;
  if (version->age >= CURLVERSION_SEVENTH && version->cainfo != nullptr)
    files.push_back(version->cainfo);
  files.insert(files.end(), {"/etc/ssl/certs/ca-certificates.crt",  // Debian, Arch, Alpine
                             "/etc/pki/tls/certs/ca-bundle.crt",    // Red Hat, Rocky
                             "/etc/ssl/ca-bundle.pem",              // SUSE
                             "/etc/ssl/cert.pem"});
  for (const char* file : files) {
    if (::access(file, R_OK) == 0) return file;
  }
  return "";
}

std::string first_of(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const auto value = environment.get(name)) return *value;
  }
  return "";
}

// A certificate or an address that is wrong stays wrong.
bool is_permanent(CURLcode code) {
  return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE ||
         code == CURLE_SSL_CERTPROBLEM || code == CURLE_URL_MALFORMAT ||
         code == CURLE_UNSUPPORTED_PROTOCOL;
}

}  // namespace

HttpOptions http_options(const Environment& environment) {
  HttpOptions options;
  if (const auto seconds = environment.get_int("HF_HUB_DOWNLOAD_TIMEOUT", 1, 86400))
    options.stall_timeout = std::chrono::seconds(*seconds);
  options.connect_timeout = options.stall_timeout;
  options.proxy_for_http =
      first_of(environment, {"http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"});
  options.proxy_for_https =
      first_of(environment, {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"});
  options.no_proxy = first_of(environment, {"no_proxy", "NO_PROXY"});
  options.ca_bundle =
      first_of(environment, {"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"});
  if (options.ca_bundle.empty()) options.ca_bundle = system_certificates();
  return options;
}

HttpAnswer perform(const HttpRequest& request, const HttpOptions& options) {
  start_libcurl();
  const std::unique_ptr<CURL, FreeHandle> handle(curl_easy_init());
  TANDEM_CHECK(handle != nullptr, "libcurl gives no handle");
  Transfer transfer{request, {}};
  set_network(handle.get(), request, options);
  set(handle.get(), CURLOPT_URL, request.url.c_str());
  set(handle.get(), CURLOPT_USERAGENT, "tandem");
  if (request.head) set(handle.get(), CURLOPT_NOBODY, 1L);
  if (request.post) {
    set(handle.get(), CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.post->size()));
    set(handle.get(), CURLOPT_POSTFIELDS, request.post->c_str());
  }
  std::unique_ptr<curl_slist, FreeList> headers;
  for (const std::string& header : request.headers) {
    curl_slist* longer = curl_slist_append(headers.get(), header.c_str());
    TANDEM_CHECK(longer != nullptr, "out of memory");
    (void)headers.release();
    headers.reset(longer);
  }
  set(handle.get(), CURLOPT_HTTPHEADER, headers.get());
  set(handle.get(), CURLOPT_HEADERFUNCTION, &Transfer::on_header);
  set(handle.get(), CURLOPT_HEADERDATA, &transfer);
  set(handle.get(), CURLOPT_WRITEFUNCTION, &Transfer::on_body);
  set(handle.get(), CURLOPT_WRITEDATA, &transfer);
  set(handle.get(), CURLOPT_NOPROGRESS, 0L);
  set(handle.get(), CURLOPT_XFERINFOFUNCTION, &Transfer::on_progress);
  set(handle.get(), CURLOPT_XFERINFODATA, &transfer);
  char details[CURL_ERROR_SIZE] = "";
  set(handle.get(), CURLOPT_ERRORBUFFER, details);
  const CURLcode code = curl_easy_perform(handle.get());
  transfer.answer.unreachable = code == CURLE_COULDNT_RESOLVE_HOST ||
                                code == CURLE_COULDNT_RESOLVE_PROXY ||
                                code == CURLE_COULDNT_CONNECT;
  transfer.answer.permanent = is_permanent(code);
  if (code != CURLE_OK && !transfer.answer.stopped)
    transfer.answer.problem = details[0] != '\0' ? details : curl_easy_strerror(code);
  return std::move(transfer.answer);
}

}  // namespace tandem::hub
