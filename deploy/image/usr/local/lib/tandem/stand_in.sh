# Sourced by the programs of this image that stand in for others: one line of the log says so.
say() { echo "tandem image: $*" >&2; }

say_preloads() {
  case ":${LD_PRELOAD:-}:" in
    *libiomp5*) say "libiomp5.so in LD_PRELOAD is GNU's OpenMP here; tandem has its own threads" ;;
  esac
}

# The job command that a script …/run_qa.py stands for; fails when it is none.
job_of() {
  case "${1##*/}" in
    run_qa.py | run_glue.py | run_classification.py | run_ner.py) name=${1##*/}; echo "${name%.py}" ;;
    *) return 1 ;;
  esac
}
