#include "tandem/comm/network/plugin_fabric.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/own_program.h"

namespace tandem::comm {
namespace {

namespace fs = std::filesystem;

struct KnownPlugin {
  std::string_view name;
  // Libraries of which one must be loaded before the plugin, with its symbols visible to all. The
  // plugin itself names the others. It does not name an MPI, because MPICH and Intel MPI provide
  // one interface under several file names.
  std::vector<std::string> libraries;
  std::string_view run_package;    // package to install on a machine that only runs tandem
  std::string_view build_package;  // package without which the plugin was not built
};

const std::array<KnownPlugin, 4>& known_plugins() {
  static const std::array<KnownPlugin, 4> kPlugins = {{
      {"ofi", {}, "libfabric1", "libfabric-dev"},
      {"mpich",
       {"libmpi.so.12", "libmpich.so.12"},
       "libmpich12 (MPICH), or impi-rt from PyPI (Intel MPI; set CCL_MPI_LIBRARY_PATH to its "
       "lib/libmpi.so.12)",
       "libmpich-dev"},
      {"openmpi", {"libmpi.so.40"}, "libopenmpi3", "libopenmpi-dev"},
      {"gloo", {}, "libgloo0", "libgloo-dev"},
  }};
  return kPlugins;
}

const KnownPlugin& find_known(std::string_view name) {
  const auto& all = known_plugins();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const KnownPlugin& known) { return known.name == name; });
  if (found == all.end())
    raise<ConfigError>("no transport '{}': there are tcp, ofi, mpich, openmpi and gloo", name);
  return *found;
}

std::vector<fs::path> directories(const std::string& plugin_path) {
  std::vector<fs::path> result;
  for (std::size_t begin = 0; begin < plugin_path.size();) {
    const std::size_t end = std::min(plugin_path.find(':', begin), plugin_path.size());
    if (end > begin) result.emplace_back(plugin_path.substr(begin, end - begin));
    begin = end + 1;
  }
  std::error_code ignored;
  const fs::path program = fs::canonical(own_program(), ignored);
  if (!ignored) {
    result.push_back(program.parent_path().parent_path() / TANDEM_PLUGIN_FOLDER);
    if (own_binary() != own_program())  // a portable archive
      result.push_back(own_binary().parent_path() / "plugins");
    result.push_back(program.parent_path());
  }
  result.emplace_back(TANDEM_INSTALLED_PLUGINS);
  return result;
}

fs::path find_plugin(const KnownPlugin& known, const TransportOptions& options) {
  const std::string file = fmt::format("tandem_{}.so", known.name);
  std::string looked;
  for (const fs::path& directory : directories(options.plugin_path)) {
    std::error_code ignored;
    if (fs::exists(directory / file, ignored)) return directory / file;
    looked += fmt::format("{}{}", looked.empty() ? "" : ", ", directory.native());
  }
  raise<ConfigError>(
      "the transport '{}' needs the plugin {}, which is in none of: {}; it is built when the "
      "package {} is installed (apt install {}, then build again), or set TANDEM_PLUGIN_PATH to "
      "its directory",
      known.name, file, looked, known.build_package, known.build_package);
}

std::string dl_error() {
  const char* text = ::dlerror();
  return text == nullptr ? "unknown error" : text;
}

// The advice after dlopen() has failed. The C library of the portable archive may be older
// than the one that the system's library was built with.
std::string remedy(const std::string& reason, const KnownPlugin& known) {
  if (reason.find("version `GLIBC") != std::string::npos) {
    return "the system's library needs a newer C or C++ library than the portable archive has; "
           "build tandem on this system, or leave out --ddp_backend";
  }
  return fmt::format("install the package {}", known.run_package);
}

void load_library(const KnownPlugin& known, const TransportOptions& options) {
  std::vector<std::string> candidates = known.libraries;
  if (known.name == "mpich" && !options.mpi_library.empty()) candidates = {options.mpi_library};
  if (candidates.empty()) return;
  std::string reasons;
  for (const std::string& candidate : candidates) {
    if (::dlopen(candidate.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return;
    reasons += (reasons.empty() ? "" : "; ") + dl_error();
  }
  raise<ConfigError>("the transport '{}' found no library to use: {}; {}", known.name, reasons,
                     remedy(reasons, known));
}

const tandem_transport_plugin* load(const TransportOptions& options) {
  const KnownPlugin& known = find_known(options.name);
  const fs::path file = find_plugin(known, options);
  load_library(known, options);
  void* handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const std::string reason = dl_error();
    raise<ConfigError>("the transport '{}' could not be loaded: {}; {}", known.name, reason,
                       remedy(reason, known));
  }
  const auto entry = reinterpret_cast<tandem_transport_plugin_entry>(
      ::dlsym(handle, TANDEM_TRANSPORT_PLUGIN_ENTRY));
  const tandem_transport_plugin* plugin = entry == nullptr ? nullptr : entry();
  if (plugin == nullptr || plugin->abi != TANDEM_TRANSPORT_PLUGIN_ABI ||
      plugin->size != sizeof(tandem_transport_plugin)) {
    raise<ConfigError>(
        "{} is not a plugin of this tandem: found version {} of the interface, expected {}; "
        "install "
        "plugins and program of one version",
        file.native(), plugin == nullptr ? 0 : plugin->abi, TANDEM_TRANSPORT_PLUGIN_ABI);
  }
  return plugin;
}

}  // namespace

PluginFabric::PluginFabric(const TransportOptions& options, int rank, int world_size,
                           std::chrono::milliseconds timeout, const std::string& source_address)
    : world_size_(world_size), plugin_(load(options)) {
  tandem_fabric_config config{};
  config.rank = rank;
  config.world_size = world_size;
  config.timeout_ms = timeout.count();
  config.source_address = source_address.c_str();
  config.interface_name = options.interface_name.c_str();
  config.provider = options.provider.c_str();
  tandem_fabric_error error{};
  if (plugin_->open(&config, &fabric_, &error) != TANDEM_FABRIC_OK)
    raise<ConfigError>("the transport '{}' does not start: {}", options.name, error.text);
}

PluginFabric::PluginFabric(PluginFabric&& other) noexcept
    : world_size_(other.world_size_),
      plugin_(other.plugin_),
      fabric_(std::exchange(other.fabric_, nullptr)) {}

PluginFabric::~PluginFabric() { close(/*in_order=*/false); }

void PluginFabric::close(bool in_order) noexcept {
  if (fabric_ == nullptr) return;
  plugin_->close(std::exchange(fabric_, nullptr), in_order ? 1 : 0);
}

std::vector<std::string> PluginFabric::exchange(const std::string& text) {
  std::vector<std::string> texts(static_cast<std::size_t>(world_size_));
  const auto sink = [](void* context, std::int32_t rank, const void* bytes, std::size_t count) {
    auto& into = *static_cast<std::vector<std::string>*>(context);
    into[static_cast<std::size_t>(rank)].assign(static_cast<const char*>(bytes), count);
  };
  tandem_fabric_error error{};
  if (plugin_->exchange(fabric_, text.data(), text.size(), sink, &texts, &error) !=
      TANDEM_FABRIC_OK)
    raise<CommError>("the ranks could not meet through {}: {}", describe(), error.text);
  return texts;
}

std::string PluginFabric::address() const {
  std::string address;
  const auto sink = [](void* context, std::int32_t /*rank*/, const void* bytes, std::size_t count) {
    static_cast<std::string*>(context)->assign(static_cast<const char*>(bytes), count);
  };
  plugin_->address(fabric_, sink, &address);
  return address;
}

void PluginFabric::connect(std::span<const std::string> addresses) {
  std::vector<const void*> data;
  std::vector<std::size_t> bytes;
  for (const std::string& address : addresses) {
    data.push_back(address.data());
    bytes.push_back(address.size());
  }
  tandem_fabric_error error{};
  if (plugin_->connect(fabric_, data.data(), bytes.data(), &error) != TANDEM_FABRIC_OK)
    raise<CommError>("{} could not connect the ranks: {}", describe(), error.text);
}

}  // namespace tandem::comm
