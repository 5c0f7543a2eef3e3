# Sourced by the shims of this image, which replace other programs: each logs one line about it.
# As JSON where the job's log is (--log_format json, TANDEM_LOG_FORMAT).
case " ${TANDEM_LOG_FORMAT:-} $* " in
  " json "* | *" --log_format json "* | *" --log_format=json "* | *" --log-format json "* | *" --log-format=json "*) json_lines=1 ;;
  *) json_lines=0 ;;
esac
log() {
  if [ $json_lines = 0 ]; then
    echo "tandem image: $*" >&2
  else
    printf '{"time":"%s","severity":"INFO","logger":"image","message":"%s"}\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" \
      "$(printf %s "$*" | tr '\n\t' '  ' | sed 's/[\\"]/\\&/g')" >&2
  fi
}

log_preloads() {
  case ":${LD_PRELOAD:-}:" in
    *libiomp5*) log "libiomp5.so in LD_PRELOAD is GNU's OpenMP here; tandem has its own threads" ;;
  esac
}

# The job command that a script …/run_qa.py stands for; fails for any other script.
job_of() {
  case "${1##*/}" in
    run_qa.py | run_glue.py | run_classification.py | run_ner.py | run_embedding.py | run_mlm.py | run_clm.py) name=${1##*/}; echo "${name%.py}" ;;
    *) return 1 ;;
  esac
}
