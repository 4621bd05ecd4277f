"""A rank of the peer: Python's DistributedDataParallel over Gloo, on the models of models.cc.

training.py starts it with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and GLOO_SOCKET_IFNAME set. It
prints what training-lab prints: the modes are `none` and `python`.
"""

import argparse
import json
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

SEQUENCE, VOCABULARY = 128, 256
ROWS = {"mlp": 256, "tensors": 16, "gpt10m": 4, "gpt85m": 2}
PARTS = ("step", "forward", "backward", "optimizer", "cpu")


class Mlp(nn.Module):
    def __init__(self, widths, bias):
        super().__init__()
        pairs = zip(widths, widths[1:])
        self.layers = nn.ModuleList(nn.Linear(a, b, bias=bias) for a, b in pairs)

    def forward(self, data, target):
        for layer in self.layers[:-1]:
            data = torch.relu(layer(data))
        return F.mse_loss(self.layers[-1](data), target)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.attended = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        rows, tokens, width = x.shape
        q, k, v = (
            part.view(rows, tokens, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.before_attention(x)).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attended(mixed.transpose(1, 2).reshape(rows, tokens, width))
        return x + self.down(F.gelu(self.up(self.before_mlp(x))))


class Gpt(nn.Module):
    def __init__(self, layers, width, heads):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(SEQUENCE, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, data, target):
        x = self.tokens(data) + self.positions(torch.arange(data.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, VOCABULARY), target.reshape(-1))


def make_model(workload):
    torch.manual_seed(1)
    if workload == "mlp":
        return Mlp([1024] * 9, bias=True)
    if workload == "tensors":
        return Mlp([64 if i % 2 == 0 else 128 for i in range(65)], bias=False)
    return Gpt(6, 384, 6) if workload == "gpt10m" else Gpt(12, 768, 12)


def make_batch(workload, rows, rank, step):
    random = torch.Generator().manual_seed(1_000_003 * (rank + 1) + step)
    if workload.startswith("gpt"):
        text = torch.randint(0, VOCABULARY, (rows, SEQUENCE + 1), generator=random)
        return text[:, :-1].contiguous(), text[:, 1:].contiguous()
    width = 1024 if workload == "mlp" else 64
    return tuple(torch.randn(rows, width, generator=random) for _ in range(2))


class Mode:
    def __init__(self, workload, distributed, bucket_mb):
        self.model = make_model(workload)
        if distributed:
            self.model = nn.parallel.DistributedDataParallel(
                self.model, bucket_cap_mb=bucket_mb, gradient_as_bucket_view=True
            )
        parameters = self.model.parameters()
        if workload.startswith("gpt"):
            self.optimizer = torch.optim.AdamW(parameters, lr=3e-4)
        else:
            self.optimizer = torch.optim.SGD(parameters, lr=0.01)

    def train(self, batch):
        cpu, begin = time.process_time(), time.perf_counter()
        self.optimizer.zero_grad()
        loss = self.model(*batch)
        forward = time.perf_counter()
        loss.backward()
        backward = time.perf_counter()
        self.optimizer.step()
        end = time.perf_counter()
        seconds = (
            end - begin,
            forward - begin,
            backward - forward,
            end - backward,
            time.process_time() - cpu,
        )
        return [1000 * value for value in seconds]


def mean_over_ranks(samples):
    values = torch.tensor(samples, dtype=torch.float64)
    dist.all_reduce(values)
    return (values / dist.get_world_size()).tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", default="mlp")
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--burst", type=int, default=2)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--bucket-mb", type=float, default=25)
    parser.add_argument("--json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, rows = dist.get_rank(), options.rows or ROWS[options.workload]
    names = ("none", "python")
    modes = [Mode(options.workload, name == "python", options.bucket_mb) for name in names]
    batches = [make_batch(options.workload, rows, rank, step) for step in range(4)]
    samples = {name: [] for name in names}
    for round_ in range(-options.warmup, options.rounds):
        order = (0, 1) if round_ % 2 == 0 else (1, 0)
        for which in order:
            dist.barrier()
            for step in range(options.burst):
                sample = modes[which].train(batches[step % 4])
                if round_ >= 0 and (step > 0 or options.burst == 1):
                    samples[names[which]].append(sample)
    result = {
        "workload": options.workload,
        "rows": rows,
        "ranks": dist.get_world_size(),
        "bucket_mb": options.bucket_mb,
        "samples": {},
    }
    for name in names:
        columns = zip(*mean_over_ranks(samples[name]))
        result["samples"][name] = {part: list(column) for part, column in zip(PARTS, columns)}
    if rank == 0:
        text = json.dumps(result)
        if options.json:
            with open(options.json, "w") as file:
                file.write(text + "\n")
        else:
            print(text)
    dist.barrier()
    os._exit(0)  # PyTorch's own shutdown may wait for the store of a rank that has ended


if __name__ == "__main__":
    main()
