"""How each library is started, and the documented settings that it is given.

A library has several configurations for a case; the report takes the best for each size. The
entries of CONFIGURATIONS are settings that the manual of the library recommends: how large local
messages are copied (cross-memory attach of the kernel, or through shared memory), the network
layer, the allocator of the library, and, with more ranks than cores, waiting that yields the core.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("BUILD_DIR", ROOT / "build")).resolve()
PREFIX = BUILD / "peers"
PROGRAMS = BUILD / "bin" / "peers"

TITLES = {
    "hocket": "hocket",
    "impi": "Intel MPI",
    "openmpi": "Open MPI",
    "mpich": "MPICH",
    "gloo": "Gloo",
    "floor": "floor",
}
PEERS = list(TITLES)


@dataclass(frozen=True)
class Setting:
    arguments: tuple = ()  # of mpirun
    environment: dict = field(default_factory=dict)
    memory: str = "plain"  # or "alloc": the library's own allocator

    def __add__(self, other):
        return Setting(
            self.arguments + other.arguments,
            {**self.environment, **other.environment},
            other.memory if self.memory == "plain" else self.memory,
        )


def mca(*pairs):
    return tuple(word for pair in pairs for word in ("--mca", *pair.split("=")))


def env(**variables):
    return Setting(environment=variables)


def tcp_messages(interface):
    """Of the floor: messages over TCP between more than two ranks."""
    return {f"{way}-{wait}": env(FLOOR_WAY=way, FLOOR_WAIT=wait, FLOOR_INTERFACE=interface)
            for way in ("tcp-flat", "tcp-tree") for wait in ("yield", "sleep")}


def two_levels(interface):
    """Of the floor: between two hosts over TCP, within each through shared memory."""
    pieces = {f"levels-{kib}K-{wait}{way}": env(FLOOR_WAY="levels", FLOOR_PIECE=str(kib << 10),
                                                FLOOR_WAIT=wait, FLOOR_INTERFACE=interface,
                                                **stores)
              for kib, wait in ((64, "yield"), (256, "sleep"), (1024, "sleep"))
              for way, stores in (("", {}), ("-past", {"FLOOR_STORES": "past"}))}
    return {**pieces, "leaders": env(FLOOR_WAY="leaders", FLOOR_INTERFACE=interface)}


OMPI_SM = Setting(mca("pml=ob1", "btl=self,sm"))
OMPI_TCP = Setting(mca("pml=ob1", "btl=self,tcp"))
OMPI_BOTH = Setting(mca("pml=ob1", "btl=self,sm,tcp"))
IMPI_SHM = env(I_MPI_FABRICS="shm")
ALLOC = Setting(memory="alloc")

# shm and local-tcp: all ranks are on one host, and use shared memory or TCP. tcp: each rank has a
# host. both: two hosts share the ranks.
TRANSPORTS = "shm", "local-tcp", "tcp", "both"
ONE_HOST = "shm", "local-tcp"

CONFIGURATIONS = {
    "hocket": {
        "shm": {"plain": Setting(), "alloc": ALLOC},
        "tcp": {"plain": Setting(), "alloc": ALLOC},
        "local-tcp": {"plain": env(HOCKET_TRANSPORT="tcp")},
        "both": {"plain": Setting(), "alloc": ALLOC},
    },
    "openmpi": {
        "shm": {
            "default": OMPI_SM,
            "staged": OMPI_SM + Setting(mca("smsc=^cma")),
            "coll-sm": OMPI_SM + Setting(mca("coll_sm_priority=100")),
            "alloc": OMPI_SM + ALLOC,
        },
        "tcp": {
            "ob1": OMPI_TCP,
            # Without the lists it takes UCX for InfiniBand only.
            "ucx": Setting(mca("pml=ucx", "pml_ucx_tls=any", "pml_ucx_devices=any") +
                           ("-x", "UCX_TLS=tcp,self")),
        },
        "local-tcp": {"ob1": OMPI_TCP},
        "both": {
            "ob1": OMPI_BOTH,
            "han": OMPI_BOTH + Setting(mca("coll_han_priority=100")),
        },
    },
    "mpich": {
        "shm": {
            "default": Setting(),
            "staged": env(MPIR_CVAR_CH4_CMA_ENABLE="0"),
            "release-gather": env(
                MPIR_CVAR_BCAST_POSIX_INTRA_ALGORITHM="release_gather",
                MPIR_CVAR_ALLREDUCE_POSIX_INTRA_ALGORITHM="release_gather",
            ),
            "alloc": ALLOC,
        },
        "tcp": {
            "ofi": env(MPIR_CVAR_CH4_NETMOD="ofi", FI_PROVIDER="tcp"),
            "ucx": env(MPIR_CVAR_CH4_NETMOD="ucx", UCX_TLS="tcp,self"),
        },
        "local-tcp": {
            "ofi": env(MPIR_CVAR_NOLOCAL="1", MPIR_CVAR_CH4_NETMOD="ofi", FI_PROVIDER="tcp"),
        },
        "both": {"ofi": env(MPIR_CVAR_CH4_NETMOD="ofi", FI_PROVIDER="tcp")},
    },
    "impi": {
        "shm": {
            "default": IMPI_SHM,
            "staged": IMPI_SHM + env(I_MPI_SHM_CMA="0"),
            "heap": IMPI_SHM + env(I_MPI_SHM_HEAP="1") + ALLOC,
        },
        "tcp": {
            "shm-ofi": env(I_MPI_FABRICS="shm:ofi", FI_PROVIDER="tcp"),
            "ofi": env(I_MPI_FABRICS="ofi", FI_PROVIDER="tcp"),
        },
        "local-tcp": {"ofi": env(I_MPI_FABRICS="ofi", I_MPI_COLL_INTRANODE="pt2pt",
                               FI_PROVIDER="tcp")},
        "both": {"shm-ofi": env(I_MPI_FABRICS="shm:ofi", FI_PROVIDER="tcp")},
    },
    "gloo": {name: {"tcp": Setting()} for name in TRANSPORTS},
    # No library: the loads, stores and flags, or the bytes, of a collective alone
    # (floor_backend.cc).
    "floor": {
        "shm": {
            **{f"staged-{kib}K{way}": env(FLOOR_PIECE=str(kib << 10), **stores)
               for kib in (4, 16, 64, 256)
               for way, stores in (("", {}), ("-past", {"FLOOR_STORES": "past"}),
                                   ("-staged-past", {"FLOOR_STORES": "staged-past"}))
               if kib >= 64 or way != "-past"},
            "copy": env(FLOOR_WAY="copy"),
            **{f"{name}{way}": env(FLOOR_WAY=name, **stores) + ALLOC
               for name in ("direct", "shared")
               for way, stores in (("", {}), ("-past", {"FLOOR_STORES": "past"}))},
        },
        "tcp": {
            "tcp": env(FLOOR_WAY="tcp", FLOOR_INTERFACE="eth1"),
            "tcp-whole": env(FLOOR_WAY="tcp-whole", FLOOR_INTERFACE="eth1"),
            **tcp_messages("eth1"),
        },
        "local-tcp": tcp_messages("lo"),
        "both": two_levels("eth1"),
    },
}

# More ranks than cores. The first is tried with every configuration, the others with the default.
CROWDED = {
    "openmpi": {"yield": Setting(mca("mpi_yield_when_idle=1"))},
    # Its collectives for shared memory spin whatever the settings; the general ones do not.
    "mpich": {"yield": env(MPIR_CVAR_DEVICE_COLLECTIVES="none", MPIR_CVAR_POLLS_BEFORE_YIELD="1",
                           MPIR_CVAR_ENABLE_HEAVY_YIELD="1")},
    "impi": {
        "wait": env(I_MPI_WAIT_MODE="1", I_MPI_PIN="0"),
        "yield": env(I_MPI_THREAD_YIELD="2", I_MPI_PIN="0"),
        "unpinned": env(I_MPI_PIN="0"),
    },
}


def configurations(peer, transport, crowded, quick):
    """{name: Setting} for a case; quick: one of each peer (of hocket both kinds of memory)."""
    base = CONFIGURATIONS[peer].get(transport, {})
    if quick and peer != "hocket":
        base = dict(list(base.items())[:1])
    if not crowded or peer not in CROWDED:
        return base
    (first, setting), *others = base.items()
    ways = list(CROWDED[peer].items())
    if quick:
        return {f"{first}+{ways[0][0]}": setting + ways[0][1]}
    found = {first: setting}
    for way, extra in ways:
        found[f"{first}+{way}"] = setting + extra
    for name, other in others:
        found[f"{name}+{ways[0][0]}"] = other + ways[0][1]
    return found


def is_plain_floor(config):
    """Whether this way of the floor needs no memory that peers map."""
    ways = {}
    for found in CONFIGURATIONS["floor"].values():
        ways.update(found)
    return ways[config].memory == "plain"


REDUCTIONS = "all_reduce", "reduce", "reduce_scatter"
ROOTED = "broadcast", "reduce", "gather", "scatter"


def has(peer, transport, config, collective, ranks=2):
    """libtorch's Gloo gathers and scatters equal blocks only. Messages of the user have no floor,
    and are not measured with Gloo."""
    if collective == "latency" and peer in ("gloo", "floor"):
        return False
    if peer == "gloo":
        return collective not in ("all_gather_v", "gather_v", "scatter_v")
    if peer == "floor" and transport == "shm":
        return floor_has_in_memory(config, collective)
    return peer != "floor" or floor_has_over_tcp(transport, config, collective, ranks)


def floor_has_in_memory(config, collective):
    """The kernel copies, but adds nothing up."""
    return not ((config == "copy" and collective.removesuffix("_v") in REDUCTIONS) or
                (config.startswith("shared") and collective != "broadcast") or
                (collective == "barrier" and config != "staged-64K"))


def floor_has_over_tcp(transport, config, collective, ranks):
    """For equal blocks: between two hosts, and for messages between a power of two of ranks.
    Between two hosts with several ranks each four collectives have a floor."""
    if transport == "both":
        wanted = "all_reduce", "all_gather", "reduce_scatter", "broadcast"
        return collective in wanted and (config, collective) != ("leaders", "broadcast")
    if collective.endswith("_v") or ranks & (ranks - 1):
        return False
    if config == "tcp-whole":
        return ranks == 2 and collective == "all_reduce"
    if config == "tcp":
        return ranks == 2
    return ((ranks > 2 or transport == "local-tcp") and
            (config.startswith("tcp-flat") or collective in ROOTED))


def missing(peer):
    """Why a peer cannot run; empty if it can."""
    program = PROGRAMS / ("peer-gloo.so" if peer == "gloo" else f"peer-{peer}")
    return "" if program.exists() else f"{program} is not built"


@dataclass(frozen=True)
class Job:
    """One start of a library: ranks of the measuring program with these arguments."""

    peer: str
    transport: str
    ranks: int
    setting: Setting
    arguments: tuple
    meeting_file: str

    def per_host(self):
        """Ranks of each host."""
        if self.on_one_host():
            return self.ranks
        return {"tcp": 1, "both": self.ranks // 2}[self.transport]

    def on_one_host(self):
        return self.transport in ONE_HOST

    def hosts(self):
        return [f"h{i + 1}" for i in range(self.ranks // self.per_host())]

    def hosts_with_ranks(self):
        return ",".join(f"{host}:{self.per_host()}" for host in self.hosts())

    def environment(self):
        """What the starting process adds to its own environment."""
        added = {
            "openmpi": {
                "OMPI_ALLOW_RUN_AS_ROOT": "1",
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                "PRTE_ALLOW_RUN_AS_ROOT": "1",
                "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            },
            "impi": {
                "I_MPI_ROOT": str(PREFIX / "impi"),
                "LD_LIBRARY_PATH": str(PREFIX / "impi" / "lib"),
                "PATH": f"{PREFIX / 'impi' / 'bin'}:{os.environ['PATH']}",
                # PyPI's package comes without a libfabric; MPICH's contains version 2.5.
                "I_MPI_OFI_LIBRARY": str(PREFIX / "mpich/lib/mpich/libfabric.so.1"),
            },
        }
        return {**added.get(self.peer, {}), **self.setting.environment}

    def commands(self):
        """The processes to start together: an MPI's mpirun, or each rank."""
        return getattr(self, "_" + self.peer)()

    def _program(self):
        return [str(PROGRAMS / f"peer-{self.peer}"), *self.arguments]

    def _hocket_run(self):
        where = ["-n", str(self.ranks)]
        if not self.on_one_host():
            where += ["--hosts", self.hosts_with_ranks(), "--ssh", os.environ["HOSTS_RSH"]]
        return [str(BUILD / "bin" / "hocket-run"), *where]

    def _hocket(self):
        return [self._hocket_run() + self._program()]

    def _floor(self):
        variables = {"PEER_MEETING_FILE": self.meeting_file, **self.setting.environment}
        start = self._hocket_run()
        for name, value in variables.items():
            start += ["-x", f"{name}={value}"]
        return [start + self._program()]

    def _openmpi(self):
        where = ["-n", str(self.ranks), "--map-by", ":OVERSUBSCRIBE"]
        if not self.on_one_host():
            where = ["--prtemca", "plm_ssh_agent", os.environ["HOSTS_RSH"]]
            where += ["--host", self.hosts_with_ranks()]
        # Bound to cores, it puts the ranks of two namespace hosts on the same core.
        start = [str(PREFIX / "openmpi/bin/mpirun"), *where, "--bind-to", "none"]
        return [start + list(self.setting.arguments) + self._program()]

    def _mpich(self):
        where = ["-n", str(self.ranks)]
        if not self.on_one_host():
            where += ["-launcher", "ssh", "-launcher-exec", os.environ["HOSTS_RSH"]]
            where += ["-hosts", ",".join(self.hosts()), "-ppn", str(self.per_host())]
        return [[str(PREFIX / "mpich/bin/mpirun"), *where, *self._program()]]

    def _impi(self):
        where = ["-hosts", "localhost", "-ppn", str(self.ranks)]
        if not self.on_one_host():  # over the hosts' sshd
            where = ["-bootstrap", "ssh", "-hosts", ",".join(self.hosts())]
            where += ["-ppn", str(self.per_host())]
        start = [str(PREFIX / "impi/bin/mpiexec.hydra"), *where, "-n", str(self.ranks)]
        return [start + self._program()]

    def _gloo(self):
        """It has no starter: every rank by itself, rank 0 last."""
        commands = []
        for rank in reversed(range(self.ranks)):
            variables = {
                "GLOO_SOCKET_IFNAME": "lo" if self.on_one_host() else "eth1",
                "PEER_MEETING_FILE": self.meeting_file,
                "PEER_RANK": str(rank),
                "PEER_RANKS": str(self.ranks),
                "PYTHONWARNINGS": "ignore",
            }
            command = ["env", *(f"{name}={value}" for name, value in variables.items())]
            command += [str(PREFIX / "gloo/bin/python"), str(ROOT / "perf/peers/gloo_rank.py")]
            command += [str(PROGRAMS / "peer-gloo.so"), *self.arguments]
            host = rank // self.per_host()
            if not self.on_one_host() and host > 0:
                command = [os.environ["HOSTS_RSH"], self.hosts()[host], *command]
            commands.append(command)
        return commands
