"""One rank over Gloo: gloo_rank.py LIBRARY ARGUMENTS... (started by measure.py).

Makes PyTorch's Gloo process group and calls peer_main in LIBRARY (peer_bench.cc and
gloo_backend.cc), which runs the same measurement as the other backends' programs. ctypes releases
Python's interpreter lock for the call.
"""

import ctypes
import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group(
    "gloo",
    init_method="file://" + os.environ["PEER_MEETING_FILE"],
    rank=int(os.environ["PEER_RANK"]),
    world_size=int(os.environ["PEER_RANKS"]),
)
os.environ["PEER_GLOO_GROUP"] = dist.group.WORLD.group_name
os.environ["PEER_TORCH_VERSION"] = torch.__version__
arguments = [argument.encode() for argument in ["peer-gloo", *sys.argv[2:]]]
status = ctypes.CDLL(sys.argv[1]).peer_main(
    len(arguments), (ctypes.c_char_p * (len(arguments) + 1))(*arguments, None)
)
dist.destroy_process_group()
sys.exit(status)
