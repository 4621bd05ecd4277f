# Sourced by perf/bench and perf/demo: where things are.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BIN=${BUILD_DIR:-$ROOT/build}/bin

say() { printf '%s\n' "$*"; }
die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

# The script that runs a command on the first of several namespace hosts; empty if it cannot run.
HOSTS_RUN=${HOSTS_RUN:-$ROOT/tests/rig/hosts}

# Succeeds if namespace hosts can be made here; otherwise sets WHY_NO_HOSTS to the reason.
have_hosts() {
  if [[ ! -x $HOSTS_RUN ]]; then
    WHY_NO_HOSTS="tests/rig/hosts is missing"
  elif ((EUID != 0)); then
    WHY_NO_HOSTS="only root may make network namespaces that stand for hosts"
  elif ! unshare --net --mount --uts --ipc --pid --fork true 2>/dev/null; then
    WHY_NO_HOSTS="this machine (a container?) allows no network namespaces"
  else
    return 0
  fi
  return 1
}
