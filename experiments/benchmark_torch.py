"""PyTorch's side of `experiments.benchmark`: its own modules, written as one would, and no TensorFlow in the process.

Started by `experiments.benchmark_turns` from this file, and by `experiments.gpu_turns`, which says "device": "cuda".
bfloat16 is `torch.autocast`, with float32 weights as ours has. Python does not wait for a GPU; a counted run does.
"""

import json
import resource
import sys
import time

import torch
from torch import nn


class LSTM(nn.Module):
    """Embedding, nn.LSTM, output matrix."""

    def __init__(self, row):
        super().__init__()
        self.embedding = nn.Embedding(row["vocabulary_size"], row["embedding_dim"])
        self.lstm = nn.LSTM(row["embedding_dim"], row["units"], row["num_layers"], batch_first=True)
        self.head = nn.Linear(row["units"], row["vocabulary_size"])

    def forward(self, ids):
        return self.head(self.lstm(self.embedding(ids))[0])


class Block(nn.Module):
    """nanoGPT's block: pre-norm, scaled_dot_product_attention, GELU."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.attention(self.first(x)).split(width, dim=2))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed_forward(self.second(x))


class GPT(nn.Module):
    """Embeddings of ids and positions, blocks, norm; the ids' embedding is the output matrix too."""

    def __init__(self, row):
        super().__init__()
        width = row["embedding_dim"]
        self.tokens = nn.Embedding(row["vocabulary_size"], width)
        self.positions = nn.Embedding(row["length"], width)
        self.blocks = nn.Sequential(*(Block(width, row["num_heads"]) for _ in range(row["num_layers"])))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        return nn.functional.linear(self.norm(self.blocks(x)), self.tokens.weight)


def training_step(row, device):
    """A function that does one."""
    model = {"lstm": LSTM, "transformer": GPT}[row["kind"]](row).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0, fused=True)
    x, y = torch.randint(row["vocabulary_size"], (2, row["batch_size"], row["length"]), device=device)
    half = torch.autocast(device, torch.bfloat16, enabled=row["precision"] == "bfloat16")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with half:
            logits = model(x)
        loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), y.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def attention_step(row, device):
    """A function that does causal attention forward and backward."""
    heads, length = row["num_heads"], row["length"]
    shape = (row["batch_size"], heads, length, row["embedding_dim"] // heads)
    dtype = getattr(torch, row["precision"])
    q, k, v = (torch.randn(shape, dtype=dtype, device=device, requires_grad=True) for _ in range(3))

    def step():
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return torch.autograd.grad(y.float().square().sum(), (q, k, v))

    return step


def wait(device):
    """Waits until the device has done all."""
    if device == "cuda":
        torch.cuda.synchronize()


def peak_megabytes(device) -> float:
    """The most memory that was in use: of the GPU, else of the process."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main():
    """Warms up, then counts when told to."""
    row = json.loads(sys.argv[1])
    device = row.get("device", "cpu")
    if device == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32, which is what JAX takes for float32
    step = (attention_step if row["kind"] == "attention" else training_step)(row, device)
    tokens = row["batch_size"] * row["length"]
    step()
    wait(device)
    begun = time.perf_counter()
    step()
    wait(device)
    steps = max(1, round(row["seconds"] / (time.perf_counter() - begun)))
    print(json.dumps({"version": torch.__version__, "threads": torch.get_num_threads()}), flush=True)
    for _ in sys.stdin:
        begun = time.perf_counter()
        for _ in range(steps):
            step()
        wait(device)
        speed = steps * tokens / (time.perf_counter() - begun)
        print(json.dumps({"tokens_per_second": speed, "peak_megabytes": peak_megabytes(device)}), flush=True)


if __name__ == "__main__":
    main()
