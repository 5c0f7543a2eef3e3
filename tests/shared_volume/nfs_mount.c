// A client of NFSv4 for kernels that have none: libnfs connects to the server, libfuse to the
// kernel. Used by tests.
//
//   nfs_mount SERVER EXPORT DIRECTORY NAME SECONDS
//
// Each process is a client of its own, called NAME. As under Linux's own client: attributes,
// entries and the absence of entries are believed for SECONDS; opening a file asks the server, and
// drops what the kernel has cached of it; closing it brings what was written to the server; what is
// removed while it is open here gets a hidden name until it is closed; flock(2) is a lock at the
// server for all hosts, given back when its holder closes the file or dies, and by the server some
// time after a whole client is gone; renames have no flags; a server that does not answer is EIO
// ("soft").
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fcntl.h>
#include <fuse3/fuse.h>
#include <nfsc/libnfs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <unistd.h>

// An open file is a client of its own, for libnfs loses count of what a client has sent when one of
// several files fails or is locked. So locks of two processes of one mount are to the server as
// different as those of two hosts.
struct handle {
  struct nfs_context* server;
  struct nfsfh* file;
  int written, locked;
  struct handle* next;  // of all that are open
};

static char** arguments;
static struct nfs_context* server;  // for all that needs no open file
static struct handle* handles;
// libnfs serves one thread at a time; one more than the file system's keeps the leases.
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

#define ALONE(call)                       \
  ({                                      \
    pthread_mutex_lock(&one_at_a_time);   \
    const int result_ = (int)(call);      \
    pthread_mutex_unlock(&one_at_a_time); \
    result_;                              \
  })

static struct handle* of(struct fuse_file_info* info) {
  return (struct handle*)(uintptr_t)info->fh;
}

// Returns null and prints the reason if the server cannot be reached.
static struct nfs_context* connect_to_server(void) {
  static unsigned number;
  struct nfs_context* client = nfs_init_context();
  char name[200], verifier[9];
  snprintf(name, sizeof(name), "%s-%u", arguments[4], ++number);
  snprintf(verifier, sizeof(verifier), "%08x", (unsigned)getpid());
  nfs_set_version(client, 4);
  nfs4_set_client_name(client, name);
  nfs4_set_verifier(client, verifier);
  nfs_set_autoreconnect(client, 0);
  nfs_set_dircache(client, 0);
  nfs_set_uid(client, (int)getuid());
  nfs_set_gid(client, (int)getgid());
  if (nfs_mount(client, arguments[1], arguments[2]) == 0) return client;
  fprintf(stderr, "nfs_mount: %s\n", nfs_get_error(client));
  nfs_destroy_context(client);
  return NULL;
}

static void fill(struct stat* to, const struct nfs_stat_64* from) {
  memset(to, 0, sizeof(*to));
  to->st_ino = from->nfs_ino;
  to->st_mode = from->nfs_mode;
  to->st_nlink = from->nfs_nlink;
  to->st_uid = from->nfs_uid;
  to->st_gid = from->nfs_gid;
  to->st_size = from->nfs_size;
  to->st_blksize = from->nfs_blksize;
  to->st_blocks = from->nfs_blocks;
  to->st_atim = (struct timespec){from->nfs_atime, from->nfs_atime_nsec};
  to->st_mtim = (struct timespec){from->nfs_mtime, from->nfs_mtime_nsec};
  to->st_ctim = (struct timespec){from->nfs_ctime, from->nfs_ctime_nsec};
}

static int vol_getattr(const char* path, struct stat* to, struct fuse_file_info* info) {
  struct nfs_stat_64 found;
  const int result = info ? ALONE(nfs_fstat64(of(info)->server, of(info)->file, &found))
                          : ALONE(nfs_lstat64(server, path, &found));
  if (result == 0) fill(to, &found);
  return result;
}

static int open_file(const char* path, int flags, mode_t mode, struct handle* handle) {
  // For writing means for reading, too: keep_leases() reads.
  const int access = (flags & O_ACCMODE) == O_RDONLY ? O_RDONLY : O_RDWR;
  handle->server = connect_to_server();
  if (!handle->server) return -EIO;
  const int result =
      nfs_open2(handle->server, path, access | (flags & (O_CREAT | O_EXCL | O_TRUNC)), (int)mode,
                &handle->file);
  if (result) nfs_destroy_context(handle->server);
  if (result == 0 && flags & O_EXCL) {  // the server keeps a number in its times until a request
                                        // changes it
    struct timeval now[2];
    gettimeofday(&now[0], NULL);
    now[1] = now[0];
    nfs_utimes(server, path, now);
    nfs_chmod(server, path, (int)mode);
  }
  return result;
}

static int open_or_create(const char* path, int flags, mode_t mode, struct fuse_file_info* info) {
  struct handle* handle = calloc(1, sizeof(*handle));
  pthread_mutex_lock(&one_at_a_time);
  const int result = open_file(path, flags, mode, handle);
  if (result == 0) {
    handle->next = handles;
    handles = handle;
    info->fh = (uint64_t)(uintptr_t)handle;
  } else {
    free(handle);
  }
  pthread_mutex_unlock(&one_at_a_time);
  return result;
}

static int vol_open(const char* path, struct fuse_file_info* info) {
  fuse_invalidate_path(fuse_get_context()->fuse, path);
  const int result = open_or_create(path, info->flags & ~(O_CREAT | O_EXCL), 0, info);
  return result == -ENOENT
             ? -ESTALE
             : result;  // the kernel believed in it: with ESTALE it looks again, as for any NFS
}

static int vol_create(const char* path, mode_t mode, struct fuse_file_info* info) {
  const int result = open_or_create(path, info->flags | O_CREAT, mode, info);
  // libnfs creates so that one of several clients wins, also without O_EXCL.
  if (result != -EEXIST || info->flags & O_EXCL) return result;
  return open_or_create(path, info->flags & ~O_CREAT, mode, info);
}

static int vol_read(const char* path, char* to, size_t size, off_t offset,
                    struct fuse_file_info* info) {
  (void)path;
  return ALONE(nfs_pread(of(info)->server, of(info)->file, (uint64_t)offset, size, to));
}

// libnfs 4 cannot encode a longer write of NFSv4.
enum { kMostWritten = 2048 };

static int vol_write(const char* path, const char* from, size_t size, off_t offset,
                     struct fuse_file_info* info) {
  (void)path;
  struct handle* handle = of(info);
  handle->written = 1;
  size_t done = 0;
  pthread_mutex_lock(&one_at_a_time);
  while (done < size) {
    const size_t part = size - done < kMostWritten ? size - done : kMostWritten;
    const int result =
        nfs_pwrite(handle->server, handle->file, (uint64_t)offset + done, part, from + done);
    if (result <= 0) break;
    done += (size_t)result;
  }
  pthread_mutex_unlock(&one_at_a_time);
  return done == 0 && size > 0 ? -EIO : (int)done;
}

static int vol_truncate(const char* path, off_t size, struct fuse_file_info* info) {
  if (info) return ALONE(nfs_ftruncate(of(info)->server, of(info)->file, (uint64_t)size));
  return ALONE(nfs_truncate(server, path, (uint64_t)size));
}

static int vol_fsync(const char* path, int data_only, struct fuse_file_info* info) {
  (void)path;
  (void)data_only;
  return ALONE(nfs_fsync(of(info)->server, of(info)->file));
}

static int vol_flush(const char* path, struct fuse_file_info* info) {
  if (!of(info)->written) return 0;
  of(info)->written = 0;
  return vol_fsync(path, 0, info);
}

static void unlock(struct handle* handle) {
  if (handle->locked) nfs_lockf(handle->server, handle->file, NFS4_F_ULOCK, UINT64_MAX);
  handle->locked = 0;
}

static int vol_release(const char* path, struct fuse_file_info* info) {
  (void)path;
  struct handle* handle = of(info);
  pthread_mutex_lock(&one_at_a_time);
  struct handle** link = &handles;
  while (*link != handle) link = &(*link)->next;
  *link = handle->next;
  unlock(handle);
  nfs_close(handle->server, handle->file);
  nfs_destroy_context(handle->server);
  pthread_mutex_unlock(&one_at_a_time);
  free(handle);
  return 0;
}

// Never waits: tandem does not, and nothing else would be served meanwhile.
static int vol_flock(const char* path, struct fuse_file_info* info, int operation) {
  (void)path;
  struct handle* handle = of(info);
  if (!(operation & (LOCK_UN | LOCK_NB))) return -ENOTSUP;
  pthread_mutex_lock(&one_at_a_time);
  if (operation & LOCK_UN) {
    unlock(handle);
  } else if (!handle->locked) {
    handle->locked = nfs_lockf(handle->server, handle->file, NFS4_F_TLOCK, UINT64_MAX) == 0;
  }
  // libnfs has no error number for a lock that another client holds.
  const int result = operation & LOCK_UN || handle->locked ? 0 : -EAGAIN;
  pthread_mutex_unlock(&one_at_a_time);
  return result;
}

static int vol_readdir(const char* path, void* buffer, fuse_fill_dir_t add, off_t offset,
                       struct fuse_file_info* info, enum fuse_readdir_flags flags) {
  (void)offset;
  (void)info;
  (void)flags;
  struct nfsdir* directory = NULL;
  const int result = ALONE(nfs_opendir(server, path, &directory));
  if (result) return result;
  for (struct nfsdirent* entry; (entry = nfs_readdir(server, directory));)
    add(buffer, entry->name, NULL, 0, 0);
  nfs_closedir(server, directory);
  return 0;
}

static int vol_statfs(const char* path, struct statvfs* to) {
  return ALONE(nfs_statvfs(server, path, to));
}
static int vol_mkdir(const char* path, mode_t mode) {
  return ALONE(nfs_mkdir2(server, path, mode));
}
static int vol_rmdir(const char* path) { return ALONE(nfs_rmdir(server, path)); }
static int vol_unlink(const char* path) { return ALONE(nfs_unlink(server, path)); }
static int vol_link(const char* from, const char* to) { return ALONE(nfs_link(server, from, to)); }
static int vol_symlink(const char* target, const char* path) {
  return ALONE(nfs_symlink(server, target, path));
}
// libnfs does not end what it reads.
static int vol_readlink(const char* path, char* to, size_t size) {
  struct nfs_stat_64 found;
  int result = ALONE(nfs_lstat64(server, path, &found));
  if (result == 0) result = ALONE(nfs_readlink(server, path, to, (int)size));
  to[found.nfs_size < size ? found.nfs_size : size - 1] = 0;
  return result;
}

static int vol_fsyncdir(const char* path, int data_only, struct fuse_file_info* info) {
  (void)path;
  (void)data_only;
  (void)info;
  return 0;
}

static int vol_rename(const char* from, const char* to, unsigned flags) {
  return flags ? -EINVAL : ALONE(nfs_rename(server, from, to));
}

static int vol_chmod(const char* path, mode_t mode, struct fuse_file_info* info) {
  (void)info;
  return ALONE(nfs_chmod(server, path, (int)mode));
}

static int vol_chown(const char* path, uid_t user, gid_t group, struct fuse_file_info* info) {
  (void)info;
  return ALONE(nfs_chown(server, path, (int)user, (int)group));
}

static int vol_utimens(const char* path, const struct timespec times[2],
                       struct fuse_file_info* info) {
  (void)info;
  struct timeval values[2];
  for (int i = 0; i < 2; ++i) {
    if (times[i].tv_nsec == UTIME_NOW || times[i].tv_nsec == UTIME_OMIT)
      gettimeofday(&values[i], NULL);
    else
      values[i] = (struct timeval){times[i].tv_sec, times[i].tv_nsec / 1000};
  }
  return ALONE(nfs_utimes(server, path, values));
}

// A client that sends nothing for the time of a lease loses its files and locks.
static void* keep_leases(void* nothing) {
  (void)nothing;
  while (1) {
    char byte;
    sleep(1);
    pthread_mutex_lock(&one_at_a_time);
    for (struct handle* handle = handles; handle; handle = handle->next)
      nfs_pread(handle->server, handle->file, 0, 1, &byte);
    pthread_mutex_unlock(&one_at_a_time);
  }
  return NULL;
}

static void* vol_init(struct fuse_conn_info* connection, struct fuse_config* config) {
  connection->max_write = connection->max_read = 1 << 17;
  config->use_ino = 1;
  config->attr_timeout = config->entry_timeout = config->negative_timeout = atof(arguments[5]);
  pthread_t thread;
  pthread_create(&thread, NULL, keep_leases, NULL);
  return NULL;
}

static const struct fuse_operations operations = {.init = vol_init,
                                                  .getattr = vol_getattr,
                                                  .open = vol_open,
                                                  .create = vol_create,
                                                  .read = vol_read,
                                                  .write = vol_write,
                                                  .truncate = vol_truncate,
                                                  .fsync = vol_fsync,
                                                  .flush = vol_flush,
                                                  .release = vol_release,
                                                  .flock = vol_flock,
                                                  .readdir = vol_readdir,
                                                  .statfs = vol_statfs,
                                                  .mkdir = vol_mkdir,
                                                  .rmdir = vol_rmdir,
                                                  .unlink = vol_unlink,
                                                  .link = vol_link,
                                                  .symlink = vol_symlink,
                                                  .readlink = vol_readlink,
                                                  .fsyncdir = vol_fsyncdir,
                                                  .rename = vol_rename,
                                                  .chmod = vol_chmod,
                                                  .chown = vol_chown,
                                                  .utimens = vol_utimens};

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  arguments = argv;
  server = connect_to_server();
  if (!server) return 1;
  char* words[] = {argv[0], argv[3], "-f", "-s", "-o", "max_read=131072"};
  return fuse_main(6, words, &operations, NULL);
}
