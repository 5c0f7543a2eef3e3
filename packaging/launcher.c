/* bin/tandem of the portable archive and of the wheel: starts the archive's dynamic loader with the
 * program, so that neither needs a library of the system. Linked statically, without a C library's
 * name services or locale.
 *
 * Layout, relative to the prefix: bin/tandem (this), lib/tandem/ld-linux-x86-64.so.2,
 * lib/tandem/tandem, lib/tandem/lib*.so.*. src/tandem/core/own_program.cc knows the same layout.
 *
 * Exit status 127: the files next to it are missing or cannot be executed. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

/* Path of this file without links. /proc may be missing: then the kernel's name of the file. */
static int find_own_file(char path[PATH_MAX]) {
  const ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
  if (length > 0) {
    path[length] = '\0';
    return 1;
  }
  const char* given = (const char*)getauxval(AT_EXECFN);
  return given != NULL && realpath(given, path) != NULL;
}

static int fail(const char* what, const char* file) {
  fprintf(stderr, "tandem: %s: %s: %s; unpack the whole archive again\n", what, file,
          strerror(errno));
  return 127;
}

int main(int argc, char** argv) {
  static char own[PATH_MAX], loader[2 * PATH_MAX], program[2 * PATH_MAX];
  if (!find_own_file(own)) return fail("the program's own path is unknown", argv[0]);
  for (int level = 0; level < 2; ++level) { /* PREFIX/bin/tandem -> PREFIX */
    char* slash = strrchr(own, '/');
    if (slash != NULL) *slash = '\0';
  }
  snprintf(loader, sizeof loader, "%s/lib/tandem/ld-linux-x86-64.so.2", own);
  snprintf(program, sizeof program, "%s/lib/tandem/tandem", own);
  if (access(program, R_OK) != 0) return fail("cannot read the program", program);

  char** words = calloc((size_t)argc + 5, sizeof *words);
  if (words == NULL) return fail("no memory", program);
  words[0] = loader;
  words[1] = "--argv0";
  words[2] = argc > 0 ? argv[0] : "tandem";
  words[3] = program;
  for (int i = 1; i < argc; ++i) words[3 + i] = argv[i];
  execv(loader, words);
  return fail("cannot start the archive's loader", loader);
}
